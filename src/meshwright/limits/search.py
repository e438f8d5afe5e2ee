"""The fastest way to spread each of many models on their chips: exact, by bounds.

Every cell of the space of degrees gets a bound: the same step where every message takes the least
that it may. Cells are then placed on the levels of the network best first, some at a time, until no
bound is below the best time: the tensor axes beside the least of the others, then all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..cost.load import Busy
from ..describe.cluster import NOWHERE
from ..describe.frozen import with_values
from ..describe.network import Network
from ..describe.slices import axes as torus_axes
from ..search import pick
from .laws import LawShape
from .placing import TENSOR, Lower, Placings, placings
from .scenario import Scenario
from .simulate import (
    AXES,
    Degrees,
    Parts,
    StepSeconds,
    simulate,
    step_parts,
    step_seconds,
    tensor,
)
from .space import Cells, Column, cells

AT_ONCE = 2**15
"""Cells times places of their tensor axes in one go: so many that calls of NumPy do not count, so
few that the best of the first drop most of the others, and that all stay in the caches. 2^13 and
2^17 take twice as long."""
SLACK = 1e-12
"""Relative differences below this are rounding."""


class Spread(NamedTuple):
    """How a step is spread, and what it takes: numbers."""

    degrees: Degrees
    lower: Lower
    """For each axis, its ranks in every level but the last."""
    step: StepSeconds


def fastest(
    scenario: Scenario,
    s: LawShape,
    chips: Column,
    budget: Column,
    enough: bool = False,
) -> dict[int, Spread]:
    """Position of a model -> its fastest step, of the models that take at most their budget [s]
    on their number of chips; of equally fast ones the one with the least traffic.

    s, chips, budget: columns, one row a model.  enough: any that is within its budget will do.
    """
    best: dict[int, Spread] = {}
    sizes = [levels_of(scenario, n) for n in chips]
    alike, experts = exchangeable(scenario.joined), bool(scenario.law.experts)
    for size in sorted(set(sizes)):
        models = np.array([i for i, own in enumerate(sizes) if own == size])
        cells = below_budget(scenario, s, chips, models=models, budget=budget)
        places = placings(size, alike, experts)
        best |= _best_first(scenario, cells, places, budget, enough)
    return best


def levels_of(scenario: Scenario, chips: float) -> tuple[int, ...]:
    """Members of each network level but the last: no more than there are chips and, of whole
    numbers, the most that divide them (64 of the 72 of a rack, where chips come in powers of
    two). Raises BadInput if the network joins fewer.
    """
    left, sizes = chips, []
    if scenario.whole:
        # more chips than a description may have are asked for, too
        _ = with_values(
            NOWHERE, network=scenario.joined, chips=int(chips)
        ).sizes
    for dim in scenario.joined.dims[:-1]:
        if scenario.whole:
            most = int(min(dim.size or left, left))
            size = next(n for n in range(most, 0, -1) if left % n == 0)
        else:
            # less than one rank left over takes one place
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


class Bounded(NamedTuple):
    """Cells worth placing: the best of every model, then the second best of every one."""

    cells: Cells
    least: Parts
    """Their products, and what they send at least, wherever their ranks lie."""
    bound: Column
    """Seconds of a step that no placement undercuts."""


def below_budget(
    scenario: Scenario, s: LawShape, chips: Column, models: Any, budget: Column
) -> Bounded:
    """The cells of some models whose bound is below the budget."""
    on = scenario.machine
    rows = cells(
        s.at(models),
        chips[models],
        on,
        schedules=scenario.schedules,
        whole=scenario.whole,
    )
    _, shape, d = rows
    model = models[rows.model]
    # a bound: as if every group had the nearest level to itself, and each message its floor
    beyond = (1.0,) * (len(on.fabric.rates) - 1)
    nearest = {axis: (getattr(d, axis), *beyond) for axis in AXES}
    least = step_parts(on.bound, shape, d, nearest)
    bound = step_seconds(on, shape, d, least).total * (1 - SLACK)
    # which links gradients load beside tensor axes that lie somewhere is not known
    least = least._replace(dp=least.dp._replace(busy=Busy()))
    below = np.flatnonzero(bound < budget[model])
    order = below[np.lexsort((bound[below], model[below]))]
    rank = np.arange(len(order)) - np.searchsorted(model[order], model[order])
    order = order[np.argsort(rank, kind="stable")]
    return Bounded(*pick((Cells(model, shape, d), least, bound), order))


def _best_first(
    scenario: Scenario,
    cells: Bounded,
    places: Placings,
    budget: Column,
    enough: bool,
) -> dict[int, Spread]:
    """The best of each model: cells are placed until no bound is below the best time (enough: or
    until one is within the budget).
    """
    model, _, degrees = cells.cells
    width = max(AT_ONCE // len(places.of_tensors[0]), 1)
    best = budget.copy()
    placed = [np.empty((2 + len(StepSeconds._fields), 0))]
    left = np.arange(len(model))
    while len(left):
        chunk, left = left[:width], left[width:]
        row, way, step = place(scenario, pick(cells, chunk), places, best)
        np.minimum.at(best, model[chunk[row]], step.total)
        placed.append(np.stack([chunk[row], way, *step]))
        left = left[cells.bound[left] <= best[model[left]] * (1 + SLACK)]
        if enough:
            left = left[~np.isin(model[left], model[chunk[row]])]
    cell, way, *columns = np.concatenate(placed, axis=1)
    cell, way = cell.astype(np.intp), way.astype(np.intp)
    step, model = StepSeconds(*columns), model[cell]
    # of equally fast ones the least traffic, and then the first
    ties = np.flatnonzero(step.total <= best[model] * (1 + SLACK))
    ties = ties[np.lexsort((step.traffic[ties], model[ties]))]
    return {
        int(model[row]): Spread(
            Degrees(*(float(column[cell[row]]) for column in degrees)),
            places.lower(way[row]),
            StepSeconds(*(float(column[row]) for column in columns)),
        )
        for row in ties[np.unique(model[ties], return_index=True)[1]]
    }


def place(
    scenario: Scenario, cells: Bounded, places: Placings, best: Column
) -> tuple[Any, Any, StepSeconds]:
    """(cell, placement, step) of every placement of some cells that may be the fastest of its
    model.
    """
    on = scenario.machine
    model, s, d = cells.cells
    limit = best[model] * (1 + SLACK)
    # most ways to place the tensor axes lose already, whatever the others do, and for each of them
    # (some 650 on a torus) the other axes may lie in hundreds of ways
    first, which = places.of_tensors
    wide, deep, least = pick((s, d, cells.least), (slice(None), None))
    sent = tensor(on, wide, deep, places.groups(deep, first))
    quick = step_seconds(on, wide, deep, least._replace(tp=sent)).total
    fine = (quick <= limit[:, None]) & places.fit(
        deep, first, TENSOR, scenario.whole
    )
    cell, way = np.nonzero(fine[:, which])
    fine = places.fit(pick(d, cell), way, AXES, scenario.whole)
    cell, way = cell[fine], way[fine]
    s, d = pick((s, d), cell)
    step = simulate(on, s, d, places.groups(d, way))
    fast = step.total <= limit[cell]
    return cell[fast], way[fast], pick(step, fast)
