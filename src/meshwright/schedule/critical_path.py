"""The replay of one layout's order, action by action, and the path that is its longest.

An order is arranged by levels (`longest`). Each action begins when the one before it on its rank
and the one that it needs of another stage have ended; which of the two ended last is noted, so that
the longest path is read back from the last action to the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]
SHIFTED = 1e-13
"""Of the time so far: rounding of a group's shift."""
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


class ReplayProgram(NamedTuple):
    """An order, ready to be replayed with any durations. Actions are numbered by level; behind them
    come the ranks, at the time when they are free, and what no action waits for.
    """

    levels: tuple[slice, ...]
    """The actions of each level."""
    before: Index
    """The action before on the rank, or the rank."""
    needs: Index
    """The action of another stage that it waits for."""
    sent: NDArray[np.bool_]
    """That one runs on another rank."""
    lasts: Index
    """Which of (kind, stage) the action is: its duration."""
    ends: Index
    """The last action of each rank."""
    group: RepeatedGroup | None
    """None: there is none that repeats."""


def run_through(
    program: ReplayProgram, end: Any, run: Callable[[slice], None], again: int
) -> None:
    """Fill the pipeline, run its group so many times again, and drain it. end: of each action, a
    number or of each layout."""
    group = program.group
    if not group:
        run(slice(None))
        return
    run(slice(group.levels.stop))
    # about as many levels as a message takes from the first rank to the last and back
    levels = group.levels.stop - group.levels.start
    often = max(2 * len(program.ends) // levels, 1)
    while again:
        now = np.array(end[group.now])
        shift = now - end[group.then]
        if np.all(np.ptp(shift, axis=0) <= SHIFTED * now[-1]):
            end[group.now] = (now + again * shift[-1]).tolist()
            break
        for _ in range(min(again, often)):
            end[group.then] = end[group.now]
            run(group.levels)
        again -= min(again, often)
    run(slice(group.levels.stop, None))


class CriticalPath:
    """The longest path of one layout: a replay, read back from its last action."""

    def __init__(
        self,
        program: ReplayProgram,
        lasts: Floats,
        send: float,
        again: int,
        steps: int,
    ) -> None:
        """lasts: seconds of each (kind, stage);  again: as in `run_through`;  steps: 1 by itself,
        2 what the second adds to the first.
        """
        self.program, self.again, self.durations = program, again, len(lasts)
        count = len(program.before)
        hops = np.where(program.sent, send, 0.0)
        columns = program.before, program.needs, hops, lasts[program.lasts]
        lists = [column.tolist() for column in columns]
        actions = list(zip(range(count), *lists, strict=True))
        end = [0.0] * (count + len(program.ends)) + [-np.inf]
        self.ends: list[list[list[float]]] = []
        """Of each step when its actions end: after its group has run first, after each time that
        it ran again, and at last."""
        self.last: list[int] = []
        """The last action of each step."""
        self.waits = lists[:-1]
        """Of each action the one before it, the one it needs, and the seconds of a send."""

        def run(levels: slice) -> None:
            some = program.levels[levels]
            first, stop = (some[0].start, some[-1].stop) if some else (0, 0)
            for k, before, need, hop, last in actions[first:stop]:
                own = end[before]
                ready = end[need] + hop
                end[k] = (ready if ready > own else own) + last
            self.ends[-1].append(end.copy())

        ends = program.ends.tolist()
        spans = [0.0]
        for _ in range(steps):
            self.ends.append([])
            run_through(program, end, run, again)
            end[count:-1] = [end[k] for k in ends]
            spans.append(max(end[count:-1]))
            self.last.append(ends[end.index(spans[-1], count) - count])
        self.seconds: float = spans[-1] - spans[-2]

    def often(self) -> tuple[Floats, float]:
        """How often F, I and W of each stage are on the path, (stages, 3), and a send: of a second
        step, on the path of both without that of the first.
        """
        first, *second = map(self._often, range(len(self.last)))
        times = second[0] - first if second else first
        f, i, w, b = times[:-1].reshape(4, -1)
        return np.stack([f, i + b, w + b], axis=1), float(times[-1])

    def _often(self, step: int) -> Floats:
        """Of each (kind, stage), and of a send, up to the end of a step."""
        count = len(self.program.before)
        path: list[int] = []
        k = self.last[step]
        for ends in self.ends[step::-1]:
            if k < count:
                k = int(self.program.ends[self._back(ends, k, path) - count])
        lasts = np.append(self.program.lasts, self.durations)
        return np.bincount(lasts[path], minlength=self.durations + 1).astype(
            np.float64
        )

    def _back(self, ends: list[list[float]], k: int, path: list[int]) -> int:
        """From action k of a step back to the rank on which its path begins; path: the actions on
        it, and their number for each send.
        """
        group, count = self.program.group, len(self.program.before)
        if not group:
            return self._within(slice(0, count), ends[0], k, path)
        *ran, end = ends
        k = self._within(slice(group.now.stop, count), end, k, path)
        # those that were multiplied ran as the last one before them did
        more = self.again + 1 - len(ran)
        met: dict[int, tuple[int, int]] = {}
        while more:
            if k in met:  # from here on it is what it was since then
                before, length = met[k]
                often, more = divmod(more, before - more)
                path += path[length:] * often
                met = {}
                continue
            met[k] = more, len(path)
            k = self._within(group.now, ran[-1], k, path) + group.size
            more -= 1
        for end in ran[:0:-1]:
            k = self._within(group.now, end, k, path) + group.size
        return self._within(slice(0, group.now.stop), ran[0], k, path)

    def _within(
        self, actions: slice, end: list[float], k: int, path: list[int]
    ) -> int:
        """Back through a range of actions, to the first that is outside."""
        befores, needs, hops = self.waits
        while actions.start <= k < actions.stop:
            path.append(k)
            before, need = befores[k], needs[k]
            if end[need] + hops[k] > end[before]:
                if self.program.sent[k]:
                    path.append(len(befores))
                before = need
            k = before
        return k
