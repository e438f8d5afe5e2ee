"""An order arranged to be replayed with any durations: by level, and with the group of microbatches
that repeats.

With many microbatches most of an order repeats: after the pipeline is filled the same levels come
again for each further group of microbatches, until it drains. So only a short order is built, with
few groups, and its last whole group is run again for every group that is left out. A group is as
long as its actions look back: of 1F1B one microbatch, of ranks that run further ahead two or more.

That the order of m microbatches is the short one with its last group run again is seen on one
group more: orders are made by rules of which m says only how often a group comes, so what one group
adds every further one adds. It is not proven for any order that somebody may write: where m decides
on more (`costed`, or a rule that counts microbatches from the end), a test holds replays of short
orders of every schedule against the timeline of whole ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import groups as sizes
from .order import NOTHING, ROUNDS, dependencies
from .types import Action, Order, ScheduleOrder

Index: TypeAlias = NDArray[np.intp]


class RepeatedGroup(NamedTuple):
    """The last group of microbatches before an order drains, which may be run any number of times.
    No action of it looks back further than to the group before, and none of the drain further than
    to it.
    """

    levels: slice
    """Its levels."""
    previous: slice
    """The actions of the group before."""
    actions: slice
    """Its own, in the same arrangement."""


@dataclass(frozen=True, eq=False)
class ReplayProgram:
    """An order, ready to be replayed with any durations. Actions are numbered by level; behind them
    come the ranks, at the time when they are free, and what no action waits for.
    """

    levels: tuple[slice, ...]
    """The actions of each level."""
    before: Index
    """The action before on the rank, or the rank."""
    needs: Index
    """The action of another stage that it waits for."""
    boundary: Index
    """Between which stages that one is sent: 0 the first two; NOTHING: it runs on the same rank."""
    duration: Index
    """Which of the durations, by (kind, stage), is that of the action."""
    ends: Index
    """The last action of each rank."""
    group: RepeatedGroup | None = None
    """None: there is none that repeats."""

    @cached_property
    def actions(self) -> list[tuple[int, int, int, int, int]]:
        """The number of each action, and the same of it."""
        columns = self.before, self.needs, self.boundary, self.duration
        each = (column.tolist() for column in columns)
        return [*zip(range(len(self.before)), *each, strict=True)]


def period(schedule: ScheduleOrder, p: int, m: int) -> int:
    """Microbatches after which an order may repeat: of a group, else one for each copy."""
    if schedule.grouped:
        return int(sizes.group_size(p, m, schedule.group))
    return schedule.copies


def replay_program(
    schedule: ScheduleOrder, p: int, m: int, v: int
) -> tuple[ReplayProgram, int]:
    """(A program, how often its group is run again for m microbatches)."""
    if schedule.costed:  # what holds for these costs is asked once
        return _program.__wrapped__(schedule, p, m, v, 0), 0
    schedule, each, few = short_order(schedule, p, m)
    while few < m:
        program = _program(schedule, p, few, v, each=each)
        if program.group:
            return program, (m - few) // each
        # orders that do not repeat yet, or whose actions look back further than a group
        few = 2 * (few - m % each) + m % (2 * each)
        each *= 2
    return _program(schedule, p, m, v, each=0), 0


def short_order(
    schedule: ScheduleOrder, p: int, m: int
) -> tuple[ScheduleOrder, int, int]:
    """(The schedule with the groups that it has with m microbatches, microbatches of a group, and
    of the shortest order that may repeat)."""
    each = period(schedule, p, m)
    # of fewer microbatches the groups would be others
    if schedule.grouped and each >= p:
        schedule = schedule.grouped(each)
    filled = ROUNDS * -(-max(p, each) // each)  # in groups
    return schedule, each, filled * each + m % each


def repeats(schedule: ScheduleOrder, p: int, m: int, v: int) -> bool:
    """The shortest order that may repeat does: that of m microbatches takes no more memory."""
    if schedule.costed or schedule.by_costs:
        return False
    schedule, each, few = short_order(schedule, p, m)
    return few < m and bool(_program(schedule, p, few, v, each=each).group)


# a plan asks for the same pipelines again and again: 146 of 70B on 1,024 chips, in 14 MB
@lru_cache(maxsize=256)
def _program(
    schedule: ScheduleOrder, p: int, m: int, v: int, each: int
) -> ReplayProgram:
    """The order of a schedule by level; each: microbatches of a group that may repeat, 0: none."""
    order = schedule.order(p, m, v)
    d = dependencies(order, schedule.placement(p, v))
    stages, first = int(schedule.stage_count(p, v)), d.first
    duration = d.kind * stages + d.stage
    count = len(d.level)
    by_level = np.argsort(d.level, kind="stable")
    number = np.empty(count + 1, dtype=np.intp)
    number[by_level] = np.arange(count)
    number[NOTHING] = count + p
    before = number[np.arange(count) - 1]
    started = np.diff(first) > 0
    before[first[:-1][started]] = count + np.flatnonzero(started)
    bounds = np.searchsorted(
        d.level[by_level], np.arange(d.level.max(initial=-1) + 2)
    ).tolist()
    program = ReplayProgram(
        tuple(map(slice, bounds[:-1], bounds[1:])),
        before[by_level],
        number[d.needs[by_level]],
        boundary=d.boundary[by_level],
        duration=duration[by_level],
        ends=np.where(started, number[first[1:] - 1], count + np.arange(p)),
    )
    if not each:
        return program
    what = np.stack([d.rank, duration, d.microbatch])[:, by_level]
    depths = np.split(d.level, first[1:-1])
    longer = schedule.order(p, m + each, v)
    group = _group(
        program, what, depths, order=order, longer=longer, each=each
    )
    return replace(program, group=group)


def _group(
    program: ReplayProgram,
    what: Index,
    depths: list[Index],
    order: Order,
    longer: Order,
    each: int,
) -> RepeatedGroup | None:
    """The last group of `each` microbatches of an order that is arranged like the one before it;
    longer: the order of so many more, which has to run that group once more and else the same.

    what: (rank, kind and stage, microbatch) of each action of the program;  depths: the levels of
    each rank's actions.
    """
    # in the steady state all ranks run an action in every level
    levels = len(longer[0]) - len(order[0])
    size = levels * len(order)
    later = what[:, size:] - what[:, :-size]
    same = (later == [[0], [0], [each]]).all(axis=0)
    for top in range(len(program.levels), 2 * levels - 1, -1):
        stop = program.levels[top - 1].stop
        start = stop - size
        if (
            program.levels[top - levels].start == start >= size
            and same[start - size : start].all()
        ):
            break
    else:
        return None
    for row, more, own in zip(order, longer, depths, strict=True):
        k = int(np.searchsorted(own, top))
        again = [
            Action(kind, chunk, n + each)
            for kind, chunk, n in row[k - levels :]
        ]
        if more != row[:k] + again:
            return None
    back = (
        program.needs[start:stop].min(),
        program.needs[stop:].min(initial=stop),
    )
    if back[0] < start - size or back[1] < start:
        return None
    return RepeatedGroup(
        slice(top - levels, top),
        slice(start - size, start),
        slice(start, stop),
    )
