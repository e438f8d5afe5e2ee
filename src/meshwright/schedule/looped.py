"""The one order behind 1F1B, interleaved 1F1B and the zero-bubble schedules: run ahead, then one
forward, one backward.

Rank r of p, with v chunks, runs three phases:

    warm up     the first (v-1) g + hop (p-1-r) forwards, `hop` more for each rank still below
    steady      one forward, one backward, until the forwards are used up
    cool down   the backwards that remain

Forwards go round the chunks in groups of g microbatches (0..g-1 through chunk 0, the same through
chunk 1, ...; `groups`), backwards the same with the chunks in reverse. With a split backward the
k-th W comes right after the (k + hop r)-th I, the last ones at the end: a rank that warmed up less
holds back as many weight gradients, and the held-back W fill the idle time of the cool down. So a
rank holds at most what it warmed up with, one more, and what it holds back, 1/v each:

    in flight = min(m, ((v-1) g + hop (p-1-r) + 1) / v)     whole backward passes
                min(m, ((v-1) g + hop (p-1) + 1) / v)       split ones: the same on all ranks

Sources: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2 for v and B; Qi et al. 2024 (arXiv
2401.10241) section 2.3 for W.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..num import Num, maximum, minimum
from . import groups
from .rules import Rule, many_chunks, one_chunk, whole_groups
from .schedule import Bubble, Schedule
from .types import Action, Order, looped_stage


def looped(
    name: str,
    title: str,
    source: str,
    *,
    hop: int,
    split: bool,
    closed: Bubble,
    in_run: Bubble | None = None,
    beyond: Callable[[Num, Num], Any] | None = None,
    plain: str = "",
    torch_name: str | None = None,
) -> Callable[[int], Schedule]:
    """Group -> the schedule. beyond: as in `Schedule`;  plain: what to take for one chunk; none: it
    has one itself."""

    @cache
    def grouped(group: int) -> Schedule:
        def order(p: int, m: int, v: int) -> Order:
            return looped_order(
                p, m, v if plain else 1, hop=hop, split=split, group=group
            )

        def flight(p: Num, m: Num, v: Num, rank: Num) -> Num:
            below = p - 1 - (0.0 if split else rank)
            warm_up = (v - 1) * groups.group_size(p, m, group) + hop * below
            return minimum(m, (warm_up + 1) / v)

        def heads(p: Num, m: Num, v: Num) -> tuple[Num, Num]:
            late = minimum(m, hop * (p - 1) + 1) - 1 if split else 0
            return 1, late

        needs: tuple[Rule, ...] = (one_chunk(name),)
        if plain:
            needs = many_chunks(name, plain), whole_groups(name, group)
        return Schedule(
            name=name,
            title=title,
            source=source,
            order=order,
            stage_of=looped_stage,
            chunks=lambda v: v if plain else 1,
            split_backward=split,
            needs=needs,
            torch_name=torch_name,
            closed=closed,
            closed_in_run=in_run,
            beyond=beyond,
            flight=flight,
            heads=heads,
            ahead=0 if plain else hop,
            group=group,
            grouped=grouped if plain else None,
        )

    return grouped


def flush_bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1 + (v - 1) max(p - m, 0)) (f + i + w) / v: the pipeline is filled and emptied once, by
    passes of one chunk; with fewer microbatches than ranks each chunk waits for the one before.
    """
    # with p microbatches or more a chunk's first is back before the ring is through
    return (p - 1 + (v - 1) * maximum(p - m, 0.0)) * (f + i + w) / v


def looped_order(
    p: int, m: int, v: int, hop: int, split: bool, group: int
) -> Order:
    """The actions of each rank; group: as in `groups`."""
    size = int(groups.group_size(p, m, group))
    forward = groups.group_order(m, v, size)
    backward = [(v - 1 - chunk, microbatch) for chunk, microbatch in forward]
    # every rank runs the same actions, in an order of its own
    forwards = [Action("F", *at) for at in forward]
    backwards = [Action("I" if split else "B", *at) for at in backward]
    weights = [Action("W", *at) for at in backward] if split else []
    order = []
    for rank in range(p):
        warm_up = min((v - 1) * size + hop * (p - 1 - rank), m * v)
        lag = hop * rank
        actions = forwards[:warm_up]
        for k, action in enumerate(backwards):
            actions += [*forwards[warm_up + k : warm_up + k + 1], action]
            if k >= lag:
                actions += weights[k - lag : k - lag + 1]
        # a lag of more passes than there are leaves all weight passes to the end
        order.append(actions + weights[max(m * v - lag, 0) :])
    return order
