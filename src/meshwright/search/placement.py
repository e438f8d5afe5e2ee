"""Where the ranks of each axis lie in the network: all ways to share out its dimensions, for a
table of layouts.

In every dimension but the last, tp, cp and pp take shares that divide what they still need, and dp
what is left: exactly (strict: the dimension is filled), or the largest divisor of dp that has room
(relaxed; shares that leave room for more of an axis are left out: nearer is never slower).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce

import numpy as np
from numpy.typing import NDArray

from ..describe.job import Job
from ..describe.layout import AXES
from ..layout.placement import launched
from ..num import divisors
from .space import PLACED
from .table import Column, Table, cross, distinct, keep, length

Shares = dict[str, tuple[Column, ...]]


def placements(
    job: Job,
    table: Table,
    every: bool,
    relaxed: bool,
) -> tuple[Table, Shares]:
    """Every row with each of its placements; axes that `spread` has placed already keep their
    shares.

    every: False takes one placement a row, nearest first in the order tp, cp, dp, pp.
    """
    open_ = [a for a in PLACED if f"{a} 0" not in table]
    return finish(
        job,
        spread(job, table, relaxed, open_) if every and open_ else table,
        relaxed,
        every,
    )


def spread(
    job: Job,
    table: Table,
    relaxed: bool,
    axes: Sequence[str] = PLACED,
) -> Table:
    """Rows with all shares of these axes in each dimension but the last, in columns such as "tp 0";
    dp is left open.
    """
    work = table | {f"left {a}": table[a] for a in axes}
    for i, size in enumerate(job.cluster.sizes[:-1]):
        numbers = [PLACED.index(a) for a in axes]
        options = np.array(
            sorted(
                {
                    tuple(t[n] for n in numbers)
                    for t in triples(size, not relaxed)
                }
            ),
            dtype=np.float64,
        )
        work = cross(
            work, **{f"{a} {i}": options[:, k] for k, a in enumerate(axes)}
        )
        taken = reduce(
            np.multiply,
            [work[f"{a} {i}"] for a in PLACED if f"{a} {i}" in work],
        )
        fine = taken <= size if relaxed else size % taken == 0
        for a in axes:
            fine &= work[f"left {a}"] % work[f"{a} {i}"] == 0
        work = keep(work, fine)
        for a in axes:
            work[f"left {a}"] = work[f"left {a}"] / work[f"{a} {i}"]
    return {k: c for k, c in work.items() if not k.startswith("left")}


def finish(
    job: Job,
    table: Table,
    relaxed: bool,
    every: bool = True,
) -> tuple[Table, Shares]:
    """Rows of `spread` with the share of dp in each dimension; those that leave room unused, or
    need more of the last one, drop out.
    """
    sizes = job.cluster.sizes
    work = table | {f"left {a}": table[a] for a in AXES}
    for i, size in enumerate(sizes[:-1]):
        work = (
            _canonical(work, i, size)
            if not every
            else _give_dp(work, i, size, relaxed)
        )
        for a in AXES:
            work[f"left {a}"] = work[f"left {a}"] / work[f"{a} {i}"]
    beyond = reduce(np.multiply, [work[f"left {a}"] for a in AXES])
    work = keep(work, beyond <= sizes[-1])
    if every and (orders := launched(job)):
        work = keep(work, _numbered(work, sizes, orders))
    shares = {
        a: tuple(work[f"{a} {i}"] for i in range(len(sizes) - 1))
        + (work[f"left {a}"],)
        for a in AXES
    }
    return {k: c for k, c in work.items() if " " not in k}, shares


def count(job: Job, table: Table) -> Column:
    """How many placements each strict row has."""
    if not length(table):
        return np.zeros(0)
    index, number = distinct([table[a] for a in AXES])
    rows = {a: table[a][index] for a in AXES} | {
        "row": np.arange(float(len(index)))
    }
    placed, _ = finish(job, spread(job, rows, False), False)
    each = np.bincount(placed["row"].astype(np.intp), minlength=len(index))
    return each[number].astype(np.float64)


def partial(table: Table, dims: int) -> Shares:
    """The shares that `spread` wrote into a table, of the axes it has placed."""
    shares = {}
    for a in PLACED:
        if f"{a} 0" in table:
            near = [table[f"{a} {i}"] for i in range(dims - 1)]
            shares[a] = (*near, table[a] / reduce(np.multiply, near))
    return shares


@cache
def triples(size: int, exact: bool) -> tuple[tuple[int, int, int], ...]:
    """Shares of (tp, cp, pp) in a dimension of `size`: their product divides it (exact) or is at
    most it.
    """
    values = divisors(size) if exact else range(1, size + 1)

    def fits(x: int) -> bool:
        return size % x == 0 if exact else x <= size

    return tuple(
        (a, b, c)
        for a in values
        for b in values
        if fits(a * b)
        for c in values
        if fits(a * b * c)
    )


def _give_dp(work: Table, i: int, size: int, relaxed: bool) -> Table:
    """dp takes what is left of dimension i: all of it (strict), or its largest divisor that fits
    (relaxed).
    """
    room = size / (work[f"tp {i}"] * work[f"cp {i}"] * work[f"pp {i}"])
    if not relaxed:
        return keep(work | {f"dp {i}": room}, work["left dp"] % room == 0)
    work = work | {f"dp {i}": largest_divisor(work["left dp"], np.floor(room))}
    return keep(work, _full(work, i, np.floor(room / work[f"dp {i}"])))


def _full(work: Table, i: int, room: Column) -> NDArray[np.bool_]:
    """Where no axis could have a larger share of dimension i: none still needs a factor that there
    is room for.
    """
    fine = np.ones(len(room), dtype=bool)
    for factor in range(2, int(room.max(initial=1)) + 1):
        for a in PLACED:
            fine &= (factor > room) | (
                work[f"left {a}"] / work[f"{a} {i}"] % factor != 0
            )
    return fine


def _numbered(
    table: Table, sizes: tuple[int, ...], orders: Sequence[Sequence[str]]
) -> NDArray[np.bool_]:
    """Where ranks lie as a launcher numbers them, in one of these orders of the axes."""
    found = np.zeros(len(table["tp"]), dtype=bool)
    for order in orders:
        work = table | {f"left {a}": table[a] for a in AXES}
        fine = np.ones(len(found), dtype=bool)
        for i, size in enumerate(sizes[:-1]):
            work = _canonical(work, i, size, order)
            for a in AXES:
                fine &= work[f"{a} {i}"] == table[f"{a} {i}"]
                work[f"left {a}"] = work[f"left {a}"] / work[f"{a} {i}"]
        found |= fine
    return found


def _canonical(
    work: Table,
    i: int,
    size: int,
    order: Sequence[str] = AXES,
) -> Table:
    """The nearest first, in that order (as `layout.placed`)."""
    work, room = dict(work), np.full(len(work["tp"]), float(size))
    for a in order:
        work[f"{a} {i}"] = largest_divisor(work[f"left {a}"], room)
        room = np.floor(room / work[f"{a} {i}"])
    return work


def largest_divisor(n: Column, most: Column) -> Column:
    """The largest divisor of n that is at most `most`, row by row."""
    found = np.ones_like(n)
    for d in range(2, int(most.max(initial=1)) + 1):
        found = np.where((n % d == 0) & (d <= most), float(d), found)
    return found
