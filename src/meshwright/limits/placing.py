"""How the ranks of the five axes may lie in the levels of a network: every factorisation of every level but the last.

A level of 8 chips holds, say, 4 ranks along D and 2 along F; the last level takes what is left of each axis. Traffic
of an axis depends only on where that axis lies, so times are tables over a few placements, and a whole placement is
one entry of each table.
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


@dataclass(frozen=True)
class Placings:
    """All placements in levels of given sizes, and tables of what single axes and pairs of them may do."""

    whole: tuple[Lower, ...]
    tensor: tuple[Lower, ...]
    """Distinct placements of (tp_model, tp_ff)."""
    between: tuple[Lower, ...]
    """Distinct placements of (pp, ep)."""
    single: tuple[Lower, ...]
    """Distinct placements of dp alone."""
    entry: tuple[Index, Index, Index]
    """For each whole placement its number in tensor, between and single."""
    pairs: tuple[Index, Index]
    """Numbers in tensor and single that occur together."""


def demand_few(sizes: tuple[int, ...]) -> None:
    """BadInput if levels of these sizes can be filled in too many ways to look at."""
    ways = math.prod(len(factorisations(n, len(AXES))) for n in sizes)
    if ways > MOST:
        raise BadInput(
            f"levels of {' x '.join(map(str, sizes))} chips can be filled by {len(AXES)} axes in {ways:,} ways, "
            f"more than the {MOST:,} that are looked at; describe the network with fewer or smaller levels"
        )


def factorisations(n: int, parts: int) -> list[tuple[int, ...]]:
    """All ordered ways to write n as a product of so many whole numbers."""
    if parts == 1:
        return [(n,)]
    return [(d, *rest) for d in divisors(n) for rest in factorisations(n // d, parts - 1)]


@lru_cache(maxsize=256)
def placings(sizes: tuple[int, ...]) -> Placings:
    """All placements of the five axes in levels of these sizes (the last level, unlimited, not among them).

    Raises BadInput if there are too many.
    """
    demand_few(sizes)
    whole: list[Lower] = [tuple(zip(*levels, strict=True)) if levels else ((),) * len(AXES)
                          for levels in product(*(factorisations(n, len(AXES)) for n in sizes))]  # fmt: skip
    parts = [[p[1:3] for p in whole], [p[3:] for p in whole], [p[:1] for p in whole]]
    distinct = [sorted(set(part)) for part in parts]
    numbers = [{p: i for i, p in enumerate(d)} for d in distinct]
    entry = tuple(np.array([number[p] for p in part]) for number, part in zip(numbers, parts, strict=True))
    tensor, between, single = (tuple(d) for d in distinct)
    first, second = np.unique(np.stack([entry[0], entry[2]]), axis=1)
    return Placings(tuple(whole), tensor, between, single, (entry[0], entry[1], entry[2]), (first, second))


def group(degree: Any, lower: tuple[int, ...]) -> tuple[Any, ...]:
    """Ranks of an axis in each level: those given, and in the last level the rest."""
    return (*lower, degree / float(np.prod(lower))) if lower else (degree,)
