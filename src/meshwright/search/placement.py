"""All ways to share out the dimensions of the network among the axes, for a table of layouts.

In every dimension but the last, tp, cp and pp take shares that divide what they still need, and dp
what is left: exactly (strict: the dimension is filled), or the largest divisor of dp that has room
(relaxed; shares that leave room for more of an axis are left out: nearer is never slower). Shares
stand in the table, in columns such as "tp 0".
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ..describe.job import Job
from ..describe.layout import AXES, Layout
from ..layout.placement import (
    Shares,
    exceeds_last,
    launcher_orders,
    launcher_shares,
    lays_out,
    mesh_dims,
    rank_shares,
    same_shares,
)
from ..num import divisors, largest_divisor, product
from .space import PLACED_AXES, Space
from .table import Column, Table, distinct, keep, length, pick, stack_rows


def placements(job: Job, table: Table, space: Space) -> tuple[Table, Shares]:
    """Every row with each of its placements: those that the launcher of its framework can number;
    under any launcher all, and where a row has none, as on chips that fill no whole units, that of
    a launcher. Without `Space.placements` that of the launcher alone, where it fits.
    """
    on, sizes = job.cluster, job.cluster.sizes
    mesh = mesh_dims(job.profile, on)
    if not space.placements:
        shares = (
            launcher_shares(table, sizes, mesh=mesh)
            if mesh
            else rank_shares(table, sizes)
        )
        fine = np.flatnonzero(~exceeds_last(shares, sizes))
        return pick(table, fine), pick(shares, fine)
    if orders := launcher_orders(job.framework):
        return _numbered(table, sizes, orders)
    number = np.arange(float(length(table)))
    every = shares_of_axes(job, table | {" row": number}, space)
    every = _with_dp(job, every, space)
    shares = _shares(every, len(sizes))
    index = np.flatnonzero(
        ~exceeds_last(shares, sizes) & _laid_out(job, every, shares)
    )
    placed, shares = pick(every, index), pick(shares, index)
    bare = {k: placed[k] for k in table}
    rest = keep(table, ~np.isin(number, placed[" row"]))
    if not length(rest):
        return bare, shares
    uneven = _columns(launcher_shares(rest, sizes, mesh=mesh), length(rest))
    fine = np.flatnonzero(_laid_out(job, rest, uneven))
    return _stacked([bare, pick(rest, fine)], [shares, pick(uneven, fine)])


def _numbered(
    table: Table, sizes: tuple[int, ...], orders: tuple[tuple[str, ...], ...]
) -> tuple[Table, Shares]:
    """Every row as a launcher numbers it in each order, once where they lay it out alike."""
    tables, shares = list[Table](), list[Shares]()
    every = [
        _columns(launcher_shares(table, sizes, order), length(table))
        for order in orders
    ]
    for i, mine in enumerate(every):
        new = np.ones(length(table), dtype=bool)
        for other in every[:i]:
            new &= ~same_shares(mine, other)
        index = np.flatnonzero(new)
        tables.append(pick(table, index))
        shares.append(pick(mine, index))
    return _stacked(tables, shares)


def _laid_out(job: Job, table: Table, shares: Shares) -> Any:
    """Where the launcher that a job names lays rows out so."""
    degrees: dict[str, Any] = {a: table[a] for a in AXES}
    rows = Layout(**degrees, placement=shares)
    fine = lays_out(job.framework, rows, job.cluster)
    return np.broadcast_to(fine, length(table))


def _columns(shares: Shares, rows: int) -> Shares:
    """Each share as a column."""
    return {
        a: tuple(np.broadcast_to(share, rows) for share in mine)
        for a, mine in shares.items()
    }


def _stacked(
    tables: list[Table], shares: list[Shares]
) -> tuple[Table, Shares]:
    """Rows of several tables, with their shares, one table after the other."""
    return stack_rows(*tables), {
        a: tuple(
            np.concatenate(some)
            for some in zip(*(each[a] for each in shares), strict=True)
        )
        for a in AXES
    }


def shares_of_axes(job: Job, table: Table, space: Space) -> Table:
    """Rows with all shares of tp, cp and pp in each dimension but the last; dp is left open."""
    for i, size in enumerate(job.cluster.sizes[:-1]):
        values = range(1, size + 1) if space.relaxed else divisors(size)
        shares = np.array(values, dtype=np.float64)
        for a in PLACED_AXES:
            room = _room(table, i, size)[:, None]
            fine = shares <= room if space.relaxed else room % shares == 0
            fine &= _left(table, a, i)[:, None] % shares == 0
            row, share = np.nonzero(fine)
            table = pick(table, row) | {f"{a} {i}": shares[share]}
    return table


def placement_count(job: Job, table: Table, space: Space) -> Column:
    """How many placements each strict row has."""
    if not length(table):
        return np.zeros(0)
    index, number = distinct([table[a] for a in AXES])
    rows = {a: table[a][index] for a in AXES} | {
        "row": np.arange(float(len(index)))
    }
    placed, _ = placements(job, rows, space)
    times = np.bincount(placed["row"].astype(np.intp), minlength=len(index))
    return times[number].astype(np.float64)


def _shares(table: Table, dims: int) -> Shares:
    """Ranks of each axis in each dimension of the network; what a table leaves open lies in the
    last.
    """
    near = {a: [table[f"{a} {i}"] for i in range(dims - 1)] for a in AXES}
    return {a: (*near[a], _left(table, a, dims - 1)) for a in AXES}


def _left(table: Table, axis: str, dims: int) -> Column:
    """Ranks of an axis beyond the first dimensions."""
    near = [table[f"{axis} {i}"] for i in range(dims)]
    return np.asarray(table[axis] / product(near))


def _room(table: Table, i: int, size: int) -> Column:
    """What the axes leave of dimension i."""
    placed = [table[f"{a} {i}"] for a in AXES if f"{a} {i}" in table]
    return np.asarray(
        reduce(np.divide, placed, np.full(length(table), float(size)))
    )


def _with_dp(job: Job, table: Table, space: Space) -> Table:
    """dp takes what is left of each dimension: all of it (strict), or its largest divisor that
    fits (relaxed); rows that leave room unused, or for a larger share of an axis, drop out.
    """
    for i, size in enumerate(job.cluster.sizes[:-1]):
        room, need = _room(table, i, size), _left(table, "dp", i)
        if not space.relaxed:
            table = keep(table | {f"dp {i}": room}, need % room == 0)
            continue
        room = np.floor(room)
        share = np.asarray(largest_divisor(need, room))
        table, room = table | {f"dp {i}": share}, np.floor(room / share)
        fine = np.ones(len(room), dtype=bool)
        for a in PLACED_AXES:
            fine &= largest_divisor(_left(table, a, i + 1), room) == 1
        table = keep(table, fine)
    return table
