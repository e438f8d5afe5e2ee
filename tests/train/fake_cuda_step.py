"""One rank's steady step on the device of fake_cuda.py, which is in place before this is
imported.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fake_cuda import Found
from jobs import job
from test_semantics import EVERY, SETTINGS, batch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from layouts import cut
from meshwright.describe.job import PRECISIONS, Job
from meshwright.program.messages import sent_by_rank
from meshwright.program.operations import carried_out
from meshwright.train import loop, moe, oracle
from meshwright.train.oracle import fake_world, without_storage
from meshwright.train.traffic import Sent, TrafficCounter, axes_of

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import gpu  # noqa: E402

CHECK = "gpu-check "
"""Before the name of a layout of benchmarks/gpu.py, which runs as it does there."""
WAITED: list[str] = []
WAIT = {"_local_scalar_dense", "nonzero", "masked_select", "bincount", "equal"}
"""Operations whose result the host must know."""
COPIES = {"_to_copy", "copy_"}
NUMBERS = {"lift_fresh", "fill_", "index_put_", "device"}
"""Operations by which a number of Python, as a tensor of one element, comes to the device."""
AHEAD = {"empty"}
"""Makes the memory that results are copied to."""


class Event:
    """As torch.cuda.Event."""

    def __init__(self, *words: Any, **options: Any) -> None:
        pass

    def record(self, *words: Any) -> None:
        """Nothing."""

    wait = record

    def synchronize(self) -> None:
        """The host waits."""
        WAITED.append("event.synchronize")


class Stream:
    """As torch.cuda.Stream; there is one."""

    device, device_index = torch.device("cuda", 0), 0

    def __init__(self, *words: Any, **options: Any) -> None:
        pass

    def wait_stream(self, other: Any) -> None:
        """Nothing: the device waits, not the host."""

    wait_event = wait_stream

    def record_event(self, event: Any = None) -> Any:
        """An event."""
        return event or Event()

    def synchronize(self) -> None:
        """The host waits."""
        WAITED.append("stream.synchronize")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0


@contextmanager
def nothing(*words: Any) -> Iterator[None]:
    """A context."""
    yield


ONE = Stream()
MODULE: dict[str, Any] = {
    "_lazy_init": lambda: None,
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda *device: None,
    "get_device_capability": lambda *device: (9, 0),
    "get_rng_state": lambda *device: torch.zeros(16, dtype=torch.uint8),
    "set_rng_state": lambda *words, **options: None,
    "is_current_stream_capturing": lambda: False,
    "Stream": Stream,
    "Event": Event,
    "current_stream": lambda *device: ONE,
    "default_stream": lambda *device: ONE,
    "set_stream": lambda stream: None,
    "stream": nothing,
    "synchronize": lambda *device: WAITED.append("cuda.synchronize"),
}
"""What of torch.cuda the trainer and PyTorch's engine call."""


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operations that wait for the device, or work on the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits, self.on_host = Counter[str](), Counter[str]()

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        out = op(*args, **(kwargs or {}))
        every = [x for x in tree_leaves((args, out)) if isinstance(x, Tensor)]
        name, devices = op._opname, {x.device.type for x in every}
        if waits(name, devices, args, kwargs or {}):
            self.waits[name] += 1
        if "cpu" in devices and name not in COPIES | NUMBERS | AHEAD:
            self.on_host[name] += 1
        return out


def waits(name: str, devices: set[str], args: Any, options: Any) -> bool:
    """Whether the host waits for the device in an operation."""
    if name in COPIES and devices == {"cpu", "cuda"}:
        queued = options.get("non_blocking") or (
            name == "copy_" and len(args) > 2 and args[2]
        )
        number = all(x.ndim == 0 for x in args if isinstance(x, Tensor))
        return not (queued or number)
    if name == "repeat_interleave" and "cuda" in devices:
        return options.get("output_size") is None
    if name in ("index", "index_put_") and "cuda" in devices:
        masks = [x for x in args[1] if x is not None and x.dtype == torch.bool]
        one = name == "index_put_" and args[2].numel() == 1  # masked_fill
        return bool(masks) and not one
    return name in WAIT and "cuda" in devices


def described(name: str) -> Job:
    """The job of a layout."""
    if name.startswith(CHECK):
        layout = gpu.LAYOUTS[name.removeprefix(CHECK)]
        return gpu.strict_job(layout, gpu.precision_of(layout, "cuda"))
    model, words = EVERY[name]
    layout = cut(words)
    return replace(
        job(model, layout, batch(layout)), precision=PRECISIONS["bf16"]
    )


def ranks(name: str) -> tuple[int, ...]:
    """The first rank, and the last of a pipeline."""
    layout = described(name).layout
    return (0, int(layout.chips) - 1) if layout.pp > 1 else (0,)


def steady(name: str, rank: int) -> Found:
    """The second step."""
    wanted = described(name)
    model, layout = wanted.model, wanted.layout
    shards = 2 if "hybrid" in name else 0
    reads: list[int] = []
    with ExitStack() as stack:
        for what, by in MODULE.items():
            stack.enter_context(mock.patch.object(torch.cuda, what, by))
        stack.enter_context(fake_world(rank, int(layout.chips)))
        stack.enter_context(
            mock.patch.object(loop, "initialise", lambda *a: None)
        )
        if model.moe:
            stack.enter_context(
                mock.patch.object(moe, "read_loads", even(wanted, reads))
            )
        stack.enter_context(without_storage())
        settings = replace(SETTINGS, shards=shards or None)
        trainer = loop.Trainer(wanted, settings, torch.device("cuda", 0))
        rows = torch.zeros(
            wanted.batch // int(layout.dp),
            wanted.T // int(layout.cp),
            dtype=torch.int64,
        )
        trainer.launch(0, rows, rows)
        reads.clear()
        WAITED.clear()
        traffic: Any = stack.enter_context(
            TrafficCounter(axes_of(trainer.mesh))
        )
        calls = stack.enter_context(Calls())
        trainer.launch(1, rows, rows)
        for p in trainer.parameters().values():
            for kind, x in trainer.state(p).items():
                calls.on_host[f"state {kind}"] += x.device.type != "cuda"
    at, layers = oracle.place_of(wanted, rank)[0], len(trainer.expert_layers())
    passes = trainer.microbatches * (1 + (layout.recompute == "full"))
    sent = +traffic.sent
    return Found(
        name,
        rank,
        dict(calls.waits + Counter(WAITED)),
        len(reads),
        layers * passes,
        dict(+calls.on_host),
        sent.total(),
        []
        if model.moe
        else unlike(
            sent_by_rank(carried_out(wanted), at, shards),
            sent,
        ),
    )


def even(wanted: Job, reads: list[int]) -> Any:
    """In place of `moe.read_loads`, as `oracle.even`; how many counts each time reads."""
    read = oracle.even(wanted)

    def counted(x: Tensor) -> Any:
        reads.append(x.numel())
        return read(x)

    return counted


def unlike(counted: Sent, found: Sent) -> list[str]:
    """Collectives by which the step differs from what is counted, but for the one in which all
    ranks learn of loss and norm.
    """
    return [
        f"{kind} {axis} {size}"
        for kind, axis, size in sorted({*counted, *found})
        if counted[kind, axis, size] != found[kind, axis, size]
        and (kind, size) != ("all_reduce", 16)
    ]
