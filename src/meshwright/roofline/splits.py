"""Whole-number splits of a mesh: how many chips of each network dimension work on data, how many on
tensors.

Every chip has work: X Y is all of the pod. Continuous optima (`thresholds`) do not know that axes
have lengths, that a part of a ring is a line, or that two logical axes on one ring share its links;
here all of that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations

from ..errors import NoLayout
from ..num import Num, divisors, product
from .mesh import place
from .times import Asked, LayerStep, Times, bound_from


@dataclass(frozen=True)
class Split:
    """X x Y chips placed on each pod of a mesh."""

    on: Asked
    tensor_share: tuple[int, ...]
    """Tensor-parallel chips in each network dimension."""
    tensor_inside: tuple[bool, ...]
    """Where a dimension is shared: tensor-parallel chips are the neighbours."""

    @property
    def x(self) -> int:
        """Data-parallel degree (FSDP)."""
        return self.on.mesh.chips // self.y

    @property
    def y(self) -> int:
        """Tensor-parallel degree."""
        return int(product(self.tensor_share))

    @cached_property
    def at(self) -> Callable[[Num], LayerStep]:
        """One step of so many tokens of all pods."""
        mesh, tensor = self.on.mesh, self.tensor_share
        share = [n // y for n, y in zip(mesh.shape, tensor, strict=True)]
        data = place(mesh, share, [not y for y in self.tensor_inside])
        groups = {
            "replicas": data,
            "tp": place(mesh, tensor, self.tensor_inside),
        }
        return self.on.spread(self.x * mesh.pods, groups)

    @cached_property
    def forward(self) -> Times:
        """The pass that binds."""
        return self.at(self.on.batch).forward

    def threshold(self, edition: str) -> float | None:
        """Tokens of all pods from which the forward pass is compute-bound; None if it never is."""
        return bound_from(lambda batch: self.at(batch).forward, edition)

    @property
    def text(self) -> str:
        """Each axis of the mesh as its factors, that of neighbours last: "x 8X·2Y, y 10X·2Y, z 28Y"
        puts pairs of neighbours along x into one Y group, and every second chip into one X group.
        """
        axes = []
        for dim, y, inside in zip(
            self.on.mesh.dims,
            self.tensor_share,
            self.tensor_inside,
            strict=True,
        ):
            x = (dim.size or 1) // y
            factors = [
                f"{n}{group}" for n, group in ((x, "X"), (y, "Y")) if n > 1
            ]
            if factors:
                axes.append(
                    f"{dim.name} {'·'.join(factors[:: 1 if inside else -1])}"
                )
        return ", ".join(axes) or "one chip"


def splits(on: Asked) -> Iterator[Split]:
    """Every split of the pod in which each tensor shard of the feed-forward (and of the heads, if
    attention counts) is whole."""
    model, mesh = on.setting.model, on.mesh
    width = model.moe.expert_ffn if model.moe else model.ffn
    attention = on.setting.layer in ("projections", "block")
    heads = model.heads if attention else 0
    for share in combinations(*(divisors(n) for n in mesh.shape)):
        y = int(product(share))
        if width % y or heads % y:
            continue
        shared = [
            mesh.torus and 1 < y_i < n
            for y_i, n in zip(share, mesh.shape, strict=True)
        ]
        for inside in combinations(
            *((True, False) if both else (True,) for both in shared)
        ):
            yield Split(on, share, inside)


def best(every: list[Split], edition: str) -> Split:
    """The split with the shortest of max(T_math, T_comms); of equals the least communication, then
    the least tensor parallelism."""
    if not every:
        raise NoLayout(
            "no split of this mesh cuts the feed-forward into whole shards"
        )
    return min(
        every,
        key=lambda s: (
            max(s.forward.compute, s.forward.comm(edition)),
            s.forward.comm(edition),
            s.y,
        ),
    )


def least_batch(
    every: list[Split], edition: str
) -> tuple[Split, float] | None:
    """The split that is compute-bound from the smallest batch on, and that batch; None if none ever
    is.
    """
    least: tuple[Split, float] | None = None
    for split in sorted(every, key=lambda s: s.y):
        # one that the least batch so far does not bind needs a larger one
        if least and split.at(least[1]).forward.gap(edition) <= 0:
            continue
        batch = split.threshold(edition)
        if batch is not None and (least is None or batch < least[1]):
            least = split, batch
    return least


def largest_tensor(every: list[Split]) -> Split | None:
    """The largest tensor-parallel degree whose own collectives stay below compute; None if even the
    smallest does not."""
    bound = [
        s
        for s in every
        if s.y > 1 and s.forward.tensor.seconds <= s.forward.compute
    ]
    return max(
        bound,
        key=lambda s: (s.y, -float(s.forward.tensor.seconds)),
        default=None,
    )
