"""Interleaved ZB-H1: v chunks per device, weight gradients held back by r chunk passes on rank r.

    bubble = (p - 1) (f + i - min(f, i, w)) / v     exact, m a multiple of p
    in a run = (p - 1) (f + i - min(f, w)) / v      exact, if each rank begins the next
                                                    step when it is done
    in flight = p                                   until the weight gradients are done

Where stages differ or sends take time, the paths are those of interleaved 1F1B to rank x's last
chunk, then x's work and one of: all of it; or up to the first rank from x's last input gradient of
its last or of its first chunk, where x leaves x + 1 weight gradients behind. Or the microbatches go
in rounds of p through the ranks, a chunk each: there sends hide behind one weight gradient. Where
layers do not divide, ranks hold their heavy stages in other chunks, and the path follows them: in
the last group it may leave x for a rank before it, and between groups the second rank for the
first.

It needs no more memory than 1F1B: (p - 1)/v less than interleaved 1F1B, because only half as many
forwards run ahead.

Source: PyTorch's ScheduleInterleavedZeroBubble (torch 2.13), after Qi et al. 2024 (arXiv
2401.10241). The bubble for unequal f, i, w is our own, checked against `timeline`.
"""

from __future__ import annotations

from functools import cache, reduce
from typing import Any

from ..num import Num, floor, maximum, minimum, where
from . import groups
from .dealt import Dealt, Pass, Rank
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
    """(p - 1)(f + i - min(f, i, w)) / v, or with m < p at least one way down and up."""
    return _with_few(
        (p - 1) * (f + i - minimum(minimum(f, i), w)) / v, p, m, v, f, i, w
    )


def bubble_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p - 1)(f + i - min(f, w)) / v, or the same."""
    return _with_few((p - 1) * (f + i - minimum(f, w)) / v, p, m, v, f, i, w)


def _with_few(
    found: Num, p: Num, m: Num, v: Num, f: Num, i: Num, w: Num
) -> Num:
    """With fewer microbatches than ranks: all through the last stage, one after the other, the
    first down to it and the last up from it, and its weight gradient."""
    through = (v * p - 1 + m) * (f + i) / v + w / v - m * (f + i + w)
    return where(m < p, maximum(found, through), found)


def span(d: Dealt, barrier: bool) -> Num:
    """The longest of the paths above; a device that is alone waits for nobody."""
    ranks = d.ranks.each
    first = ranks[0]
    end = ranks[1]
    paths = [where(d.usual, path, 0.0) for path in _rounds(d, first, end)]
    more: dict[int, Num] = {}
    handed: list[Num] = []
    if d.uneven and not d.cut.free:
        more = {3: _first_two(d, first)}
        handed = _handed_over(d, ranks, barrier)
        paths.append(_twice_a_group(d, first, end))
    for k, x in enumerate(ranks):
        left_f = d.g * x.earlier.f
        left_b = d.late * x.earlier.b
        turned = maximum(_turned(d, x, end), 0.0)
        # W of the last chunk, in place of the first
        held = (x.first.stage + 1) * (x.last.at.w - x.first.at.w)
        stay = maximum(x.last.up - x.first.up - left_b - held, 0.0)
        up = _up(x, first, left_b)
        own = d.m * x.load + more.get(k, 0.0) + turned
        if barrier:
            before = d.to_last_chunk(x, ranks) - left_f
            after = maximum(stay, up)
        else:
            before = maximum(x.last.down - x.first.down - left_f, 0.0)
            after = maximum(stay, up + x.first.down)
        paths.append(own + before + after)
        if handed:  # in a run it begins the next step itself
            paths.append(own + (before if barrier else 0.0) + handed[k])
    found = where(d.m < d.p, _few(d, ranks), reduce(maximum, paths))
    return where(d.p == 1, d.busy(0.0), found)


def _few(d: Dealt, ranks: tuple[Rank, ...]) -> Num:
    """With fewer microbatches than ranks: all of them on the last stage, the first down to it and
    the last up from it; or a rank's own work."""
    last = d.at(d.stages - 1.0)
    first = ranks[0].first.at
    through = d.through + (d.m - 1) * (last.f + last.i) + first.w
    return reduce(maximum, [d.m * x.load for x in ranks], through)


def _up(x: Rank, first: Rank, left: Num) -> Num:
    """Up to the first rank and its last W, less what x leaves behind; left: of its earlier
    chunks.
    """
    held = x.first.stage + 1
    from_first = x.first.up - held * x.first.at.w
    from_last = x.last.up - left - held * x.last.at.w
    return maximum(from_first, from_last) + first.first.at.w


def _handed_over(
    d: Dealt, ranks: tuple[Rank, ...], barrier: bool
) -> list[Num]:
    """For each rank x, in the last group: from an input gradient of x up to a rank y before it, the
    rest of y's work and the way up from there or, in a run, the next step's first work of y and
    down to x's last chunk; less what x does meanwhile: where layers do not divide, y may hold
    heavier chunks than x.
    """
    lefts = [_left(d, y) for y in ranks]
    tops = [_over_first(d, y, ranks[0]) for y in ranks]
    usual: Any = where(d.cut.alike, False, d.usual)
    found: list[Num] = []
    for x, mine in zip(ranks, lefts, strict=True):
        more: Num = 0.0
        for y, theirs, top in zip(ranks, lefts, tops, strict=True):
            if y is x:
                continue
            kinds = zip(mine, theirs, strict=True)
            gained = reduce(maximum, [b - a for a, b in kinds])
            gained = gained + (top if barrier else _begun_again(d, x, y))
            can = usual & (y.first.stage <= x.first.stage)
            more = maximum(more, where(can, gained, 0.0))
        found.append(more)
    return found


def _over_first(d: Dealt, y: Rank, first: Rank) -> Num:
    """What the way up from rank y takes longer than its last weight gradients."""
    held = (y.first.stage + 1) * y.first.at.w
    return maximum(y.first.up - held + first.first.at.w, 0.0)


def _begun_again(d: Dealt, x: Rank, y: Rank) -> Num:
    """From the end of y's step to x's last chunk in the next: the early chunks on y, or on x, or
    one microbatch; less the early chunks on x."""
    on_y = d.g * y.earlier.f + x.last.down - y.last.down
    on_x = d.g * x.earlier.f + x.first.down - y.first.down
    through = x.last.down - y.first.down
    return maximum(maximum(on_y, on_x), through) - d.g * x.earlier.f


def _left(d: Dealt, y: Rank) -> list[Num]:
    """Of the last group on rank y, what is left to do after I, less the way up from there: after
    the last I of the last chunk and of the one before, after the first I of that and of the first
    chunk."""
    k = y.first.stage
    last, first = y.last, y.first
    before = d.place(last.stage - d.p)
    second = d.at(first.stage + d.p)
    all_ = d.late * y.earlier.b
    fewer = d.late * before.at.b
    return [
        all_ + (k + 1) * last.at.w - last.up,
        all_ - fewer + (k + 1) * before.at.w - before.up,
        all_ - before.at.i + k * last.at.w - before.up,
        d.late * first.at.b - first.at.i + k * second.w - first.up,
    ]


def _first_two(d: Dealt, first: Rank) -> Num:
    """What the path of the second rank gains on the first, whose first chunk is a light one, for
    the chunks between the first and the last: in each group of p microbatches but the first up with
    the first I of those chunks, and down with the last F."""
    one = 1.0 + 0.0 * d.p
    here = d.at(one)
    top = d.at(d.top + 1)
    before = d.at(d.top - d.p + 1)
    inner = first.load - first.first.at.total - first.last.at.total
    other = d.load(one).total - here.total - top.total
    gained = d.p * (inner - other) + 2 * d.send
    gained = gained + before.f + before.i - here.f - here.i - top.w
    can = d.usual & (d.spare >= 2) & (d.p > 2) & (d.v > 2)
    again = d.m / d.p - 1.0
    return where(can, again * maximum(gained, 0.0), 0.0)


def _twice_a_group(d: Dealt, first: Rank, end: Rank) -> Num:
    """Two chunks, the first ones heavier: in each group F and I go down and up the first chunks
    twice, as the group begins and as it ends. Then the last group on the first rank."""
    q = d.q
    second = d.place(1.0 + 0.0 * d.p)
    early = maximum(end.last.down, end.first.down + d.g * end.first.at.f)
    begin = early + end.last.at.f + end.last.at.i
    begin = begin + end.last.up - first.last.up
    # from the second rank down to the last and up to it again
    chain = second.at.f + second.below(end.first) + second.at.i
    top = d.at(d.p + 1)
    each = first.last.at.w + first.first.at.f + d.send + chain
    each = each + top.w + chain + second.at.w + top.f + top.i
    each = each + d.send + first.last.at.i
    rest = d.late * first.load - d.late * (first.first.at.f + first.last.at.f)
    rest = rest - first.last.at.i
    can = d.usual & (d.v == 2) & (q > 1) & (d.spare >= 1)
    again = d.m / d.p - 1.0
    return where(can, begin + again * each + rest, 0.0)


def _turned(d: Dealt, x: Rank, end: Rank) -> Num:
    """From x's last chunk to the last stage and back, less p - 1 - x forwards of that chunk that x
    runs meanwhile.
    """
    return x.last.below(end.last) - (d.q - x.first.stage) * x.last.at.f


def _rounds(d: Dealt, first: Rank, end: Rank) -> tuple[Num, Num]:
    """(All in rounds of p slots, and what is left on the last rank or in a round of fewer ranks;
    the first and the last in a round, the others on the first rank)."""
    slots = (d.m - d.p) * d.v + d.q
    k = floor(slots / d.p)
    left = slots - k * d.p
    down = maximum(first.last.down, d.p * first.earlier.f)
    weights = first.last.at.w
    up = maximum(
        first.last.up + first.first.at.w, d.p * first.earlier.b + weights
    )
    turn = d.last_ranks(d.p)
    light = d.cut.least
    short = Pass(*(light * seconds for seconds in d.lightest))
    fewer = d.last_ranks(left) + where((left > 0) & (k > 0), short.w, 0.0)
    held = maximum(minimum(left, slots - d.q), 0.0)
    on_last = _passes(d, left, held, end, short)
    others = _passes(d, slots - d.p, slots - d.p, first, short)
    two = down + 2 * turn + weights + others + up
    return down + turn + _each(d, k, first, end, short) + maximum(
        fewer, on_last
    ) + up, where(slots >= d.p, two, 0.0)


def _each(d: Dealt, k: Num, first: Rank, end: Rank, short: Pass) -> Num:
    """k rounds through all ranks, v of them through all chunks; where layers do not divide, those
    that are left light ones.
    """
    through = (
        first.first.at.f
        + first.first.below(end.last)
        + first.first.at.i
        - 2 * (d.stages - 1) * d.send
    )
    equal = k * (through / d.v + 2 * d.q * d.send + d.lightest.w * d.cut.most)
    if not d.uneven:
        return equal
    whole = floor(k / d.v)
    weights = d.cut.rank_layers(0.0) * d.lightest.w
    few = (k - d.v * whole) * (d.p * (short.f + short.i) + short.w)
    return where(
        d.cut.alike,
        equal,
        whole * (through + weights) + few + k * 2 * d.q * d.send,
    )


def _passes(d: Dealt, n: Num, held: Num, x: Rank, short: Pass) -> Num:
    """n slots on a rank, weight gradients in `held` of them; where layers do not divide, whole
    groups and light chunks.
    """
    load = x.earlier.plus(x.last.at)
    equal = (n * (load.f + load.i) + held * load.w) / d.v
    if not d.uneven:
        return equal
    groups = floor(minimum(n, held) / (d.p * d.v))
    rest = groups * d.p * d.v
    few = (n - rest) * (short.f + short.i) + (held - rest) * short.w
    return where(d.cut.alike, equal, groups * d.p * x.load + few)


@cache
def interleaved_zero_bubble(group: int = 0) -> Schedule:
    """With groups of so many microbatches."""

    def order(p: int, m: int, v: int) -> Order:
        """Rank r: (v - 1) g + p - 1 - r forwards ahead; the k-th W after the (k + r)-th I."""
        return looped_order(p, m, v, 1, True, group)

    return Schedule(
        name="interleaved-zb",
        title="Interleaved zero bubble",
        source="Qi et al. 2024, arXiv 2401.10241; PyTorch",
        torch_name="InterleavedZeroBubble",
        split_backward=True,
        loose=differ,
        chunks=lambda v: v,
        stage_of=looped_stage,
        order=order,
        bubble=bubble,
        span=span,
        # of every rank: as many as it runs ahead, and those it holds back
        in_flight=lambda p, m, v: groups.ahead(p, m, v, group, p),
        heads=lambda p, m, v: 1,
        heads_late=lambda p, m, v: minimum(p, m) - 1,
        bubble_in_run=bubble_in_run,
        needs=(
            many_chunks("interleaved-zb", "zb-h1"),
            whole_groups("interleaved-zb", group),
        ),
        group=group,
        grouped=interleaved_zero_bubble,
    )


INTERLEAVED_ZERO_BUBBLE = interleaved_zero_bubble()
