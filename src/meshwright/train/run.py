"""A training run from its job file to its last checkpoint: what `meshwright train` does on every
rank, and what it says about it.

A run is a folder: job.toml (what was run), attempts.jsonl (a line each time it began or went on),
metrics.jsonl (a line a step), step-NNNNNNNN/ (checkpoints), corpus.bin (the default text), run.lock
(who trains in it).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ..describe.job import Job
from ..errors import BadInput, MeshwrightError
from ..formats.records import alike
from ..formats.run_folder import attempts
from ..formats.run_folder import metrics as metrics
from ..prediction.prediction import Prediction, predict
from . import (
    attempt,
    checkpoint,
    corpus,
    data,
    heartbeat,
    replicas,
    rules,
    weights,
)
from .data import Held, Source, Synthetic, opened
from .evaluate import Batch, evaluate
from .launch import RankFailed, fork_ranks, run_rank, under_launcher
from .lock import Lock
from .log import Log, Spans, Stop, usage
from .loop import Trainer
from .record import Recording
from .settings import Settings

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What is run, and what was said before."""

    job: Job
    settings: Settings
    predicted: Prediction
    resume: Path | None
    """The checkpoint to go on from."""
    allowed: tuple[str, ...] = ()
    """What of `attempt.ORDER` a resumed run may change."""

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        return Path(self.settings.output)

    @property
    def finished(self) -> bool:
        """Nothing is left to do."""
        return (
            self.resume is not None
            and checkpoint.steps_of(self.resume) >= self.settings.steps
        )


def demand(job: Job, settings: Settings, world: int | None) -> Prediction:
    """Check everything that does not depend on the run's folder; BadInput if the run is
    impossible.
    """
    rules.demand(job, settings, world)
    predicted = predict(job)
    rules.demand_memory(predicted, settings, world)
    return predicted


def prepare(
    job: Job,
    settings: Settings,
    predicted: Prediction,
    resume: bool,
    allowed: tuple[str, ...] = (),
) -> Plan:
    """What to go on from, and what was changed; BadInput if the run would write over another, or
    would not be the same.
    """
    folder = Path(settings.output)
    found = checkpoint.complete(folder)
    if found and not resume:
        raise BadInput(
            f"{folder} holds a run already ({found[-1].name}): --resume goes on with it, -o starts"
            " another"
        )
    if found:
        # a damaged one is told before ranks start
        metrics(folder / "metrics.jsonl")
    if settings.weights and not found:
        weights.check(Path(settings.weights), job.model)
    # makes the corpus once, and finds mistakes in token files early
    source(job, settings)
    end_token(settings)
    if settings.eval_every:
        of_evaluation(job, settings)
    told = (
        attempt.demand_same(folder, job, settings, allowed) if found else None
    )
    plan = Plan(
        job, settings, predicted, found[-1] if found else None, allowed
    )
    if plan.finished:
        done = checkpoint.steps_of(found[-1])
        told = f"nothing is left to do: {folder} has done {done} of {settings.steps} steps"
    if told:
        print(told, file=sys.stderr)
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
    if under_launcher():
        return launched(job, settings, resume, allowed)
    predicted = demand(job, settings, None)
    folder = Path(settings.output)
    if resume and not checkpoint.complete(folder):
        raise BadInput(f"{folder} holds no checkpoint to resume from")
    with Lock(folder):
        plan = prepare(job, settings, predicted, resume, allowed)
        if not plan.finished:
            fork(plan)
        return summary(plan)


def launched(
    job: Job, settings: Settings, resume: bool, allowed: tuple[str, ...]
) -> dict[str, Any] | None:
    """As the rank that torchrun, or a script like it, has started. The first rank has the folder,
    and says what is done with it.
    """
    count = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    predicted = demand(job, settings, int(os.environ["WORLD_SIZE"]))
    plans: list[Plan] = []

    def owning(device: torch.device) -> None:
        with ExitStack() as stack:
            plan: Plan | None = None
            words: list[Any] = [None, None]
            try:
                if dist.get_rank() == 0:
                    stack.enter_context(Lock(Path(settings.output), count))
                    plan = prepare(
                        job, settings, predicted, resume or count > 0, allowed
                    )
                    words = [None, plan.resume and plan.resume.name]
            except MeshwrightError as error:
                words = [str(error), None]
            dist.broadcast_object_list(words, src=0)
            if words[0]:
                raise BadInput(words[0])
            newest = Path(settings.output) / words[1] if words[1] else None
            plans.append(
                plan or Plan(job, settings, predicted, newest, allowed)
            )
            if not plans[0].finished:
                work(plans[0], device)
            dist.barrier()  # the folder is ours until the last rank is done with it

    run_rank(owning, settings.device, settings.threads, settings.timeout)
    return summary(plans[0]) if os.environ["RANK"] == "0" else None


def fork(plan: Plan) -> None:
    """Run the ranks on this machine; again from the newest checkpoint while a rank fails and
    `restarts` allows.
    """
    s = plan.settings
    for left in range(s.restarts or 0, -1, -1):
        try:
            return fork_ranks(
                partial(work, plan),
                int(plan.job.layout.chips),
                s.device,
                s.threads,
                s.timeout,
            )
        except RankFailed as error:
            if not left or not error.again:
                raise
            found = checkpoint.complete(plan.folder)
            plan = replace(plan, resume=found[-1] if found else None)
            print(
                f"{error}; again from {found[-1].name if found else 'the first step'}, {left - 1}"
                " restarts left",
                file=sys.stderr,
            )
    return None


def source(job: Job, settings: Settings) -> Source:
    """Where samples come from."""
    if settings.data == "synthetic":
        return Synthetic(job.model.vocab, job.T, settings.seed)
    return opened(
        tokens(settings),
        job.model.vocab,
        job.T,
        settings.seed,
        held_out(job, settings),
    )


def tokens(settings: Settings) -> str:
    """The token files; the default one is made if it is not there yet."""
    if settings.data != "corpus":
        return settings.data
    corpus.make(path := Path(settings.output) / "corpus")
    return str(path)


def held_out(job: Job, settings: Settings) -> int:
    """Samples at the end of the data that are not trained on."""
    apart = settings.eval_data is not None or settings.data == "synthetic"
    return (
        0
        if apart or not settings.eval_every
        else settings.eval_batches * job.batch
    )


def of_evaluation(job: Job, settings: Settings) -> Source:
    """Where the samples of evaluations come from: the same ones each time."""
    m, s = job.model, settings
    if s.eval_data is not None:
        return Held(opened(s.eval_data, m.vocab, job.T, s.seed))
    if s.data == "synthetic":
        return Synthetic(m.vocab, job.T, s.seed + 1)
    return Held(opened(tokens(s), m.vocab, job.T, s.seed, held_out(job, s)))


def batches(
    plan: Plan, trainer: Trainer, first: int
) -> Iterator[tuple[int, Batch]]:
    """(step, batch) of this rank, from step `first` on. Step s trains on samples s B .. s
    B + B - 1 of the run, under any layout.
    """
    samples, ends = source(plan.job, plan.settings), end_token(plan.settings)
    for step in range(first, plan.settings.steps):
        yield step, batch(trainer, samples, step, ends)


def prefetched(source: Iterator[T]) -> Iterator[T]:
    """What a source gives; a thread gets the next while this one is worked on."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, source, None)
        while (found := coming.result()) is not None:
            coming = pool.submit(next, source, None)
            yield found


def batch(
    trainer: Trainer, samples: Source, number: int, ends: int | None
) -> Batch:
    """This rank's part of a batch. ends: the token after each document, if documents are not to see
    each other.
    """
    rows = trainer.job.batch // int(trainer.layout.dp)
    first = number * trainer.job.batch + trainer.mesh.replica * rows
    found = samples.samples(first, rows)
    x, y = trainer.share(torch.from_numpy(found))
    if trainer.device.type == "cuda":
        x, y = x.pin_memory(), y.pin_memory()
    return x, y, ((0,),) if ends is None else data.begins(found[:, :-1], ends)


def end_token(settings: Settings) -> int | None:
    """The token after each document, where documents are kept apart."""
    if not settings.documents:
        return None
    if settings.data == "synthetic":
        raise BadInput(
            "train.documents needs documents: data synthetic has none"
        )
    return data.end_of(tokens(settings))


def evaluation(plan: Plan, trainer: Trainer) -> float:
    """The loss on what is not trained on."""
    samples, count = (
        of_evaluation(plan.job, plan.settings),
        plan.settings.eval_batches,
    )
    ends = end_token(plan.settings)
    return evaluate(
        trainer,
        (batch(trainer, samples, number, ends) for number in range(count)),
    )


def work(plan: Plan, device: torch.device) -> None:
    """What every rank does."""
    stop = Stop()
    heartbeat.beat("starting")
    if device.type == "cuda":
        total = float(torch.cuda.get_device_properties(device).total_memory)
        rules.demand_room(plan.predicted, plan.settings, total, "this GPU")
    trainer = Trainer(plan.job, plan.settings, device, fresh=draws(plan))
    first = (
        checkpoint.resume(trainer, plan.resume, plan.allowed)
        if plan.resume
        else 0
    )
    if plan.settings.weights and not plan.resume:
        weights.load(
            trainer.stages, plan.job.model, Path(plan.settings.weights)
        )
    log, s, done = Log(plan, first), plan.settings, first
    saver = checkpoint.Saver(
        trainer, plan.folder, s.keep, s.async_save, s.keep_every
    )
    recording, spans = Recording(plan.folder, trainer, first), Spans()
    for step, (x, y, documents) in recording.data(
        spans.of("data_s", prefetched(batches(plan, trainer, first)))
    ):
        heartbeat.beat(f"step {step + 1}")
        began, cpu = time.perf_counter(), time.process_time()
        with recording.step(step):
            trainer.pack(documents)
            result = trainer.step(step, x, y)
        if step == first:  # before ranks meet again, and write records
            recording.give_up_old()
            log.begin()
        spent = usage(time.process_time() - cpu, stop, device)
        done = step + 1
        seconds = time.perf_counter() - began
        if s.check_every and done % s.check_every == 0:
            replicas.check(trainer.stages, step)
        last = spent["stop"] > 0 or done == s.steps
        said = vars(result)
        if s.eval_every and (last or due(done, s.eval_every)):
            with spans.span("eval_s"):
                said = {**said, "eval_loss": evaluation(plan, trainer)}
        saves = last or due(done, s.save_every) or due(done, s.keep_every)
        log.write(done, said, seconds, spent, spans.taken())
        demand_numbers(trainer, plan, saver, done)
        if saves:
            heartbeat.beat(f"checkpoint after step {done}")
            log.sync()
            with spans.span("checkpoint_s"):
                saver.save(done)
        saver.check()
        if spent["stop"] > 0:
            break
    heartbeat.beat("last checkpoint")
    saver.wait()
    log.close()


def draws(plan: Plan) -> bool:
    """Whether first weights are drawn: nothing else fills them, or not the rows that pad the
    vocabulary.
    """
    m = plan.job.model
    imported = plan.settings.weights is not None and m.padded_vocab == m.vocab
    return not (plan.resume or imported)


def due(done: int, every: int | None) -> bool:
    """Whether what is done every so many steps is to be done after this one."""
    return bool(every) and done % (every or 1) == 0


def demand_numbers(
    trainer: Trainer, plan: Plan, saver: checkpoint.Saver, done: int
) -> None:
    """Raise NotFinite, on all ranks, when so many updates in a row were skipped that the run is
    beyond help.

    A checkpoint that is still being written is finished first: it is the last sound one.
    """
    most, skipped = plan.settings.max_skipped, trainer.scaler.in_a_row
    if most is not None and skipped >= most:
        saver.wait()
        raise checkpoint.NotFinite(
            f"the gradients or the loss were not finite in {skipped} steps one after the other, up"
            f" to step {done}: the run ends (train.max_skipped); {checkpoint.newest(plan.folder)};"
            " a smaller train.lr, or train.clip, may help"
        )


def summary(plan: Plan) -> dict[str, Any]:
    """What the run came to, from its metrics. Seconds are medians over the steps of the newest
    layout (`records.alike`).
    """
    rows, found = (
        metrics(plan.folder / "metrics.jsonl"),
        checkpoint.complete(plan.folder),
    )
    timed = alike(rows, attempts(plan.folder))
    columns = ("step_time_s", "tokens_per_s", "mfu", "cpu_s", "memory_bytes")
    return {
        "steps": rows[-1]["step"] if rows else 0,
        "first_loss": rows[0]["loss"] if rows else None,
        "last_loss": rows[-1]["loss"] if rows else None,
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
        "checkpoint": str(found[-1]) if found else None,
        "output": str(plan.folder),
    }


def overridden(settings: Settings, **given: Any) -> Settings:
    """The settings with those of the command line that were given."""
    return replace(
        settings,
        **{name: value for name, value in given.items() if value is not None},
    )
