"""What a search chooses among before ranks have their place: rows, and intervals of dp, each with
seconds that its layers alone take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..num import ceil_div
from ..step import model_cost
from .bound import (
    layer_seconds,
    least_layers,
    may_fit,
    optimistic_clock,
    pipeline_seconds,
)
from .columns import layouts
from .degrees import (
    dp_step,
    expand_dp,
    microbatch_count,
    replicas,
    space_mask,
    with_pipelines,
)
from .legal import legal_splits
from .space import Space
from .state import SearchState
from .table import (
    Column,
    Grid,
    Index,
    Mask,
    Table,
    distinct,
    keep,
    length,
    pick,
    stack_rows,
)

BESIDE_MICROBATCH = ("tp", "cp", "ep", "etp", "panels")
"""The other degrees of splits."""


class Intervals(NamedTuple):
    """Rows, or intervals of dp, that have no place yet."""

    low: Table
    """With the smallest dp."""
    high: Table
    """With the largest dp."""
    bound: Column
    """Seconds that none of their layouts undercuts, as far as is known."""

    @property
    def replica_counts(self) -> Column:
        """Numbers of replicas that each stands for."""
        span = self.high["dp"] - self.low["dp"]
        return np.asarray(np.floor(span / dp_step(self.low)) + 1)

    def each_dp(self, space: Space) -> Table:
        """A row for every number of replicas of each that the space allows."""
        rows = expand_dp(self.low, self.high["dp"], dp_step(self.low))
        return keep(rows, space_mask(rows, space, "dp"))

    def join(self, *others: Intervals) -> Intervals:
        """Together with others."""
        low, high, bound = zip(self, *others, strict=True)
        return Intervals(
            stack_rows(*low), stack_rows(*high), np.concatenate(bound)
        )


@dataclass(frozen=True)
class Candidates:
    """Splits and pipelines of a space, with what their layers take."""

    state: SearchState
    splits: Table
    layers: Grid
    """`least_layers` of the splits."""
    degrees: Table
    """Pipelines, with their numbers of chunks."""

    @classmethod
    def from_splits(
        cls, state: SearchState, splits: Table, degrees: Table
    ) -> Candidates:
        """These splits with these pipelines. Nothing makes a microbatch cheaper than no pipeline,
        the most replicas (the fewest add up gradients), every group nearest and nothing computed
        again.
        """
        job = state.job
        one = np.ones(length(splits))
        alone = splits | {"pp": one, "interleave": one}
        anything = replace(state.space, relaxed=True)
        # shards of more ranks than there are chips are cut later; costs need one replica
        dp = np.maximum(replicas(job, alone, anything), 1.0)
        variants = layouts(job, state.options, alone | {"dp": dp})
        clock = optimistic_clock(job, state.space.relaxed)
        costs = [model_cost(job, rows, clock) for rows in variants]
        return cls(state, splits, least_layers(costs), degrees)

    def rows(
        self, limit: float = np.inf, some: Any = slice(None)
    ) -> Intervals:
        """Rows with their most replicas, bounded by what their layers take, within a limit; of some
        splits, a mask or all. What layers take does not depend on chunks, which come last.
        """
        pp, part = np.unique(self.degrees["pp"]), pick(self.splits, some)
        grid = {k: c[:, None] for k, c in part.items()} | {"pp": pp}
        dp = replicas(self.state.job, grid, self.state.space)
        grid = {"dp": dp, "bound": self._seconds(grid | {"dp": dp})}
        fine = grid["bound"] <= limit
        rows = with_pipelines(part, self.degrees, grid | {"dp": dp * fine})
        bound = rows.pop("bound")
        return Intervals(rows, rows, bound)

    def bounded(self, rows: Table) -> Intervals:
        """These rows, bounded by what their layers take."""
        return Intervals(rows, rows, self._seconds(rows))

    def _seconds(self, rows: Table) -> Column:
        """What all microbatches take in the layers of a device."""
        layers = self.layers[:, rows["split"].astype(np.intp)]
        one = layer_seconds(
            self.state.job, self.state.options.copies, rows["pp"], layers
        )
        return microbatch_count(self.state.job, rows) * one

    def pipelines_within(self, rows: Table, limit: float) -> NDArray[np.bool_]:
        """Where pipelines of layers alone are within the limit in the order of some schedule."""
        # papers' bubbles are no paths of an order
        fine: NDArray[np.bool_] = (
            (rows["pp"] == 1)
            | (limit == np.inf)
            | (not self.state.job.how.overlap.follows_schedule)
        )
        for option in self.state.options.schedules:
            tried = option.allows(
                self.state.job, rows["pp"], rows["interleave"]
            )
            index = np.flatnonzero(tried & ~fine)
            some = pick(rows, index)
            layers = self.layers[:, some["split"].astype(np.intp)]
            m = microbatch_count(self.state.job, some)
            fine[index] = (
                pipeline_seconds(
                    self.state.job, option, some, m=m, layers=layers
                )
                <= limit
            )
        return fine

    def smallest_microbatches(self) -> tuple[Index, Mask]:
        """(group of each split: a number that splits share which differ in microbatch alone; mask
        of the splits with the smallest microbatch of their group that is legal under some setting
        of sequence parallelism).
        """
        splits = self.splits
        _, group = distinct([splits[k] for k in BESIDE_MICROBATCH])
        least: Mask = np.zeros(len(group), dtype=bool)
        for runs in legal_splits(self.state.job, splits, self.state.options):
            can = np.flatnonzero(runs)
            least[can[np.unique(group[can], return_index=True)[1]]] = True
        return group, least

    def fewer_replicas(self, rows: Intervals) -> Intervals:
        """The intervals of dp below the most replicas of each row, for every number within the
        limit.
        """
        first, *others = self._intervals(rows.high, rows.bound)
        return first.join(*others)

    def _intervals(self, high: Table, bound: Column) -> Iterator[Intervals]:
        """`fewer_replicas` from the top down; in each interval every dp gives the same number of
        microbatches m, since time by layers is m times what one takes. The longest has m = B /
        microbatch at dp 1. A row ends where m of them exceed the limit, for fewer replicas only
        have more.
        """
        state, job, B = self.state, self.state.job, float(self.state.job.batch)
        if state.limit == np.inf:
            fine = may_fit(state, high)
            high, bound = keep(high, fine), bound[fine]
        one = bound / microbatch_count(job, high)
        while True:
            increment = dp_step(high)
            high = high | {"dp": high["dp"] - increment}
            fine = (high["dp"] >= 1) & (
                microbatch_count(job, high) * one <= state.limit
            )
            high, one = pick((high, one), fine)
            m = microbatch_count(job, high)
            least = ceil_div(B, m * high["microbatch"])
            low = high | {
                "dp": ceil_div(least, increment[fine]) * increment[fine]
            }
            fine = self._holds_dp(low["dp"], high["dp"])
            yield pick(Intervals(low, high, m * one), fine)
            if not len(m):
                return
            high = low

    def _holds_dp(self, low: Column, high: Column) -> Any:
        """Which intervals hold a number of replicas that the space allows."""
        only = self.state.space.values("dp")
        if only is None:
            return slice(None)
        only = np.sort(only)
        first = np.searchsorted(only, low, "left")
        return first < np.searchsorted(only, high, "right")
