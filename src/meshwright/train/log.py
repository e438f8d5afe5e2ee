"""What a run says while it trains: metrics.jsonl, TensorBoard and other loggers, progress on
stderr, and how its ranks fare.
"""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import torch
import torch.distributed as dist

from ..count.model import model_flops, parameters
from ..formats import write_whole
from ..formats.run_folder import metrics
from ..units import show
from . import attempt, registry
from .checkpoint import SaveFailed
from .data import batch_of
from .record import peak_bytes

if TYPE_CHECKING:
    from .attempt import RunPlan
from pathlib import Path

from ..errors import BadInput

TELL_S = 5.0
"""Seconds between lines of progress."""


class Stop:
    """SIGTERM: finish the step, save, end."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self.ask)

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Remember it; all ranks hear of it at the end of the step."""
        self.asked = True


class Usage:
    """What each rank says of itself in the one message of a step that all ranks share: CPU seconds
    since the last such message (of steps, not of what is between them), largest resident bytes so
    far, each rank's in a place of its own, and whether it was asked to stop.
    """

    def __init__(self, stop: Stop, device: torch.device) -> None:
        self.stop, self.device = stop, device
        self.spent, self.since = 0.0, 0.0

    @contextmanager
    def step(self) -> Iterator[None]:
        """A context whose CPU seconds count."""
        self.since = time.process_time()
        yield
        self.spent += time.process_time() - self.since

    def numbers(self) -> list[float]:
        """Numbers of this rank inside a step."""
        now = time.process_time()
        cpu_s, self.spent = self.spent + now - self.since, 0.0
        self.since = now
        bytes_of_ranks = [0.0] * dist.get_world_size()
        bytes_of_ranks[dist.get_rank()] = float(peak_bytes(self.device))
        return [cpu_s, float(self.stop.asked), *bytes_of_ranks]


def of_all(sums: Sequence[float]) -> dict[str, float]:
    """What the sums of `Usage.numbers` over all ranks say."""
    cpu, asked, *every = sums
    return {
        "cpu": cpu,
        "stop": asked,
        "memory": sum(every),
        "fullest": max(every),
    }


class Spans:
    """Where the time between the ends of two steps goes, beside the step: on this rank."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("data_s", "checkpoint_s", "eval_s"), 0.0)
        self.since = time.perf_counter()

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """A context whose time is of this kind."""
        began = time.perf_counter()
        yield
        self.seconds[kind] += time.perf_counter() - began

    def taken(self) -> dict[str, float]:
        """Seconds since the last call, whole and by kind."""
        now = time.perf_counter()
        spans = {"elapsed_s": now - self.since, **self.seconds}
        self.since, self.seconds = now, dict.fromkeys(self.seconds, 0.0)
        return spans


@contextmanager
def kept_on_disk(path: Path) -> Iterator[None]:
    """A context that writes; SaveFailed names the file that could not be, this one or another."""
    try:
        yield
    except OSError as error:
        why = error.strerror or errno.errorcode.get(
            error.errno or 0, str(error)
        )
        raise SaveFailed(
            f"{error.filename or path} could not be written: {why}; checkpoints are as they were"
        ) from None


class RunLog:
    """metrics.jsonl and progress on stderr; on rank 0 only."""

    def __init__(self, plan: RunPlan, first: int) -> None:
        """Nothing is written before `begin`."""
        self.plan, self.first, self.last_line_s = plan, first, 0.0
        self.file: TextIO | None = None
        self.boards: list[Any] = []
        self.attempt = 0
        self.skipped: float | None = None
        self.elapsed = 0.0
        """Seconds of the steps of this attempt, with all that was between them."""
        layout = plan.job.layout
        axes = " ".join(
            f"{axis} {getattr(layout, axis)}"
            for axis in ("tp", "cp", "pp", "dp", "ep")[
                : 5 if plan.job.model.moe else 4
            ]
        )
        resumed = f", resumed after step {first}" if first else ""
        ranks = "1 rank" if layout.chips == 1 else f"{layout.chips} ranks"
        self.say(
            f"{plan.job.model.name}: {parameters(plan.job.model):,.0f} parameters on {ranks}"
            f" ({axes}), {plan.settings.steps} steps{resumed}"
        )

    def begin(self) -> None:
        """The first step is done: from now on the folder is a record of this attempt.

        Rows of steps that came after its checkpoint are given up, for they are done again.
        """
        if dist.get_rank():
            return
        folder = self.plan.folder
        path = folder / "metrics.jsonl"
        kept = [
            json.dumps(row)
            for row in metrics(path)
            if row["step"] <= self.first
        ]
        text = "".join(line + "\n" for line in kept)
        job = self.plan.job
        settings = self.plan.settings
        with kept_on_disk(path):
            write_whole(path, text)  # whoever is killed here loses no row
            self.file = path.open("a", encoding="utf-8", buffering=1)
            self.attempt = attempt.begin(folder, job, settings, self.first)
        if settings.tensorboard:
            self.boards.append(EventFile(folder, self.first))
        if settings.logger:
            logger = registry.imported_part("logger", settings.logger)
            self.boards.append(logger(folder=folder, first=self.first))

    def write(
        self,
        done: int,
        result: Mapping[str, float | None],
        seconds: float,
        spent: dict[str, float],
        spans: Mapping[str, float],
    ) -> None:
        """One step. What is not finite becomes null: NaN is not JSON. Tokens/s and MFU are of all
        the time since the last step (`spans`), in which data came and checkpoints were begun.
        """
        if not self.file:
            return
        job = self.plan.job
        predicted = self.plan.predicted.step_time_s
        sequences = batch_of(job, self.plan.settings, done - 1)
        rate = sequences * job.T / spans["elapsed_s"]
        peak = job.cluster.chip.peak(job.precision.compute) * float(
            job.layout.chips
        )
        said = {
            name: None if value is None or not math.isfinite(value) else value
            for name, value in result.items()
        }
        row: dict[str, Any] = {
            "step": done,
            "attempt": self.attempt,
            "sequences": sequences,
            **said,
            "step_time_s": seconds,
            "predicted_step_time_s": predicted,
            **spans,
            "tokens_per_s": rate,
            "mfu": rate * model_flops(job.model, job.T) / peak,
            "cpu_s": spent["cpu"],
            "memory_bytes": spent["memory"],
            "fullest_rank_bytes": spent["fullest"],
        }
        with kept_on_disk(self.plan.folder / "metrics.jsonl"):
            self.file.write(json.dumps(row) + "\n")
        for board in self.boards:
            board.write(row)
        self.say_if_skipped(row)
        ends = done == self.plan.settings.steps
        evaluated = "eval_loss" in row
        self.elapsed += spans["elapsed_s"]
        if time.monotonic() - self.last_line_s > TELL_S or ends or evaluated:
            self.last_line_s = time.monotonic()
            self.say(self.progress(row))

    def progress(self, row: Mapping[str, Any]) -> str:
        """A line for people. The time that is left is that of the mean step of this attempt."""
        done = row["step"]
        steps = self.plan.settings.steps
        held_out = (
            f" (held out {digits(row['eval_loss'])})"
            if "eval_loss" in row
            else ""
        )
        mean = self.elapsed / (done - self.first)
        time_s = (
            f"{show(mean * (steps - done), 's')} left"
            if done < steps
            else f"{show(self.elapsed, 's')} in all"
        )
        norm = row["gradient_norm"]
        return "  ".join(
            [
                f"step {done}/{steps}",
                f"loss {digits(row['loss'])}{held_out}",
                f"norm {'not a number' if norm is None else f'{norm:.3g}'}",
                f"lr {row['lr']:.3g}",
                f"{row['tokens_per_s']:,.0f} tokens/s",
                f"MFU {100 * row['mfu']:.1f} %",
                f"{show(row['step_time_s'], 's')} a step",
                f"{show(row['fullest_rank_bytes'], 'GiB')} on the fullest rank",
                time_s,
            ]
        )

    def say_if_skipped(self, row: Mapping[str, Any]) -> None:
        """A line for an update that was not made."""
        before, self.skipped = self.skipped, row["skipped"]
        if row["gradient_norm"] is None or (
            before is not None and row["skipped"] > before
        ):
            self.say(
                f"step {row['step']}: a gradient or the loss is not finite; the update is skipped,"
                f" number {row['skipped']} of the run"
            )

    def sync(self) -> None:
        """On the disk before a checkpoint is: no row of a step that a checkpoint has done is ever
        missing.
        """
        if self.file:
            with kept_on_disk(self.plan.folder / "metrics.jsonl"):
                os.fsync(self.file.fileno())

    def say(self, line: str) -> None:
        """One line of progress, of the first rank."""
        if dist.get_rank() == 0:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """The end of the run."""
        if self.file:
            self.file.close()
        for board in self.boards:
            board.close()


def digits(loss: float | None) -> str:
    """A loss for people."""
    return "not a number" if loss is None else f"{loss:.4f}"


FOLDER = "tensorboard"
TAGS = {
    "loss": "loss/training",
    "eval_loss": "loss/held out",
    "gradient_norm": "optimizer/gradient norm",
    "lr": "optimizer/learning rate",
    "skipped": "optimizer/updates skipped",
    "sequences": "data/sequences a step",
    "tokens_per_s": "speed/tokens per s",
    "mfu": "speed/MFU",
    "step_time_s": "speed/step s",
    "data_s": "speed/data s",
    "checkpoint_s": "speed/checkpoint s",
    "fullest_rank_bytes": "memory/fullest rank bytes",
}
"""Column of metrics.jsonl -> where TensorBoard shows it."""


def writer() -> Any:
    """TensorBoard's class; BadInput where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadInput(
            "train.tensorboard needs TensorBoard: pip install tensorboard"
        ) from None
    return SummaryWriter


class EventFile:
    """The events of a run in its folder tensorboard/."""

    def __init__(self, run: Path, first: int) -> None:
        """first: steps the run has done; what an earlier attempt wrote after them is hidden."""
        self.events = writer()(str(run / FOLDER), purge_step=first + 1)

    def write(self, row: Mapping[str, Any]) -> None:
        """One step."""
        for name, tag in TAGS.items():
            if row.get(name) is not None:
                self.events.add_scalar(tag, row[name], row["step"])

    def close(self) -> None:
        """The end of the run."""
        self.events.close()
