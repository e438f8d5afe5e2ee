"""PyTorch's profiler over a few steps of a run: `profile/rank-RRRR.json`, a Chrome trace a rank for
ui.perfetto.dev and `meshwright compare`.

Steps, actions of the pipeline and waits for messages are ranges of their own on the rank's thread:
"step 7", "F stage 0 microbatch 1", "wait tp". A wait is the time in which the thread does nothing
but wait for collectives of that axis (or, "wait pp", for sends and receives between stages). A
profiled step takes longer than others, so no recorded step is profiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed import Work
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed._tools.fake_collectives import (
    CollectiveOp,
    functional_collectives,
    non_functional_collectives,
)
from torch.distributed.pipelining import schedules
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile, record_function

from ..formats.run_folder import PROFILE, rank_file
from .parallel import RankMesh
from .traffic import TrafficCounter, axes_of

WAIT = torch.ops._c10d_functional.wait_tensor.default


class WaitRanges(TrafficCounter):
    """A context that makes a range of every wait for a message, named after the axis of the
    group.
    """

    def __init__(self, mesh: RankMesh) -> None:
        super().__init__(axes_of(mesh))
        self.axis, self.made, self.stack = (
            "world",
            dict[int, str](),
            ExitStack(),
        )

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operation. Waits of functional collectives are operations; those of others are
        methods, see `__enter__`.
        """
        if any(issubclass(t, (DTensor, AsyncCollectiveTensor)) for t in types):
            # they make operations on plain tensors, waits among them, which come here too
            return NotImplemented
        if op is WAIT:
            # none: it has been waited for
            axis = self.made.pop(args[0].data_ptr(), None)
            with record_function(f"wait {axis}") if axis else nullcontext():
                return op(*args, **(kwargs or {}))
        out = op(*args, **(kwargs or {}))
        if op in non_functional_collectives:
            self.axis = self.of(op, args)
        elif op in functional_collectives:
            for tensor in out if isinstance(out, (list, tuple)) else [out]:
                self.made[tensor.data_ptr()] = self.of(op, args)
        return out

    def of(self, op: Any, args: Any) -> str:
        """The axis of a collective."""
        group = CollectiveOp.get_process_group(op, args)
        return self.axes.get(group.group_name, "world")

    def __enter__(self) -> WaitRanges:
        """From now on waits are ranges."""
        super().__enter__()  # type: ignore[no-untyped-call]
        p2p = schedules._wait_batch_p2p

        def wait(work: Work, *timeout: Any) -> Any:
            with record_function(f"wait {self.axis}"):
                return PLAIN_WAIT(work, *timeout)

        def wait_pp(works: list[Work]) -> None:
            with (
                record_function("wait pp"),
                # waits within it are its own, and no ranges
                mock.patch.object(Work, "wait", PLAIN_WAIT),
            ):
                p2p(works)

        for patch in (
            mock.patch.object(Work, "wait", wait),
            mock.patch.object(schedules, "_wait_batch_p2p", wait_pp),
        ):
            self.stack.enter_context(patch)
        return self

    def __exit__(self, *error: Any) -> None:
        """End the range."""
        self.stack.close()
        super().__exit__(*error)  # type: ignore[no-untyped-call]


PLAIN_WAIT = Work.wait


class ProfiledSteps:
    """Which steps of a run are profiled, and the file they go to."""

    def __init__(
        self, folder: Path, trainer: Any, begin: int, steps: int
    ) -> None:
        """begin: the first of the `steps` steps that are profiled."""
        self.trainer, self.begin, self.end = trainer, begin, begin + steps
        self.file, self.running = (
            folder / PROFILE / rank_file(dist.get_rank(), "json"),
            None,
        )
        self.written = False

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Around one optimizer step."""
        if not self.begin <= step < self.end:
            yield
            return
        if self.running is None:
            self.running = self.started()
        self.trainer.recorder.named = True
        with (
            record_function(f"step {step + 1}"),
            WaitRanges(self.trainer.mesh),
        ):
            yield
        self.trainer.recorder.named = False
        if step == self.end - 1:
            self.write(self.running)

    def started(self) -> Any:
        """The profiler, running."""
        cuda = (
            [ProfilerActivity.CUDA]
            if self.trainer.device.type == "cuda"
            else []
        )
        running = profile(
            activities=[ProfilerActivity.CPU, *cuda], profile_memory=True
        )
        running.start()
        return running

    def write(self, running: Any) -> None:
        """The trace, under its name only when it is complete."""
        running.stop()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        part = self.file.with_suffix(".part.json")
        running.export_chrome_trace(str(part))
        part.rename(self.file)
        self.written = True
