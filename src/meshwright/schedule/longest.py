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
SHIFTED = 1e-12
"""Of the time so far: rounding of a group's shift."""
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
            program(schedule, p, few, v, steps),
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
    count = len(program.lasts)
    # F, I, W, B
    seconds = np.concatenate(
        [passes, passes[..., 1:2] + passes[..., 2:]], axis=2
    )
    lasts = seconds.transpose(2, 1, 0).reshape(-1, len(send))
    end = np.zeros((count + 2, len(send)))
    end[count + 1] = -np.inf
    hops = np.where(program.sent[:, None], send, 0.0)
    for at in program.levels:
        ready = end[program.needs[at]] + hops[at]
        np.maximum(ready, end[program.before[at]], out=ready)
        ready += lasts[program.lasts[at]]
        end[at] = ready
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


@lru_cache(maxsize=64)
def _program(
    schedule: Schedule, p: int, m: int, v: int, steps: int
) -> Program:
    """The order of a schedule, steps of it one behind the other, by level."""
    order = schedule.order(p, m, v)
    each = group_size(schedule, p, m)
    whole = order if steps == 1 else twice(order, m)
    chunks = int(schedule.chunks(v))
    stages = int(schedule.stage_count(p, v))
    stage = [
        [schedule.stage_of(rank, chunk, p, v) for chunk in range(chunks)]
        for rank in range(p)
    ]
    actions = [(rank, a) for rank, row in enumerate(whole) for a in row]
    first = np.cumsum([0, *(len(row) for row in whole)])
    level, needs, sent = _levels(
        whole, stage, stages, m * steps, first.tolist()
    )
    by_level = np.argsort(level, kind="stable")
    number = np.empty(len(by_level) + 2, dtype=np.intp)
    number[by_level] = np.arange(len(by_level))
    # nothing before, nothing needed
    number[-2:] = (
        len(by_level),
        len(by_level) + 1,
    )
    before = np.arange(len(by_level)) - 1
    before[first[:-1][np.diff(first) > 0]] = len(by_level)
    bounds = np.searchsorted(
        np.sort(level), np.arange(max(level, default=-1) + 2)
    )
    lasts = np.array(
        [
            KINDS.index(a.kind) * stages + stage[rank][a.chunk]
            for rank, a in actions
        ]
    )
    lengths = [len(row) for row in order]
    return Program(
        tuple(
            slice(a, b) for a, b in zip(bounds[:-1], bounds[1:], strict=True)
        ),
        number[before[by_level]],
        number[np.array(needs, dtype=np.intp)[by_level]],
        np.array(sent)[by_level],
        lasts[by_level],
        tuple(
            number[first[:-1] + np.array(lengths) * (step + 1) - 1]
            for step in range(steps)
        ),
        ()
        if schedule.costed
        else _cuts(
            order, schedule.order(p, m + each, v), each, first, number, steps
        ),
    )


def _levels(
    order: Order, stage: list[list[int]], stages: int, m: int, first: list[int]
) -> tuple[list[int], list[int], list[bool]]:
    """(level, the action needed of another stage or -1, whether that one is sent) of each action,
    rank by rank.
    """
    count = first[-1]
    level = [0] * count
    needs = [-1] * count
    sent = [False] * count
    made: dict[int, tuple[int, int]] = {}  # what -> (action, rank)
    waiting: dict[int, int] = {}  # what -> the rank that waits for it
    at = [0] * len(order)
    ready = list(range(len(order)))[::-1]
    while ready:
        rank = ready.pop()
        row = order[rank]
        k = at[rank]
        begin = first[rank]
        depth = level[begin + k - 1] + 1 if k else 0
        while k < len(row):
            kind, chunk, microbatch = row[k]
            s = stage[rank][chunk]
            here = begin + k
            if kind == "F":
                key = (s - 1) * m + microbatch if s else -1
            else:
                key = (
                    (stages + s + 1) * m + microbatch
                    if s < stages - 1 and kind != "W"
                    else -1
                )
            if key >= 0:
                if key not in made:
                    waiting[key] = rank
                    break
                needs[here], maker = made[key]
                sent[here] = maker != rank
                depth = max(depth, level[needs[here]] + 1)
            level[here] = depth
            depth += 1
            k += 1
            if kind != "W":
                made_key = (s if kind == "F" else stages + s) * m + microbatch
                made[made_key] = here, rank
                if made_key in waiting:
                    ready.append(waiting.pop(made_key))
        at[rank] = k
    return level, needs, sent


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
