"""The fastest way to spread each of many models on their chips: exact, by bounds.

Every cell of the grid of degrees gets a bound: the same step (`step_time`) with floors
(`cost.floors`) for its tensor traffic and gradients, and without messages between blocks. Cells are
then placed on the levels of the network best first, in growing chunks, until no bound is below the
best time found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cost.floors import any_links
from ..cost.links import Group
from ..cost.load import Busy, Load
from ..cost.network import Fabric
from ..cost.overlap import added, together
from ..count.work import Op
from ..describe.cluster import NOWHERE
from ..describe.frozen import changed
from ..describe.network import Network
from ..describe.slices import axes as torus_axes
from ..num import minimum, product
from ..search.table import distinct
from .laws import Shape, Values
from .placing import Lower, Placings, placings
from .scenario import Scenario
from .simulate import (
    AXES,
    Degrees,
    Machine,
    Portions,
    Sent,
    beside_gradients,
    between,
    expert,
    gradients,
    idle_share,
    once,
    passes,
    step_time,
    tensor,
)
from .space import Column, Grid, grid

AT_ONCE = 4
"""Models of one grid: its columns stay in the processor's caches."""
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

    def improve(
        self,
        models: Any,
        seconds: Any,
        traffic: Any,
        degrees: Degrees,
        lower: Callable[[int], Lower],
    ) -> None:
        """Take what is faster, or as fast with less traffic: columns, one row a cell and placement.

        lower: where the axes of a row lie.
        """
        fastest = self.seconds.copy()
        np.minimum.at(fastest, models, seconds)
        tied = np.nonzero(
            (seconds <= fastest[models] * (1 + SLACK))
            & (seconds < self.budget[models])
        )[0]
        tied = tied[np.lexsort((traffic[tied], models[tied]))]
        for row in tied[np.unique(models[tied], return_index=True)[1]]:
            model = models[row]
            if (
                fastest[model] < self.seconds[model] * (1 - SLACK)
                or traffic[row] < self.traffic[model]
            ):
                self.seconds[model], self.traffic[model] = (
                    fastest[model],
                    traffic[row],
                )
                self.lower[model] = lower(row)
                for column, value in zip(self.degrees, degrees, strict=True):
                    column[model] = value[row]


def fastest(
    scenario: Scenario, s: Shape, chips: Column, budget: Column
) -> Found:
    """The fastest step of each model on its number of chips, if it takes less than its budget [s].

    s, chips, budget: columns, one row a model.  Of equally fast ones the one with the least
    traffic.
    """
    on = scenario.machine
    found = Found(budget)
    sizes = [levels_of(scenario, n) for n in chips]
    for size in sorted(set(sizes)):
        rows = np.array([i for i, other in enumerate(sizes) if other == size])
        parts = []
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            within = grid(
                s.at(some),
                chips[some],
                on,
                scenario.schedules,
                scenario.whole,
            )
            parts.append(candidates(on, within, some, budget))
        _best_first(
            on,
            s,
            Cells(
                *(
                    np.concatenate(column, axis=-1)
                    for column in zip(*parts, strict=True)
                )
            ),
            placings(
                size,
                exchangeable(scenario.joined),
                bool(scenario.law.experts),
            ),
            scenario.whole,
            found,
        )
    return found


def levels_of(scenario: Scenario, chips: float) -> tuple[int, ...]:
    """Members of each network level but the last: no more than there are chips and, of whole
    numbers, the most that divide them (64 of the 72 of a rack, where chips come in powers of
    two). Raises BadInput if the network joins fewer.
    """
    left, sizes = chips, []
    if scenario.whole:
        # more chips than a description may have are asked for, too
        _ = changed(NOWHERE, network=scenario.joined, chips=int(chips)).sizes
    for dim in scenario.joined.dims[:-1]:
        if scenario.whole:
            most = int(min(dim.size or left, left))
            size = next(n for n in range(most, 0, -1) if left % n == 0)
        else:
            room = 2 ** int(max(np.log2(left), 0.0))
            size = dim.size if dim.size and dim.size <= left else room
        sizes.append(size)
        left /= size
    return tuple(sizes)


def exchangeable(network: Network) -> tuple[int, ...]:
    """A number for each level but the last: axes of a torus that are alike have the same."""
    dims = network.dims[:-1]
    torus = len(torus_axes(network))
    same = [replace(d, name="") for d in dims]
    return tuple(same.index(d) if i < torus else i for i, d in enumerate(same))


class Cells(NamedTuple):
    """Cells worth placing, flat, sorted by model and bound."""

    model: NDArray[np.int64]
    rank: NDArray[np.int64]
    """Position among the cells of the same model."""
    bound: Column
    busy: Column
    degrees: Column
    """A row each."""


def candidates(on: Machine, g: Grid, rows: Any, budget: Column) -> Cells:
    """The cells of a grid whose bound is below the budget.  rows: number of each model of the grid
    among all.
    """
    where = np.nonzero(g.valid)
    model = where[0]
    s = Shape(*(_cells(x, where) for x in g.shape))
    d = Degrees(*(_cells(x, where) for x in g.degrees))
    # one visit of an expert is alike in many cells: their tokens are what dp and m leave together
    first, which = distinct([model, where[1], d.dp * d.microbatches])
    alike = Degrees(*(x[first] for x in d))
    ops = expert(on, Shape(*(x[first] for x in s)), alike)
    busy = passes(s, d) * np.asarray(once(on, ops))[which]
    least = visited(on, alike, ops)
    visit = Load(
        np.asarray(least.seconds)[which], np.asarray(least.latency)[which]
    )
    seconds = step_time(
        on,
        busy,
        idle_share(on, d),
        d.zero_bubble,
        beside_gradients(on, s, d),
        *floors(on, s, d, visit),
    )
    bound = seconds * (1 - SLACK)
    kept = np.flatnonzero(bound < budget[rows][model])
    kept = kept[np.lexsort((bound[kept], model[kept]))]
    model = model[kept]
    rank = np.arange(len(model)) - np.searchsorted(model, model)
    degrees = np.stack([x[kept] for x in d])
    return Cells(rows[model], rank, bound[kept], busy[kept], degrees)


def _cells(x: Any, where: tuple[Any, ...]) -> Column:
    """The cells that exist, of a column that is broadcast over a grid."""
    x = np.asarray(x)
    at = zip(x.shape, where[len(where) - x.ndim :], strict=True)
    index = [cell if wide > 1 else 0 for wide, cell in at]
    cells: Column = x[tuple(index)]
    return np.broadcast_to(cells, len(where[0]))


def visited(on: Machine, d: Degrees, ops: list[Op]) -> Load:
    """Tensor traffic of one forward visit of an expert at least, wherever the ranks lie."""
    ranks = {"tp_model": d.tp_model, "tp_ff": d.tp_ff}
    least = [
        floor(on.fabric, m.bytes, ranks[m.axis])
        for op in ops
        for m in op.forward.comm
    ]
    return Load(sum(x.seconds for x in least), sum(x.latency for x in least))


def floors(
    on: Machine, s: Shape, d: Degrees, visit: Load
) -> tuple[Sent, Sent, Sent]:
    """Tensor traffic, messages (their latency alone) and gradients at least, wherever the ranks
    lie.  visit: `visited`.
    """
    held = floor(
        on.fabric, s.parameters / d.shards * on.precision.gradient_bytes, d.dp
    )
    hop = min(float(h.latency) for h in on.fabric.neighbours(1.0))
    crossed = np.where(
        d.ep > 1,
        2 * (s.L - 1),
        np.where(d.pp > 1, 2 * (d.interleave * d.pp - 1), 0.0),
    )
    traffic = Load(2 * passes(s, d) * visit.seconds)
    return (
        Sent({on.overlap.tp: traffic}, 2 * s.L * visit.latency),
        Sent({}, crossed * hop),
        Sent({on.overlap.dp: Load(held.seconds)}, held.latency),
    )


def floor(fabric: Fabric, V: Values, n: Values) -> Load:
    """(seconds by bytes, latency) that no all-reduce of n ranks undercuts, nor several of them at
    once by their sum.

    That of the algorithm for ranks that all lie nearest, but no more than the bytes take over all
    links of a chip.
    """
    near: Group = (n, *(1.0 for _ in fabric.rates[1:]))
    least = fabric.bound.load("all_reduce", V, near)
    over_all = any_links(fabric, "all_reduce", V, near).seconds
    return Load(
        minimum(least.seconds - least.latency, over_all), least.latency
    )


def _best_first(
    on: Machine,
    s: Shape,
    cells: Cells,
    places: Placings,
    whole: bool,
    found: Found,
) -> None:
    """Place cells in growing chunks until no bound is below the best."""
    start = 0
    chunks = iter(CHUNKS)
    while True:
        open_ = (cells.rank >= start) & (
            cells.bound <= found.seconds[cells.model] * (1 + SLACK)
        )
        if not np.any(open_):
            return
        width = next(chunks, CHUNKS[-1])
        mine = np.nonzero(open_ & (cells.rank < start + width))[0]
        if len(mine):
            _place(on, s, cells, mine, places, whole, found)
        start += width


def _place(
    on: Machine,
    s: Shape,
    cells: Cells,
    mine: Any,
    places: Placings,
    whole: bool,
    found: Found,
) -> None:
    """Every placement of some cells, axis by axis: of those not placed yet the best counts, and
    only what may still be the fastest goes on."""
    models = cells.model[mine]
    busy = cells.busy[mine]
    flat = Degrees(*cells.degrees[:, mine])
    idle = idle_share(on, flat)
    portions = beside_gradients(on, s.at(models), flat)
    parts = tables(
        on,
        Shape(*(x[models, None] for x in s)),
        Degrees(*(x[:, None] for x in flat)),
        places,
        whole,
    )
    limit = found.seconds[models] * (1 + SLACK)
    open_ = np.ones((len(mine), 1), dtype=bool)
    for entries, before in places.rounds:
        row, place = np.nonzero(open_[:, before])
        tp, p2p, dp = (
            _at(x, (row, entry[place]))
            for x, entry in zip(parts, entries, strict=True)
        )
        seconds = step_time(
            on,
            busy[row],
            idle[row],
            flat.zero_bubble[row],
            _at_rows(portions, row),
            tp,
            p2p,
            dp,
        )
        fast = (seconds <= limit[row]) & (seconds < IMPOSSIBLE)
        open_ = np.zeros((len(mine), len(before)), dtype=bool)
        open_[row, place] = fast
    if fast.any():
        traffic = np.asarray(
            added(together(x.loads for x in (tp, p2p, dp))).seconds
        )[fast]
        row = row[fast]
        place = place[fast]
        degrees = Degrees(*(x[row] for x in flat))
        found.improve(
            models[row],
            seconds[fast],
            traffic,
            degrees,
            lambda i: places.lower(place[i]),
        )


def tables(
    on: Machine, s: Shape, d: Degrees, places: Placings, whole: bool
) -> tuple[Sent, Sent, Sent]:
    """Tensor traffic, messages, gradients of every cell in every placement of their axes."""
    ops = expert(on, s, d)
    tp, p2p, dp = (
        _table(d, whole, which, axes, send)
        for which, axes, send in (
            (
                places.tensor,
                AXES[1:3],
                lambda a, b: tensor(
                    on, s, d, ops, {"tp_model": a, "tp_ff": b}
                ),
            ),
            (
                places.between,
                AXES[3:],
                lambda pp, ep: between(on, s, d, pp, ep),
            ),
            (places.single, AXES[:1], lambda dp: gradients(on, s, d, dp)),
        )
    )
    return tp, p2p, dp


def _table(
    d: Degrees,
    whole: bool,
    which: tuple[Lower, ...],
    axes: tuple[str, ...],
    send: Callable[..., Sent],
) -> Sent:
    """For each of the placements `which` of some axes."""
    groups = []
    for i, axis in enumerate(axes):
        lower = [
            np.array([place[i][level] for place in which], float)
            for level in range(len(which[0][i]))
        ]
        groups.append((*lower, getattr(d, axis) / product(lower)))
    sent = send(*groups)
    possible = np.logical_and.reduce(
        [np.floor(g[-1]) == g[-1] if whole else g[-1] >= 1 for g in groups]
    )

    def full(x: Any) -> Any:
        """A column for each placement, and the best of all in the last."""
        every = np.where(possible, x, IMPOSSIBLE)
        return np.concatenate(
            [every, every.min(axis=1, keepdims=True)], axis=1
        )

    return each(sent, full)


def _at_rows(portions: Portions, row: Any) -> Portions:
    """Of some cells."""

    def of(x: Values) -> Values:
        return x if isinstance(x, float) else x[row]

    return tuple((of(part), of(share)) for part, share in portions)


def _at(sent: Sent, entry: Any) -> Sent:
    """Some entries of a table."""
    return each(sent, lambda column: column[entry])


def each(sent: Sent, change: Callable[[Any], Any]) -> Sent:
    """With every column changed."""
    loads = {
        how: Load(change(load.seconds), 0.0, Busy(map(change, load.busy)))
        for how, load in sent.loads.items()
    }
    return Sent(loads, change(sent.wait))
