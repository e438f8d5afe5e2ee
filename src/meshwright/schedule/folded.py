"""Orders of V-shaped pipelines, written as programs: "F0 F0 F1 I1 W1" instead of loops with
counters.

A word is a kind and a chunk; the microbatch follows from counting: the k-th F0 of a rank is the
forward of microbatch k through its chunk 0. Rank r holds stages r and 2p - 1 - r, so the last stage
lies on the rank of the first and the turn of the V needs no send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import reduce

from ..num import Num, maximum, minimum, where
from .dealt import Dealt
from .types import Action


def numbered(program: str) -> list[Action]:
    """The actions of a program; B counts as an I and a W."""
    seen: Counter[str] = Counter()
    actions = []
    for word in program.split():
        kind = word[0]
        digit = word[1]
        passes = "IW" if kind == "B" else kind
        actions.append(Action(kind, int(digit), seen[passes[0] + digit]))
        seen.update(k + digit for k in passes)
    return actions


def first_waits(d: Dealt, wait: Num, leaves: Num, back: Num = 0.0) -> Num:
    """Rank 0, which has both ends: its work, the way of the last gradient down and up less what it
    does meanwhile, and

    wait: seconds for its first microbatch to come back as the last stage's, less the forwards it
    runs meanwhile; leaves: seconds of rank 0 between its last gradient's start from the last stage
    and its W of the first; back: what that gradient waits for on its way.
    """
    end = d.up(d.stages - 1, 0.0) + d.w(0.0, 1.0) + back - leaves
    return d.busy(0.0) + maximum(wait, 0.0) + maximum(end, 0.0)


def as_if_equal(d: Dealt, idle: Callable[[Num, Num, Num], Num]) -> Num:
    """Every stage as light as the one with the fewest layers; idle: (f, i, w) of a rank -> idle
    seconds.
    """
    fewest = d.v * d.cut.least
    f, i, w = (fewest * seconds for seconds in d.lightest)
    # on 2 p chunks, each way
    hops = 2 * d.q + (1.0 if d.cut.crosses else 0.0)
    send = d.send * hops / d.p
    return d.m * (f + i + w) + idle(f + send, i + send, w)


def fullest_never_waits(d: Dealt, barrier: bool) -> Num:
    """The rank with the most layers from its first microbatch on; of several kinds, with most of
    any."""
    found = [
        d.busy(rank) + (d.down(0.0, rank) if barrier else 0.0)
        for rank in d.between
    ]
    return where(d.cut.alike, 0.0, reduce(maximum, found))


def begins(d: Dealt, first: Num, y: Num) -> Num:
    """To the end of the last stage's first F: at least `first`, or by rank y, which runs as many
    forwards of its first chunk ahead as it comes before the turn."""
    ahead = minimum(d.m, 2 * (d.p - y) - 1) * d.at(y).f
    last = d.stages - 1.0
    up = d.down(last - y, last) + d.at(last).f
    return maximum(
        first, where(d.cut.alike, first, d.down(0.0, y) + ahead + up)
    )


def fuller_ranks(d: Dealt) -> tuple[Num, ...]:
    """Ranks that may set the pace: the first, the second, the turn, and the last whose first chunk
    is a heavy one."""
    heavy = where(d.spare >= 2, minimum(d.stages - d.spare, d.q), d.q)
    return 0.0 * d.p, minimum(1.0 + 0.0 * d.p, d.q), heavy, d.q
