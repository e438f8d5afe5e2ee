"""V-Half and V-Min: two chunks a device, laid out as a V, that keep the activations of half and of
a third of 1F1B's microbatches.

A building block says when a microbatch passes the two chunks of each rank, forward and backward,
in slots of one pass each; every six slots (two F, I and W) the next microbatch follows. The sooner
a rank's backward passes come after its forward passes, the fewer activations it holds. With rank r
of p, F down and up the V and I down and up again begin in slot

    V-Half   2r,  3p - 2 - r,  3p - 1 + 2r + 3 [p even],  6p - 2 - r + 3 [p even]
    V-Min    r,   2p - 1 - r,  2p + r + 2 [3 | p],        4p - 1 - r + 2 [3 | p]

and W takes slots that are free. Then, before the pipeline is full and when it runs empty, every
pass moves to the earliest free slot in which no rank holds more than the fullest did.

    activations   V-Half p/2 + O(1), V-Min p/3 + O(1) microbatches
    bubble        of f = i = w: about half, and two thirds, of 1F1B's (p-1)(f + i + w); V-Min idles
                  in every round where the three differ

Source: Qi, Wan, Amar and Lin 2024, "Pipeline parallelism with controllable memory" (arXiv
2405.15362), building blocks of section 3 and squeezing of section 3.4. The orders are those of its
authors' scheduler (github.com/sail-sg/zero-bubble-pipeline-parallelism, zbv_greedy.py), action by
action (tests/published/schedule_orders.json).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from ...num import Num, floor, minimum, where
from ..rules import two_chunks
from ..schedule import Flight, Schedule
from ..types import Action, Order, folded_stage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 6
"""Slots from a microbatch to the next: two chunks, three passes each."""
PASSES = (("F", 0), ("F", 1), ("I", 1), ("I", 0), ("W", 1), ("W", 0))
"""Kinds and chunks in the order in which a microbatch comes to a rank."""
DOWN, UP, BACK, END, WEIGHTS = range(5)
"""Positions there; while passes move W counts as one kind."""
Slots: TypeAlias = list[list[int]]
"""Of a rank: for each of these passes, the slot of every microbatch."""
Pattern: TypeAlias = Callable[[int, int], tuple[int, int, int, int]]
"""(p, rank) -> slots of the first microbatch."""


def half(p: int, r: int) -> tuple[int, int, int, int]:
    """The building block of V-Half."""
    later = 3 if p % 2 == 0 else 0
    return (
        2 * r,
        3 * p - 2 - r,
        3 * p - 1 + 2 * r + later,
        6 * p - 2 - r + later,
    )


def v_min(p: int, r: int) -> tuple[int, int, int, int]:
    """The building block of V-Min."""
    later = 2 if p % 3 == 0 else 0
    return r, 2 * p - 1 - r, 2 * p + r + later, 4 * p - 1 - r + later


@lru_cache(maxsize=256)
def _order(pattern: Pattern, p: int, m: int) -> Order:
    """Two rounds of moving, the second without the places that W had in the first."""
    if p == 1:
        kinds = [Action(kind, chunk, 0) for kind, chunk in PASSES]
        return [[a._replace(microbatch=k) for k in range(m) for a in kinds]]
    ranks = [
        [[x + BLOCK * k for k in range(m)] for x in pattern(p, r)]
        for r in range(p)
    ]
    ranks = [slots[:WEIGHTS] for slots in _squeezed(ranks, weights=True)]
    ranks = [slots[:WEIGHTS] for slots in _squeezed(ranks, weights=False)]
    return [_actions(_with_weights(slots, split=True)) for slots in ranks]


def _actions(slots: Slots) -> list[Action]:
    """Actions of a rank, in turn."""
    every = sorted(
        (slot, kind, k)
        for kind, row in enumerate(slots)
        for k, slot in enumerate(row)
    )
    return [Action(*PASSES[kind], k) for _, kind, k in every]


def _with_weights(slots: Slots, split: bool = False) -> Slots:
    """W in the free slots after their I, the oldest first (split: those of the turn's chunk, as
    kinds of their own)."""
    kind_at = {slot: kind for kind, row in enumerate(slots) for slot in row}
    end = max(kind_at)
    weights: Slots = [[], []] if split else [[]]
    waits = [0, 0]
    slot = 0
    while slot <= end or any(waits):
        kind = kind_at.get(slot)
        if kind in (BACK, END):
            waits[kind - BACK if split else 0] += 1
        elif kind is None and any(waits):
            which = 0 if waits[0] else 1
            waits[which] -= 1
            weights[which].append(slot)
        slot += 1
    return [*slots, *weights]


class RankBoard:
    """What runs when on a rank, and how much it holds."""

    def __init__(self, slots: Slots) -> None:
        import numpy as np

        self.slots = slots
        self.known = len(slots) > WEIGHTS
        self.taken: set[int] = set()
        last = max(row[-1] for row in slots) + 1
        self.starts: NDArray[np.int64] = np.zeros((5, last), dtype=np.int64)
        for kind, row in enumerate(slots):
            self.starts[kind, row] = 1

    @property
    def most(self) -> int:
        """Passes whose activations it holds at once; where W has no places, it takes every free
        slot that it can."""
        import numpy as np

        s = self.starts
        made = s[DOWN] + s[UP]
        if self.known:
            return int(np.cumsum(made - s[WEIGHTS]).max())
        come = s[BACK] + s[END]
        free = 1 - made - come
        length = np.cumsum(come - free)
        # a queue: what came minus what left, never below empty (reflected at 0)
        waiting = length - np.minimum.accumulate(np.minimum(length, 0))
        return int((np.cumsum(made) - (np.cumsum(come) - waiting)).max())

    def moved(self, kind: int, k: int, earliest: int, limit: int) -> None:
        """A pass goes to the first slot that nobody has and in which the rank holds no more."""
        now = self.slots[kind][k]
        row = self.starts[kind]
        for slot in range(earliest, now):
            if slot in self.taken:
                continue
            row[now], row[slot] = 0, 1
            # a backward pass holds no more sooner, where W have places
            never = self.known and kind not in (DOWN, UP)
            if never or self.most <= limit:
                self.slots[kind][k] = slot
                break
            row[now], row[slot] = 1, 0
        self.taken.add(self.slots[kind][k])


def _squeezed(ranks: list[Slots], weights: bool) -> list[Slots]:
    """Passes before the pipeline is full (if W has its places) and after the last microbatch has
    begun, moved; then all as soon as they can."""
    if weights:
        ranks = [_with_weights(slots) for slots in ranks]
    boards = [RankBoard([[*row] for row in slots]) for slots in ranks]
    limit = max(board.most for board in boards)
    now = [board.slots for board in boards]
    m = len(ranks[0][DOWN])
    full, empty = False, False
    for slot, r, kind, k in _in_turn(ranks):
        full = full or (r, kind) == (0, END)
        stays = full and not empty or not (full or weights)
        if stays:
            empty = full and (kind, k) == (DOWN, m - 1)
            boards[r].taken.add(slot)
            continue
        boards[r].moved(kind, k, _after(now, r, kind, k) + 1, limit)
    return _soonest(now if weights else [*map(_with_weights, now)])


def _in_turn(ranks: list[Slots]) -> list[tuple[int, int, int, int]]:
    """(slot, rank, kind, microbatch) of all passes."""
    return sorted(
        (slot, r, kind, k)
        for r, slots in enumerate(ranks)
        for kind, row in enumerate(slots)
        for k, slot in enumerate(row)
    )


def _after(ranks: list[Slots], r: int, kind: int, k: int) -> int:
    """The last slot of what a pass waits for; -1: nothing."""
    own, waits = ranks[r], [-1]
    if kind in (DOWN, BACK) and r > 0:
        waits.append(ranks[r - 1][kind][k])
    if kind in (UP, END) and r + 1 < len(ranks):
        waits.append(ranks[r + 1][kind][k])
    if DOWN < kind < WEIGHTS:
        waits.append(own[kind - 1][k])
    if kind == WEIGHTS:
        waits.append(sorted(own[BACK] + own[END])[k])
    if k:
        waits.append(own[kind][k - 1])
    return max(waits)


def _soonest(ranks: list[Slots]) -> list[Slots]:
    """One order on every rank, each pass as soon as it can, all of one length."""
    soonest: list[Slots] = [
        [[0] * len(row) for row in slots] for slots in ranks
    ]
    ready = [0] * len(ranks)
    for _, r, kind, k in _in_turn(ranks):
        waits = -1 if kind == WEIGHTS else _after(soonest, r, kind, k)
        soonest[r][kind][k] = max(ready[r], waits + 1)
        ready[r] = soonest[r][kind][k] + 1
    return soonest


def _schedule(
    name: str, title: str, pattern: Pattern, flight: Flight
) -> Schedule:
    def order(p: int, m: int, v: int) -> Order:
        return _order(pattern, p, m)

    def late(p: int, m: int, v: int) -> float:
        # in the steady state W of the last stage follows its I at once
        from ..replays import order_holds

        return 0.0 if m >= 2 * p else order_holds(schedule, p, m, v).late

    def heads(p: Num, m: Num, v: Num) -> tuple[Num, Num]:
        from ..replays import in_rows

        return 1, in_rows(late, p, m, v)

    schedule = Schedule(
        name=name,
        title=title,
        source="Qi et al. 2024, arXiv 2405.15362",
        order=order,
        stage_of=folded_stage,
        chunks=lambda v: 2,
        split_backward=True,
        needs=(two_chunks(name),),
        flight=flight,
        heads=heads,
    )
    return schedule


def half_flight(p: Num, m: Num, v: Num, rank: Num) -> Num:
    """min(m, floor(p/2) + 1); of a few on the first rank every second one in both chunks."""
    most = minimum(m, floor(p / 2) + 1)
    return where((rank == 0) & (p > 1), minimum((m + 1) / 2, most), most)


def least_flight(p: Num, m: Num, v: Num, rank: Num) -> Num:
    """min(m, floor((p + 4) / 3)); on the first rank the same, or where p is 2, 5, 8 ... half a
    microbatch less."""
    most = floor((p + 4) / 3)
    less = where(p % 3 == 2, 0.5, 0.0)
    first = minimum((m + 1) / 2, most - where(m > 1, less, 0.0))
    return where((rank == 0) & (p > 1), first, minimum(m, most))


V_HALF = _schedule("v-half", "V-Half", half, half_flight)
V_MIN = _schedule("v-min", "V-Min", v_min, least_flight)
