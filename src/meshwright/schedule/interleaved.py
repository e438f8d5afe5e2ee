"""Interleaved 1F1B: v chunks per device shorten every step of the pipeline, and with it the bubble, to 1/v.

    bubble = (p - 1) (f + i + w) / v    exact for all p and v, m a multiple of p
    in flight = min(m, p + (p - 1)/v)   on rank 0: (v-1) p + 2 (p-1) warm-up forwards and one more, 1/v each

Where stages differ or sends take time, rank x first waits for its last chunk's first microbatch, which comes through all
stages before (v p - 1 sends for x = p - 1, not p - 1) or behind a group of p on some rank; then it has the rest of its
work, and the way back is the same the other way round. Where x is not the last rank, it may wait for its first gradient
besides, less 2 (p-1-x) forwards that it runs ahead. Sends longer than a chunk's passes make rounds of 2 v p - 1 slots.

Where layers do not divide, ranks hold their heavy stages in other chunks, and the path follows them: on its way to the
last chunk and from it a group of p waits for a heavy stage of any chunk; between two groups the path leaves the last rank
(heavy in its last chunk by the head) for the fuller one, or the first rank (light in its first chunk) for the second.

The price: v times the messages between stages, and (p - 1)/v more activations than 1F1B.

Source: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.2, figure 4 bottom.
"""

from __future__ import annotations

from functools import reduce

from ..num import Num, floor, maximum, minimum, where
from .dealt import Dealt
from .looped import looped_order
from .types import Order, Schedule, looped_stage, many_chunks, whole_rounds


def order(p: int, m: int, v: int) -> Order:
    """Rank r: (v - 1) p + 2 (p - 1 - r) forwards ahead, in groups of p microbatches per chunk, then F B F B ..."""
    return looped_order(p, m, v, hop=2, split=False)


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i + w) / v."""
    return (p - 1) * (f + i + w) / v


def span(d: Dealt, barrier: bool) -> Num:
    """The longest of the paths above."""
    paths = [_rounds(d)]
    groups = maximum(d.m / d.p - 1.0, 0.0)
    more = _passed_on(d, groups) if d.uneven else {}
    ways = [(d.to_last_chunk(x), _from_last_chunk(d, x)) for x in d.slow]
    for k, x in enumerate(d.slow):
        own = d.busy(x) - d.p * (d.earlier(x).f + d.earlier(x).b) + more.get(k, 0.0)
        before, after = ways[k][0] + maximum(_turned(d, x), 0.0), ways[k][1]
        beside = [_beside_last_chunks(d, x)] if d.uneven else []
        if k == 0:
            beside.append(_by_last_rank(d, *ways[1]))
        for first, last in beside:
            before, after = maximum(before, first), maximum(after, last)
        paths.append(before + own + after)
    return reduce(maximum, paths)


def _from_last_chunk(d: Dealt, x: Num) -> Num:
    """From the end of rank x's last B in its last chunk to the end: the mirror image of `Dealt.to_last_chunk`."""
    ways = [d.up_whole(d.top + x, 0.0)]
    for y in d.upstream(x):
        group = d.p * d.earlier(y).b
        ways.append(d.up_whole(d.top + x, d.top + y) + group + d.up_whole(y, 0.0))
    if d.uneven:
        stage = d.top - d.p + x
        wait = d.q * maximum(d.at(0.0).b, d.at(minimum(stage, 1.0)).b)
        ways.append(where(d.spare >= 1, d.at(stage).b + d.up_whole(stage, 0.0) + wait, 0.0))
    return reduce(maximum, ways)


def _beside_last_chunks(d: Dealt, x: Num) -> tuple[Num, Num]:
    """Where x's last chunk is a light one: to its first F of the second group, which the first rank begins when the first group
    has come to its last chunk; and the way back of its last B but a group's. Less what x does of its last chunk meanwhile."""
    other, top, last = d.at(1.0 + 0.0 * d.p), d.at(d.top), d.at(d.top + x)
    both = maximum(d.p - 2 * (d.q - x), 0.0)
    forward = d.q * maximum(d.at(0.0).f, other.f) + d.down(0.0, d.top) + top.f + d.down(0.0, x)
    back = d.q * maximum(d.at(0.0).b, other.b) + d.up_whole(d.top, 0.0) + top.b + d.up_whole(x, 0.0)
    can = (d.spare >= 1) & (d.m >= 2 * d.p)
    forward, back = forward - d.p * last.f - both * last.b, back - d.p * last.b - both * last.f
    return where(can, forward, 0.0), where(can, back, 0.0)


def _by_last_rank(d: Dealt, there: Num, back: Num) -> tuple[Num, Num]:
    """To the first rank by the last: a group in the last chunk there, and its next F, which goes on to the first rank; and back by
    it. Less what the first rank does meanwhile."""
    first, end = d.at(0.0), d.at(d.stages - 1)
    last, on = d.at(d.top), d.at(d.q)
    group = d.p * end.total + where(d.p > 1, d.send, 0.0)
    forward = there + group + on.f - d.p * (last.f + first.f) - 2 * last.b
    backward = back + group + on.b - d.p * (last.b + first.b) - 2 * last.f
    can = (d.m >= 2 * d.p) & (d.p > 1)
    return where(can, forward, 0.0), where(can, backward, 0.0)


def _turned(d: Dealt, x: Num) -> Num:
    """From x's last chunk to the last stage and back, less the forwards that x runs meanwhile: p - 1 more of that chunk,
    then those of its first one."""
    ahead = minimum(2 * (d.q - x), d.m * d.v - d.top - 1)
    same = minimum(ahead, d.q)
    back = d.below(d.top + x, d.stages - 1) + d.w(d.top + x + 1, d.stages)
    return back - same * d.at(d.top + x).f - (ahead - same) * d.at(x).f


def _passed_on(d: Dealt, groups: Num) -> dict[int, Num]:
    """What paths gain that leave a rank for another in each group of p microbatches but the first: of `Dealt.slow`, the
    last rank, the fuller one and the second."""
    fewer = maximum(groups - 1.0, 0.0)
    round_ = maximum(_down_around(d), _up_around(d, d.q))
    return {
        1: maximum(groups * _away(d), fewer * round_),
        2: fewer * _up_around(d, d.fuller),
        3: groups * _first_two(d),
    }


def _up_around(d: Dealt, y: Num) -> Num:
    """From rank y up to the second with the first B of the first chunk, and with the first of the last chunk by the first rank
    up to y again: p forwards of a group are left out, those of a light chunk."""
    p, n = d.p, d.q - y
    here, there, light = d.at(y), d.at(1.0 + 0.0 * p), d.at(d.top + 1)
    late = d.at(d.top - p + y).f
    forward = p * (d.earlier(y).f - late) + (2 * n + 1) * (late - here.f) + 3 * light.f + (p - 3) * there.f
    chains = d.up_whole(y + 1, 2.0) + d.up_whole(d.top, d.top - p + y + 1) + d.at(d.top).b
    back = p * (d.earlier(y).b - here.b) + p * there.b + light.b + chains
    hops = (p - (y - 1) - n) * d.send  # besides those of the chains
    gained = forward + back + hops - p * d.load(y).total
    return where((d.spare >= 2) & (p > 3) & (y > 1) & (2 * n < p), maximum(gained, 0.0), 0.0)


def _down_around(d: Dealt) -> Num:
    """From the last rank down to the second by the first with the last F before the last chunk, and up again with the first B of
    that: the last chunk of the last rank is left out, and as many passes of the first chunk of the second come in."""
    other, last = d.at(1.0 + 0.0 * d.p), d.load(d.q).total - d.earlier(d.q).total
    gained = (d.p - 3) * other.total - d.p * last - d.at(d.q).total + d.at(d.top + 1).total + d.at(d.top).total
    return where((d.spare >= 2) & (d.p > 3), maximum(gained + 4 * d.send, 0.0), 0.0)


def _away(d: Dealt) -> Num:
    """What a path gains that leaves the last rank between two groups in its last chunk for the fuller one, n ranks before: up
    with the last B, the other chunks there but for 2 n passes of the first one, and down with the first F of the next group.
    """
    y = d.fuller
    n, other = d.q - y, d.earlier(y)
    ways = d.below(d.top + y, d.stages - 1) + d.w(d.top + y + 1, d.stages) + d.at(d.top + y).total
    stay = d.p * (other.total - d.earlier(d.q).total) - 2 * n * d.at(y).total
    gained = stay + ways - d.at(d.stages - 1).total
    return where((n > 0) & (2 * n < d.p), maximum(gained, 0.0), 0.0)


def _first_two(d: Dealt) -> Num:
    """What a path gains each group that goes from the second rank to the first, whose first chunk is a light one, for all
    chunks but that: up with the second B of the last chunk, and down with the last F but three."""
    first, light, other, last = d.at(0.0), d.at(d.top + 1), d.at(1.0 + 0.0 * d.p), d.at(d.top)
    whole = d.p * (d.load(0.0).total - d.load(1.0 + 0.0 * d.p).total)
    gained = d.p * (other.total - first.total) - 2 * other.f - 2 * d.at(d.p).b + 2 * d.send
    moved = 4 * light.f - 3 * last.f + 2 * light.b - last.b
    return where((d.p > 3) & (d.spare >= 2), maximum(whole + gained + moved, 0.0), 0.0)


def _rounds(d: Dealt) -> Num:
    """Microbatches through all stages and back, one behind the other, and what is left on the last rank."""
    once, slots = 2 * d.stages - 1, (d.m - d.p) * d.v + d.q
    k = floor(slots / once)
    return (1 + k) * (d.through + d.w(0.0, d.stages)) + (slots - k * once) * d.lightest.total * _least(d)


def _least(d: Dealt) -> Num:
    """Layers of the lightest stage: what a slot takes at least."""
    return d.cut.most - where(d.spare >= 1, 1.0, 0.0)


def in_flight(p: Num, m: Num, v: Num) -> Num:
    """min(m, p + (p - 1)/v)."""
    return minimum(m, p + (p - 1) / v)


INTERLEAVED = Schedule(
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
    in_flight=in_flight,
    heads=lambda p, m, v: 1,
    needs=(many_chunks("interleaved", "1f1b"), whole_rounds("interleaved")),
    in_flight_on_second=lambda p, m, v: minimum(m, p + (p - 3) / v),
    in_flight_on_last=lambda p, m, v: minimum(m, p - (p - 1) / v),
)
