"""DualPipeV: DeepSeek's DualPipe folded into a V, so that a device holds each weight once.

In the steady state a forward of one chunk runs next to a backward of the other, so that each can
hide the other's messages; weight gradients are split off only at the two ends. With q = p - 1 and
f, i, w of one device (a chunk takes
half):

    bubble = 1/2 max( q f,  q (f + i - w),  q i - f,  2q i - q w - f,  2q (f - w),  q (2f - i - w) )
    in flight = p + 1/2    activations counted until the weight gradients are done

exact for all f, i, w and all legal m: the schedule needs m >= 2p.

Where stages differ or sends take time the step is the longest of: every stage as light as the
lightest, by the law above; rank 0 with both ends of the model, which waits for its first microbatch
and for its last gradient; and what goes down and up the V once with F (or late, behind the forwards
that rank 0 runs ahead) and I1, stays on the last rank, comes up and goes round once more. Where
layers do not divide it may stay on any rank that holds a heavy chunk, and begin and end on rank 1,
which has one too.

Here the two of a pair run one after the other, the forward first, as PyTorch runs them unless told
otherwise. Run as one block, whose outputs leave when both are done, pairs hide more communication
and idle longer: DeepSeek gives (p-1)(F&B + B - 3W) for chunks, with f = i = w and F&B = F + B twice
the bubble above.

Source: DeepSeek-AI 2024 (arXiv 2412.19437) section 3.2.1; github.com/deepseek-ai/DualPipe; the
order is that of PyTorch's ScheduleDualPipeV (torch 2.13), its pairs unfolded. The bubble is our
own, checked against `timeline`.
"""

from __future__ import annotations

from functools import reduce

from ..num import Num, maximum, minimum, where
from .dealt import Dealt, Pass
from .folded import (
    as_if_equal,
    begins,
    first_waits,
    fuller_ranks,
    fullest_never_waits,
    numbered,
)
from .types import Order, Rule, Schedule, differ, folded_stage, two_chunks


def order(p: int, m: int, v: int) -> Order:
    """m >= 2p microbatches."""
    return [numbered(_program(p, m, rank)) for rank in range(p)]


def _program(p: int, m: int, r: int) -> str:
    """Rank r, with `below` ranks under it; the cool down splits the second half of its
    backwards.
    """
    below = p - 1 - r
    half = (r + 1) // 2
    turn = "B1 B0 " * half + (
        "I1 I0 " * (r + 1 - half)
        if r % 2
        else "B1 I0 " + "I1 I0 " * (r - half)
    )
    # chunks whose W waits, oldest first
    held = [word[1] for word in turn.split() if word[0] == "I"] + ["0"] * below
    return (
        "F0 " * (2 * below)
        + "F0 F1 " * (r + 1)
        + "I1 W1 F1 " * below
        + "F0 B1 F1 B0 " * (m - 2 * p + r + 1)
        + "B1 F1 B0 " * below
        + turn
        + "".join(f"W{chunk} I0 " for chunk in held[:below])
        + "".join(f"W{chunk} " for chunk in held[below:])
    )


def bubble(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """The longest of six paths, see above."""
    q = p - 1
    paths = (
        q * f,
        q * (f + i - w),
        q * i - f,
        2 * q * i - q * w - f,
        2 * q * (f - w),
        q * (2 * f - i - w),
    )
    return reduce(maximum, paths) / 2


def span(d: Dealt, barrier: bool) -> Num:
    """The longest of the paths above."""
    p, m, q = d.p, d.m, d.q
    first = d.at(0.0)
    last = d.at(d.stages - 1)
    down = maximum(
        d.f(0.0, 2 * p) + d.hops(0.0, 2 * p - 1),
        (2 * q + 1) * first.f + last.f,
    )
    paths = [
        as_if_equal(d, lambda f, i, w: bubble(p, m, 2.0, f, i, w)),
        first_waits(
            d, d.down(0.0, d.stages - 1) - (2 * q + 1) * first.f, p * first.b
        ),
    ]
    again = last.b + d.up(2 * p - 1, 0.0) + first.w
    paths.append(down + _stays(d, q) + d.up_whole(q, 0.0) + again)
    if d.uneven:
        paths.append(fullest_never_waits(d, barrier))
        around = reduce(maximum, _around(d, first, last, down, barrier))
        paths.append(where(d.cut.alike, 0.0, around))
    return where(p == 1, d.busy(0.0), reduce(maximum, paths))


def _around(
    d: Dealt, first: Pass, last: Pass, down: Num, barrier: bool
) -> list[Num]:
    """F down and up, I1 down; on a rank x all rounds of F0 B1 F1 B0; B0 up to the first rank or the
    second, rounds of B1 F1 B0 there, then B1 and I1 down, I0 up: to the first, or to the second and
    what is left there. In a run from the first to the first, or from the second to the second."""
    ranks = fuller_ranks(d)
    end = d.stages - 1
    y = ranks[1]
    down = begins(d, down, ranks[1])
    here = d.at(y)
    other = d.at(end - y)
    second = _second_ends(d, ranks[1])
    again = down if barrier else begins(d, 0.0, y) - d.down(0.0, y)
    turn = other.b + here.b + other.i
    over = last.b + d.up(end, end - y)
    on_first = maximum(
        down + last.b + d.up(end, 0.0) + first.w, again + over + second
    )
    on_second = turn + maximum(
        down + d.up(end - y, 0.0) + first.w, again + second
    )
    first_round = last.total + first.b
    second_round = other.total + here.b
    between = d.up_whole(y, 0.0)
    found = []
    for x in ranks:
        way = d.up_whole(x, 0.0)
        below = d.q - x
        by_first = way + below * first_round + on_first
        by_second = way - between + below * second_round + on_second
        after = maximum(by_first, where(x >= y, by_second, 0.0))
        found.append(_stays(d, x) + after)
    return found


def _stays(d: Dealt, x: Num) -> Num:
    """From the last stage's first F down to rank x with I1, and all rounds of F0 B1 F1 B0 there."""
    one = d.at(x)
    other = d.at(2 * d.p - 1 - x)
    below = d.q - x
    rounds = d.m - 2 * d.p + x + 1
    stays = below * (other.b + other.f) + rounds * (one.total + other.total)
    # the turn begins with B1: its first F0 was there before
    return d.up(2 * d.p, 2 * d.p - x) + stays - where(below == 0, one.f, 0.0)


def _second_ends(d: Dealt, y: Num) -> Num:
    """From the second rank's last I1: its own I0 and W; or down to the third rank or the turn, up
    with I0, and what is left there then."""
    p, last = d.p, d.stages - 1
    one = d.at(y)
    other = d.at(last - y)
    below = d.q - y
    ways = [(1 + below) * one.b + other.w]
    for z in (minimum(2.0 + 0.0 * p, d.q), d.q):
        chain = d.up(last - y, last - z) + d.i(y, z + 1) + d.hops(y, z)
        held = minimum(p - z + 1, p - y) * one.w
        ways.append(chain + (p - z - 1) * one.i + held)
    return reduce(maximum, ways)


def in_flight(p: Num, m: Num, v: Num) -> Num:
    """p + 1/2: 2p + 1 chunks of half a microbatch."""
    return p + 0.5


def _enough(p: int, m: int, v: int) -> str:
    return f"dualpipev needs at least 2 pp = {2 * p} microbatches, not {m}"


DUALPIPEV = Schedule(
    name="dualpipev",
    title="DualPipeV",
    source="DeepSeek-AI 2024, arXiv 2412.19437",
    torch_name="DualPipeV",
    split_backward=True,
    loose=differ,
    chunks=lambda v: 2,
    stage_of=folded_stage,
    order=order,
    bubble=bubble,
    span=span,
    in_flight=in_flight,
    heads=lambda p, m, v: 1,
    needs=(two_chunks("dualpipev"), Rule(lambda p, m, v: m >= 2 * p, _enough)),
)
