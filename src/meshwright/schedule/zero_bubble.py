"""ZB-H1 and ZB-H2: the backward pass is cut in two, and the weight gradients, which nobody waits for, fill the bubble.

ZB-H1 is 1F1B with the gradients of the weights held back by r microbatches on rank r; it holds no more activations
than 1F1B:

    bubble = (p-1)(f + i) - a min(f, i, w)          a = min(m, p) - 1;  exact for all p, m, f, i, w
    in flight = min(p, m)

ZB-H2 runs twice as many forwards ahead and holds back twice as many weight gradients:

    bubble = (p-1)(f + i) - min(a f, a/2 i, a w)    a = min(m, 2p - 1) - 1, even;  exact for all p, m, f, i, w
                                                    a odd: one i of the (a + 1)/2 is min(i, w) instead
    in flight = min(2p - 1, m)

With f = i = w and enough microbatches both are (p-1) f, a third of 1F1B's: the last rank cannot start before (p-1) f,
and a step that ends with a collective (gradient norm, loss scale) ends when the last rank does. The paper measures
from the start to the end of each rank instead, as if the next step could begin meanwhile (its "post-validation" of
the optimizer). That is `Timeline.span_s`: its excess over m (f + i + w) is the paper's (p-1)(f + i - w) for H1, and
(p-1)(f + i - 2w) for H2: zero.

With fewer than 2p - 1 microbatches ZB-H2 can be slower than ZB-H1. Activations are counted until the weight gradients
are done; the paper's M_W, what is left of them after I, is smaller.

Source: Qi et al. 2024 (arXiv 2401.10241) sections 2.3 and 3, table 2. The bubbles for unequal f, i, w are our own:
the longest paths of the order, checked against `timeline` on every p, m of the tests.
"""

from __future__ import annotations

from ..num import Num, floor, minimum
from .looped import looped_order
from .types import Order, Schedule, looped_stage, one_chunk


def h1_order(p: int, m: int, v: int = 1) -> Order:
    """Rank r: p - 1 - r forwards ahead; the k-th W after the (k + r)-th I."""
    return looped_order(p, m, 1, hop=1, split=True)


def h1_bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - a min(f, i, w), a = min(m, p) - 1."""
    a = minimum(m, p) - 1
    return (p - 1) * (f + i) - a * minimum(minimum(f, i), w)


def h1_in_flight(p: Num, m: Num, v: Num = 1) -> Num:
    """min(p, m)."""
    return minimum(p, m)


def h2_order(p: int, m: int, v: int = 1) -> Order:
    """Rank r: 2 (p - 1 - r) forwards ahead; the k-th W after the (k + 2r)-th I."""
    return looped_order(p, m, 1, hop=2, split=True)


def h2_bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """(p-1)(f + i) - min(a f, a/2 i, a w), a = min(m, 2p - 1) - 1; if a is odd, (a-1)/2 i + min(i, w) for a/2 i."""
    a = minimum(m, 2 * p - 1) - 1
    pairs = floor(a / 2)
    return (p - 1) * (f + i) - minimum(a * minimum(f, w), pairs * i + (a - 2 * pairs) * minimum(i, w))


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
    in_flight=h1_in_flight,
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
    in_flight=h2_in_flight,
    needs=(one_chunk("zb-h2"),),
)
