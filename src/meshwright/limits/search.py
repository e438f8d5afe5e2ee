"""The fastest way to spread each of many models on their chips: exact, by bounds.

Every cell of the grid of degrees gets a bound: the same step (`step_time`) with floors (`cost.floors`) for its tensor
traffic and gradients, and without messages between blocks. Cells are then placed on the levels of the network best
first, in growing chunks, until no bound is below the best time found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cost.floors import any_links
from ..cost.links import Group
from ..cost.load import Busy, Load
from ..cost.network import Fabric
from ..count.work import Op
from ..describe.cluster import Cluster
from ..num import minimum, product
from .laws import Shape, Values
from .placing import Lower, Placings, placings
from .scenario import Scenario
from .simulate import (
    AXES,
    Degrees,
    Hidden,
    Machine,
    Sent,
    added,
    between,
    expert,
    gradients,
    idle_share,
    matmul_time,
    neighbours,
    passes,
    step_time,
    tensor,
    together,
)
from .space import Column, Grid, grid

CHUNKS = (4, 16, 64, 256)
"""Cells of each model placed in each round; then all that are left, in pieces of the last size."""
SLACK = 1e-12
"""Relative differences below this are rounding."""
IMPOSSIBLE = 1e200
"""Seconds of what cannot lie there; adds and multiplies, as inf does not."""


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

    def improve(self, models: Any, total: Any, traffic: Any, degrees: Degrees, places: Placings) -> None:
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
        sent, reduced, wait = floors(on, s, d, ops)
        bound = step_time(on, busy, sent, reduced, idle_share(on, d), wait) * (1 - SLACK)
        keep = g.valid & (bound < budget[rows].reshape(-1, 1, 1, 1))
    where = np.nonzero(keep)
    order = np.lexsort((bound[where], where[0]))
    where = tuple(w[order] for w in where)
    model = where[0]
    rank = np.arange(len(model)) - np.searchsorted(model, model)
    degrees = Degrees(*(np.broadcast_to(x, keep.shape)[where] for x in d))
    return Cells(rows[model], rank, bound[where], busy[where], degrees)


def floors(on: Machine, s: Shape, d: Degrees, ops: list[Op]) -> tuple[Hidden, Load, Column]:
    """(tensor traffic, gradients, latency) at most, wherever the ranks lie."""
    ranks = {"tp_model": d.tp_model, "tp_ff": d.tp_ff}
    least = [floor(on.fabric, m.bytes, ranks[m.axis]) for op in ops for m in op.forward.comm]
    held = floor(on.fabric, s.parameters / d.shards * on.precision.gradient_bytes, d.dp)
    hop = min(float(h.latency) for h in neighbours(on.fabric, 1.0))
    crossed = np.where(d.ep > 1, 2 * (s.L - 1), np.where(d.pp > 1, 2 * (d.interleave * d.pp - 1), 0.0))
    wait = 2 * s.L * sum(x.latency for x in least) + crossed * hop
    traffic = 2 * passes(s, d) * sum(x.seconds for x in least)
    waits: Column = np.where(d.zero_bubble > 0, 0.0, wait)
    return {on.overlap.tp: Load(traffic)}, Load(held.seconds), waits + held.latency


def floor(fabric: Fabric, V: Values, n: Values) -> Load:
    """(seconds by bytes, latency) that no all-reduce of n ranks undercuts, nor several of them at once by their sum.

    That of the algorithm for ranks that all lie nearest, but no more than the bytes take over all links of a chip.
    """
    near: Group = (n, *(1.0 for _ in fabric.rates[1:]))
    least = fabric.bound.load("all_reduce", V, near)
    over_all = any_links(fabric, "all_reduce", V, near).seconds
    return Load(minimum(least.seconds - least.latency, over_all), least.latency)


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
    """Every placement of some cells: first only tensor degrees and replicas, with the best of the messages."""
    models, busy = cells.model[mine], cells.busy[mine, None]
    d = Degrees(*(x[mine, None] for x in cells.degrees))
    parts, idle = tables(on, Shape(*(x[models, None] for x in s)), d, places, whole), idle_share(on, d)

    def total(rows: Any, tp: Sent, p2p: Sent, dp: Sent) -> Any:
        wait = np.where(d.zero_bubble[rows] > 0, 0.0, tp.wait + p2p.wait) + dp.wait
        return step_time(on, busy[rows], together([tp.loads, p2p.loads]), dp.load, idle[rows], wait)

    i, k = places.pairs
    tp, p2p, dp = parts
    near = total(slice(None), at(tp, i), each(p2p, lambda x: x.min(axis=1, keepdims=True)), at(dp, k))
    rows = np.nonzero(near.min(axis=1) <= found.seconds[models] * (1 + SLACK))[0]
    if len(rows):
        tp, p2p, dp = (at(each(x, lambda y: y[rows]), entry) for x, entry in zip(parts, places.entry, strict=True))
        seconds, traffic = total(rows, tp, p2p, dp), added(together(x.loads for x in (tp, p2p, dp))).seconds
        seconds[seconds >= IMPOSSIBLE] = np.inf
        found.improve(models[rows], seconds, traffic, Degrees(*(x[rows] for x in d)), places)


def each(sent: Sent, change: Callable[[Any], Any]) -> Sent:
    """With every column changed."""
    loads = {how: Load(change(load.seconds), 0.0, Busy(map(change, load.busy))) for how, load in sent.loads.items()}
    return Sent(loads, change(sent.wait))


def at(sent: Sent, entry: Any) -> Sent:
    """Some of the placements."""
    return each(sent, lambda x: x[:, entry])


def tables(on: Machine, s: Shape, d: Degrees, places: Placings, whole: bool) -> tuple[Sent, Sent, Sent]:
    """Tensor traffic, messages, gradients of every cell in every placement of their axes."""
    ops, linked = expert(on, s, d), on.overlap.dp.scope != "none" and on.overlap.dp.links == "shared"
    return (
        _table(d, whole, linked, places.tensor, AXES[1:3],
               lambda a, b: tensor(on, s, d, ops, {"tp_model": a, "tp_ff": b})),
        _table(d, whole, linked, places.between, AXES[3:], lambda pp, ep: between(on, s, d, pp, ep)),
        _table(d, whole, linked, places.single, AXES[:1], lambda dp: gradients(on, s, d, dp)),
    )  # fmt: skip


def _table(
    d: Degrees, whole: bool, linked: bool, which: tuple[Lower, ...], axes: tuple[str, ...], send: Callable[..., Sent]
) -> Sent:
    """For each of the placements `which` of some axes; linked: how busy the links are matters."""
    groups = []
    for i, axis in enumerate(axes):
        lower = [np.array([place[i][level] for place in which], float) for level in range(len(which[0][i]))]
        groups.append((*lower, getattr(d, axis) / product(lower)))
    sent = send(*groups)
    possible = np.logical_and.reduce([np.floor(g[-1]) == g[-1] if whole else g[-1] >= 1 for g in groups])

    def full(load: Load) -> Load:
        busy = Busy(np.broadcast_to(b, possible.shape) for b in load.busy if linked)
        return Load(np.where(possible, load.seconds, IMPOSSIBLE), 0.0, busy)

    loads = {how: full(load) for how, load in sent.loads.items()}
    return Sent(loads, np.broadcast_to(sent.wait, possible.shape))
