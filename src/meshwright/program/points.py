"""The fullest moments of a rank of a pipeline in closed form: what waits on it when, for numbers
and arrays.

Some moments of the rank are looked at. With m microbatches in plenty all of them see the same;
with few, no gradient is whole yet when the most activations wait, and when all are, fewer wait.
Counted from the orders of `schedule`, against which the tests hold them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..num import Num, floor, maximum, minimum, where
from ..schedule import groups
from ..schedule.types import Schedule
from .messages import ACTIVE


class Point(NamedTuple):
    """What waits at a moment. A microbatch counts 1 once it went through all chunks of the rank."""

    flight: Num
    """Microbatches whose activations are there."""
    heads: Num
    """Those of them between the forward pass of the last stage and the gradient of its input."""
    late: Num = 0.0
    """Those between the two halves of their backward pass."""
    late_heads: Num = 0.0
    """Those between the two halves of that of the last stage."""
    whole: Num = 1.0
    """Share of the gradients of the rank's layers that are whole, in fp32."""
    ends: Num = 1.0
    """The same of embedding and head."""
    pending: Num = 0.0
    """Share that the second half of a backward pass left in the products' precision."""
    gathered: Num = 0.0
    """ZeRO-3: share of the rank's layers that are still gathered, of earlier backward passes."""
    reduced: Num = 0.0
    """Share of the rank's layers in chunks that all microbatches are through: their gradients are
    shards."""
    joined: Num = 0.0
    """1 where the second half of a backward pass makes a gradient beside the one that waits."""
    in_one: bool = False
    """The backward pass at this moment may be one that is not split."""
    lossless: bool = False
    """The loss of the microbatch at work is behind."""

    @property
    def head_first(self) -> Num:
        """1 where the gradient of the head is whole before those of its layers: backward passes
        are not halved.
        """
        return where(self.late > 0, 0.0, 1.0)


NUMBERS = 10
"""Fields of a point that are numbers; the rest are words of its schedule."""


def merged(condition: Any, a: Point, b: Point) -> Point:
    """`where` for every number of two points."""
    both = zip(Point._fields[:NUMBERS], a[:NUMBERS], b[:NUMBERS], strict=True)
    numbers: dict[str, Any] = {
        name: where(condition, x, y) for name, x, y in both
    }
    return a._replace(**numbers, in_one=a.in_one or b.in_one)


def points(
    schedule: Schedule,
    p: Num,
    m: Num,
    v: Num,
    end: str,
    flight: Num,
    layers: Num,
    rank: Num,
) -> tuple[Point, ...]:
    """The moments of the first, second or last rank; flight: the most microbatches in flight there
    (`memory.in_flight`); rank: which one it is. The last: the first of several chunks is reduced.
    """
    none = Point(0.0 * m, 0.0, whole=0.0, ends=0.0, lossless=True)
    if schedule.split_backward:
        return (*split(schedule, p, m, v, end, flight, rank), none)
    chunks = schedule.chunks(v)
    return (
        in_chunks(schedule, p, m, v, end, flight, chunks, layers)
        if chunks > 1
        else (*whole_stages(schedule, p, m, v, flight, layers), none)
    )


def whole_stages(
    schedule: Schedule, p: Num, m: Num, v: Num, flight: Num, layers: Num
) -> tuple[Point, ...]:
    """GPipe, 1F1B: one microbatch is through before a gradient is whole; a forward pass lets go of
    gathered weights.
    """
    heads = schedule.heads(p, m, v)
    after = minimum(flight, m - 1.0)
    heads_after = minimum(heads, m - 1.0)
    few = m <= flight  # no forward pass follows the first backward pass
    full = where(few, 1.0, 0.0)
    last = maximum(where(few, flight, after) - 1.0, 0.0) + 1.0 / layers
    return (
        Point(flight, heads, whole=0.0, ends=0.0),
        Point(after, heads_after, gathered=full),
        Point(
            last,
            where(few, heads, maximum(heads_after, 1.0)),
            whole=where(few, 1.0 - 1.0 / layers, 1.0),
            ends=where(few, 0.0, 1.0),
            gathered=1.0,
            lossless=True,
        ),
    )


def in_chunks(
    schedule: Schedule,
    p: Num,
    m: Num,
    v: Num,
    end: str,
    flight: Num,
    chunks: Num,
    layers: Num,
) -> tuple[Point, ...]:
    """Interleaved 1F1B: a group of microbatches goes through a chunk before the next one has a
    gradient.
    """
    g = groups.size(p, m, schedule.group)
    one = 1.0 / chunks
    few = m <= g
    fresh = where(few, 0.0, 1.0)
    half = floor(chunks / 2)
    # by then every chunk had a backward pass and no forward pass since; on the first ranks the last
    # group is through before its backward passes begin
    before = {"first": 2 * p - 1, "second": 2 * p - 3}.get(end, 0.0 * p)
    emptied = (
        where(
            before >= g,
            g * (1.0 + one - half * one) - one,
            flight - g * half * one,
        )
        + 1.0 / layers
    )
    # ZeRO-3: forward passes let go of a chunk; those of the next group run ahead, or the chunk that
    # went back last is there
    beside = where(
        before > g, chunks - 2.0, maximum(floor((chunks - 1) / 2), 1.0)
    )
    # its head is in the chunk whose gradients are the first, and forward passes follow them
    last = end == "last"
    return (
        Point(
            flight,
            schedule.heads(p, m, v),
            whole=fresh,
            ends=fresh,
            gathered=fresh * beside * one,
        ),
        Point(
            where(few, (g - 1) * one, emptied),
            1.0,
            whole=where(few, one, 1.0),
            gathered=1.0,
            reduced=where(few, 1.0 - one, 0.0),
            lossless=True,
        ),
        Point(
            flight - (0.0 if last else one),
            1.0,
            whole=one,
            ends=1.0 if last else 0.0,
        ),
        Point(
            g * (1.0 - one),
            0.0,
            whole=where(few, one, 1.0),
            ends=1.0 if last else fresh,
            gathered=where(few | (chunks <= ACTIVE), one, 2.0 * one),
            lossless=True,
        ),
    )


def split(
    schedule: Schedule,
    p: Num,
    m: Num,
    v: Num,
    end: str,
    flight: Num,
    rank: Num,
) -> tuple[Point, ...]:
    """Zero bubble: the second half of a backward pass leaves gradients to be added up in the next
    first half.
    """
    one = 1.0 / schedule.chunks(v)
    if not schedule.folded:
        return held_back(schedule, p, m, v, end, flight, rank)
    if schedule.bubble_in_run is None:
        return in_pairs(p, m, end, flight, one)
    if end == "first":
        after = where(m > p, minimum(m, 2 * p), p - 1.0) * one
        # no microbatch is left for the second chunk when the first has its first gradient
        through = where(m > p, 0.0, one)
        return (
            Point(
                flight,
                1.0,
                one,
                whole=where(m > 1, one, 0.0),
                ends=where(m > 2 * p, 1.0, 0.0),
                pending=one,
            ),
            Point(
                after,
                where(m > p, 1.0, 0.0),
                where(m > p, one, 0.0),
                whole=where(m > p, 1.0, one),
                pending=one - through,
                reduced=through,
            ),
            Point(
                minimum(m - 1.0, 2 * p) * one,
                0.0,
                whole=where(m > p, 1.0, one),
                pending=one - through,
                reduced=through,
                in_one=True,
            ),
        )
    after = minimum(flight, (2 * m - 3) * one)
    ended = minimum(maximum(2 * (m - p) + 1, 1.0), 2 * p - 1) * one
    many = m > p + 1  # gradients are whole while the most wait
    emptying = ended - one
    all_ = where(many, 1.0, 0.0)
    return (
        Point(
            where(many, emptying, flight),
            0.0,
            where(many, emptying, one),
            0.0,
            all_,
            all_,
            where(many, 1.0, one),
        ),
        Point(after, 0.0, one, whole=where(m > 2, 1.0, one), pending=1.0),
        Point(
            ended,
            0.0,
            ended,
            whole=where(m > p, 1.0, one),
            pending=one,
            reduced=where(m > p, 0.0, one),
        ),
    )


def held_back(
    schedule: Schedule,
    p: Num,
    m: Num,
    v: Num,
    end: str,
    flight: Num,
    rank: Num,
) -> tuple[Point, ...]:
    """Interleaved zero bubble: rank r holds r weight gradients back, so that later ranks hold more.

    The moments: the first weight gradient of all; a `later` one; the second of all. In one group of
    microbatches each chunk is through before the next one has gradients.
    """
    one = 1.0 / schedule.chunks(v)
    last = 1.0 * (end == "last")
    g = groups.size(p, m, schedule.group)
    few = m <= g
    # with no more microbatches than ranks all forward passes are over by the first of all
    more = where(m > p, 1.0, 0.0)
    # the first stage has one half: no gradient to hand on
    halved = 1.0 - one if end == "first" else 1.0
    begin = Point(
        flight,
        last,
        (rank + 1.0) * one,
        schedule.heads_late(p, m, v) if last else 0.0,
        more * one,
        more * last,
        where(few, one, halved),
    )
    # by the end of the first group: if it is longer than what the rank holds back
    soon = rank + 2.0 <= g
    begun = where(soon, 1.0, 0.0)
    second = begin._replace(
        flight=where(m > p, flight, flight - one),
        heads=last * more,
        whole=begun * one,
        ends=begun * last,
    )
    later = begin._replace(whole=1.0)
    if end == "first":
        # the chunk of the embedding at work
        alone = begin._replace(
            flight=(g - 1.0) * one, whole=one, pending=0.0, reduced=1.0 - one
        )
        later = merged(few, alone, later)._replace(ends=1.0, in_one=True)
        return begin, later, second
    # else a chunk has whole gradients from the second group on: of two groups, two chunks have them
    # when forward passes end
    in_second = begin._replace(
        flight=flight - one,
        heads=0.0,
        whole=2.0 * one,
        pending=1.0 - one,
        joined=1.0,
    )
    # the chunk of the head, with as many weight gradients to come as are held back
    several = where(m - rank > 1, 1.0, 0.0)
    in_first = begin._replace(
        flight=m - (m - rank) * one,
        heads=0.0,
        whole=several * one,
        ends=several * last,
        joined=1.0,
    )
    later = merged(soon | (m > 2 * g), later, in_second)
    return begin, merged(few, in_first, later), second


def in_pairs(
    p: Num, m: Num, end: str, flight: Num, one: Num
) -> tuple[Point, ...]:
    """DualPipeV: halves only while it fills and empties."""
    after = where(m > 2 * p, flight, flight - one)
    pending = 0.0 if end == "last" else one
    return (
        Point(flight, 1.0, whole=one, ends=0.0, pending=pending, in_one=True),
        Point(after, 1.0, pending=pending, in_one=True),
        Point((p - 1) * one, 1.0, one, pending=one)
        if end == "first"
        else Point(
            (p - 1) * one,
            1.0,
            (p - 1) * one,
            pending=where(p > 2, 1.0, one),
        ),
    )
