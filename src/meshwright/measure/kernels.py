"""Seconds of the trainer's own operations on one device, forward and backward through autograd, on
grids of sizes.

Each is run on several copies of its tensors at once, as many as layers and microbatches keep alive
in a real step: memory is taken from the system and given back, and caches are as cold as they are
there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn

from ..cost.measured import table_seconds
from ..describe.measured import MeasuredTable
from ..describe.model import Model
from ..program.tiles import tiles
from ..train.attention import attend, kernel_order
from ..train.gradients import square
from ..train.loss import loss
from ..train.model import rotate, rotation
from . import now, repeated

FOOTPRINT = 24e6
"""Bytes of all copies together on a CPU: more than a core's own caches."""
NORMAL = Model(
    "kernels", layers=1, hidden=256, heads=8, ffn=1024, vocab=256, seq=128
)
"""Whose heads and constants are measured where they matter little."""
Build = Callable[..., tuple[Callable[..., Tensor], list[Tensor]]]
"""Sizes and a maker of tensors -> (the operation, its inputs)."""
VECTOR = (2**10, 2**14, 2**16, 2**17, 2**18, 2**19, 2**21)
"""Close together where results outgrow what the allocator keeps, and its memory comes from the
system each time.
"""
QUICK_VECTOR = (2**10, 2**14, 2**17)


class Make:
    """Makes random tensors of one kind on one device."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype

    def __call__(self, *shape: float) -> Tensor:
        """A leaf that requires a gradient."""
        x = torch.randn(
            [int(n) for n in shape], device=self.device, dtype=self.dtype
        )
        return x.mul_(0.1).requires_grad_()

    def integers(self, most: float, *shape: float) -> Tensor:
        """Whole numbers below `most`."""
        return torch.randint(
            int(most), [int(n) for n in shape], device=self.device
        )


@dataclass(frozen=True)
class MeasuredKernel:
    """An operation with a forward and a backward pass."""

    name: str
    axes: tuple[str, ...]
    points: tuple[tuple[float, ...], ...]
    quick: tuple[tuple[float, ...], ...]
    """Points for a quick calibration."""
    check: tuple[float, ...]
    """A size between the points, to see how well they speak for it."""
    build: Build
    backward_only: int = 0
    """So many of the last axes say nothing to the forward pass: it is measured at their first
    points.
    """


def matmul(make: Make, tokens: float, inner: float, outer: float) -> Any:
    return fn.linear, [make(tokens, inner), make(outer, inner)]


def _attention(
    make: Make, heads: float, scores: float, share: float, width: float
) -> Any:
    """scores: keys squared; share: of the keys that are this rank's queries (1/cp), the last of
    them, as with context parallelism.
    """
    keys = math.isqrt(int(scores))
    queries = max(int(keys * share), 1)
    rows = (tiles((range(keys - queries, keys),), keys, True, None),)
    q = make(1, queries, heads, width)
    k = make(1, keys, heads, width)
    v = make(1, keys, heads, width)
    order = kernel_order(q.device)
    return (
        lambda q, k, v: attend(q, k, v, rows=rows, kernels=order).flatten(2)
    ), [q, k, v]


def rotary(make: Make, x: float) -> Any:
    heads = NORMAL.heads
    width = NORMAL.h
    tokens = int(x) // (heads * width)
    by = rotation(NORMAL, (range(tokens),), make.device, make.dtype)
    return (lambda y: rotate(y, by)), [make(1, tokens, heads, width)]


def embedding(make: Make, tokens: float, width: float, rows: float) -> Any:
    """Whose gradient is dense, so that its rows are written."""
    numbers = make.integers(rows, tokens)
    return (lambda w: fn.embedding(numbers, w)), [make(rows, width)]


def cross_entropy(make: Make, scores: float) -> Any:
    vocab = 256 if scores < 2**20 else 2048
    target = make.integers(vocab, int(scores) // vocab)
    return (lambda x: loss(x[None], target[None])), [
        make(int(scores) // vocab, vocab)
    ]


def elementwise(run: Callable[..., Tensor], inputs: int = 1) -> Build:
    return lambda make, x: (
        run,
        [make(int(x) // 256, 256) for _ in range(inputs)],
    )


def rmsnorm(make: Make, tokens: float, width: float) -> Any:
    return (
        lambda x, w: fn.rms_norm(x, (int(width),), w, NORMAL.norm_epsilon)
    ), [
        make(tokens, width),
        make(width),
    ]


def layernorm(make: Make, tokens: float, width: float) -> Any:
    return (
        lambda x, w, b: fn.layer_norm(
            x, (int(width),), w, b, NORMAL.norm_epsilon
        )
    ), [
        make(tokens, width),
        make(width),
        make(width),
    ]


def vector(name: str, build: Build) -> MeasuredKernel:
    return MeasuredKernel(
        name,
        axes=("elements",),
        points=(VECTOR,),
        quick=(QUICK_VECTOR,),
        check=(2.0**15,),
        build=build,
    )


NORM = (
    ("tokens", "width"),
    ((16, 128, 1024), (64, 256, 1024)),
    ((16, 512), (32, 256)),
    (256, 512),
)
KERNELS = (
    MeasuredKernel(
        "matmul",
        axes=("tokens", "inner", "outer"),
        points=((16, 128, 1024), (32, 128, 512, 2048), (32, 128, 512, 2048)),
        quick=((16, 512), (32, 256), (32, 256)),
        check=(256, 256, 384),
        build=matmul,
    ),
    MeasuredKernel(
        "attention",
        axes=("heads", "scores", "share", "width"),
        points=(
            (2, 32),
            (32**2, 128**2, 512**2),
            (0.25, 0.5, 1),
            (16, 32, 128),
        ),
        quick=((2, 16), (32**2, 128**2), (0.5, 1), (16, 32)),
        check=(8, 256**2, 1, 64),
        build=_attention,
    ),
    MeasuredKernel("norm", *NORM, rmsnorm),
    MeasuredKernel("layernorm", *NORM, layernorm),
    vector("rotary", rotary),
    vector("gate", elementwise(lambda a, b: fn.silu(a) * b, 2)),
    vector("gelu", elementwise(fn.gelu)),
    vector("add", elementwise(torch.add, 2)),
    vector("loss", cross_entropy),
    MeasuredKernel(
        "embedding",
        axes=("tokens", "width", "rows"),
        points=((16, 1024), (64, 1024), (256, 8192)),
        quick=((16, 512), (32, 256), (256, 2048)),
        check=(256, 256, 1024),
        build=embedding,
        backward_only=1,
    ),
)


def pass_seconds(
    build: Build, sizes: Sequence[float], make: Make, least_s: float
) -> tuple[float, float]:
    """(forward, backward) seconds of one call at these sizes."""
    copies = [build(make, *sizes)]
    bytes_ = 3 * sum(x.numel() * x.element_size() for x in copies[0][1]) + 4096
    copies += [
        build(make, *sizes)
        for _ in range(int(min(max(FOOTPRINT / bytes_, 4), 32)) - 1)
    ]
    inputs = [x for _, xs in copies for x in xs]
    gradients = [torch.ones_like(run(*xs)) for run, xs in copies]

    def once() -> tuple[float, float]:
        start = now(make.device)
        results = [run(*xs) for run, xs in copies]
        middle = now(make.device)
        made = torch.autograd.grad(results, inputs, gradients)
        end = now(make.device)
        del made, results
        return (middle - start) / len(copies), (end - middle) / len(copies)

    forward, backward = repeated(once, least_s / len(copies))
    return forward, backward


def tables(
    kernel: MeasuredKernel,
    points: Sequence[Sequence[float]],
    make: Make,
    least_s: float,
) -> Iterator[tuple[str, MeasuredTable]]:
    """The tables "NAME forward" and "NAME backward"."""
    times = [
        pass_seconds(kernel.build, sizes, make, least_s)
        for sizes in itertools.product(*points)
    ]
    check = pass_seconds(kernel.build, kernel.check, make, least_s)
    whole = len(points)
    passes = ("forward", whole - kernel.backward_only), ("backward", whole)
    for (name, axes), column, checked in zip(
        passes, zip(*times, strict=True), check, strict=True
    ):
        each = math.prod(map(len, points[axes:]))
        table = MeasuredTable(
            kernel.axes[:axes], floats(points[:axes]), column[::each]
        )
        between = float(table_seconds(table, kernel.check[:axes]))
        yield (
            f"{kernel.name} {name}",
            replace(table, residual=abs(between / checked - 1)),
        )


def floats(points: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Points as the tables hold them."""
    return tuple(tuple(map(float, sizes)) for sizes in points)


def single(
    make: Make, name: str, points: Sequence[float], least_s: float
) -> MeasuredTable:
    """A kernel without a backward pass, on flat tensors of so many elements."""
    times = []
    for size in points:
        count = int(min(max(FOOTPRINT / (16 * size), 2), 32))
        run = SINGLE[name](
            [make(size) for _ in range(count)],
            [make(size).detach() for _ in range(count)],
        )

        def once(
            run: Callable[[], Any] = run, count: int = count
        ) -> tuple[float]:
            start = now(make.device)
            run()
            return ((now(make.device) - start) / count,)

        times.append(repeated(once, least_s / count)[0])
    return MeasuredTable(("elements",), floats([points]), tuple(times))


def accumulate(a: list[Tensor], b: list[Tensor]) -> Callable[[], Any]:
    """Gradients of a microbatch added to those before, into which they go as they are made."""
    return lambda: [x.data.add_(y) for x, y in zip(a, b, strict=True)]


def copy(a: list[Tensor], b: list[Tensor]) -> Callable[[], Any]:
    """From and to flat buffers."""
    return lambda: [x.data.copy_(y) for x, y in zip(a, b, strict=True)]


def adamw(a: list[Tensor], b: list[Tensor]) -> Callable[[], Any]:
    """The gradient's norm and the update, as the trainer makes them."""
    update = torch.optim.AdamW(a, lr=1e-9, fused=a[0].is_cuda or None)
    for x, y in zip(a, b, strict=True):
        x.grad = y

    def run() -> None:
        square(b)
        update.step()

    return run


SINGLE = {"accumulate": accumulate, "copy": copy, "optimizer": adamw}
