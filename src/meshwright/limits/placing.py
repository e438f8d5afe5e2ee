"""How the ranks of the five axes may lie in the levels of a network: every factorisation of every
level but the last.

A level of 8 chips holds, say, 4 ranks along D and 2 along F; the last level takes what is left of
each axis. Traffic of an axis depends only on where that axis lies, so times are tables over a few
placements, and a whole placement is one entry of each table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..num import divisors
from .simulate import AXES

Lower = tuple[tuple[int, ...], ...]
"""For each axis, its ranks in each level but the last."""
NUMBER = len(AXES)
SENT_MOST = (1, 2, 0, 3, 4)
"""Axes by what they send: where levels that are alike are sorted, few placements of the first
remain."""
MOST = 400_000
"""Placements looked at: levels of 8 and 16,384 chips have a quarter of that."""
Index = NDArray[np.int64]
BEST = -1
"""Entry of a table for axes that have no place yet: its last, the best of all."""


@dataclass(frozen=True)
class Placings:
    """All placements in levels of given sizes, and tables of what single axes and pairs of them may
    do.
    """

    factors: tuple[Index, ...]
    """Of each level: its ways to be filled, one row each, a column an axis."""
    ways: Index
    """Row of each level for every placement: one column a placement."""
    tensor: tuple[Lower, ...]
    """Distinct placements of (tp_model, tp_ff)."""
    between: tuple[Lower, ...]
    """Distinct placements of (pp, ep)."""
    single: tuple[Lower, ...]
    """Distinct placements of dp alone."""
    rounds: tuple[tuple[tuple[Index, Index, Index], Index], ...]
    """One for the tensor axes alone, one with the replicas, one for all: entries of tensor, between
    and single (`BEST` where the axes have no place yet), and the entry of the round before that
    each goes on from."""

    def lower(self, number: int) -> Lower:
        """Where the axes of a placement lie."""
        rows = [
            factors[way].tolist()
            for factors, way in zip(
                self.factors, self.ways[:, number], strict=True
            )
        ]
        return tuple(
            tuple(row[axis] for row in rows) for axis in range(NUMBER)
        )


def demand_few(ways: int, sizes: tuple[int, ...]) -> None:
    """BadInput if levels of these sizes can be filled in too many ways to look at."""
    if ways > MOST:
        raise BadInput(
            f"levels of {' x '.join(map(str, sizes))} chips can be filled by {NUMBER} axes in"
            f" {ways:,} ways, more than the {MOST:,} that are looked at; describe the network with"
            " fewer or smaller levels"
        )


def factorisations(n: int, parts: int) -> list[tuple[int, ...]]:
    """All ordered ways to write n as a product of so many whole numbers."""
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
    """All placements of the five axes in levels of these sizes (the last level, unlimited, not
    among them).

    alike: a number for each level; levels of one number may be exchanged (axes of a torus), so that
    one order of them stands for all.  experts: False where every degree of the expert axis is 1.
    Raises BadInput if there are too many.
    """
    alike = alike or tuple(range(len(sizes)))
    sorted_by = (
        SENT_MOST if len(set(alike)) < len(alike) else tuple(range(NUMBER))
    )
    factors = tuple(_filled(n, experts, sorted_by) for n in sizes)
    demand_few(_distinct([len(f) for f in factors], alike), sizes)
    each = [len(f) for f in factors]
    ways = np.indices(each).reshape(len(sizes), math.prod(each))
    for i, j in combinations(range(len(sizes)), 2):
        if alike[i] == alike[j]:
            ways = ways[:, ways[i] <= ways[j]]
    (tensor, first), (between, second), (single, third) = (
        _parts(factors, ways, axes) for axes in ((1, 2), (3, 4), (0,))
    )
    _, pairs, pair = np.unique(
        first * len(single) + third, return_index=True, return_inverse=True
    )
    alone = np.arange(len(tensor))
    nothing = np.zeros(len(tensor), dtype=np.int64)
    rounds = (
        ((alone, nothing + BEST, nothing + BEST), nothing),
        (
            (first[pairs], np.full_like(pairs, BEST), third[pairs]),
            first[pairs],
        ),
        ((first, second, third), pair.ravel()),
    )
    return Placings(factors, ways, tensor, between, single, rounds)


def _filled(n: int, experts: bool, order: tuple[int, ...]) -> Index:
    """The ways to fill a level of n chips, sorted by the axes in that order."""
    ways = (
        factorisations(n, NUMBER)
        if experts
        else [(*way, 1) for way in factorisations(n, NUMBER - 1)]
    )
    return np.array(
        sorted(ways, key=lambda way: [way[axis] for axis in order])
    )


def _distinct(ways: Sequence[int], alike: Sequence[int]) -> int:
    """How many placements there are, if levels that are alike may be exchanged."""
    times = [
        math.comb(ways[alike.index(a)] + alike.count(a) - 1, alike.count(a))
        for a in set(alike)
    ]
    return math.prod(times)


def _parts(
    factors: tuple[Index, ...], ways: Index, axes: tuple[int, ...]
) -> tuple[tuple[Lower, ...], Index]:
    """(the distinct placements of some axes, which of them each placement has)."""
    number = np.zeros(ways.shape[1], dtype=np.int64)
    levels = []
    for rows, way in zip(factors, ways, strict=True):
        distinct, which = np.unique(
            rows[:, list(axes)], axis=0, return_inverse=True
        )
        number = number * len(distinct) + which.ravel()[way]
        levels.append([tuple(row) for row in distinct.tolist()])
    found = [
        tuple(zip(*chosen, strict=True)) if chosen else ((),) * len(axes)
        for chosen in product(*levels)
    ]
    used, which = np.unique(number, return_inverse=True)
    return tuple(found[i] for i in used), which.ravel()


def group(degree: Any, lower: tuple[int, ...]) -> tuple[Any, ...]:
    """Ranks of an axis in each level: those given, and in the last level the rest."""
    return (*lower, degree / float(np.prod(lower))) if lower else (degree,)
