"""The fastest way to spread each of many models on their chips: exact, by bounds.

Every cell of the grid of degrees gets a bound: its matrix products, or its tensor traffic if all links of a chip
carried it at full rate, stretched by the bubble, plus its gradients at full rate. Cells are then placed on the levels
of the network best first, in growing chunks, until no bound is below the best time found. Condition for the bound: a
hierarchical collective moves (n-1)/n of its vector in all, its time is that of the busiest level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..describe.cluster import Cluster
from ..num import product
from .laws import Shape
from .placing import Lower, Placings, placings
from .scenario import Scenario
from .simulate import (
    AXES,
    Degrees,
    Machine,
    bubble_share,
    data_time,
    expert,
    matmul_time,
    neighbour_time,
    passes,
    step_time,
    tensor_time,
)  # fmt: skip
from .space import Column, Grid, grid

CHUNKS = (4, 16, 64, 256)
"""Cells of each model placed in each round; then all that are left, in pieces of the last size."""
SLACK = 1e-12
"""Relative differences below this are rounding."""


class Found:
    """The best of each model so far: columns."""

    def __init__(self, budget: Column) -> None:
        rows = len(budget)
        self.budget = budget
        self.seconds = budget.copy()
        """Best step, or the budget where nothing is faster than it."""
        self.traffic = np.full(rows, np.inf)
        self.degrees = Degrees(*np.full((8, rows), np.nan))
        self.lower: list[Lower] = [()] * rows
        """For each axis, its ranks in every level but the last."""

    @property
    def feasible(self) -> NDArray[np.bool_]:
        """Models with a step faster than their budget."""
        found: NDArray[np.bool_] = ~np.isnan(self.degrees.dp)
        return found

    def improve(self, models: Any, total: Column, traffic: Column, degrees: Degrees, places: Placings) -> None:
        """Take what is faster, or as fast with less traffic.

        models: of each row;  total, traffic: (rows, placements) seconds;  degrees: columns.
        """
        fastest = self.seconds.copy()
        np.minimum.at(fastest, models, total.min(axis=1))
        tied = (total <= (fastest * (1 + SLACK))[models, None]) & (total < self.budget[models, None])
        least = np.where(tied, traffic, np.inf)
        place = least.argmin(axis=1)
        least = least[np.arange(len(place)), place]
        for row in np.lexsort((least, models)):
            model = models[row]
            better = fastest[model] < self.seconds[model] * (1 - SLACK) or least[row] < self.traffic[model]
            if np.isfinite(least[row]) and better:
                self.seconds[model], self.traffic[model] = fastest[model], least[row]
                self.lower[model] = places.whole[place[row]]
                for column, value in zip(self.degrees, degrees, strict=True):
                    column[model] = np.broadcast_to(value[:, 0], len(place))[row]


def fastest(scenario: Scenario, s: Shape, chips: Column, budget: Column) -> Found:
    """The fastest step of each model on its number of chips, if it takes less than its budget [s].

    s, chips, budget: columns, one row a model.  Of equally fast ones the one with the least traffic.
    """
    on, found = scenario.machine, Found(budget)
    sizes = [levels_of(scenario, n) for n in chips]
    for size in sorted(set(sizes)):
        rows = np.array([i for i, other in enumerate(sizes) if other == size])
        within = grid(s.at(rows), chips[rows], on, scenario.schedules, scenario.whole)
        _best_first(on, s, candidates(on, within, rows, budget), placings(size), scenario.whole, found)
    return found


def levels_of(scenario: Scenario, chips: float) -> tuple[int, ...]:
    """Members of each network level but the last, no more than there are chips (and, of whole numbers, dividing
    them)."""
    if scenario.whole:
        return Cluster(scenario.chip, scenario.network, int(chips)).sizes[:-1]
    left, sizes = chips, []
    for dim in scenario.network.dims[:-1]:
        room = 2 ** int(max(np.log2(left), 0.0))
        sizes.append(dim.size if dim.size and dim.size <= left else room)
        left /= sizes[-1]
    return tuple(sizes)


@dataclass(frozen=True)
class Cells:
    """Cells worth placing, flat, sorted by model and bound."""

    model: NDArray[np.int64]
    rank: NDArray[np.int64]
    """Position among the cells of the same model."""
    bound: Column
    busy: Column
    degrees: Degrees


def candidates(on: Machine, g: Grid, rows: Any, budget: Column) -> Cells:
    """The cells of a grid whose bound is below the budget.  rows: number of each model of the grid among all."""
    s, d = g.shape, g.degrees
    with np.errstate(invalid="ignore", divide="ignore"):
        ops = expert(on, s, d)
        busy = matmul_time(on, s, d, ops)
        lanes = sum(on.fabric.rates)
        traffic = sum(
            m.bytes * (n - 1) / n
            for m, n in zip([x for op in ops for x in op.forward.comm], (d.tp_model, d.tp_ff), strict=True)
        )
        held = s.parameters / (d.tp_model * d.tp_ff * d.pp * d.ep) * on.element_bytes
        dp = 2 * held * (d.dp - 1) / d.dp / lanes
        tp, wait = passes(s, d) * 4 * traffic / lanes, shortest_wait(on, s, d)
        bound = step_time(on, busy, tp, 0.0, dp, bubble_share(d), wait, 0.0) * (1 - SLACK)
        keep = g.valid & (bound < budget[rows].reshape(-1, 1, 1, 1))
    where = np.nonzero(keep)
    order = np.lexsort((bound[where], where[0]))
    where = tuple(w[order] for w in where)
    model = where[0]
    rank = np.arange(len(model)) - np.searchsorted(model, model)
    degrees = Degrees(*(np.broadcast_to(x, keep.shape)[where] for x in d))
    return Cells(rows[model], rank, bound[where], busy[where], degrees)


def shortest_wait(on: Machine, s: Shape, d: Degrees) -> Column:
    """Latency of tensor traffic and messages if each crossed only the level with the shortest one; none with ZB-H2."""
    tensor = 4 * s.L * ((d.tp_model > 1) * 1.0 + (d.tp_ff > 1))
    between = np.where(d.ep > 1, 2 * (s.L - 1), np.where(d.pp > 1, 2 * (d.interleave * d.pp - 1), 0.0))
    wait: Column = np.where(d.zero_bubble > 0, 0.0, (tensor + between) * min(on.fabric.latencies))
    return wait


def _best_first(on: Machine, s: Shape, cells: Cells, places: Placings, whole: bool, found: Found) -> None:
    """Place cells in growing chunks until no bound is below the best."""
    start, chunks = 0, iter(CHUNKS)
    while True:
        open_ = (cells.rank >= start) & (cells.bound <= found.seconds[cells.model] * (1 + SLACK))
        if not np.any(open_):
            return
        width = next(chunks, CHUNKS[-1])
        mine = np.nonzero(open_ & (cells.rank < start + width))[0]
        if len(mine):
            _place(on, s, cells, mine, places, whole, found)
        start += width


def _place(on: Machine, s: Shape, cells: Cells, mine: Any, places: Placings, whole: bool, found: Found) -> None:
    """Every placement of some cells: first only tensor degrees and replicas, then all by bandwidth, then with
    latencies."""
    models, busy = cells.model[mine], cells.busy[mine, None]
    d = Degrees(*(x[mine, None] for x in cells.degrees))
    times, share = tables(on, Shape(*(x[models, None] for x in s)), d, places, whole), bubble_share(d)

    def near(rows: Any, bound: Column) -> Any:
        return bound <= found.seconds[models[rows]] * (1 + SLACK)

    (tp, p2p, dp), (i, k) = (t for t, _ in times), places.pairs
    wait = np.where(d.zero_bubble > 0, 0.0, times[0][1][:, i])
    bound = step_time(on, busy, tp[:, i], p2p.min(axis=1, keepdims=True), dp[:, k], share, wait, 0.0).min(axis=1)
    keep = np.nonzero(near(slice(None), bound))[0]
    tp, p2p, dp = (t[keep][:, entry] for t, entry in zip((tp, p2p, dp), places.entry, strict=True))
    open_ = near(keep, step_time(on, busy[keep], tp, p2p, dp, share[keep], 0.0, 0.0).min(axis=1))
    keep, tp, p2p, dp = keep[open_], tp[open_], p2p[open_], dp[open_]
    if not len(keep):
        return
    tp_l, p2p_l, dp_l = (l[keep][:, entry] for (_, l), entry in zip(times, places.entry, strict=True))
    wait = np.where(d.zero_bubble[keep] > 0, 0.0, tp_l + p2p_l)
    total = step_time(on, busy[keep], tp, p2p, dp, share[keep], wait, dp_l)
    found.improve(models[keep], total, tp + p2p + dp, Degrees(*(x[keep] for x in d)), places)


Times = tuple[Column, Column]
"""(bandwidth, latency) seconds of every cell in every placement of some axes; bandwidth is inf where it is
impossible."""


def tables(on: Machine, s: Shape, d: Degrees, places: Placings, whole: bool) -> tuple[Times, Times, Times]:
    """Tensor traffic, messages, gradients."""
    ops = expert(on, s, d)
    return (
        _table(
            d, whole, places.tensor, AXES[1:3], lambda a, b: tensor_time(on, s, d, ops, {"tp_model": a, "tp_ff": b})
        ),
        _table(d, whole, places.between, AXES[3:], lambda pp, ep: neighbour_time(on, s, d, pp, ep)),
        _table(d, whole, places.single, AXES[:1], lambda dp: data_time(on, s, d, dp)),
    )


def _table(d: Degrees, whole: bool, which: tuple[Lower, ...], axes: tuple[str, ...], time: Any) -> Times:
    """Times for each of the placements `which` of some axes."""
    groups = []
    for i, axis in enumerate(axes):
        lower = [np.array([place[i][level] for place in which], float) for level in range(len(which[0][i]))]
        groups.append((*lower, getattr(d, axis) / product(lower)))
    bandwidth, latency = time(*groups)
    possible = np.logical_and.reduce([np.floor(g[-1]) == g[-1] if whole else g[-1] >= 1 for g in groups])
    return np.where(possible, bandwidth, np.inf), np.broadcast_to(latency, possible.shape)
