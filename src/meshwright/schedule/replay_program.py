"""An order arranged to be replayed with any durations: by level, and with the group of microbatches
that repeats.

An action waits for the one before it on its rank and for at most one on another stage: F for the F
of the stage before, B or I for that of the stage after (its own F, and the I of a W, lie before it
on its own rank in every order that can run). So actions fall into levels, those of one level need
none of each other.

With many microbatches most of an order repeats: after the pipeline is filled the same levels come
again for each further group of microbatches, until it drains. So only a short order is built, with
few groups, and its last whole group is run again for every group that is left out.

That the order of m microbatches is the short one with its last group run again is seen on one
group more: orders are made by rules of which m says only how often a group comes, so what one group
adds every further one adds. It is not proven for any order that somebody may write: where m decides
on more (`costed`, or a rule that counts microbatches from the end), a test holds replays of short
orders of every schedule against the timeline of whole ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import groups as sizes
from .order import ROUNDS
from .types import Action, Order, ScheduleOrder

Index: TypeAlias = NDArray[np.intp]
KINDS = "FIWB"
"""Kinds of actions, in the order of a program's durations."""
NOTHING = -1
"""No action."""


class RepeatedGroup(NamedTuple):
    """The last group of microbatches before an order drains, which may be run any number of times.
    No action of it looks back further than to the group before, and none of the drain further than
    to it.
    """

    levels: slice
    then: slice
    """The actions of the group before."""
    now: slice
    """Its own, in the same arrangement."""

    @property
    def size(self) -> int:
        return int(self.now.stop - self.now.start)


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
    lasts: Index
    """Which of (kind, stage) the action is: its duration."""
    ends: Index
    """The last action of each rank."""
    group: RepeatedGroup | None = None
    """None: there is none that repeats."""

    @cached_property
    def actions(self) -> list[tuple[int, int, int, int, int]]:
        """The number of each action, and the same of it."""
        columns = self.before, self.needs, self.boundary, self.lasts
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
    each = period(schedule, p, m)
    # of fewer microbatches the groups would be others
    if schedule.grouped and each >= p:
        schedule = schedule.grouped(each)
    filled = ROUNDS * -(
        -max(p, each) // each
    )  # in groups; orders that do not repeat yet: twice
    while (few := filled * each + m % each) < m:
        program = _program(schedule, p, few, v, each=each)
        if program.group:
            return program, (m - few) // each
        filled *= 2
    return _program(schedule, p, m, v, each=0), 0


@lru_cache(maxsize=64)
def _program(
    schedule: ScheduleOrder, p: int, m: int, v: int, each: int
) -> ReplayProgram:
    """The order of a schedule by level; each: microbatches of a group that may repeat, 0: none."""
    order = schedule.order(p, m, v)
    first = _firsts(order)
    rank = np.repeat(np.arange(p), np.diff(first))
    needs, boundary, lasts, microbatch = _actions(
        schedule, order, rank, m=m, at=(p, v)
    )
    level = np.array(_levels(first.tolist(), needs.tolist()), dtype=np.intp)
    count = len(level)
    by_level = np.argsort(level, kind="stable")
    number = np.empty(count + 1, dtype=np.intp)
    number[by_level] = np.arange(count)
    number[NOTHING] = count + p
    before = number[np.arange(count) - 1]
    started = np.diff(first) > 0
    before[first[:-1][started]] = count + np.flatnonzero(started)
    bounds = np.searchsorted(
        level[by_level], np.arange(level.max(initial=-1) + 2)
    ).tolist()
    program = ReplayProgram(
        tuple(map(slice, bounds[:-1], bounds[1:])),
        before[by_level],
        number[needs[by_level]],
        boundary=boundary[by_level],
        lasts=lasts[by_level],
        ends=np.where(started, number[first[1:] - 1], count + np.arange(p)),
    )
    if not each:
        return program
    alike = np.stack([rank, lasts, microbatch])[:, by_level]
    longer = schedule.order(p, m + each, v)
    group = _group(
        program, alike, level, order=order, longer=longer, each=each
    )
    return replace(program, group=group)


def _firsts(order: Order) -> Index:
    """The first action of each rank, of all rank by rank, and how many there are."""
    return np.cumsum([0, *map(len, order)])


def _actions(
    schedule: ScheduleOrder,
    order: Order,
    rank: Index,
    m: int,
    at: tuple[int, int],
) -> tuple[Index, Index, Index, Index]:
    """(the action needed of another stage or -1, the boundary over which that one is sent or -1,
    which of (kind, stage) it is, the microbatch) of each action, rank by rank. rank: of each
    action;  at: (p, v).
    """
    p, v = at
    stages = int(schedule.stage_count(p, v))
    chunks = range(int(schedule.chunks(v)))
    kinds, chunk, microbatch = zip(*chain(*order), strict=True)
    kind = np.array([*map(KINDS.index, kinds)])
    stage = np.array(
        [[schedule.stage_of(r, c, p, v) for c in chunks] for r in range(p)]
    )[rank, list(chunk)]
    down = kind == KINDS.index("F")
    # what comes in and goes out: the stages' outputs, then the gradients of their inputs
    comes = np.where(down, stage - 1, stages + stage + 1)
    goes = np.where(down, stage, stages + stage)
    alone = np.where(down, stage == 0, stage == stages - 1)
    weights = kind == KINDS.index("W")
    made = np.full(2 * stages * m + 1, NOTHING, dtype=np.intp)
    number = np.array(microbatch)
    some = np.flatnonzero(~weights)
    made[goes[some] * m + number[some]] = some
    needs = made[np.where(alone | weights, -1, comes * m + number)]
    sent = (needs >= 0) & (rank[needs] != rank)
    boundary = np.where(sent, np.where(down, stage - 1, stage), NOTHING)
    return needs, boundary, kind * stages + stage, number


def _levels(first: list[int], needs: list[int]) -> list[int]:
    """The level of each action, rank by rank.

    first: the first action of each rank, and how many there are;  needs: as in `_actions`.
    """
    level = [NOTHING] * first[-1]
    waiting: dict[int, int] = {}  # action -> the rank that waits for it
    at = first[:-1]
    ready = list(range(len(at)))[::-1]
    while ready:
        rank = ready.pop()
        k = at[rank]
        depth = level[k - 1] + 1 if k > first[rank] else 0
        while k < first[rank + 1]:
            need = needs[k]
            if need >= 0:
                if level[need] < 0:
                    waiting[need] = rank
                    break
                depth = max(depth, level[need] + 1)
            level[k] = depth
            if k in waiting:
                ready.append(waiting.pop(k))
            depth += 1
            k += 1
        at[rank] = k
    return level


def _group(
    program: ReplayProgram,
    alike: Index,
    level: Index,
    order: Order,
    longer: Order,
    each: int,
) -> RepeatedGroup | None:
    """The last group of `each` microbatches of an order that is arranged like the one before it;
    longer: the order of so many more, which has to run that group once more and else the same.

    alike: (rank, kind and stage, microbatch) of each action of the program;  level: of each action,
    rank by rank.
    """
    # in the steady state all ranks run an action in every level
    levels = len(longer[0]) - len(order[0])
    size = levels * len(order)
    later = alike[:, size:] - alike[:, :-size]
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
    rows = zip(
        order, longer, np.split(level, _firsts(order)[1:-1]), strict=True
    )
    for row, more, own in rows:
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
