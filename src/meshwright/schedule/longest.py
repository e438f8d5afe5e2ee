"""The longest path of an order for many sets of durations at once: what `timeline` finds, without
saying when each action runs.

An action waits for the one before it on its rank and for at most one on another stage: F for the F
of the stage before, B or I for that of the stage after (its own F, and the I of a W, lie before it
on its own rank in every order that can run). So actions fall into levels, those of one level need
none of each other, and a level is one operation on arrays: (actions of the level) x (layouts that
run this order).

With many microbatches most of an order repeats. Where every action of one group of p microbatches
comes later than that of the group before by one and the same time, so does every group after it,
because each action is the maximum and the sum of the same terms, all shifted. Then the groups
between are not replayed but multiplied; this is exact. Where the groups are not shifted evenly the
order is replayed in full.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import groups as sizes
from .order import twice
from .types import Costs, Order, Schedule

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

KINDS = "FIWB"
"""Kinds of actions, in the order of a program's durations; B takes I + W."""
GROUPS = 5
"""Groups of p microbatches that are replayed before the rest may be multiplied; more are tried
until it repeats.
"""
REACH = 2
"""Groups that must be shifted evenly: no action needs one of more groups before."""
FEW = 2
"""Layouts for which an operation on all actions of a level takes longer than each on its own."""
SHIFTED = 1e-12
"""Of the time so far: rounding of a group's shift."""
NOTHING = -1
"""No action: the place behind all that there are."""
STEPS = 2
"""Of a run: what the second adds to the first is the time of a step."""


class Program(NamedTuple):
    """An order, ready to be replayed with any durations. Actions are numbered by level."""

    levels: tuple[slice, ...]
    before: Index
    """The action before on the rank; one past the end: none, it begins at 0."""
    needs: Index
    """The action of another stage that it waits for; two past the end: none."""
    sent: NDArray[np.bool_]
    """That one runs on another rank."""
    lasts: Index
    """Which of (kind, stage) the action is: its duration."""
    ends: tuple[Index, ...]
    """The last action of each rank in each step."""
    cut: tuple[tuple[Index, Index], ...]
    """For each step: (actions of the groups that must be shifted evenly, the same actions one group
    before); none if the order of more microbatches does not repeat a group."""


def longest(
    schedule: Schedule,
    p: int,
    m: int,
    v: int,
    passes: Floats,
    send: Floats,
    barrier: bool = True,
) -> Floats:
    """Seconds of a step for each layout: the longest path or, without a barrier, what a second step
    adds to one.

    passes: (layouts, stages, 3) seconds of F, I and W of one microbatch;  send: (layouts) seconds
    of a hop.
    """
    if schedule.by_costs:  # every layout has an order of its own
        return np.array(
            [
                longest(
                    schedule.timed(costs_of(mine, hop)),
                    p,
                    m,
                    v,
                    mine[None],
                    hop[None],
                    barrier,
                )[0]
                for mine, hop in zip(passes, send, strict=True)
            ]
        )
    steps = 1 if barrier or not schedule.split_backward else STEPS
    found = np.empty(len(send))
    left = np.arange(len(send))
    each = group_size(schedule, p, m)
    # of fewer microbatches the groups would be others
    if schedule.grouped and each >= p:
        schedule = schedule.grouped(each)
    groups = GROUPS
    while len(left):
        few = each * groups + m % each
        if few >= m - each or schedule.costed:
            few = m
        # what holds for these costs is asked once
        program = _program.__wrapped__ if schedule.costed else _program
        ends, even = _replay(
            program(schedule, p, few, v, steps, few < m),
            passes[left],
            send[left],
            (m - few) // each,
        )
        done = even | (few == m)
        found[left[done]] = np.diff(ends, axis=0, prepend=0.0)[-1][done]
        left = left[~done]
        groups = groups * 2
    return found


def costs_of(passes: Floats, send: float) -> Costs:
    """Those of one layout."""
    rows = [(float(f), float(i), float(w)) for f, i, w in passes]
    return Costs(tuple(rows), float(send))


def group_size(schedule: Schedule, p: int, m: int) -> int:
    """Microbatches after which an order may repeat: of a group, else as many as ranks."""
    return int(sizes.size(p, m, schedule.group)) if schedule.grouped else p


def _replay(
    program: Program, passes: Floats, send: Floats, groups: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """(ends of the steps: (steps, layouts), whether groups were shifted evenly), with so many
    groups put between.
    """
    # F, I, W, B
    seconds = np.concatenate(
        [passes, passes[..., 1:2] + passes[..., 2:]], axis=2
    )
    lasts = seconds.transpose(2, 1, 0).reshape(-1, len(send))
    hops = np.where(program.sent[:, None], send, 0.0)
    if len(send) <= FEW:
        each = zip(hops.T, lasts.T, strict=True)
        end = np.array([_one_by_one(program, *one) for one in each]).T
    else:
        end = _by_level(program, hops, lasts)
    even = np.full(len(send), bool(program.cut))
    later = np.zeros(len(send))
    ends = []
    for step, finish in enumerate(program.ends):
        if groups and program.cut:
            now, then = program.cut[step]
            shift = end[now] - end[then]
            even &= np.ptp(shift, axis=0) <= SHIFTED * end[now[-1]]
            later = later + groups * shift[0]
        ends.append(end[finish].max(axis=0) + later)
    return np.array(ends), even


def _by_level(program: Program, hops: Floats, lasts: Floats) -> Floats:
    """The end of each action of many layouts: (action, layout), and of what is none."""
    count = len(program.lasts)
    end = np.zeros((count + 2, lasts.shape[1]))
    end[count + 1] = -np.inf
    for at in program.levels:
        ready = end[program.needs[at]] + hops[at]
        np.maximum(ready, end[program.before[at]], out=ready)
        ready += lasts[program.lasts[at]]
        end[at] = ready
    return end


def _one_by_one(program: Program, hops: Floats, lasts: Floats) -> list[float]:
    """The same of one layout."""
    count = len(program.lasts)
    end = [0.0] * count + [0.0, -np.inf]
    each = program.before, program.needs, hops, lasts[program.lasts]
    actions = zip(*(column.tolist() for column in each), strict=True)
    for k, (before, need, hop, last) in enumerate(actions):
        own = end[before]
        ready = end[need] + hop
        end[k] = (ready if ready > own else own) + last
    return end


@lru_cache(maxsize=64)
def _program(
    schedule: Schedule, p: int, m: int, v: int, steps: int, repeats: bool
) -> Program:
    """The order of a schedule, steps of it one behind the other, by level.

    repeats: groups are put between.
    """
    order = schedule.order(p, m, v)
    whole = order if steps == 1 else twice(order, m)
    first = np.cumsum([0, *(len(row) for row in whole)])
    needs, sent, lasts = _actions(schedule, whole, m * steps, (p, v))
    level = np.array(_levels(first.tolist(), needs.tolist()), dtype=np.intp)
    count = len(level)
    by_level = np.argsort(level, kind="stable")
    number = np.empty(count + 2, dtype=np.intp)
    number[by_level] = np.arange(count)
    number[-2:] = count, count + 1  # nothing before, nothing needed
    before = np.arange(count) - 1
    before[first[:-1][np.diff(first) > 0]] = count
    bounds = np.searchsorted(
        level[by_level], np.arange(level.max(initial=-1) + 2)
    ).tolist()
    lengths = np.array([len(row) for row in order])
    cut: tuple[tuple[Index, Index], ...] = ()
    if repeats:
        each = group_size(schedule, p, m)
        longer = schedule.order(p, m + each, v)
        cut = _cuts(order, longer, each, first, number, steps)
    return Program(
        tuple(map(slice, bounds[:-1], bounds[1:])),
        number[before[by_level]],
        number[needs[by_level]],
        sent[by_level],
        lasts[by_level],
        tuple(
            number[first[:-1] + lengths * (step + 1) - 1]
            for step in range(steps)
        ),
        cut,
    )


def _actions(
    schedule: Schedule, order: Order, m: int, at: tuple[int, int]
) -> tuple[Index, NDArray[np.bool_], Index]:
    """(the action needed of another stage or -1, whether that one is sent, which of (kind, stage)
    it is) of each action, rank by rank. at: (p, v).
    """
    p, v = at
    stages = int(schedule.stage_count(p, v))
    chunks = range(int(schedule.chunks(v)))
    kinds, chunk, microbatch = zip(*chain(*order), strict=True)
    rank = np.repeat(np.arange(p), [len(row) for row in order])
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
    of = np.array(microbatch)
    some = np.flatnonzero(~weights)
    made[goes[some] * m + of[some]] = some
    needs = made[np.where(alone | weights, -1, comes * m + of)]
    return needs, (needs >= 0) & (rank[needs] != rank), kind * stages + stage


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


def _cuts(
    order: Order,
    longer: Order,
    p: int,
    first: Index,
    number: Index,
    steps: int,
) -> tuple[tuple[Index, Index], ...]:
    """For each step, the actions before the place where p more microbatches are put in, and the
    same a group before.

    longer: the order of p microbatches more. On each rank it must run as `order` up to the cut,
    then once more what is now the last group before it, a group later, then the rest, a group
    later.
    """
    now, then = [], []
    for rank, (row, more) in enumerate(zip(order, longer, strict=True)):
        group = len(more) - len(row)
        cut = next(
            (
                k
                for k, (a, b) in enumerate(zip(row, more, strict=False))
                if a != b
            ),
            len(row),
        )
        start = cut - group
        if (
            start < REACH * group
            or [a._replace(microbatch=a.microbatch + p) for a in row[start:]]
            != more[cut:]
        ):
            return ()
        now.append(first[rank] + np.arange(cut - REACH * group, cut))
        then.append(now[-1] - group)
    lengths = [
        np.full(len(n), len(row)) for n, row in zip(now, order, strict=True)
    ]
    a = np.concatenate(now)
    b = np.concatenate(then)
    one = np.concatenate(lengths)
    return tuple(
        (number[a + step * one], number[b + step * one])
        for step in range(steps)
    )
