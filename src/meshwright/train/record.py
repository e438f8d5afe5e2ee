"""What a rank does in a few steps of a run, part by part: `record/rank-RRRR.jsonl` in the folder of
the run.

A part is an action of the pipeline (F, B, I, W, as in `schedule`) or another piece of the step:
"pipeline" (all microbatches with their sends and waits), "reduce" (gradients of a stage over its
replicas), "settle", "norm", "clip", "optimizer", "data". Each has its begin and end, and the
seconds it kept its device busy: CPU seconds of the rank's thread, which other processes on the core
do not lengthen, or seconds of the stream on a GPU. `meshwright compare` reads the files (format in
`formats/run_folder`).
"""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import record_function

from ..formats.run_folder import RECORD, SCHEMA, rank_file
from .initial import local
from .profile import ProfiledSteps

T = TypeVar("T")
KIB = 1024
NUMBER = re.compile(r"rank-(\d+)\.")
"""Of a rank, in the name of its file."""
WARM_UP = 3
"""Steps that set things up and are not recorded."""
NOTHING: AbstractContextManager[Any] = nullcontext()


class Mark(NamedTuple):
    """A moment on this rank."""

    wall_s: float
    cpu_s: float
    """Of the thread."""
    event: Any
    """Of the stream, on a GPU."""


@dataclass
class TimedPart:
    """A piece of a step, a context that notes when it begins and ends."""

    kind: str
    stage: int
    microbatch: int
    recorder: Recorder
    begin: Mark = Mark(0.0, 0.0, None)
    end: Mark = Mark(0.0, 0.0, None)

    def __enter__(self) -> None:
        self.begin = self.recorder.mark()

    def __exit__(self, *error: object) -> None:
        self.end = self.recorder.mark()
        self.recorder.parts.append(self)

    def row(self, zero: Mark) -> tuple[str, int, int, float, float, float]:
        """(kind, stage, microbatch, begin and end since `zero`, busy seconds)."""
        if self.begin.event is None:
            start = self.begin.wall_s - zero.wall_s
            end = self.end.wall_s - zero.wall_s
            return (
                self.kind,
                self.stage,
                self.microbatch,
                start,
                end,
                self.end.cpu_s - self.begin.cpu_s,
            )
        start, end = (
            zero.event.elapsed_time(mark.event) / 1e3
            for mark in (self.begin, self.end)
        )
        return self.kind, self.stage, self.microbatch, start, end, end - start


class Recorder:
    """Times the parts of a step while it is on; off, a part costs one call."""

    def __init__(self, device: torch.device) -> None:
        self.on, self.parts, self.cuda = (
            False,
            list[TimedPart](),
            device.type == "cuda",
        )
        self.named = False
        """Parts are ranges of a profile (and not timed)."""

    def mark(self) -> Mark:
        """Now."""
        event = None
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
        return Mark(time.perf_counter(), time.thread_time(), event)

    def part(
        self, kind: str, stage: int = -1, microbatch: int = -1
    ) -> AbstractContextManager[Any]:
        """A context that is one part."""
        if self.named:
            return record_function(
                f"{kind} stage {stage} microbatch {microbatch}"
                if microbatch >= 0
                else kind
            )
        return TimedPart(kind, stage, microbatch, self) if self.on else NOTHING

    def longer(self, function: Callable[..., T]) -> Callable[..., T]:
        """A function (the loss) that belongs to the part just before it."""

        def timed(*args: Any) -> T:
            result = function(*args)
            if self.on:
                self.parts[-1].end = self.mark()
            return result

        return timed


class Recording:
    """Which steps of a run are recorded, and the file they go to."""

    def __init__(self, folder: Path, trainer: Any, first: int) -> None:
        """trainer: a `loop.Trainer`;  first: the step the run begins with."""
        self.trainer, self.recorder, s = (
            trainer,
            trainer.recorder,
            trainer.settings,
        )
        self.file, self.many = (
            folder / RECORD / rank_file(dist.get_rank(), "jsonl"),
            s.record or 0,
        )
        self.first, more = first, s.profile or 0
        self.begin = min(
            first + WARM_UP, max(first, s.steps - self.many - more)
        )
        self.done: tuple[int, Mark, Mark, float] | None = None
        """The recorded step that is not written yet: its number, begin, end and CPU seconds of all
        threads.
        """
        self.profile = ProfiledSteps(
            folder, trainer, self.begin + self.many, more
        )

    def give_up_old(self) -> None:
        """Delete the record of an earlier attempt: each rank its own, the first those of ranks that
        are no more.
        """
        mine = [
            self.file,
            *([] if self.profile.written else [self.profile.file]),
        ]
        if dist.get_rank() == 0:
            folders = self.file.parent, self.profile.file.parent
            every = {
                old: NUMBER.match(old.name)
                for folder in folders
                for old in folder.glob("rank-*.json*")
            }
            mine += [
                old
                for old, match in every.items()
                if match and int(match[1]) >= dist.get_world_size()
            ]
        for old in mine:
            old.unlink(missing_ok=True)

    def data(self, step: int) -> AbstractContextManager[Any]:
        """A context in which the batch of a step comes."""
        recorder: Recorder = self.recorder
        recorder.on = self.recorded(step)
        return recorder.part("data")

    def recorded(self, step: int) -> bool:
        """Is this step among those recorded?"""
        return bool(self.begin <= step < self.begin + self.many)

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Around one optimizer step."""
        if not self.recorded(step):
            self.recorder.on = False
            self.recorder.parts.clear()
            with self.profile.step(step):
                yield
            return
        process = time.process_time()
        zero = self.recorder.mark()
        yield
        end = self.recorder.mark()
        self.done = step, zero, end, time.process_time() - process
        self.recorder.on = False

    def flush(self) -> None:
        """Write the record of the last step, if there is one, when no clock runs."""
        if self.done is None:
            return
        (step, zero, end, process_s), self.done = self.done, None
        if self.recorder.cuda:
            torch.cuda.synchronize()
        row = {
            "step": step + 1,
            "began_unix_s": time.time() - (time.perf_counter() - zero.wall_s),
            "wall_s": end.wall_s - zero.wall_s,
            "thread_cpu_s": end.cpu_s - zero.cpu_s,
            "process_cpu_s": process_s,
            "bytes": self.bytes(),
            "parts": [part.row(zero) for part in self.recorder.parts],
        }
        self.recorder.parts.clear()
        self.write(row, step == self.begin)

    def bytes(self) -> dict[str, int]:
        """What this rank keeps between steps, by kind, and the most it ever held."""
        parameters = list(self.trainer.parameters().values())
        states = [
            state
            for p in parameters
            for state in self.trainer.optimizer.state.get(p, {}).values()
        ]
        return {
            "weights": sizes(parameters),
            "gradients": sizes(
                [p.grad for p in parameters if p.grad is not None]
            ),
            "optimizer": sizes(
                [state for state in states if isinstance(state, Tensor)]
            ),
            "peak": peak_bytes(self.trainer.device),
        }

    def write(self, row: dict[str, Any], first: bool) -> None:
        """Add a line to the file; a new file begins with who wrote it."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("w" if first else "a", encoding="utf-8") as file:
            if first:
                file.write(json.dumps(self.header()) + "\n")
            file.write(json.dumps(row) + "\n")

    def header(self) -> dict[str, Any]:
        """Who records: the rank, its place on each axis of the mesh, its machine."""
        mesh = self.trainer.mesh.whole
        return {
            "schema": SCHEMA,
            "rank": dist.get_rank(),
            "ranks": dist.get_world_size(),
            "place": {
                name: mesh.get_local_rank(name) for name in mesh.mesh_dim_names
            },
            "host": socket.gethostname(),
            "cores": len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1,
            "device": self.trainer.device.type,
            "threads": torch.get_num_threads(),
        }


def peak_bytes(device: torch.device) -> int:
    """The most memory of this rank so far: allocated on its GPU, or resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


def sizes(tensors: list[Tensor]) -> int:
    """Bytes of this rank's part of tensors."""
    return sum(local(t).numel() * t.element_size() for t in tensors)
