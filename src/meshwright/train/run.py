"""A training run from its job file to its last checkpoint: what `meshwright train` does on every
rank, and what it says about it.

A run is a folder: job.toml (what was run), attempts.jsonl (a line each time it began or went on),
metrics.jsonl (a line a step), step-NNNNNNNN/ (checkpoints), corpus.bin (the default text), run.lock
(who trains in it).
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from ..describe.job import Job
from ..describe.training import Settings
from ..errors import BadInput, MeshwrightError
from ..formats.records import comparable_rows
from ..formats.run_folder import attempts
from ..formats.run_folder import metrics as metrics
from ..prediction.prediction import Prediction, predict
from . import attempt, checkpoint, registry, rules, weights
from .attempt import RunPlan, is_files
from .feed import end_token, of_evaluation, source
from .generate import generate, of_run
from .guard import Lock
from .launch import (
    RankFailed,
    environment,
    fork_ranks,
    run_rank,
    under_launcher,
)
from .log import kept_on_disk, writer
from .session import work
from .texts import token_decoder
from .watchdog import record_flights


def _demand(job: Job, settings: Settings, world: int | None) -> Prediction:
    """Check everything that does not depend on the run's folder; BadInput if the run is
    impossible.
    """
    rules.demand(job, settings, world)
    registry.demand(settings)
    predicted = predict(job)
    rules.demand_memory(predicted, settings, world)
    return predicted


def _prepare(
    job: Job,
    settings: Settings,
    predicted: Prediction,
    resume: bool,
    allowed: tuple[str, ...] = (),
) -> RunPlan:
    """What to go on from, and what was changed; BadInput if the run would write over another, or
    would not be the same.
    """
    folder = Path(settings.output)
    steps = checkpoint.complete(folder)
    if steps and not resume:
        raise BadInput(
            f"{folder} holds a run already ({steps[-1].name}): --resume continues it, -o starts"
            " another"
        )
    if steps:
        # a damaged one is told before ranks start
        metrics(folder / "metrics.jsonl")
    if settings.weights and not steps:
        weights.check(Path(settings.weights), job.model)
    # makes the corpus once, and finds mistakes in token files early
    source(job, settings)
    end_token(settings)
    if settings.tensorboard:
        writer()
    if settings.eval_every:
        of_evaluation(job, settings)
    # hashes large files before ranks wait for it
    attempt.batch_order(job, settings)
    notice = (
        attempt.demand_same(folder, job, settings, allowed) if steps else None
    )
    plan = RunPlan(
        job,
        settings,
        predicted,
        resume=steps[-1] if steps else None,
        allowed=allowed,
    )
    if plan.finished:
        last, _, damage = checkpoint.newest_sound(
            steps, checkpoint.sound_index
        )
        plan = replace(plan, resume=last)
        done = checkpoint.steps_of(last)
        notice = f"nothing is left to do: {folder} has done {done} of {settings.steps} steps"
        if damage:
            notice = f"{damage}; {last.name} is sound, after {done} of {settings.steps} steps"
    for sentence in filter(None, (notice, settings.warning)):
        print(sentence, file=sys.stderr)
    return plan


def train(
    job: Job,
    settings: Settings,
    resume: bool = False,
    allowed: tuple[str, ...] = (),
) -> dict[str, Any] | None:
    """Run a job to its end, on ranks of this machine or as the rank a launcher started; the summary
    (on the first rank).

    allowed: what of `attempt.ORDER` a resumed run may change.
    """
    job = job.filled
    record_flights(Path(settings.output))
    environment(settings.device, settings.deterministic)
    if under_launcher():
        return launched(job, settings, resume, allowed)
    predicted = _demand(job, settings, None)
    folder = Path(settings.output)
    if resume and not checkpoint.complete(folder):
        raise BadInput(f"{folder} holds no checkpoint to resume from")
    with Lock(folder):
        plan = _prepare(
            job,
            settings=settings,
            predicted=predicted,
            resume=resume,
            allowed=allowed,
        )
        if not plan.finished:
            fork(plan)
            leave(plan, alone=True)
        return summary(plan)


def launched(
    job: Job, settings: Settings, resume: bool, allowed: tuple[str, ...]
) -> dict[str, Any] | None:
    """Run as the rank that torchrun, or a script like it, has started. The first rank has the
    folder, and says what is done with it.
    """
    count = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    predicted = _demand(job, settings, int(os.environ["WORLD_SIZE"]))
    plans: list[RunPlan] = []
    refused: list[MeshwrightError] = []

    def owning(device: torch.device) -> None:
        with ExitStack() as stack:

            def prepared() -> RunPlan:
                stack.enter_context(Lock(Path(settings.output), count))
                return _prepare(
                    job,
                    settings=settings,
                    predicted=predicted,
                    resume=resume or count > 0,
                    allowed=allowed,
                )

            try:
                plans.append(checkpoint.from_first(prepared))
            except MeshwrightError as error:
                # raised when the group has ended in order: a rank that leaves alone aborts others
                refused.append(error)
                return
            if not plans[0].finished:
                work(plans[0], device)
            dist.barrier()  # the folder is ours until the last rank is done with it

    s = settings
    run_rank(
        owning,
        device=s.device,
        threads=s.threads,
        timeout_s=s.timeout,
    )
    if refused:
        raise refused[0]
    if os.environ["RANK"] != "0":
        return None
    if not plans[0].finished:
        leave(plans[0], alone=False)
    return summary(plans[0])


def fork(plan: RunPlan) -> None:
    """Run the ranks on this machine; again from the newest checkpoint while a rank fails and
    `restarts` allows.
    """
    s = plan.settings
    for left in range(s.restarts or 0, -1, -1):
        try:
            return fork_ranks(
                partial(work, plan),
                world=int(plan.job.layout.chips),
                device=s.device,
                threads=s.threads,
                timeout_s=s.timeout,
            )
        except KeyboardInterrupt:
            print(
                f"interrupted: {checkpoint.newest(plan.folder)}; --resume goes on from one, SIGTERM"
                " saves before it ends",
                file=sys.stderr,
            )
            raise
        except RankFailed as error:
            checkpoint.clean(plan.folder)  # all ranks are gone
            if not left or not error.again:
                raise
            steps = checkpoint.complete(plan.folder)
            plan = replace(plan, resume=steps[-1] if steps else None)
            print(
                f"{error}; again from {steps[-1].name if steps else 'the first step'}, {left - 1}"
                " restarts left",
                file=sys.stderr,
            )
    return None


def summary(plan: RunPlan) -> dict[str, Any]:
    """What the run came to, from its metrics. Seconds are medians over the steps of the newest
    layout (`records.comparable_rows`).
    """
    rows = metrics(plan.folder / "metrics.jsonl")
    steps = checkpoint.complete(plan.folder)
    timed = comparable_rows(rows, attempts(plan.folder))
    columns = ("step_time_s", "tokens_per_s", "mfu", "cpu_s", "memory_bytes")
    return {
        "steps": rows[-1]["step"] if rows else 0,
        "first_loss": rows[0].get("loss") if rows else None,
        "last_loss": rows[-1].get("loss") if rows else None,
        "eval_loss": next(
            (row["eval_loss"] for row in rows[::-1] if row.get("eval_loss")),
            None,
        ),
        **{
            key: median(row[key] for row in timed) if timed else None
            for key in columns
        },
        "timed_steps": len(timed),
        "skipped": rows[-1].get("skipped", 0) if rows else 0,
        "predicted_step_time_s": (
            timed[-1]["predicted_step_time_s"]
            if timed
            else plan.predicted.step_time_s
        ),
        **sampled(plan),
        "own_model": plan.settings.own_model,
        "checkpoint": str(steps[-1]) if steps else None,
        "output": str(plan.folder),
    }


PICTURE = "loss.svg"
SAMPLE = "sample.txt"
PROMPT = 24
"""Tokens of the data that a sample goes on from."""


def leave(plan: RunPlan, alone: bool) -> None:
    """Write them into the folder of the run. alone: this process forks its ranks, so it must not
    compute itself.
    """
    picture(plan)
    if plan.settings.sample and not is_files(plan.settings):
        print(
            f"no sample: data {plan.settings.data} is no text", file=sys.stderr
        )
    elif plan.settings.sample:
        write = partial(sample, plan)
        if alone:
            fork_ranks(write, 1, threads=plan.settings.threads)
        else:
            write(torch.device("cpu"))


def picture(plan: RunPlan) -> None:
    """The losses; where matplotlib is not installed, a line that says so."""
    rows = metrics(plan.folder / "metrics.jsonl")
    if not any(row.get("loss") is not None for row in rows):
        return
    try:
        from ..report.losses import losses
        from ..report.plots import image
    except ImportError:
        print(
            f"no picture of the losses: pip install 'meshwright[plot]' draws {PICTURE}",
            file=sys.stderr,
        )
        return
    figure = losses(rows, plan.job.model.name)
    try:
        (plan.folder / PICTURE).write_bytes(image(figure, ".svg"))
    except OSError as error:  # the run is done all the same
        print(
            f"no picture of the losses: {PICTURE} cannot be written: {error.strerror}",
            file=sys.stderr,
        )


def sample(plan: RunPlan, device: torch.device) -> None:
    """Text from the newest checkpoint."""
    s = plan.settings
    text = generate(
        plan.folder,
        prompt(plan),
        count=s.sample or 0,
        temperature=0.8,
        own_model=s.own_model,
    )
    with kept_on_disk(path := plan.folder / SAMPLE):
        path.write_text(text["text"], "utf-8")


def prompt(plan: RunPlan) -> str:
    """The first words of the first sample, of those that are not trained on where there are any."""
    kind = of_evaluation if plan.settings.eval_every else source
    [first] = kind(plan.job, plan.settings).samples(0, 1)
    return token_decoder(of_run(plan.folder))([int(i) for i in first[:PROMPT]])


def sampled(plan: RunPlan) -> dict[str, str | None]:
    """The sample that was written, and what it goes on from."""
    path = plan.folder / SAMPLE
    if not plan.settings.sample or not path.exists():
        return {"sample": None, "prompt": None}
    return {"sample": path.read_text("utf-8"), "prompt": prompt(plan)}
