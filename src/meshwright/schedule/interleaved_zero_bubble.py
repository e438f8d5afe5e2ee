"""Interleaved ZB-H1: v chunks per device, weight gradients held back by r chunk passes on rank r.

    bubble = (p - 1) (f + i - min(f, i, w)) / v     exact, m a multiple of p
    in a run = (p - 1) (f + i - min(f, w)) / v      exact, if each rank begins the next
                                                    step when it is done
    in flight = p                                   until the weight gradients are done

Where stages differ or sends take time, the paths are those of interleaved 1F1B to rank x's last
chunk, then x's work and one of: all of it; or up to the first rank from x's last input gradient of
its last or of its first chunk, where x leaves x + 1 weight gradients behind. Or the microbatches go
in rounds of p through the ranks, a chunk each: there sends hide behind one weight gradient.

It needs no more memory than 1F1B: (p - 1)/v less than interleaved 1F1B, because only half as many
forwards run ahead.

Source: PyTorch's ScheduleInterleavedZeroBubble (torch 2.13), after Qi et al. 2024 (arXiv
2401.10241). The bubble for unequal f, i, w is our own, checked against `timeline`.
"""

from __future__ import annotations

from functools import cache, reduce

from ..num import Num, floor, maximum, minimum, where
from . import groups
from .dealt import Dealt, Pass, Rank
from .looped import looped_order
from .types import Order, Schedule, looped_stage, many_chunks, whole_groups


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
    ranks = d.ranks
    first, end = ranks[0], ranks[1]
    paths = [where(d.usual, path, 0.0) for path in _rounds(d, first, end)]
    for x in ranks:
        left_f, left_b = d.g * x.earlier.f, d.late * x.earlier.b
        turned = maximum(_turned(d, x, end), 0.0)
        # W of the last chunk, in place of the first
        held = (x.first.stage + 1) * (x.last.at.w - x.first.at.w)
        stay = maximum(x.last.up - x.first.up - left_b - held, 0.0)
        up = _up(x, first, left_b)
        if barrier:
            before = d.to_last_chunk(x, ranks) - left_f
            paths.append(d.m * x.load + before + turned + maximum(stay, up))
        else:
            wait = maximum(x.last.down - x.first.down - left_f, 0.0)
            paths.append(
                d.m * x.load + wait + turned + maximum(stay, up + x.first.down)
            )
    found = where(d.m < d.p, _few(d, ranks), reduce(maximum, paths))
    return where(d.p == 1, d.busy(0.0), found)


def _few(d: Dealt, ranks: tuple[Rank, ...]) -> Num:
    """With fewer microbatches than ranks: all of them on the last stage, the first down to it and
    the last up from it; or a rank's own work."""
    last, first = d.at(d.stages - 1.0), ranks[0].first.at
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
    on_last, others = (
        _passes(d, left, held, end, short),
        _passes(d, slots - d.p, slots - d.p, first, short),
    )
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
