"""A transformer layer on a mesh of X x Y chips, carried out chip by chip in one process: every byte
that a chip receives from another one is counted, forward and backward.

Activations lie as [B_X, D_Y], weights as [D_X, F_Y]; what is gathered, reduced and scattered stands in
`layer`. Gradients come from autograd: the backward pass of each collective is another one, which counts
too when its gradient is there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

NUMBER, STATISTIC = 2, 4
"""Bytes of an activation or weight, and of what norms add up, on a real chip."""


Wire = Counter[tuple[str, str]]
"""Bytes that all chips received: (axis, pass) -> bytes."""
PASS = {"now": "forward"}
"""What runs again for the backward pass counts there."""
Sent = Callable[[int], None]
"""Counts a number of elements that all chips together receive, now."""


def gather(sent: Sent, dim: int, parts: Sequence[Tensor]) -> list[Tensor]:
    """Each chip ends with the parts of all, side by side along `dim`; backward, gradients of the
    copies are added up and each chip keeps its part."""
    n, whole = len(parts), torch.cat(tuple(parts), dim)
    passed = (n - 1) * whole.numel()
    sent(passed)
    whole.register_hook(lambda gradient: sent(passed))
    return [whole.clone() for _ in parts]


def scatter(sent: Sent, dim: int, sums: Sequence[Tensor]) -> list[Tensor]:
    """Partial sums of all chips are added up, each keeps its part; backward, parts are gathered."""
    n, total = len(sums), torch.stack(tuple(sums)).sum(0)
    passed = (n - 1) * total.numel()
    sent(passed)
    total.register_hook(lambda gradient: sent(passed))
    return [part.clone() for part in total.chunk(n, dim)]


def reduce(sent: Sent, dim: int, sums: Sequence[Tensor]) -> list[Tensor]:
    """All chips end with the sum: parts are scattered and gathered, both ways."""
    n, total = len(sums), torch.stack(tuple(sums)).sum(0)
    passed = 2 * (n - 1) * total.numel()
    sent(passed)
    total.register_hook(lambda gradient: sent(passed))
    return [total.clone() for _ in sums]


Collective = Callable[[Sent, int, Sequence[Tensor]], list[Tensor]]
Grid = list[list[Tensor]]
"""A tensor on every chip: [x][y]."""


@dataclass
class Mesh:
    """X x Y chips."""

    X: int
    Y: int
    wire: Wire = field(default_factory=Counter)

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

    def sent(self, axis: str, width: int) -> Sent:
        """Over an axis, in numbers of so many bytes."""

        def add(elements: int) -> None:
            self.wire[axis, PASS["now"]] += elements * width

        return add

    def over_y(
        self, kind: Collective, grid: Grid, dim: int = 0, width: int = NUMBER
    ) -> Grid:
        """A collective of each row."""
        return [kind(self.sent("y", width), dim, row) for row in grid]

    def over_x(self, kind: Collective, grid: Grid, dim: int) -> Grid:
        """A collective of each column."""
        columns = [
            kind(self.sent("x", NUMBER), dim, column)
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

    total = mesh.over_y(reduce, mesh.each(sums, x), width=STATISTIC)

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
        else mesh.over_x(gather, grid, 0 if name in COLUMNS else 1)
        for name, grid in w.items()
    }

    def columns(x: Grid, *names: str) -> list[Grid]:
        """The input gathered over y, by each matrix."""

        def run(x: Grid) -> list[Grid]:
            wide = mesh.over_y(gather, x, -1)
            return [mesh.each(torch.matmul, wide, w[name]) for name in names]

        if not s.regathered:
            return run(x)
        found: list[Grid] = checkpoint(run, x, use_reentrant=False)
        return found

    def rows(x: Grid, name: str) -> Grid:
        """Partial sums over y, scattered along the hidden size."""
        return mesh.over_y(scatter, mesh.each(torch.matmul, x, w[name]), -1)

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
    received: Wire
    held: int
    """Elements of the activation between two layers on a chip."""


def run(X: int, Y: int, s: Shape) -> Run:
    """One layer forward and backward, put together again."""
    mesh = Mesh(X, Y)
    torch.manual_seed(1)
    x = torch.randn(s.b, s.T, s.D, dtype=torch.float64)
    w = lay(mesh, weights(s))
    PASS["now"] = "forward"
    out = layer(mesh, mesh.place(x, 0, 2), w, s)
    loss = sum((t * t).sum() for row in out for t in row)
    PASS["now"] = "backward"
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
        mesh.wire,
        out[0][0].numel(),
    )
