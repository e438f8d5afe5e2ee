"""How the ranks of the five axes may lie in the levels of a network: every factorisation of every
level but the last.

A level of 8 chips holds, say, 4 ranks along D and 2 along F; the last level takes what is left of
each axis. Traffic of an axis depends only on where that axis lies, so times are tables over a few
placements, and a whole placement is one entry of each table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..num import divisors
from .simulate import AXES

Lower = tuple[tuple[int, ...], ...]
"""For each axis, its ranks in each level but the last."""
MOST = 200_000
"""Placements looked at: levels of 8 and 16,384 chips have half of that."""
Index = NDArray[np.int64]
BEST = -1
"""Entry of a table for axes that have no place yet: its last, the best of all."""


@dataclass(frozen=True)
class Placings:
    """All placements in levels of given sizes, and tables of what single axes and pairs of them may
    do.
    """

    whole: tuple[Lower, ...]
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


def demand_few(sizes: tuple[int, ...]) -> None:
    """BadInput if levels of these sizes can be filled in too many ways to look at."""
    ways = math.prod(len(factorisations(n, len(AXES))) for n in sizes)
    if ways > MOST:
        raise BadInput(
            f"levels of {' x '.join(map(str, sizes))} chips can be filled by {len(AXES)} axes in"
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


@lru_cache(maxsize=256)
def placings(sizes: tuple[int, ...]) -> Placings:
    """All placements of the five axes in levels of these sizes (the last level, unlimited, not
    among them).

    Raises BadInput if there are too many.
    """
    demand_few(sizes)
    whole: list[Lower] = [
        tuple(zip(*levels, strict=True)) if levels else ((),) * len(AXES)
        for levels in product(*(factorisations(n, len(AXES)) for n in sizes))
    ]
    parts = [
        [p[1:3] for p in whole],
        [p[3:] for p in whole],
        [p[:1] for p in whole],
    ]
    distinct = [sorted(set(part)) for part in parts]
    numbers = [{p: i for i, p in enumerate(d)} for d in distinct]
    tensor, between, single = (tuple(d) for d in distinct)
    entry = [
        np.array([number[p] for p in part])
        for number, part in zip(numbers, parts, strict=True)
    ]
    pairs, pair = np.unique(
        np.stack([entry[0], entry[2]]), axis=1, return_inverse=True
    )
    alone, first = (
        np.arange(len(tensor)),
        np.zeros(len(tensor), dtype=np.int64),
    )
    rounds = (
        ((alone, first + BEST, first + BEST), first),
        ((pairs[0], np.full_like(pairs[0], BEST), pairs[1]), pairs[0]),
        ((entry[0], entry[1], entry[2]), pair.ravel()),
    )
    return Placings(tuple(whole), tensor, between, single, rounds)


def group(degree: Any, lower: tuple[int, ...]) -> tuple[Any, ...]:
    """Ranks of an axis in each level: those given, and in the last level the rest."""
    return (*lower, degree / float(np.prod(lower))) if lower else (degree,)
