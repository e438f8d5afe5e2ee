"""A transformer layer on a mesh of X x Y chips, carried out chip by chip in one process: every byte
that a chip receives from another one is counted, forward and backward.

Activations lie as [B_X, D_Y], weights as [D_X, F_Y]; what is gathered, reduced and scattered stands in
`layer`. Gradients come from autograd: the backward pass of each collective is another one, which counts
too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

NUMBER, STATISTIC = 2, 4
"""Bytes of an activation or weight, and of what norms add up, on a real chip."""


@dataclass
class Wire:
    """Bytes that all chips received: (axis, pass) -> bytes."""

    received: Counter[tuple[str, str]] = field(default_factory=Counter)

    def carry(
        self, axis: str, going: str, to: int, elements: int, width: int
    ) -> None:
        """So many chips receive so many elements each."""
        self.received[axis, going] += to * elements * width


def going() -> str:
    """Autograd runs backward passes without gradients of their own."""
    return "forward" if PASS["forward"] else "backward"


PASS = {"forward": True}


class Gather(Function):
    """Each chip ends with the parts of all, side by side along `dim`; backward, gradients of the
    copies are added up and each chip keeps its part."""

    @staticmethod
    def forward(ctx: Any, wire: Wire, axis: str, dim: int, *parts: Tensor):  # type: ignore[no-untyped-def,override]
        ctx.wire, ctx.axis, ctx.dim, ctx.n = wire, axis, dim, len(parts)
        n = len(parts)
        wire.carry(axis, going(), n, (n - 1) * parts[0].numel(), NUMBER)
        whole = torch.cat(parts, dim)
        return tuple(whole.clone() for _ in parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):  # type: ignore[no-untyped-def,override]
        return None, None, None, *scattered(ctx, grads)


class Scatter(Function):
    """Partial sums of all chips are added up, each keeps its part; backward, parts are gathered."""

    @staticmethod
    def forward(ctx: Any, wire: Wire, axis: str, dim: int, *sums: Tensor):  # type: ignore[no-untyped-def,override]
        ctx.wire, ctx.axis, ctx.dim, ctx.n = wire, axis, dim, len(sums)
        return tuple(scattered(ctx, sums))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):  # type: ignore[no-untyped-def,override]
        n = ctx.n
        ctx.wire.carry(
            ctx.axis, "backward", n, (n - 1) * grads[0].numel(), NUMBER
        )
        whole = torch.cat(grads, ctx.dim)
        return None, None, None, *(whole.clone() for _ in grads)


def scattered(ctx: Any, sums: Sequence[Tensor]) -> list[Tensor]:
    """Every chip receives its part of each other one's partial sum."""
    n = len(sums)
    ctx.wire.carry(
        ctx.axis, going(), n, (n - 1) * sums[0].numel() // n, NUMBER
    )
    total = torch.stack(tuple(sums)).sum(0)
    return [part.clone() for part in total.chunk(n, ctx.dim)]


class Reduce(Function):
    """All chips end with the sum: parts are scattered and gathered, both ways."""

    @staticmethod
    def forward(ctx: Any, wire: Wire, axis: str, width: int, *sums: Tensor):  # type: ignore[no-untyped-def,override]
        ctx.wire, ctx.axis, ctx.width = wire, axis, width
        return reduced(ctx, sums, going())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):  # type: ignore[no-untyped-def,override]
        return None, None, None, *reduced(ctx, grads, "backward")


def reduced(ctx: Any, sums: Sequence[Tensor], way: str) -> tuple[Tensor, ...]:
    n = len(sums)
    part = sums[0].numel() / n
    ctx.wire.received[ctx.axis, way] += n * 2 * (n - 1) * part * ctx.width
    total = torch.stack(tuple(sums)).sum(0)
    return tuple(total.clone() for _ in sums)


class Again(Function):
    """Keeps inputs alone, and runs again when gradients are asked for."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], *inputs: Tensor):  # type: ignore[no-untyped-def,override]
        ctx.run, ctx.inputs = run, inputs
        return run(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):  # type: ignore[no-untyped-def,override]
        with torch.enable_grad():
            inputs = [t.detach().requires_grad_() for t in ctx.inputs]
            torch.autograd.backward(ctx.run(*inputs), grads)
        return None, *(t.grad for t in inputs)


Grid = list[list[Tensor]]
"""A tensor on every chip: [x][y]."""


@dataclass
class Mesh:
    """X x Y chips."""

    X: int
    Y: int
    wire: Wire = field(default_factory=Wire)

    def place(self, whole: Tensor, x: int | None, y: int | None) -> Grid:
        """Parts along these dimensions of a tensor (None: whole on that axis)."""
        rows = [whole] * self.X if x is None else whole.chunk(self.X, x)
        return [
            [part.detach().clone().requires_grad_() for part in parts]
            for parts in (
                [row] * self.Y if y is None else row.chunk(self.Y, y)
                for row in rows
            )
        ]

    def each(self, do: Callable[..., Tensor], *grids: Grid) -> Grid:
        """The same on every chip."""
        return [
            [do(*(g[x][y] for g in grids)) for y in range(self.Y)]
            for x in range(self.X)
        ]

    def over_y(self, kind: type[Function], grid: Grid, what: int) -> Grid:
        """A collective of each row."""
        return [
            list(kind.apply(self.wire, "y", what, *row))  # type: ignore[no-untyped-call]
            for row in grid
        ]

    def over_x(self, kind: type[Function], grid: Grid, what: int) -> Grid:
        """A collective of each column."""
        columns = [
            kind.apply(self.wire, "x", what, *column)  # type: ignore[no-untyped-call]
            for column in zip(*grid, strict=True)
        ]
        return [list(row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Shape:
    """Of a layer: b sequences of T tokens, width D, H heads and K of keys, feed-forward F."""

    b: int
    T: int
    D: int
    H: int
    K: int
    F: int
    rms: bool = False
    regathered: bool = False
    """Inputs of column-parallel matrices are gathered again in the backward pass."""

    @property
    def h(self) -> int:
        return self.D // self.H


def weights(s: Shape, seed: int = 0) -> dict[str, Tensor]:
    """Of one layer, whole; queries, keys and values apart, since each is cut by its own heads."""
    torch.manual_seed(seed)
    kv = s.K * s.h
    shapes = {
        "q": (s.D, s.D),
        "k": (s.D, kv),
        "v": (s.D, kv),
        "out": (s.D, s.D),
        "up": (s.D, s.F),
        "down": (s.F, s.D),
    }
    return {
        name: torch.randn(shape, dtype=torch.float64) / math.sqrt(shape[0])
        for name, shape in shapes.items()
    } | {
        name: torch.randn(s.D, dtype=torch.float64)
        for name in ("attention norm", "ffn norm")
    }


COLUMNS = ("q", "k", "v", "up")
"""Matrices cut by columns over y, and by rows over x; the others the other way round."""


def lay(mesh: Mesh, whole: dict[str, Tensor]) -> dict[str, Grid]:
    """Weights on their chips."""
    found = {}
    for name, tensor in whole.items():
        if tensor.dim() == 1:
            found[name] = mesh.place(tensor, None, 0)
        elif name in COLUMNS:
            found[name] = mesh.place(tensor, 0, 1)
        else:
            found[name] = mesh.place(tensor, 1, 0)
    return found


def norm(mesh: Mesh, x: Grid, scale: Grid, s: Shape) -> Grid:
    """Of D features, of which a chip has D/Y: sums of x and x^2 (RMS: of x^2) go over y."""

    def sums(part: Tensor) -> Tensor:
        squares = (part * part).sum(-1)
        return squares[None] if s.rms else torch.stack((part.sum(-1), squares))

    total = mesh.over_y(Reduce, mesh.each(sums, x), STATISTIC)

    def scaled(part: Tensor, total: Tensor, by: Tensor) -> Tensor:
        mean = 0.0 if s.rms else total[0][..., None] / s.D
        square = total[-1][..., None] / s.D
        variance = square if s.rms else square - mean * mean
        return (part - mean) / torch.sqrt(variance + 1e-6) * by

    return mesh.each(scaled, x, total, scale)


def attend(s: Shape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of the heads that a chip has."""

    def heads(part: Tensor) -> Tensor:
        return part.unflatten(-1, (-1, s.h)).transpose(1, 2)

    q, k, v = map(heads, (q, k, v))
    again = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(again, 1) for t in (k, v))
    scores = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(s.h), -1)
    return (scores @ v).transpose(1, 2).flatten(2)


def layer(mesh: Mesh, x: Grid, w: dict[str, Grid], s: Shape) -> Grid:
    """x[B_X, T, D_Y] to the same: all weights are gathered over x as they are needed."""
    w = {
        name: grid
        if grid[0][0].dim() == 1
        else mesh.over_x(Gather, grid, 0 if name in COLUMNS else 1)
        for name, grid in w.items()
    }

    def columns(x: Grid, *names: str) -> list[Grid]:
        """The input gathered over y, by each matrix."""

        def run(*flat: Tensor) -> tuple[Tensor, ...]:
            rows = [
                list(flat[i * mesh.Y : (i + 1) * mesh.Y])
                for i in range(mesh.X)
            ]
            wide = mesh.over_y(Gather, rows, -1)
            found = [mesh.each(torch.matmul, wide, w[name]) for name in names]
            return tuple(t for grid in found for row in grid for t in row)

        flat = [t for row in x for t in row]
        out = (
            Again.apply(run, *flat)  # type: ignore[no-untyped-call]
            if s.regathered
            else run(*flat)
        )
        cells = mesh.X * mesh.Y
        return [
            [
                list(
                    out[i * cells + r * mesh.Y : i * cells + (r + 1) * mesh.Y]
                )
                for r in range(mesh.X)
            ]
            for i in range(len(names))
        ]

    def rows(x: Grid, name: str) -> Grid:
        """Partial sums over y, scattered along the hidden size."""
        return mesh.over_y(Scatter, mesh.each(torch.matmul, x, w[name]), -1)

    q, k, v = columns(norm(mesh, x, w["attention norm"], s), "q", "k", "v")
    mixed = mesh.each(lambda *qkv: attend(s, *qkv), q, k, v)
    x = mesh.each(torch.add, x, rows(mixed, "out"))
    (up,) = columns(norm(mesh, x, w["ffn norm"], s), "up")
    fed = mesh.each(torch.nn.functional.gelu, up)
    return mesh.each(torch.add, x, rows(fed, "down"))


@dataclass
class Run:
    """What a mesh computed and sent."""

    out: Tensor
    gradients: dict[str, Tensor]
    received: Counter[tuple[str, str]]
    held: int
    """Elements of the activation between two layers on a chip."""


def run(X: int, Y: int, s: Shape) -> Run:
    """One layer forward and backward, put together again."""
    mesh = Mesh(X, Y)
    torch.manual_seed(1)
    x = torch.randn(s.b, s.T, s.D, dtype=torch.float64)
    w = lay(mesh, weights(s))
    PASS["forward"] = True
    out = layer(mesh, mesh.place(x, 0, 2), w, s)
    loss = sum((t * t).sum() for row in out for t in row)
    PASS["forward"] = False
    loss.backward()  # type: ignore[union-attr]

    def whole(name: str, grid: Grid) -> Tensor:
        if grid[0][0].dim() == 1:  # replicas add up theirs
            return torch.cat(
                [
                    sum(c)
                    for c in zip(
                        *([t.grad for t in r] for r in grid), strict=True
                    )
                ]
            )  # type: ignore[arg-type,misc]
        along, across = (1, 0) if name in COLUMNS else (0, 1)
        parts = [torch.cat([t.grad for t in row], along) for row in grid]  # type: ignore[misc]
        return torch.cat(parts, across)

    return Run(
        torch.cat([torch.cat(row, 2) for row in out], 0).detach(),
        {name: whole(name, grid) for name, grid in w.items()},
        mesh.wire.received,
        out[0][0].numel(),
    )
