"""ZB-H1 and ZB-H2: the backward pass is cut in two, and the weight gradients, which nobody waits for, fill the bubble.

ZB-H1 is 1F1B with the gradients of the weights held back by r microbatches on rank r; it holds no more activations
than 1F1B:

    bubble = (p-1)(f + i) - a min(f, i, w)          a = min(m, p) - 1
    in a run = (p-1)(f + i) - a min(f, w)
    in flight = min(p, m)

ZB-H2 runs twice as many forwards ahead and holds back twice as many weight gradients:

    bubble = (p-1)(f + i) - min(a f, a w, a/2 i)            a = min(m, 2p - 1) - 1, even
    in a run = (p-1)(f + i) - min(a f, a w, a/2 (f + i))    a odd: (a-1)/2 of them, and one min(i, w) or min(f, w)
    in flight = min(2p - 1, m)

All exact for all p, m, f, i, w. With f = i = w and enough microbatches both bubbles are (p-1) f, a third of 1F1B's:
the last rank cannot start before (p-1) f, and a step that ends with a collective (gradient norm, loss scale) ends
when the last rank does. In a run of steps without such a barrier (the paper's "post-validation" of the optimizer)
every rank begins the next step as soon as it is done, and two steps take less than twice one. What the second adds to
m (f + i + w) is, if w <= f and w <= (f + i)/2, the paper's (p-1)(f + i - w) for H1 and, from m = 2p - 1 on,
(p-1)(f + i - 2w) for H2: zero. H2 is never below zero: beyond w = (f + i)/2 there is nothing left to fill.

Where stages differ or sends take time (rank x runs w_x = h (p-1-x) forwards ahead and holds back h x weight gradients; h
is 1 or 2), the step is rank x's work and what comes before and after it, the longest way:

    before  down to x;  or further down with the first microbatch and up again, less the forwards run ahead meanwhile
    after   nothing;  or up from x with the last one to rank y, which has fewer weight gradients left
    in a run  after, and down again to x with the next step's first, or nothing

or the microbatches go in rounds of h (p-1) + 1, sum (f + i) + 2 (p-1) send + w each: where sends are longer than the
weight gradients that hide them.

With fewer than 2p - 1 microbatches ZB-H2 can be slower than ZB-H1. Activations are counted until the weight gradients
are done; the paper's M_W, what is left of them after I, is smaller.

Source: Qi et al. 2024 (arXiv 2401.10241) sections 2.3 and 3, table 2. The bubbles for unequal f, i, w are our own:
the longest paths of the order, checked against `timeline` on every p, m of the tests.
"""

from __future__ import annotations

from functools import reduce

from ..num import Num, floor, maximum, minimum, where
from .dealt import Dealt
from .looped import looped_order
from .types import Order, Schedule, looped_stage, one_chunk


def h1_order(p: int, m: int, v: int = 1) -> Order:
    """Rank r: p - 1 - r forwards ahead; the k-th W after the (k + r)-th I."""
    return looped_order(p, m, 1, hop=1, split=True)


def h1_bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - a min(f, i, w), a = min(m, p) - 1."""
    a = minimum(m, p) - 1
    return (p - 1) * (f + i) - a * minimum(minimum(f, i), w)


def h1_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - a min(f, w), a = min(m, p) - 1."""
    return (p - 1) * (f + i) - (minimum(m, p) - 1) * minimum(f, w)


def h1_span(d: Dealt, barrier: bool) -> Num:
    """See above, h = 1."""
    return _span(d, 1.0, barrier)


def h2_span(d: Dealt, barrier: bool) -> Num:
    """See above, h = 2."""
    return _span(d, 2.0, barrier)


def _span(d: Dealt, h: float, barrier: bool) -> Num:
    """The longest path, h forwards ahead for each rank below."""
    paths = [_rounds(d, h), _two_rounds(d, h)]
    for x in d.slow:
        after = [(d.up(x, y) - _owed(d, h, x) + _owed(d, h, y), d.down(y, x)) for y in _ends(d, h, x)]
        if barrier:
            around = d.down(0.0, x) + reduce(maximum, [way for way, _ in after])
        else:
            around = reduce(maximum, [way + again for way, again in after])
        quiet = d.down(0.0, x) if barrier else 0.0
        paths.append(d.busy(x) + maximum(_turned(d, h, x), 0.0) + maximum(around, quiet))
    return reduce(maximum, paths)


def _owed(d: Dealt, h: float, rank: Num) -> Num:
    """Weight gradients that a rank has left after its last input gradient."""
    return (minimum(h * rank, d.m - 1) + 1) * d.load(rank).w


def _ends(d: Dealt, h: float, x: Num) -> tuple[Num, ...]:
    """Ranks where the way up may end: the first, or where the weight gradients left are all m."""
    all_left = minimum(floor((d.m - 1) / h), x)
    return 0.0, all_left, minimum(all_left + 1, x)


def _turned(d: Dealt, h: float, x: Num) -> Num:
    """Down from x with its first microbatches to where F turns into I, less the forwards that x runs meanwhile."""

    def at(t: Num) -> Num:
        ahead = minimum(h * (d.q - x), d.m - 1) - h * (d.q - t)
        return d.below(x, t) - maximum(ahead, 0.0) * d.load(x).f

    near = maximum(x, d.q - floor((d.m - 1) / h))
    return reduce(maximum, [at(d.q), at(near), at(maximum(x, near - 1))])


def _rounds(d: Dealt, h: float) -> Num:
    """As many rounds as there are, and what is left on the last rank or, with h = 1, in a round of fewer ranks."""
    once = h * d.q + 1
    k = floor((d.m - 1) / once)
    left, last = d.m - 1 - k * once, d.load(d.q)
    rest = left * (last.f + last.i) + minimum(left, maximum(d.m - 1 - h * d.q, 0.0)) * last.w
    if h == 1.0:
        rest = maximum(rest, d.last_ranks(left) + where((left > 0) & (k > 0), d.at(d.p - left).w, 0.0))
    return (1 + k) * (d.through + d.load(0.0).w) + rest


def _two_rounds(d: Dealt, h: float) -> Num:
    """The first and the last microbatch through all stages, the others on the first rank, which holds nothing back."""
    between, first = d.m - 1 - (h * d.q + 1), d.load(0.0)
    return where(between >= 0, 2 * (d.through + first.w) + between * first.total, 0.0)


def h1_in_flight(p: Num, m: Num, v: Num = 1) -> Num:
    """min(p, m)."""
    return minimum(p, m)


def h2_order(p: int, m: int, v: int = 1) -> Order:
    """Rank r: 2 (p - 1 - r) forwards ahead; the k-th W after the (k + 2r)-th I."""
    return looped_order(p, m, 1, hop=2, split=True)


def h2_bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - min(a f, a w, a/2 i), a = min(m, 2p - 1) - 1; if a is odd, (a-1)/2 i + min(i, w) for a/2 i."""
    return (p - 1) * (f + i) - _filled(p, m, f, w, i, minimum(i, w))


def h2_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """The same with f + i for i, and for an odd a with min(f, w) for min(i, w)."""
    return (p - 1) * (f + i) - _filled(p, m, f, w, f + i, minimum(f, w))


def _filled(p: Num, m: Num, f: Num, w: Num, pair: Num, odd: Num) -> Num:
    """What a = min(m, 2p - 1) - 1 weight gradients fill: a min(f, w), or `pair` for two of them and `odd` for one more."""
    a = minimum(m, 2 * p - 1) - 1
    pairs = floor(a / 2)
    return minimum(a * minimum(f, w), pairs * pair + (a - 2 * pairs) * odd)


def h2_in_flight(p: Num, m: Num, v: Num = 1) -> Num:
    """min(2p - 1, m)."""
    return minimum(2 * p - 1, m)


ZB_H1 = Schedule(
    name="zb-h1",
    title="Zero bubble ZB-H1",
    source="Qi et al. 2024, arXiv 2401.10241",
    torch_name=None,
    split_backward=True,
    chunks=lambda v: 1,
    stage_of=looped_stage,
    order=h1_order,
    bubble=h1_bubble,
    span=h1_span,
    in_flight=h1_in_flight,
    heads=lambda p, m, v: 1,
    heads_late=lambda p, m, v: h1_in_flight(p, m) - 1,
    bubble_in_run=h1_in_run,
    needs=(one_chunk("zb-h1"),),
)

ZB_H2 = Schedule(
    name="zb-h2",
    title="Zero bubble ZB-H2",
    source="Qi et al. 2024, arXiv 2401.10241",
    torch_name=None,
    split_backward=True,
    chunks=lambda v: 1,
    stage_of=looped_stage,
    order=h2_order,
    bubble=h2_bubble,
    span=h2_span,
    in_flight=h2_in_flight,
    heads=lambda p, m, v: 1,
    heads_late=lambda p, m, v: h2_in_flight(p, m) - 1,
    bubble_in_run=h2_in_run,
    needs=(one_chunk("zb-h2"),),
)
