"""Interleaved 1F1B: v chunks per device shorten every step of the pipeline, and with it the bubble,
to 1/v.

    bubble = (p - 1) (f + i + w) / v            exact for all p, v and groups of g >= p
    bubble = (vp - 1 - (v-1) m) (f + i + w) / v with m < p, which are one group
    in flight = min(m, ((v-1) g + 2p - 1)/v)    on rank 0: (v-1) g + 2 (p-1) warm-up
                                                forwards and one more, 1/v each

Where stages differ or sends take time, rank x first waits for its last chunk's first microbatch,
which comes through all stages before (v p - 1 sends for x = p - 1, not p - 1) or behind a group of
g on some rank; then it has the rest of its work, and the way back is the same the other way round.
Where x is not the last rank, it may wait for its first gradient besides, less 2 (p-1-x) forwards
that it runs ahead. Sends longer than a chunk's passes make rounds of 2 v p - 1 slots.

Where layers do not divide, ranks hold their heavy stages in other chunks, and the path follows
them: on its way to the last chunk and from it a group of p waits for a heavy stage of any chunk;
between two groups the path leaves the last rank (heavy in its last chunk by the head) for the
fuller one, or the first rank (light in its first chunk) for the second.

The price: v times the messages between stages, and (p - 1)/v more activations than 1F1B.

Source: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.2, figure 4 bottom.
"""

from __future__ import annotations

from functools import cache, reduce
from typing import Any, NamedTuple

from ..num import Num, floor, maximum, minimum, where
from . import groups, waits
from .dealt import Dealt, Pass, Place, Rank
from .looped import looped_order
from .types import (
    Order,
    Schedule,
    differ,
    looped_stage,
    many_chunks,
    whole_groups,
)


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1 + (v - 1) max(p - m, 0))(f + i + w) / v."""
    return (p - 1 + (v - 1) * maximum(p - m, 0.0)) * (f + i + w) / v


def span(d: Dealt, barrier: bool) -> Num:
    """The longest of the paths above; a device that is alone waits for nobody."""
    ranks, together = d.ranks
    first = ranks[0]
    end = ranks[1]
    paths = [where(d.usual, _rounds(d, first, end), 0.0)]
    more = _passed_on(d, ranks) if d.uneven and not d.cut.free else {}
    ways = d.alone([_ways(d, x, ranks) for x in together], len(ranks))
    for k, (x, way) in enumerate(zip(ranks, ways, strict=True)):
        before, after = way.before, way.after
        own = (
            d.m * x.load
            - d.g * x.earlier.f
            - d.late * x.earlier.b
            + more.get(k, 0.0)
        )
        if k == 0:
            to, back = _by_last_rank(d, first, end, ways[1])
            before = maximum(before, to)
            after = maximum(after, back)
        paths.append(before + own + after)
    return where(d.p == 1, d.busy(0.0), reduce(maximum, paths))


class Ways(NamedTuple):
    """Before and after a rank's own work."""

    there: Num
    """To its last chunk's first microbatch."""
    back: Num
    """From its last one there."""
    before: Num
    """The longest of all ways to it."""
    after: Num


def _ways(d: Dealt, x: Rank, ranks: tuple[Rank, ...]) -> Ways:
    there = d.to_last_chunk(x, ranks)
    back = _from_last_chunk(d, x, ranks)
    before = there + maximum(_turned(d, x, ranks[1]), 0.0)
    if not d.uneven:
        return Ways(there, back, before, back)
    to, on = _beside_last_chunks(d, x, ranks[0])
    return Ways(there, back, maximum(before, to), maximum(back, on))


def loose(d: Dealt) -> Any:
    """Where light stages lie among the chunks of all ranks, or anywhere, and groups follow each
    other: ranks pass on what they wait for in more ways than these paths say."""
    among = differ(d) if d.cut.free else d.spare >= d.p
    return among & (d.m > d.g)


def _from_last_chunk(d: Dealt, x: Rank, ranks: tuple[Rank, ...]) -> Num:
    """From the end of rank x's last B in its last chunk to the end: the mirror image of
    `Dealt.to_last_chunk`.
    """
    ways = [x.last.back]
    for y in ranks if x is not ranks[0] else (x,):
        way = (x.last.back - y.last.back) + d.late * y.earlier.b + y.first.back
        ways.append(
            way
            if y is x or y is ranks[0]
            else where(y.first.stage <= x.first.stage, way, 0.0)
        )
    if d.uneven:
        before = d.place(x.last.stage - d.p)
        wait = (d.late - 1.0) * maximum(
            ranks[0].first.at.b, d.at(minimum(before.stage, 1.0)).b
        )
        ways.append(where(d.cut.alike, 0.0, before.at.b + before.back + wait))
    return reduce(maximum, ways)


def _turned(d: Dealt, x: Rank, end: Rank) -> Num:
    """From x's last chunk to the last stage and back, less the forwards that x runs meanwhile:
    those of its group in that chunk, then in its first one."""
    ahead = minimum(
        2 * (d.q - x.first.stage), d.m * d.v - (d.v - 1.0) * d.g - 1
    )
    same = minimum(ahead, d.g - 1.0)
    return (
        x.last.below_whole(end.last)
        - same * x.last.at.f
        - (ahead - same) * x.first.at.f
    )


def _by_last_rank(
    d: Dealt, first: Rank, end: Rank, way: Ways
) -> tuple[Num, Num]:
    """To the first rank by the last: a group in the last chunk there, and its next F, which goes on
    to the first rank; and back by it. Less what the first rank does meanwhile."""
    here = first.first.at
    last = first.last.at
    on = end.first.at
    group = d.p * end.last.at.total + where(d.p > 1, d.send, 0.0)
    forward = way.there + group + on.f - d.p * (last.f + here.f) - 2 * last.b
    backward = way.back + group + on.b - d.p * (last.b + here.b) - 2 * last.f
    can = (d.m >= 2 * d.p) & (d.p > 1) & d.usual
    return where(can, forward, 0.0), where(can, backward, 0.0)


def _beside_last_chunks(d: Dealt, x: Rank, first: Rank) -> tuple[Num, Num]:
    """Where x's last chunk is a light one: to its first F of the second group, which the first rank
    begins when the first group has come to its last chunk; and the way back of its last B but a
    group's. Less what x does of its last chunk meanwhile.
    """
    here = first.first.at
    top = first.last
    last = x.last.at
    other = d.at(1.0 + 0.0 * d.p)
    both = maximum(d.p - 2 * (d.q - x.first.stage), 0.0)
    forward = (
        d.q * maximum(here.f, other.f) + top.down + top.at.f + x.first.down
    )
    back = d.q * maximum(here.b, other.b) + top.back + top.at.b + x.first.back
    can = (d.spare >= 1) & (d.m >= 2 * d.p) & d.usual
    forward = forward - d.p * last.f - both * last.b
    back = back - d.p * last.b - both * last.f
    return where(can, forward, 0.0), where(can, back, 0.0)


def _passed_on(d: Dealt, ranks: tuple[Rank, ...]) -> dict[int, Num]:
    """What paths gain that leave a rank for another in each group of p microbatches but the first:
    the last rank, the fuller one and the second."""
    first, end, fuller, _ = ranks
    second = d.place(1.0 + 0.0 * d.p)
    light = d.at(d.top + 1)
    again = where(d.usual, d.m / d.p - 1.0, 0.0)
    fewer = maximum(again - 1.0, 0.0)
    around = maximum(
        _down_around(d, first, end, second.at, light),
        _up_around(d, first, end, second, light),
    )
    return {
        1: maximum(again * _away(d, fuller, end), fewer * around),
        2: fewer * _up_around(d, first, fuller, second, light),
        3: again * _first_two(d, first, second.at, light),
    }


def _away(d: Dealt, y: Rank, end: Rank) -> Num:
    """From the last rank between two groups in its last chunk to the fuller one, n ranks before: up
    with the last B, the other chunks there but for 2 n passes of the first one, and down with the
    first F of the next group.
    """
    n = d.q - y.first.stage
    ways = y.last.below_whole(end.last) + y.last.at.total - end.last.at.total
    gained = (
        d.p * (y.earlier.total - end.earlier.total)
        - 2 * n * y.first.at.total
        + ways
    )
    return where(
        (d.spare >= 1) & (n > 0) & (2 * n < d.p), maximum(gained, 0.0), 0.0
    )


def _up_around(
    d: Dealt, first: Rank, y: Rank, second: Place, light: Pass
) -> Num:
    """From rank y up to the second with the first B of the first chunk, and with the first of the
    last chunk by the first rank up to y again: p forwards of a group are left out, those of a light
    chunk."""
    p = d.p
    n = d.q - y.first.stage
    here = y.first.at
    there = second.at
    before = d.place(y.last.stage - p)
    forward = (
        p * (y.earlier.f - before.at.f)
        + (2 * n + 1) * (before.at.f - here.f)
        + 3 * light.f
        + (p - 3) * there.f
    )
    # the stages between, the second's left out
    chains = y.first.back - second.back + here.b - there.b
    chains = (
        chains + first.last.back - before.back - before.at.b + first.last.at.b
    )
    back = p * (y.earlier.b - here.b) + p * there.b + light.b + chains
    # one send besides those of the chains: to the first rank
    gained = forward + back + d.send - p * y.load
    return where(
        (d.spare >= 2) & (p > 3) & (y.first.stage > 1) & (2 * n < p),
        maximum(gained, 0.0),
        0.0,
    )


def _down_around(
    d: Dealt, first: Rank, end: Rank, other: Pass, light: Pass
) -> Num:
    """From the last rank down to the second by the first with the last F before the last chunk, and
    up again with the first B of that: the last chunk of the last rank is left out, and as many
    passes of the first chunk of the second come in.
    """
    gained = (
        (d.p - 3) * other.total - d.p * end.last.at.total - end.first.at.total
    )
    gained = gained + light.total + first.last.at.total + 4 * d.send
    return where((d.spare >= 2) & (d.p > 3), maximum(gained, 0.0), 0.0)


def _first_two(d: Dealt, first: Rank, other: Pass, light: Pass) -> Num:
    """From the second rank to the first, whose first chunk is a light one, for all chunks but that:
    up with the second B of the last chunk, and down with the last F but three."""
    here = first.first.at
    last = first.last.at
    whole = d.p * (first.load - d.load(1.0 + 0.0 * d.p).total)
    gained = (
        d.p * (other.total - here.total)
        - 2 * other.f
        - 2 * d.at(d.p).b
        + 2 * d.send
    )
    moved = 4 * light.f - 3 * last.f + 2 * light.b - last.b
    return where(
        (d.p > 3) & (d.spare >= 2), maximum(whole + gained + moved, 0.0), 0.0
    )


def _rounds(d: Dealt, first: Rank, end: Rank) -> Num:
    """Microbatches through all stages and back, one behind the other, and what is left on the last
    rank.
    """
    once = 2 * d.stages - 1
    slots = (d.m - d.p) * d.v + d.q
    k = floor(slots / once)
    whole = first.first.at.total + first.first.below_whole(end.last)
    return (1 + k) * whole + (
        slots - k * once
    ) * d.lightest.total * d.cut.least


@cache
def interleaved(group: int = 0) -> Schedule:
    """With groups of so many microbatches."""

    def order(p: int, m: int, v: int) -> Order:
        """Rank r: (v - 1) g + 2 (p - 1 - r) forwards ahead, in groups of g microbatches per chunk,
        then F B F B ...
        """
        return looped_order(p, m, v, 2, False, group)

    return Schedule(
        name="interleaved",
        title="Interleaved 1F1B",
        source="Narayanan et al. 2021, arXiv 2104.04473",
        torch_name="Interleaved1F1B",
        split_backward=False,
        chunks=lambda v: v,
        stage_of=looped_stage,
        order=order,
        bubble=bubble,
        span=span,
        loose=loose,
        in_flight=lambda p, m, v: groups.ahead(p, m, v, group, 2 * p - 1),
        heads=lambda p, m, v: 1,
        needs=(
            many_chunks("interleaved", "1f1b"),
            whole_groups("interleaved", group),
        ),
        in_flight_on=lambda p, m, v, rank: groups.ahead(
            p, m, v, group, 2 * (p - rank) - 1
        ),
        in_flight_on_last=lambda p, m, v: groups.ahead(p, m, v, group, 1.0),
        waits=lambda d, seconds: waits.interleaved(d),
        group=group,
        grouped=interleaved,
    )


INTERLEAVED = interleaved()
