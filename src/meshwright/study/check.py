"""Strict semantics, and bytes by count: every axis beside one process that has the whole model.

Four processes on this machine take each axis through one step in turn. Losses and gradients must
be those of the whole model but for rounding; what they sent stands beside the equation.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from . import cp, ep, equations, pp, sp, tp, zero
from .model import (
    MLP,
    Batch,
    Shape,
    StudyStep,
    adam,
    batch,
    decoder,
    gradients,
    loss,
)
from .picture import pp_idle
from .ring import RankRing
from .scatter_gather import scatter_gather_step

N = 4
"""Ranks."""
BOUND = 2e-6
"""The largest error that rounding in fp32 explains, of the largest element of a tensor."""
M = Shape()
Part = Callable[[str, Tensor, RankRing], Tensor]
Beside = tuple[float, float]
"""By equation, by count."""
MLPKind = Callable[[Shape], nn.Module]


def _whole(name: str, weight: Tensor, ring: RankRing) -> Tensor:
    """A rank that has a weight has all of it."""
    return weight


def everyone(rank: int) -> Sequence[int]:
    return range(N)


class Trial(NamedTuple):
    """An axis, and what the papers say of it."""

    axis: str
    step: Callable[[nn.Sequential, Batch, Shape, RankRing], StudyStep]
    sent: float
    part: Part = _whole
    mlp: MLPKind = MLP
    ranks: Callable[[int], Sequence[int]] = everyone
    """A rank -> those that it makes a ring with."""
    bubble: Beside | None = None
    held: float = 0.0
    """Bytes a weight."""


class Row(NamedTuple):
    """What came of it, on one rank or on all."""

    axis: str
    sent: Beside
    loss: float
    loss_error: float
    """Of the loss of all ranks, relative to that of one process."""
    error: float
    """Of gradients, and of weights after an update: of a tensor's largest element."""
    names: frozenset[str]
    """Weights that have a gradient."""
    bubble: Beside | None
    held: Beside | None
    calls: Mapping[str, float]
    """Collectives, and messages between stages."""


@cache
def reference(mlp: MLPKind = MLP) -> StudyStep:
    """The step of one process."""
    model, data = decoder(M, mlp), batch(M)
    mean = loss(model(data.tokens), data.targets, M)
    torch.autograd.backward(mean)
    adam(model.parameters())
    weights = {name: w.detach() for name, w in model.named_parameters()}
    return StudyStep(mean.detach(), gradients(model), weights)


def error(
    step: StudyStep, want: StudyStep, part: Part, ring: RankRing
) -> float:
    """The largest difference in a tensor of this rank, of the tensor's largest element."""
    errors = [torch.zeros(())]
    for tensors, wanted in (
        (step.gradients, want.gradients),
        (step.weights, want.weights),
    ):
        for name, x in tensors.items():
            y = wanted[name]
            z = y if x.shape == y.shape else part(name, y, ring)
            errors.append((x - z).abs().max() / y.abs().max())
    return largest(errors)


def largest(errors: Iterable[Tensor | float]) -> float:
    """The largest of them; NaN if one is, which `max` would drop."""
    return float(torch.tensor([float(e) for e in errors]).max())


def row(rank: int) -> Sequence[int]:
    """The tp ranks of a stage: 0 1 or 2 3."""
    return [rank // 2 * 2, rank // 2 * 2 + 1]


def column(rank: int) -> Sequence[int]:
    """The stages of a pipeline: 0 2 or 1 3."""
    return [rank % 2, rank % 2 + 2]


def first(count: int, rank: int) -> Sequence[int]:
    return range(count)


def between(
    model: nn.Sequential, data: Batch, m: Shape, ring: RankRing
) -> StudyStep:
    """A step whose messages between stages the ring counts."""
    inside = RankRing(row(dist.get_rank()))
    return scatter_gather_step(model, data, m, stage=ring, inside=inside)


def within(
    model: nn.Sequential, data: Batch, m: Shape, ring: RankRing
) -> StudyStep:
    """A step whose messages inside a stage the ring counts."""
    stage = RankRing(column(dist.get_rank()))
    return scatter_gather_step(model, data, m, stage=stage, inside=ring)


def part_in_row(name: str, weight: Tensor, ring: RankRing) -> Tensor:
    return tp.part(name, weight, RankRing(row(dist.get_rank())))


def trials() -> Iterator[Trial]:
    """Every axis."""
    yield Trial("tp", tp.tp_step, equations.tp_bytes(M, N), tp.part)
    yield Trial("tp and sp", sp.sp_step, equations.sp_bytes(M, N), tp.part)
    yield Trial("cp", cp.cp_step, equations.cp_bytes(M, N))
    yield Trial(
        "ep",
        ep.ep_step,
        equations.ep_bytes(M, N),
        ep.expert_part,
        mlp=ep.StudyExperts,
    )
    for stage in range(4):
        yield Trial(
            f"dp, ZeRO-{stage}",
            partial(zero.zero_step, stage=stage),
            equations.zero_bytes(M, N, stage),
            zero.zero_part,
            held=equations.zero_held(N, stage),
        )
    for p, v, schedule in ((4, 1, "1F1B"), (2, 2, "interleaved")):
        yield Trial(
            f"pp {p}, {schedule}",
            partial(pp.pp_step, v=v),
            equations.pp_bytes(M, p, v),
            ranks=partial(first, p),
            bubble=(equations.bubble(p, M.batch, v), pp_idle(p, M.batch, v)),
        )
    hops, gathers = equations.scatter_gather_bytes(M, p=2, t=2)
    axis = "pp 2 x tp 2, "
    yield Trial(
        axis + "between stages", between, hops, part_in_row, ranks=column
    )
    yield Trial(axis + "within a stage", within, gathers, tp.part, ranks=row)


def _run(trial: Trial, lose: int) -> Row | None:
    """On this rank, if it takes part."""
    ranks = trial.ranks(dist.get_rank())
    if dist.get_rank() not in ranks:
        return None
    ring = RankRing(ranks, lose)
    step = trial.step(decoder(M, trial.mlp), batch(M), M, ring)
    held = step.held / (M.matrices + M.rest)
    return Row(
        trial.axis,
        sent=(trial.sent, ring.sent),
        loss=float(step.loss.detach()),
        loss_error=0.0,
        error=error(step, reference(trial.mlp), trial.part, ring),
        names=frozenset(step.gradients),
        bubble=trial.bubble,
        held=(trial.held, held) if trial.held else None,
        calls=ring.calls,
    )


def _work(rank: int, store: str, lose: int) -> list[Row | None]:
    """What a process does."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=N,
        timeout=timedelta(seconds=60),
    )
    rows = [_run(trial, lose) for trial in trials()]
    dist.barrier()
    dist.destroy_process_group()
    return rows


def together(rows: Sequence[Row], want: StudyStep) -> Row:
    """Of all ranks: bytes and calls on average, losses added up, the largest error, infinite where
    a weight has no gradient.
    """
    loss = sum(row.loss for row in rows)
    names = frozenset[str]().union(*(row.names for row in rows))
    whole = names == want.gradients.keys()
    return rows[0]._replace(
        sent=(rows[0].sent[0], sum(row.sent[1] for row in rows) / len(rows)),
        loss=loss,
        loss_error=abs(loss / float(want.loss) - 1),
        error=largest(row.error for row in rows) if whole else torch.inf,
        names=names,
        calls={
            name: sum(row.calls[name] for row in rows) / len(rows)
            for name in rows[0].calls
        },
    )


def study(lose: int = 0) -> list[Row]:
    """Every axis, by four processes.

    lose: of the messages that reach a rank, counted from one on each axis, the one that arrives as
    zeros.
    """
    methods = multiprocessing.get_all_start_methods()
    way = "forkserver" if "forkserver" in methods else "spawn"
    context = multiprocessing.get_context(way)
    # imported once, not by each rank; `checkpoint` would import dynamo late
    context.set_forkserver_preload(["torch", "torch._dynamo"])
    with tempfile.TemporaryDirectory() as folder, context.Pool(N) as pool:
        store = str(Path(folder) / "store")
        ranks = pool.starmap(_work, [(r, store, lose) for r in range(N)], 1)
    return [
        together(
            [row for row in rows if row is not None], reference(trial.mlp)
        )
        for trial, rows in zip(trials(), zip(*ranks, strict=True), strict=True)
    ]
