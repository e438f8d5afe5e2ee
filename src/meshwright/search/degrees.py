"""Tables of all combinations of degrees that a space holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ..describe.job import Job
from ..layout import cuts
from ..num import ceil_div, divisors, maximum
from .legal import legal_splits
from .options import longest_list, most_stages, space_options
from .space import Space, space_allows
from .table import BLOCK, Column, Table, cross, keep, length, pick

RELAXED_MICROBATCH = 64
"""Largest microbatch of a relaxed search that neither divides the batch nor is named."""


SMALLEST_SHARD = 128
"""Tokens a cp rank keeps at least: below this no kernel is efficient (LBL's search uses the same
limit).
"""


def _column(values: Iterable[int], space: Space, name: str) -> Column:
    return np.array(
        [v for v in values if space_allows(v, space, name)], dtype=np.float64
    )


def space_mask(table: Table, space: Space, name: str) -> NDArray[np.bool_]:
    """Where a table holds what the space allows."""
    values = space.values(name)
    return (
        np.full(length(table), True)
        if values is None
        else np.isin(table[name], values)
    )


def splits(job: Job, space: Space) -> Table:
    """All ways to split a layer, (tp, cp, ep, etp, microbatch, panels): what its cost depends on,
    placement aside.
    """
    m = job.model
    N = job.cluster.chips
    B = job.batch
    options = space_options(job, space)
    # nothing to evaluate without an option
    tp = divisors(cuts.most_tp(m)) if options.count else []
    cp = [
        c
        for c in _cp_degrees(job, space)
        if space.scheme == "mlp2d" or job.T // c >= SMALLEST_SHARD or c == 1
    ]
    micro = {*divisors(B)}
    if space.relaxed:
        named = space.values("microbatch") or range(1, RELAXED_MICROBATCH + 1)
        micro |= {n for n in named if n <= B}
    # a dense model has no experts to share out
    ep = [e for e in divisors(m.moe.experts) if e <= N] if m.moe else [1]
    # 0: as tp, where that is not 1; widths besides are searched where they are named
    etp = (space.values("etp") or (1, 0)) if m.moe else (1,)
    table = cross({}, tp=_column(tp, space, "tp"))
    table = cross(table, cp=_column(cp, space, "cp"))
    ranks = table["tp"] * table["cp"]
    table = keep(table, ranks <= N if space.relaxed else N % ranks == 0)
    for name, values in (
        ("microbatch", sorted(micro)),
        ("ep", ep),
        ("etp", etp),
    ):
        table = cross(table, **{name: _column(values, space, name)})
    as_tp = table["etp"] == 0
    table["etp"] = np.where(as_tp, table["tp"], table["etp"])
    table = keep(table, ~(as_tp & (table["tp"] == 1)))
    table = (
        _panels(job, table)
        if space.scheme == "summa"
        else table | {"panels": np.ones_like(table["tp"])}
    )
    runs = legal_splits(job, table, options).any(axis=0)
    return keep(table, runs & space_mask(table, space, "panels"))


def values_above_one(job: Job, space: Space, axis: str) -> tuple[int, ...]:
    """The values above 1 that a space leaves to tp, cp or pp."""
    m = job.model
    every: dict[str, Iterable[int]] = {
        "tp": divisors(cuts.most_tp(m)),
        "cp": _cp_degrees(job, space),
        "pp": divisors(m.layers)
        if job.assumptions.strict and not space.relaxed
        else range(1, most_stages(m) + 1),
    }
    return tuple(
        n for n in every[axis] if n > 1 and space_allows(n, space, axis)
    )


def _cp_degrees(job: Job, space: Space) -> list[int]:
    """The cp degrees to try. Under `mlp2d`, where cp cuts the hidden size, its divisors; under a
    paper's set divisors of the sequence; under a framework, which pads sequences, those that are
    named, else these divisors and powers of two.
    """
    if space.scheme == "mlp2d" or job.profile is None:
        return divisors(job.model.hidden if space.scheme == "mlp2d" else job.T)
    twos = {2**k for k in range(job.T.bit_length())}
    return sorted(space.values("cp") or {*divisors(job.T), *twos})


def _panels(job: Job, table: Table) -> Table:
    """SUMMA panel counts: max(n1, n2) doubled until it reaches the hidden size, panels at least 512
    wide (LBL's search).
    """
    e = job.model.hidden
    start = np.maximum(table["tp"], table["cp"])
    steps = np.arange(int(np.ceil(np.log2(e))) + 1, dtype=np.float64)
    wide = cross(table | {"start": start}, step=steps)
    nb = wide["start"] * 2 ** wide["step"]
    narrow = e / wide["start"] < 512
    fine = (nb < e) & np.where(
        narrow, wide["step"] == 0, (e % nb == 0) & (e / nb >= 512)
    )
    wide["panels"] = nb
    kept = keep(wide, fine)
    return {k: c for k, c in kept.items() if k not in ("start", "step")}


def pipelines(job: Job, space: Space) -> Table:
    """Pipeline degrees to try, with the numbers of chunks that some schedule may have: degrees that
    divide the chips, or (relaxed) any, up to `most_stages`; stages may be uneven.
    """
    options = space_options(job, space)
    limit = most_stages(job.model)
    degrees = range(options.copies, limit + 1, options.copies)
    allowed = _column(
        [p for p in degrees if space.relaxed or job.cluster.chips % p == 0],
        space,
        "pp",
    )
    chunks = np.array(
        sorted({v for option in options.schedules for v in option.chunks}),
        dtype=np.float64,
    )
    table = cross(cross({}, pp=allowed), interleave=chunks)
    # on one stage chunks change nothing: each schedule's first number stands for all
    first = {option.chunks[0] for option in options.schedules}
    alone = np.isin(table["interleave"], [*first]) | (
        longest_list(options) > 0
    )
    fits = table["pp"] * table["interleave"] / options.copies <= maximum(
        limit, longest_list(options)
    )
    return keep(table, fits & ((table["pp"] > 1) | alone))


def microbatch_count(job: Job, table: Table) -> Column:
    """Microbatches of each row with its replicas, the last one padded."""
    # rows of a relaxed table may have part of a replica, and still run whole microbatches
    rows = np.maximum(table["dp"], 1.0) * table["microbatch"]
    return np.asarray(ceil_div(float(job.batch), rows))


def replicas(job: Job, table: Table, space: Space) -> Column:
    """dp of each row: what takes all remaining chips, so that everything divides (strict), or the
    most that there are chips and sequences for, whole expert groups kept (relaxed); 0: none.
    """
    chips, batch = float(job.cluster.chips), float(job.batch)
    ranks = table["tp"] * table["cp"] * table["pp"]
    dp, step, values = chips / ranks, dp_step(table), space.values("dp")
    if space.relaxed:
        most = np.minimum(np.floor(dp), np.floor(batch / table["microbatch"]))
        if values is None:
            return np.asarray(np.floor(most / step) * step)
        can = [np.where((n <= most) & (n % step == 0), n, 0.0) for n in values]
        return np.asarray(reduce(np.maximum, can))
    fine = (chips % ranks == 0) & (dp % step == 0)
    fine = fine & (batch % (dp * table["microbatch"]) == 0)
    if values is not None:
        fine = fine & np.isin(dp, values)
    return np.where(fine, dp, 0.0)


def dp_step(table: Table) -> Column:
    """dp comes in multiples of this: tp x cp x dp ranks make whole groups of ep x etp."""
    experts = (table["ep"] * table["etp"]).astype(np.int64)
    ranks = (table["tp"] * table["cp"]).astype(np.int64)
    return (experts // np.gcd(experts, ranks)).astype(np.float64)


def expand_dp(low: Table, most: Column, step: Column) -> Table:
    """A row for every dp from that of each row to its most, in steps."""
    # intervals whose least is above their most hold nothing
    counts = np.maximum(np.floor((most - low["dp"]) / step) + 1, 0)
    index = np.repeat(np.arange(len(counts)), counts.astype(np.intp))
    skipped = np.repeat(np.cumsum(counts) - counts, counts.astype(np.intp))
    dp = low["dp"][index] + (np.arange(len(index)) - skipped) * step[index]
    rows: Table = pick(low, index)
    return rows | {"dp": dp}


def with_pipelines(splits: Table, degrees: Table, grid: Table) -> Table:
    """A row for each split with each pipeline that the grid holds, chunks last. grid: columns of
    each split with each distinct pp [split, pp]; among them dp, 0 where there is no row.
    """
    _, number = np.unique(degrees["pp"], return_inverse=True)
    row, pipe = np.nonzero((grid["dp"] >= 1)[:, number])
    deep = number[pipe]
    columns = {name: values[row, deep] for name, values in grid.items()}
    rows: Table = pick(splits, row) | columns | pick(degrees, pipe)
    return rows


def most_replicas(
    job: Job, space: Space, splits: Table, degrees: Table
) -> Table:
    """The rows of these splits and pipelines, of a relaxed space with the most replicas."""
    pp = np.unique(degrees["pp"])
    grid = {k: column[:, None] for k, column in splits.items()} | {"pp": pp}
    return with_pipelines(splits, degrees, {"dp": replicas(job, grid, space)})


def most_replicas_in_blocks(job: Job, space: Space) -> Iterator[Table]:
    """All rows of a space, of a relaxed one with the most replicas."""
    table, degrees = splits(job, space), pipelines(job, space)
    many = max(BLOCK // max(length(degrees), 1), 1)
    for start in range(0, length(table), many):
        some = pick(table, slice(start, start + many))
        yield most_replicas(job, space, some, degrees)


def all_rows(job: Job, space: Space) -> Iterator[Table]:
    """All rows of a space, in blocks; of a relaxed one with every number of replicas."""
    for table in most_replicas_in_blocks(job, space):
        if space.relaxed:
            step = dp_step(table)
            table = expand_dp(table | {"dp": step}, table["dp"], step)
            table = keep(table, space_mask(table, space, "dp"))
        yield table
