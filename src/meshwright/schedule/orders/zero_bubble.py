"""ZB-H1 and ZB-H2: the backward pass is cut in two, and the weight gradients, which nobody waits
for, fill the bubble.

ZB-H1 is 1F1B with the gradients of the weights held back by r microbatches on rank r; it holds no
more activations
than 1F1B:

    bubble = (p-1)(f + i) - a min(f, i, w)          a = min(m, p) - 1
    in a run = (p-1)(f + i) - a min(f, w)
    in flight = min(p, m)

ZB-H2 runs twice as many forwards ahead and holds back twice as many weight gradients:

    bubble = (p-1)(f + i) - min(a f, a w, a/2 i)            a = min(m, 2p - 1) - 1, even
    in a run = (p-1)(f + i) - min(a f, a w, a/2 (f + i))    a odd: (a-1)/2 of them,
                                                            and one min(f, i, w) or min(f, w)
    in flight = min(2p - 1, m)

All exact for all p, m, f, i, w. With f = i = w and enough microbatches both bubbles are (p-1) f, a
third of 1F1B's: the last rank cannot start before (p-1) f, and a step that ends with a collective
(gradient norm, loss scale) ends when the last rank does. In a run of steps without such a barrier
(the paper's "post-validation" of the optimizer) every rank begins the next step as soon as it is
done, and two steps take less than twice one. What the second adds to m (f + i + w) is, if w <= f
and w <= (f + i)/2, the paper's (p-1)(f + i - w) for H1 and, from m = 2p - 1 on, (p-1)(f + i - 2w)
for H2: zero. H2 is never below zero: beyond w = (f + i)/2 there is nothing left to fill.

With fewer than 2p - 1 microbatches ZB-H2 can be slower than ZB-H1. Activations are counted until
the weight gradients are done; the paper's M_W, what is left of them after I, is smaller.

Source: Qi et al. 2024 (arXiv 2401.10241) sections 2.3 and 3, table 2. The bubbles for unequal f, i,
w are our own: the longest paths of the order, checked against `timeline` on every p, m of the
tests.
"""

from __future__ import annotations

from ...num import Num, floor, minimum
from ..looped import looped


def h1_bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - a min(f, i, w), a = min(m, p) - 1."""
    a = minimum(m, p) - 1
    return (p - 1) * (f + i) - a * minimum(minimum(f, i), w)


def h1_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - a min(f, w), a = min(m, p) - 1."""
    return (p - 1) * (f + i) - (minimum(m, p) - 1) * minimum(f, w)


def h2_bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - min(a f, a w, a/2 i), a = min(m, 2p - 1) - 1; if a is odd, (a-1)/2 i +
    min(f, i, w) for a/2 i.
    """
    one = minimum(minimum(f, i), w)
    return (p - 1) * (f + i) - _filled(p, m, f, w=w, pair=i, odd=one)


def h2_in_run(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """ZB-H2 in a run of steps: with f + i for i, and for an odd a with min(f, w) for the last."""
    return (p - 1) * (f + i) - _filled(
        p, m, f, w=w, pair=f + i, odd=minimum(f, w)
    )


def _filled(p: Num, m: Num, f: Num, w: Num, pair: Num, odd: Num) -> Num:
    """What a = min(m, 2p - 1) - 1 weight gradients fill: a min(f, w), or `pair` for two of them and
    `odd` for one more.
    """
    a = minimum(m, 2 * p - 1) - 1
    pairs = floor(a / 2)
    return minimum(a * minimum(f, w), pairs * pair + (a - 2 * pairs) * odd)


SOURCE = "Qi et al. 2024, arXiv 2401.10241"
ZB_H1 = looped(
    "zb-h1",
    "Zero bubble ZB-H1",
    SOURCE,
    hop=1,
    split=True,
    closed=h1_bubble,
    in_run=h1_in_run,
)(0)
ZB_H2 = looped(
    "zb-h2",
    "Zero bubble ZB-H2",
    SOURCE,
    hop=2,
    split=True,
    closed=h2_bubble,
    in_run=h2_in_run,
)(0)
