"""An oracle without hardware: the trainer's own program of one rank of a cluster of any size, in
one process and without memory, beside what `program.messages` and `program.memory` say of it.

Under PyTorch's fake process group and fake tensors DTensor, FSDP2 and pipeline stages issue their
collectives, but nothing travels, nothing is computed, and tensors have shapes without storage.
Counts must agree exactly, the peak of memory within `MEMORY_TOLERANCE`. Tokens go to experts
evenly.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import (
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

from ..describe.job import Job
from ..describe.training import Settings
from ..errors import BadInput
from ..layout.placement import placed
from ..layout.ranks import grid
from ..program import memory as peak
from ..program.messages import sent_by_rank
from ..program.operations import carried_out, flops
from ..program.order import rank_stages
from . import gradients, loop, moe, rules
from .launch import HARMLESS
from .traffic import Live, Sent, TrafficCounter, axes_of

MEMORY_TOLERANCE = 0.04
"""Allocators round and kernels need room inside themselves, so no planner needs the peak of live
tensors closer than this.
"""
SHOWN = 24
"""Kinds of tensors that are listed of a peak."""


@dataclass(frozen=True)
class Counted:
    """What one rank's program did in one step."""

    flops: int
    sent: Sent
    live: Live


@dataclass(frozen=True)
class OracleRow:
    """One quantity of one rank."""

    quantity: str
    unit: str
    predicted: float
    counted: float
    agrees: bool


@dataclass(frozen=True)
class OfRank:
    """One rank: everything that was compared, what the predicted peak is made of, and what lived at
    the counted one.
    """

    rank: int
    stages: tuple[int, ...]
    rows: tuple[OracleRow, ...]
    predicted_memory_bytes: dict[str, float]
    live_at_peak: tuple[dict[str, Any], ...]

    @property
    def agrees(self) -> bool:
        """Every quantity agrees."""
        return all(row.agrees for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "agrees": self.agrees}


def place_of(job: Job, rank: int) -> tuple[int, int]:
    """Where a rank stands on the axes pp and cp."""
    ranks = grid(placed(job.layout, job.cluster.sizes))
    if not 0 <= rank < ranks.size:
        raise BadInput(f"rank must be 0 to {ranks.size - 1}, not {rank}")
    pp, _, cp, _ = (int(at[0]) for at in (ranks == rank).nonzero())
    return pp, cp


def representative(job: Job) -> tuple[int, ...]:
    """The first rank of the first, the middle and the last place of the pipeline."""
    ranks = grid(placed(job.layout, job.cluster.sizes))
    pp = int(job.layout.pp)
    return tuple(
        int(ranks[stage].min()) for stage in sorted({0, pp // 2, pp - 1})
    )


def run(job: Job, rank: int, settings: Settings) -> Counted:
    """One step of rank `rank` of the job, by the trainer that trains. Weights have no values: the
    first ones are not drawn.
    """
    layout = job.layout
    with ExitStack() as stack:
        stack.enter_context(fake_world(rank, int(layout.chips)))
        stack.enter_context(warnings.catch_warnings())
        for message in HARMLESS:
            warnings.filterwarnings("ignore", message, UserWarning)
        stack.enter_context(
            mock.patch.object(loop, "initialise", lambda *a: None)
        )
        if job.model.moe:
            stack.enter_context(
                mock.patch.object(moe, "read_loads", even(job))
            )
        stack.enter_context(without_storage())
        live = stack.enter_context(Live())
        trainer = loop.Trainer(job, settings, torch.device("cpu"))
        for p in trainer.parameters().values():
            trainer.state(p)
        live.forget_peak()
        rows = torch.zeros(
            job.batch // int(layout.dp),
            job.T // int(layout.cp),
            dtype=torch.int64,
        )
        traffic: Any = stack.enter_context(
            TrafficCounter(axes_of(trainer.mesh))
        )
        trainer.accumulate(rows, rows)
        gradients.squares(trainer.stages, trainer.layout)
        trainer.update(0, 0.0)
    return Counted(traffic.flops, traffic.sent, live)


def even(job: Job) -> Any:
    """In place of `moe.read_loads`, for tensors without storage have no values: as many tokens for
    each expert, as the plan takes it.
    """
    layout, of = job.layout, job.model.moe
    assert of is not None
    tokens = int(layout.microbatch) * job.T // int(layout.cp * layout.tp)

    def read(x: torch.Tensor) -> list[Any]:
        *sides, last = x.shape
        here = math.prod(x.shape[-2:]) if len(sides) > 1 else last
        each, rest = divmod(tokens * of.top_k, here)
        flat = [each + (i < rest) for i in range(here)]
        rows = [flat[i : i + last] for i in range(0, here, last)]
        return [rows, rows] if len(sides) > 1 else flat

    return read


def compare_ranks(
    job: Job,
    settings: Settings,
    ranks: tuple[int, ...] = (),
    progress: Callable[[str, float], None] | None = None,
) -> list[OfRank]:
    """These ranks (default: `representative`), one after the other. progress: is told which, and
    the share that is done. BadInput if the job cannot be trained.
    """
    rules.demand(job, settings, int(job.layout.chips))
    places = {
        rank: place_of(job, rank) for rank in ranks or representative(job)
    }
    done: list[OfRank] = []
    for rank, at in places.items():
        if progress:
            which = f"rank {rank}, {len(done) + 1} of {len(places)}"
            progress(which, len(done) / len(places))
        done.append(of_rank(job, rank, *at, settings))
    return done


def of_rank(
    job: Job, rank: int, at: int, of_cp: int, settings: Settings
) -> OfRank:
    """One rank, whose places on the axes pp and cp are `at` and `of_cp`."""
    wanted = carried_out(job)
    shards = settings.shards or 0
    sent = sent_by_rank(wanted, at, shards)
    program = run(job, rank, settings)
    work = flops(wanted, at, of_cp)
    rows = [
        OracleRow(
            "matrix FLOPs",
            unit="FLOP",
            predicted=work,
            counted=program.flops,
            agrees=work == program.flops,
        ),
        *_messages(sent, program.sent),
    ]
    ledger = peak.peak(wanted, at, shards)
    highest, counted = ledger.highest, program.live.peak
    near = abs(highest - counted) <= MEMORY_TOLERANCE * counted
    rows.append(
        OracleRow(
            "peak memory",
            unit="B",
            predicted=highest,
            counted=counted,
            agrees=near,
        )
    )
    live = tuple(
        {**site._asdict(), "bytes": size}
        for site, size in program.live.at_peak.most_common(SHOWN)
    )
    return OfRank(
        rank,
        stages=tuple(s.number for s in rank_stages(wanted, at)),
        rows=tuple(rows),
        predicted_memory_bytes={
            term: float(size) for term, size in ledger.peak.items() if size
        },
        live_at_peak=live,
    )


def _messages(wanted: Sent, counted: Sent) -> list[OracleRow]:
    """Number and bytes of each kind of collective on each axis. They agree if every single size
    does.
    """
    rows = []
    for axis, kind in sorted(
        {(axis, kind) for kind, axis, _ in wanted | counted}
    ):
        a, b = (
            Counter(
                {
                    size: n
                    for (k, x, size), n in s.items()
                    if (k, x) == (kind, axis)
                }
            )
            for s in (wanted, counted)
        )
        name = f"{axis} {kind.replace('_', '-')}"
        volume = [
            float(sum(size * n for size, n in c.items())) for c in (a, b)
        ]
        rows.append(
            OracleRow(
                name,
                unit="",
                predicted=a.total(),
                counted=b.total(),
                agrees=a == b,
            )
        )
        rows.append(
            OracleRow(
                f"{name} bytes",
                unit="B",
                predicted=volume[0],
                counted=volume[1],
                agrees=a == b,
            )
        )
    return rows


@contextmanager
def fake_world(rank: int, world: int) -> Iterator[None]:
    """This process is rank `rank` of `world`; collectives return at once. Meshes may be made;
    tensors are still real.
    """
    dist.init_process_group(
        "fake", rank=rank, world_size=world, store=FakeStore()
    )
    try:
        with patched():
            yield
    finally:
        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]  # it holds plans that name the groups of this world
        dist.destroy_process_group()


def without_storage() -> FakeTensorMode:
    """A context in which tensors have shapes only."""
    return FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def patched() -> Iterator[None]:
    """What PyTorch 2.13 needs to run its own parts on tensors without storage.

    Meshes do real arithmetic on their ranks; shapes of DTensors are worked out outside all
    counters, else global work would be booked as local; stages agree on static shapes by a tensor,
    which here has no value.
    """
    with ExitStack() as stack:
        for name in ("__init__", "__getitem__", "_concatenate"):
            stack.enter_context(
                replaced(DeviceMesh, name, unset_fake_temporarily)
            )
        stack.enter_context(
            replaced(
                ShardingPropagator,
                "_propagate_tensor_meta_non_cached",
                _disable_current_modes,
            )
        )
        stack.enter_context(replaced(torch.utils, "swap_tensors", unknown))
        for name in ("_warmup_forward_vote", "_warmup_backward_result"):
            stack.enter_context(
                mock.patch.object(
                    PipelineStage,
                    name,
                    lambda *a, **k: SimpleNamespace(item=lambda: 1),
                )
            )
        yield


@contextmanager
def unknown() -> Iterator[None]:
    """The fake mode forgets which tensors it has met: it knows them by weak references, and modules
    exchange no parameter that has one.
    """
    if mode := detect_fake_mode():
        mode.fake_tensor_converter.meta_converter.tensor_memo.clear()
    yield


def replaced(owner: Any, name: str, around: Callable[[], Any]) -> Any:
    """A patch that runs the method `name` of `owner` inside the context `around()`."""
    original = getattr(owner, name)

    @wraps(original)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with around():
            return original(*args, **kwargs)

    patch = (
        staticmethod(inside)
        if isinstance(owner.__dict__[name], staticmethod)
        else inside
    )
    return mock.patch.object(owner, name, patch)
