"""A training run from its job file to its last checkpoint: what `meshwright train` does on every rank, and what it says about it.

A run is a folder: job.toml (what was run), metrics.jsonl (a line a step), step-NNNNNNNN/ (checkpoints), corpus.bin (the default text).
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..count.model import model_flops, parameters
from ..errors import BadInput
from ..formats.run_folder import metrics as metrics
from ..formats.toml import dump_job
from ..prediction import Prediction, predict
from ..spec.job import Job
from ..units import show
from . import checkpoint, corpus, heartbeat, replicas, rules, weights
from .data import File, Source, Synthetic
from .launch import RankFailed, fork_ranks, run_rank, under_launcher
from .loop import Trainer
from .record import Recording
from .settings import Settings

KIB = 1024
TELL_S = 5.0
"""Seconds between lines of progress."""


@dataclass(frozen=True)
class Plan:
    """What is run, and what was said before."""

    job: Job
    settings: Settings
    predicted: Prediction
    resume: Path | None
    """The checkpoint to go on from."""

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        return Path(self.settings.output)


def prepare(job: Job, settings: Settings, resume: bool, world: int | None) -> Plan:
    """Check everything that can be checked before ranks start; BadInput if the run is impossible or would write over another."""
    rules.demand(job, settings, world)
    found = checkpoint.complete(Path(settings.output))
    if found and not resume:
        raise BadInput(
            f"{settings.output} holds a run already ({found[-1].name}): --resume goes on with it, -o starts another"
        )
    if resume and not found and world is None:
        raise BadInput(f"{settings.output} holds no checkpoint to resume from")
    if found:
        metrics(Path(settings.output) / "metrics.jsonl")  # a damaged one is told before ranks start
    if settings.weights and not found:
        weights.check(Path(settings.weights), job.model)
    predicted = predict(job)
    rules.demand_memory(predicted, settings, world)
    return Plan(job, settings, predicted, found[-1] if found else None)


def train(job: Job, settings: Settings, resume: bool = False) -> dict[str, Any] | None:
    """Run a job to its end, on ranks of this machine or as the rank a launcher started; the summary (on the first rank)."""
    if not under_launcher():
        plan = prepare(job, settings, resume, None)
        write_job(plan)
        source(job, settings)  # makes the corpus once, and finds mistakes in a token file early
        fork(plan)
        return summary(plan)
    again = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    plan = prepare(job, settings, again, int(os.environ["WORLD_SIZE"]))
    run_rank(partial(work, plan), settings.device, settings.threads, settings.timeout)
    return summary(plan) if os.environ["RANK"] == "0" else None


def fork(plan: Plan) -> None:
    """Run the ranks on this machine; again from the newest checkpoint while a rank fails and `restarts` allows."""
    s = plan.settings
    for left in range(s.restarts or 0, -1, -1):
        try:
            return fork_ranks(partial(work, plan), int(plan.job.layout.chips), s.device, s.threads, s.timeout)
        except RankFailed as error:
            if not left or not error.again:
                raise
            found = checkpoint.complete(plan.folder)
            plan = replace(plan, resume=found[-1] if found else None)
            print(
                f"{error}; again from {found[-1].name if found else 'the first step'}, {left - 1} restarts left",
                file=sys.stderr,
            )
    return None


def write_job(plan: Plan) -> None:
    """Leave the description of the run in its folder."""
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
        (plan.folder / "job.toml").write_text(dump_job(plan.job), "utf-8")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"train.output {str(plan.folder)[:200]!r} cannot be written: {reason}") from None


def source(job: Job, settings: Settings) -> Source:
    """Where samples come from."""
    if settings.data == "synthetic":
        return Synthetic(job.model.vocab, job.T, settings.seed)
    path = Path(settings.data)
    if settings.data == "corpus":
        corpus.make(path := Path(settings.output) / "corpus")
    return File(path, job.model.vocab, job.T, settings.seed)


def batches(plan: Plan, trainer: Trainer, first: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(step, inputs, targets) of this rank, from step `first` on. Step s trains on samples s B .. s B + B - 1 of the run, under any layout."""
    job, layout, samples = plan.job, trainer.layout, source(plan.job, plan.settings)
    rows = job.batch // int(layout.dp)
    for step in range(first, plan.settings.steps):
        whole = torch.from_numpy(samples.samples(step * job.batch + trainer.mesh.replica * rows, rows))
        x, y = (
            part.chunk(int(layout.cp), 1)[trainer.mesh.index("cp")].contiguous()
            for part in (whole[:, :-1], whole[:, 1:])
        )
        yield step, x, y


def work(plan: Plan, device: torch.device) -> None:
    """What every rank does."""
    stop = Stop()
    heartbeat.beat("starting")
    if dist.get_rank() == 0:
        write_job(plan)
    trainer = Trainer(plan.job, plan.settings, device)
    resume = checkpoint.agreed(plan.folder, plan.resume)
    first = checkpoint.load(trainer, resume) if resume else 0
    if plan.settings.weights and not resume:
        weights.load(trainer.stages, plan.job.model, Path(plan.settings.weights))
    log, s, done = Log(plan, first), plan.settings, first
    saver = checkpoint.Saver(trainer, plan.folder, s.keep, s.async_save)
    recording = Recording(plan.folder, trainer, first)
    for step, x, y in recording.data(batches(plan, trainer, first)):
        heartbeat.beat(f"step {step + 1}")
        began, cpu = time.perf_counter(), time.process_time()
        with recording.step(step):
            result = trainer.step(step, x, y)
        spent = usage(time.process_time() - cpu, stop, device)
        done = step + 1
        if s.check_every and done % s.check_every == 0:
            replicas.check(trainer.stages, step)
        log.write(done, vars(result), time.perf_counter() - began, spent)
        stopping = spent["stop"] > 0
        if stopping or done == s.steps or (s.save_every and done % s.save_every == 0):
            heartbeat.beat(f"checkpoint after step {done}")
            log.sync()
            saver.save(done)
        saver.check()
        if stopping:
            break
    heartbeat.beat("last checkpoint")
    saver.wait()
    log.close()


class Stop:
    """SIGTERM: finish the step, save, end."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self.ask)

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Remember it; all ranks hear of it at the end of the step."""
        self.asked = True


def usage(cpu_s: float, stop: Stop, device: torch.device) -> dict[str, float]:
    """Summed over all ranks: CPU seconds of the step, largest resident bytes so far, and how many were asked to stop."""
    peak = (
        torch.cuda.max_memory_allocated()
        if device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    )
    sums = torch.tensor([cpu_s, float(peak), float(stop.asked)], dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return dict(zip(("cpu", "memory", "stop"), sums.tolist(), strict=True))


class Log:
    """metrics.jsonl and progress on stderr; on rank 0 only."""

    def __init__(self, plan: Plan, first: int) -> None:
        self.plan, self.told, self.file = plan, 0.0, None
        if dist.get_rank():
            return
        path = plan.folder / "metrics.jsonl"
        kept = [
            json.dumps(row) for row in metrics(path) if row["step"] <= first
        ]  # what came after the checkpoint is done again
        fresh = path.with_suffix(".part")
        fresh.write_text("".join(line + "\n" for line in kept), "utf-8")
        fresh.replace(path)  # whoever is killed here loses no row
        self.file = path.open("a", encoding="utf-8", buffering=1)
        layout = plan.job.layout
        axes = " ".join(
            f"{axis} {getattr(layout, axis)}"
            for axis in ("tp", "cp", "pp", "dp", "ep")[: 5 if plan.job.model.moe else 4]
        )
        self.say(f"{plan.job.model.name}: {parameters(plan.job.model):,.0f} parameters on {layout.chips} ranks ({axes}), {plan.settings.steps} steps"
                 + (f", resumed after step {first}" if first else ""))  # fmt: skip

    def write(self, done: int, result: dict[str, float | None], seconds: float, spent: dict[str, float]) -> None:
        """One step. What is not finite becomes null: NaN is not JSON."""
        if not self.file:
            return
        job, predicted = self.plan.job, self.plan.predicted.step_time_s
        rate = job.batch_tokens / seconds
        peak = job.cluster.chip.peak(job.precision.compute) * float(job.layout.chips)
        said = {name: None if value is None or not math.isfinite(value) else value for name, value in result.items()}
        row = {
            "step": done, **said, "step_time_s": seconds, "predicted_step_time_s": predicted, "tokens_per_s": rate,
            "mfu": rate * model_flops(job.model, job.T) / peak, "cpu_s": spent["cpu"], "memory_bytes": spent["memory"],
        }  # fmt: skip
        self.file.write(json.dumps(row) + "\n")
        if time.monotonic() - self.told > TELL_S or done == self.plan.settings.steps:
            self.told = time.monotonic()
            self.say(f"step {done}/{self.plan.settings.steps}  loss {digits(row['loss'])}  {rate:,.0f} tokens/s  MFU {row['mfu']:.1%}  "
                     f"{show(seconds, 's')} a step (predicted {show(predicted, 's')})  {show(spent['memory'], 'GiB')}")  # fmt: skip

    def sync(self) -> None:
        """On the disk before a checkpoint is: no row of a step that a checkpoint has done is ever missing."""
        if self.file:
            os.fsync(self.file.fileno())

    def say(self, line: str) -> None:
        """One line of progress."""
        print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """The end of the run."""
        if self.file:
            self.file.close()


def summary(plan: Plan) -> dict[str, Any]:
    """What the run came to, from its metrics. Times are medians; the first step, which sets things up, does not count."""
    rows = metrics(plan.folder / "metrics.jsonl")
    later = rows[1:] or rows
    found = checkpoint.complete(plan.folder)
    return {
        "steps": rows[-1]["step"] if rows else 0,
        "first_loss": rows[0]["loss"] if rows else None,
        "last_loss": rows[-1]["loss"] if rows else None,
        **{key: median(row[key] for row in later) if later else None for key in ("step_time_s", "tokens_per_s", "mfu", "cpu_s", "memory_bytes")},
        "predicted_step_time_s": plan.predicted.step_time_s,
        "checkpoint": str(found[-1]) if found else None,
        "output": str(plan.folder),
    }  # fmt: skip


def digits(loss: float | None) -> str:
    """A loss for people."""
    return "not a number" if loss is None else f"{loss:.4f}"


def overridden(settings: Settings, **given: Any) -> Settings:
    """The settings with those of the command line that were given."""
    return replace(settings, **{name: value for name, value in given.items() if value is not None})
