"""The longest path of an order for many sets of durations at once: what `timeline` finds, without
saying when each action runs; and what lies on the path of one.

An order is arranged by levels (`replay_program`), and a level is one operation on arrays: (actions
of the level) x (layouts that run this order). What is left out of a long order is run again on the
ends of the groups before it. Where all actions of a group come later than those of the group before
by one and the same time, so do those of every further group, because each is the maximum and the
sum of the same terms, all shifted: then the rest is multiplied. Where the longest loop of waits
passes several microbatches (one over k ranks may pass k), it is the group so many before that all
come later than. Both are exact but for rounding (`SHIFTED`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .order import KINDS, NOTHING
from .replay_program import RepeatedGroup, ReplayProgram, replay_program
from .types import Costs, ScheduleOrder

Floats: TypeAlias = NDArray[np.float64]
SHIFTED = 1e-13
"""Of the time so far: rounding of a group's shift."""
WIDE = 24
"""Actions of a level, of all layouts: with fewer, an operation on arrays takes longer than each on
its own."""


def longest(
    schedule: ScheduleOrder,
    p: int,
    m: int,
    v: int,
    passes: Floats,
    sends: Floats,
    barrier: bool = True,
) -> Floats:
    """Seconds of a step for each layout: the longest path or, without a barrier, what a second step
    adds to one.

    passes: (layouts, stages, 3) seconds of F, I and W of one microbatch;  sends: (layouts,
    boundaries) seconds of one over each boundary between stages.
    """
    if not schedule.by_costs:  # else every layout has an order of its own
        run = _run(schedule, p, m, v, barrier=barrier)
        if run.wide(len(sends)):
            return run.by_levels(passes, sends)
    paths = [
        longest_path(
            schedule, p, m, v, passes=seconds, sends=between, barrier=barrier
        )
        for seconds, between in zip(passes, sends, strict=True)
    ]
    return np.array([path.seconds for path in paths])


def longest_path(
    schedule: ScheduleOrder,
    p: int,
    m: int,
    v: int,
    passes: Floats,
    sends: Floats,
    barrier: bool = True,
) -> LongestPath:
    """`longest` of one layout, with its path. passes: (stages, 3);  sends: (boundaries)."""
    if schedule.by_costs:
        schedule = schedule.timed(costs_of(passes, sends))
    return LongestPath(_run(schedule, p, m, v, barrier=barrier), passes, sends)


class Run(NamedTuple):
    """Steps of an order, of which the last is asked for."""

    program: ReplayProgram
    again: int
    """How often its group is run again in a step."""
    steps: int

    def wide(self, layouts: int) -> bool:
        """So many layouts are replayed level by level."""
        width = len(self.program.duration) / len(self.program.levels)
        return layouts * width >= WIDE

    def by_levels(self, passes: Floats, sends: Floats) -> Floats:
        """Seconds of the last step for each layout."""
        replay = LevelReplay(self.program, passes, sends)
        spans = [ends.max(axis=0) for ends in replay.ends(self)]
        seconds: Floats = spans[-1] - spans[-2]
        return seconds


def _run(
    schedule: ScheduleOrder, p: int, m: int, v: int, barrier: bool
) -> Run:
    """One step, or without a barrier the second in a run."""
    steps = 1 if barrier or not schedule.split_backward else 2
    return Run(*replay_program(schedule, p, m, v), steps)


def costs_of(passes: Floats, sends: Floats) -> Costs:
    """Costs of one layout."""
    rows = [(float(f), float(i), float(w)) for f, i, w in passes]
    return Costs(tuple(rows), tuple(map(float, sends)))


class Replay:
    """An order that is run, on `end`: of each action when it is done, then of each rank, then of
    what no action waits for."""

    def __init__(self, program: ReplayProgram, end: Any) -> None:
        self.program, self.end = program, end

    def run(self, levels: slice) -> None:
        """The actions of some levels."""
        raise NotImplementedError

    def seconds(self, ends: Any) -> Floats:
        """When actions with these ends are done: a number each, or one of each layout."""
        raise NotImplementedError

    def skip(
        self, group: RepeatedGroup, times: int, earlier: Any, shift: Floats
    ) -> None:
        """Runs on so many times from a group with `earlier` ends to the last one, all of which
        comes so much later every time."""
        raise NotImplementedError

    def ends(self, run: Run) -> Iterator[Any]:
        """The ends of ranks before the first step and after each."""
        ranks = slice(len(self.program.before), -1)
        yield self.end[ranks]
        for _ in range(run.steps):
            self._step(run.again)
            self.end[ranks] = [self.end[k] for k in self.program.ends.tolist()]
            yield self.end[ranks]

    def _step(self, again: int) -> None:
        """Fill the pipeline, run its group so many times again, and drain it."""
        group, end = self.program.group, self.end
        if not group:
            self.run(slice(None))
            return
        self.run(slice(group.levels.stop))
        # about as many levels as a message takes from the first rank to the last and back
        levels = group.levels.stop - group.levels.start
        often = max(2 * len(self.program.ends) // levels, 1)
        ends = [copy(end[group.previous]), copy(end[group.actions])]
        while again:
            if repeated := self._shift(ends):
                lag, shift = repeated
                self.skip(group, again // lag, ends[-1 - lag], shift)
                again, ends = again % lag, []
            for _ in range(min(again, often)):
                end[group.previous] = end[group.actions]
                self.run(group.levels)
                ends.append(copy(end[group.actions]))
            again -= min(again, often)
            ends = ends[-1 - often :]
        self.run(slice(group.levels.stop, None))

    def _shift(self, ends: list[Any]) -> tuple[int, Floats] | None:
        """(How many groups before the last one all ended earlier by one and the same time, that
        time); ends: of each group."""
        *before, now = map(self.seconds, ends)
        for lag, earlier in enumerate(reversed(before), 1):
            shift = now - earlier
            if np.all(np.ptp(shift, axis=0) <= SHIFTED * now[-1]):
                return lag, shift[-1]
        return None


class LevelReplay(Replay):
    """Of many layouts, level by level."""

    def __init__(
        self, program: ReplayProgram, passes: Floats, sends: Floats
    ) -> None:
        # (kind and stage, layout)
        lasts = np.moveaxis(_of_kinds(passes), 0, -1)
        self.lasts = lasts.reshape(-1, len(sends))[program.duration]
        # the last for what no boundary is crossed
        hops = np.insert(sends, sends.shape[-1], 0.0, axis=-1).T
        self.hops = hops[program.boundary]
        ends = len(program.before) + len(program.ends)
        end = np.zeros((ends + 1, len(sends)))
        end[-1] = -np.inf
        super().__init__(program, end)

    def run(self, levels: slice) -> None:
        end, before, needs = self.end, self.program.before, self.program.needs
        for at in self.program.levels[levels]:
            ready = end[needs[at]] + self.hops[at]
            np.maximum(ready, end[before[at]], out=ready)
            ready += self.lasts[at]
            end[at] = ready

    def seconds(self, ends: Floats) -> Floats:
        return ends

    def skip(
        self, group: RepeatedGroup, times: int, earlier: Any, shift: Floats
    ) -> None:
        self.end[group.actions] += times * shift


Done: TypeAlias = "tuple[float, int | tuple[int, Done], Done | None]"
"""When an action k is done; k, or ~k where it waited for the one before on its rank and not for
another stage; the one that it waited for. Or when it is done again; (n, the same of the group
before); and of the group that comes n times more."""
BEGIN: Done = (0.0, 0, None)
NEVER: Done = (-np.inf, 0, None)


class ActionReplay(Replay):
    """Of one layout, action by action: of few ranks in a sixth of the time, which is a tenth of a
    prediction."""

    def __init__(
        self, program: ReplayProgram, passes: Floats, sends: Floats
    ) -> None:
        self.lasts = _of_kinds(passes).ravel().tolist()
        self.hops = [*sends.tolist(), 0.0]
        ends = len(program.before) + len(program.ends)
        super().__init__(program, [*[BEGIN] * ends, NEVER])

    def run(self, levels: slice) -> None:
        end, hops, lasts = self.end, self.hops, self.lasts
        some = self.program.levels[levels]
        first, stop = (some[0].start, some[-1].stop) if some else (0, 0)
        actions = self.program.actions[first:stop]
        for k, before, need, boundary, last in actions:
            own, other = end[before], end[need]
            arrival = other[0] + hops[boundary]
            end[k] = (
                (arrival + lasts[last], k, other)
                if arrival > own[0]
                else (own[0] + lasts[last], ~k, own)
            )

    def seconds(self, ends: list[Done]) -> Floats:
        return np.array([done[0] for done in ends])

    def skip(
        self, group: RepeatedGroup, times: int, earlier: Any, shift: Floats
    ) -> None:
        later = times * float(shift)
        pairs = zip(self.end[group.actions], earlier, strict=True)
        self.end[group.actions] = [
            (now[0] + later, (times, then), now) for now, then in pairs
        ]


@dataclass(frozen=True, eq=False)
class LongestPath:
    """The longest path of one layout."""

    run: Run
    passes: Floats
    sends: Floats

    @cached_property
    def ends(self) -> tuple[Done, Done]:
        """When the step before has ended, and this one."""
        replay = ActionReplay(self.run.program, self.passes, self.sends)
        *_, before, last = (
            max(ends, key=lambda done: done[0])
            for ends in replay.ends(self.run)
        )
        return before, last

    @cached_property
    def seconds(self) -> float:
        if self.run.wide(1):
            one = self.passes[None], self.sends[None]
            return float(self.run.by_levels(*one)[0])
        before, last = self.ends
        return last[0] - before[0]

    @cached_property
    def often(self) -> tuple[Floats, Floats]:
        """How often F, I and W of each stage lie on it, (stages, 3), and how often a message
        crosses each boundary, (boundaries)."""
        program, (before, last) = self.run.program, self.ends
        counts = _counted(last)
        counts.subtract(_counted(before))
        number = np.fromiter(counts, int)
        times = np.fromiter(counts.values(), float)
        k = np.maximum(number, ~number)
        lasts, boundary = program.duration[k], program.boundary[k]
        stages = len(self.passes)
        # the last for what crosses no boundary
        boundary = np.where(number < 0, NOTHING, boundary) % stages
        kinds = len(KINDS) * stages
        f, i, w, b = np.bincount(lasts, times, kinds).reshape(len(KINDS), -1)
        sends: Any = np.bincount(boundary, times, stages)
        return np.array([f, i + b, w + b]).T, sends[:-1]


def _counted(done: Done) -> Counter[int]:
    """How often each action, as in `Done`, lies on the way to one."""
    counts: Counter[int] = Counter()
    once: list[int] = []
    _, action, before = done
    while before:
        if isinstance(action, int):
            once.append(action)
        else:
            times, start = action
            group = _counted(before)
            group.subtract(_counted(start))
            for k, n in group.items():
                counts[k] += n * times
        _, action, before = before
    counts.update(once)
    return counts


def _of_kinds(passes: Floats) -> Floats:
    """Seconds of F, I, W and of B, which is I and W: ([layouts,] stages, 3) -> ([layouts,] 4,
    stages)."""
    kinds = np.swapaxes(passes, -1, -2)
    both = kinds[..., 1:2, :] + kinds[..., 2:, :]
    return np.concatenate([kinds, both], axis=-2)
