"""The longest path of an order for many sets of durations at once: what `timeline` finds, without
saying when each action runs.

An order is arranged by levels (`replay_program`), and a level is one operation on arrays: (actions
of the level) x (layouts that run this order). What is left out of a long order is run again on the
ends of the groups before it. Where all actions of a group come later than those of the group before
by one and the same time, so do those of every further group, because each is the maximum and the
sum of the same terms, all shifted: then the rest is multiplied. Both are exact but for rounding
(`SHIFTED`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .replay_program import ReplayProgram, replay_program
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
    by_first: bool = False,
) -> Floats:
    """Seconds of a step for each layout: the longest path or, without a barrier, what a second step
    adds to one.

    passes: (layouts, stages, 3) seconds of F, I and W of one microbatch;  sends: (layouts,
    boundaries) seconds of one over each boundary between stages. by_first: both have one more axis
    behind that of layouts, and all along it is what it takes on the longest path of the first.
    """
    if schedule.by_costs:  # every layout has an order of its own
        layouts = zip(passes, sends, strict=True)
        orders = [(schedule.timed(costs_of(*one)), *one) for one in layouts]
        return np.array(
            [
                longest(
                    own,
                    p,
                    m,
                    v=v,
                    passes=f[None],
                    sends=hops[None],
                    barrier=barrier,
                )[0]
                for own, f, hops in orders
            ]
        )
    program, again = replay_program(schedule, p, m, v)
    whole = passes[..., 1:2] + passes[..., 2:]
    # seconds of F, I, W and B in each stage: (kind and stage, layout)
    lasts = np.moveaxis(
        np.concatenate([passes, whole], axis=-1), (-1, -2), (0, 1)
    )
    lasts = lasts.reshape(-1, *sends.shape[:-1])
    # the last for what no boundary is crossed
    hops = np.moveaxis(np.insert(sends, sends.shape[-1], 0.0, axis=-1), -1, 0)
    steps = 1 if barrier or not schedule.split_backward else 2
    wide = len(program.lasts) * len(sends) >= WIDE * len(program.levels)
    if wide or by_first:
        later = _later_by_first if by_first else np.maximum
        return _by_level(program, lasts, hops, later, again=again, steps=steps)
    return np.array(
        [
            _by_action(
                program, lasts[:, k], hops[:, k], again=again, steps=steps
            )
            for k in range(len(sends))
        ]
    )


def costs_of(passes: Floats, sends: Floats) -> Costs:
    """Costs of one layout."""
    rows = [(float(f), float(i), float(w)) for f, i, w in passes]
    return Costs(tuple(rows), tuple(map(float, sends)))


def _later_by_first(arrival: Floats, own: Floats) -> Floats:
    """Rows whose first number is later; the rank's own where both are equal."""
    return np.where(arrival[..., :1] > own[..., :1], arrival, own)


def _by_level(
    program: ReplayProgram,
    lasts: Floats,
    hops: Floats,
    later: Callable[[Floats, Floats], Floats],
    again: int,
    steps: int,
) -> Floats:
    """Seconds of a step of many layouts. lasts: (kind and stage, layout);  hops: (boundary,
    layout), the last 0;  later: of two times of each layout, which one an action waits for.
    """
    before, needs = program.before, program.needs
    lasts = lasts[program.lasts]
    hops = hops[program.boundary]
    end = np.zeros((len(before) + len(program.ends) + 1, *hops.shape[1:]))
    end[-1] = -np.inf

    def run(levels: slice) -> None:
        for at in program.levels[levels]:
            ready = end[needs[at]] + hops[at]
            ready = later(ready, end[before[at]])
            ready += lasts[at]
            end[at] = ready

    def last(ends: Floats) -> Any:
        return reduce(lambda latest, end: later(end, latest), ends)

    seconds: Floats = _step(program, end, run, last, again=again, steps=steps)
    return seconds


def _by_action(
    program: ReplayProgram,
    lasts: Floats,
    hops: Floats,
    again: int,
    steps: int,
) -> float:
    """Seconds of a step of one layout, action by action: of few ranks in a sixth of the time, which
    is a tenth of a prediction.
    """
    count = len(program.before)
    hops = hops[program.boundary]
    columns = program.before, program.needs, hops, lasts[program.lasts]
    lists = [column.tolist() for column in columns]
    actions = list(zip(range(count), *lists, strict=True))
    end = [0.0] * (count + len(program.ends)) + [-np.inf]

    def run(levels: slice) -> None:
        some = program.levels[levels]
        first, stop = (some[0].start, some[-1].stop) if some else (0, 0)
        for k, before, need, hop, last in actions[first:stop]:
            own = end[before]
            ready = end[need] + hop
            end[k] = (ready if ready > own else own) + last

    seconds: float = _step(program, end, run, max, again=again, steps=steps)
    return seconds


def _step(
    program: ReplayProgram,
    end: Any,
    run: Callable[[slice], None],
    last: Callable[[Any], Any],
    again: int,
    steps: int,
) -> Any:
    """What the last of so many steps adds to those before it. end: of each action and rank, a
    number or one of each layout;  run: the actions of some levels;  last: of the ends of ranks.
    """
    ranks = slice(len(program.before), -1)
    ends = program.ends.tolist()
    spans: list[Any] = [0.0]
    for _ in range(steps):
        _run_through(program, end, run, again)
        end[ranks] = [end[k] for k in ends]
        spans.append(last(end[ranks]))
    return spans[-1] - spans[-2]


def _run_through(
    program: ReplayProgram, end: Any, run: Callable[[slice], None], again: int
) -> None:
    """Fill the pipeline, run its group so many times again, and drain it."""
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
