"""How the ranks of the five axes may lie in the levels of a network: every factorisation of every
level but the last.

A level of 8 chips holds, say, 4 ranks along D and 2 along F; the last level takes what is left of
each axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..num import divisors
from ..search import distinct
from .simulate import AXES, Degrees, Groups

Lower = tuple[tuple[int, ...], ...]
"""For each axis, its ranks in each level but the last."""
Index = NDArray[np.int64]
SENT_MOST = (1, 2, 0, 3, 4)
"""Axes by what they send: where levels that are alike are sorted, few placements of the first
remain."""
MOST = 400_000
"""Placements looked at: levels of 8 and 16,384 chips have a quarter of that."""
TENSOR = ("tp_model", "tp_ff")
"""The axes that send in every layer."""


@dataclass(frozen=True)
class Placings:
    """Placements in levels of given sizes."""

    ranks: Index
    """(placement, level, axis): how many ranks."""

    @cached_property
    def of_tensors(self) -> tuple[Any, Any]:
        """(a placement for each distinct place of the tensor axes, which of these places each
        placement has).
        """
        axes = [AXES.index(axis) for axis in TENSOR]
        nowhere = np.zeros(len(self.ranks))
        return distinct(
            [nowhere, *self.ranks[..., axes].reshape(len(nowhere), -1).T]
        )

    def fit(
        self, d: Degrees, numbers: Any, axes: Sequence[str], whole: bool
    ) -> Any:
        """Where each of some axes has ranks for its places under these placements; whole: the last
        level has a whole number of them.
        """
        ranks = self.ranks[numbers].prod(axis=1)
        rest = (getattr(d, a) / ranks[:, AXES.index(a)] for a in axes)
        return np.logical_and.reduce(
            [np.floor(n) == n if whole else n >= 1 for n in rest]
        )

    def groups(self, d: Degrees, numbers: Any) -> Groups:
        """Ranks of each axis in every level under these placements: those that they have there, and
        in the last level the rest.
        """
        near = np.moveaxis(self.ranks[numbers], 0, -1)
        return {
            axis: (*lower, getattr(d, axis) / lower.prod(axis=0))
            for axis, lower in zip(AXES, np.moveaxis(near, 1, 0), strict=True)
        }

    def lower(self, number: int) -> Lower:
        """Where the axes of a placement lie."""
        return tuple(map(tuple, self.ranks[number].T.tolist()))


def factorisations(n: int, parts: int) -> list[tuple[int, ...]]:
    """Ordered ways to write n as a product of so many whole numbers."""
    if parts == 1:
        return [(n,)]
    return [
        (d, *rest)
        for d in divisors(n)
        for rest in factorisations(n // d, parts - 1)
    ]


@lru_cache(maxsize=64)
def placings(
    sizes: tuple[int, ...],
    alike: tuple[int, ...] = (),
    experts: bool = True,
) -> Placings:
    """Placements of the five axes in levels of these sizes (the last level, unlimited, not
    among them).

    alike: a number for each level; levels of one number may be exchanged (axes of a torus), so that
    one order of them stands for all.  experts: False where every degree of the expert axis is 1.
    Raises BadInput if there are too many.
    """
    alike = alike or tuple(range(len(sizes)))
    exchanged = len(set(alike)) < len(alike)
    fills = [_fills(n, experts, exchanged) for n in sizes]
    counts = [len(f) for f in fills]
    _demand_few(counts, alike, sizes)
    ways = np.indices(counts).reshape(len(sizes), math.prod(counts))
    for i, j in combinations(range(len(sizes)), 2):
        if alike[i] == alike[j]:
            ways = ways[:, ways[i] <= ways[j]]
    ranks = np.ones((ways.shape[1], len(sizes), len(AXES)), dtype=np.int64)
    for level, (fill, way) in enumerate(zip(fills, ways, strict=True)):
        ranks[:, level] = fill[way]
    return Placings(ranks)


def _fills(n: int, experts: bool, exchanged: bool) -> Index:
    """The ways to fill a level of n chips: a row each, a column an axis."""
    axes = len(AXES) if experts else len(AXES) - 1
    ways = [(*way, 1)[: len(AXES)] for way in factorisations(n, axes)]
    if exchanged:
        ways.sort(key=lambda way: [way[axis] for axis in SENT_MOST])
    return np.array(ways)


def _demand_few(
    counts: Sequence[int], alike: Sequence[int], sizes: tuple[int, ...]
) -> None:
    """BadInput if levels that can be filled in so many ways each can be filled in too many; levels
    that are alike may be exchanged.
    """
    ways = math.prod(
        math.comb(counts[alike.index(a)] + alike.count(a) - 1, alike.count(a))
        for a in set(alike)
    )
    if ways > MOST:
        raise BadInput(
            f"levels of {' x '.join(map(str, sizes))} chips can be filled by {len(AXES)} axes in"
            f" {ways:,} ways, more than the {MOST:,} that are tried; describe the network with"
            " fewer or smaller levels"
        )
