"""What the ranks of a pipeline hold where layers are of several kinds, or are dealt one by one: how
many of each kind, and which ranks may set the pace or be the fullest.

A rank is left out where another holds as much of every kind, whatever a layer of a kind takes. So
few are left: with kinds that repeat, as many as the period and the stages have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..num import Num

Counts = tuple[float, ...]
"""Layers of each kind."""


class Held(NamedTuple):
    """What the ranks of one pipeline hold."""

    heavy: tuple[int, ...]
    early: tuple[int, ...]
    late: tuple[int, ...]
    kinds: NDArray[np.float64]
    """Layers of each further kind, by rank."""

    @classmethod
    def of(
        cls,
        bounds: NDArray[np.float64],
        among: Sequence[Sequence[float]],
        p: int,
        folded: bool,
    ) -> Held:
        """bounds: layers before each stage and after all;  among: of each further kind, how many
        are among the first n."""
        stages = np.arange(len(bounds) - 1)
        on = np.where(stages < p, stages, 2 * p - 1 - stages)
        on = on if folded else stages % p
        index = bounds.astype(int)
        index = np.clip(index, 0, len(among[0]) - 1) if among else index
        every = np.array([bounds, *(np.asarray(one)[index] for one in among)])
        each = np.diff(every, axis=1)
        ranks = np.zeros((len(each), p))
        np.add.at(ranks.T, on, each.T)
        counts = [
            (layers - sum(kinds), *kinds)
            for layers, *kinds in ranks.T.tolist()
        ]
        inner = range(1, p if folded else p - 1) or range(p - 1, p)
        return cls(
            tuple(_heavy(counts, inner)),
            tuple(_early(counts, inner)),
            tuple(_early(counts, reversed(inner))),
            ranks[1:],
        )


def _heavy(counts: Sequence[Counts], inner: Iterable[int]) -> list[int]:
    """The last rank with each number of layers that no other exceeds."""
    last = {counts[rank]: rank for rank in inner}
    return [
        rank
        for mine, rank in last.items()
        if not any(_within(mine, other) for other in last if other != mine)
    ]


def _early(counts: Sequence[Counts], inner: Iterable[int]) -> list[int]:
    """Ranks that hold more of some kind than each one before, in this order."""
    found: list[int] = []
    for rank in inner:
        if not any(_within(counts[rank], counts[one]) for one in found):
            found.append(rank)
    return found


def _within(mine: Counts, other: Counts) -> bool:
    return all(a <= b for a, b in zip(mine, other, strict=True))


class Ranks(NamedTuple):
    """The same of one pipeline, or of a column of them."""

    heavy: tuple[Num, ...]
    early: tuple[Num, ...]
    late: tuple[Num, ...]
    begin: Any
    """Where the ranks of a pipeline begin among those of all."""
    counts: NDArray[np.float64]
    """Layers of each further kind, by rank, pipeline after pipeline."""

    def kinds(self, rank: Num) -> tuple[Num, ...]:
        """Of a rank."""
        index = rank + self.begin
        if isinstance(index, np.ndarray):
            return tuple(one[index.astype(int)] for one in self.counts)
        return tuple(float(one[int(index)]) for one in self.counts)


def alone(one: Held) -> Ranks:
    """Of one pipeline."""
    heavy, early, late = (
        tuple(map(float, some)) for some in (one.heavy, one.early, one.late)
    )
    return Ranks(heavy, early, late, 0.0, one.kinds)


def columns(p: Num, v: Num, kinds: int, each: Callable[[Any], Held]) -> Ranks:
    """Of a column of p ranks with v chunks; each: of the pipeline in a place of it; kinds: further
    kinds of layers.
    """
    ranks, chunks = np.broadcast_arrays(p, v)
    first, which = _distinct(ranks.ravel(), chunks.ravel())
    every = [each(np.unravel_index(at, ranks.shape)) for at in first]

    def column(values: Any) -> Any:
        return np.asarray(values)[which].reshape(ranks.shape)

    def padded(lists: Sequence[tuple[int, ...]]) -> tuple[Num, ...]:
        count = max(map(len, lists), default=1)
        # one that is there twice sets no other pace
        rows = [(*one, *one[:1] * (count - len(one))) for one in lists]
        return tuple(
            column([float(row[k]) for row in rows]) for k in range(count)
        )

    sizes = [one.kinds.shape[1] for one in every]
    begin = np.cumsum([0, *sizes])[:-1].astype(float)
    none = np.zeros((kinds, 0))
    counts = np.concatenate([none, *(one.kinds for one in every)], axis=1)
    return Ranks(
        padded([one.heavy for one in every]),
        padded([one.early for one in every]),
        padded([one.late for one in every]),
        column(begin),
        counts,
    )


def _distinct(
    p: NDArray[np.float64], v: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(a place of each different pair, which of them each place has)."""
    key = (p * (v.max(initial=0.0) + 1.0) + v).astype(np.intp)
    place = np.full(int(key.max(initial=-1)) + 1, -1, dtype=np.intp)
    place[key] = np.arange(len(key))
    known = np.flatnonzero(place >= 0)
    number = np.zeros_like(place)
    number[known] = np.arange(len(known))
    return place[known], number[key]
