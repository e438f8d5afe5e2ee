"""Ranks that decide what to run next from what passes take: the order of ZB-1p and ZB-2p.

Within a limit of microbatches between F and W the first rank runs forwards until its first gradient
can be back, and each rank further down runs fewer. Then round by round every rank runs one F, if
the limit leaves room, and one I, and puts W where it would wait:

    room     as many W as the limit asks for before an F
    waiting  as many W as end before the input arrives; one more, which ends later, where the rank
             has waited as long as any other, or if `fill`
    ahead    a rank two forwards ahead of the next one leaves an F out that would only wait there,
             if `hold`
    first    the first gradient never waits for a forward that runs ahead, if `prompt`

A rank runs no forward pass that the one before has not (some costs break the authors' program
there). All eight ways are tried, and the shortest time of the slowest rank, first action to last,
decides.

Source: Qi et al. 2024 (arXiv 2401.10241), section 3.1 and its appendix. The orders are those of the
authors' program (github.com/sail-sg/zero-bubble-pipeline-parallelism, zb.py), action by action
(tests/published/zero_bubble_orders.json).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

from .types import Action, Costs, Order

SLACK = 1e-7
"""Of the longest pass: times that differ by less are equal, whatever rounding says."""


class TieRule(NamedTuple):
    """How a rank chooses where the costs leave a choice."""

    prompt: bool
    """The first gradient never waits for a forward that runs ahead."""
    hold: bool
    """A rank two forwards ahead of the next one leaves out an F that would only wait there."""
    fill: bool
    """One W more, which ends after the input arrives, wherever the rank would wait."""


WAYS = tuple(TieRule(*chosen) for chosen in product((True, False), repeat=3))
"""Of several that are as fast the first one counts."""


class Board:
    """The ranks' actions so far, and when they end."""

    def __init__(
        self, costs: Costs, m: int, limit: float, way: TieRule
    ) -> None:
        """limit: microbatches that a rank may hold between F and W."""
        self.f = [f for f, _, _ in costs.passes]
        self.i = [i for _, i, _ in costs.passes]
        self.w = [w for _, _, w in costs.passes]
        self.sends, self.m, self.limit, self.way = costs.sends, m, limit, way
        self.p = len(self.f)
        self.slack = SLACK * max(*self.f, *self.i, *self.w, *costs.sends)
        self.order: Order = [[] for _ in self.f]
        self.forward: list[list[float]] = [[] for _ in self.f]
        """Ends of the forward passes of each rank."""
        self.backward: list[list[float]] = [[] for _ in self.f]
        """The same of I."""
        self.weights = [0] * self.p
        self.clock = [0.0] * self.p
        self.waited = [0.0] * self.p
        """Since the rank's first action."""

    def run_f(self, r: int) -> None:
        """The next forward pass of a rank."""
        k = len(self.forward[r])
        ready = self.forward[r - 1][k] + self.sends[r - 1] if r else 0.0
        self._run(r, Action("F", 0, k), self.f[r], ready)
        self.forward[r].append(self.clock[r])

    def run_i(self, r: int) -> None:
        """The rank's next gradient of an input."""
        k = len(self.backward[r])
        above = r + 1 < self.p
        ready = self.backward[r + 1][k] + self.sends[r] if above else 0.0
        self._run(r, Action("I", 0, k), self.i[r], ready)
        self.backward[r].append(self.clock[r])

    def run_w(self, r: int) -> None:
        """The rank's next gradient of weights."""
        self._run(r, Action("W", 0, self.weights[r]), self.w[r], 0.0)
        self.weights[r] += 1

    def _run(
        self, r: int, action: Action, seconds: float, ready: float
    ) -> None:
        start = self.clock[r]
        if ready > start:
            if self.forward[r]:
                self.waited[r] += ready - start
            start = ready
        self.clock[r] = start + seconds
        self.order[r].append(action)

    def owed(self, r: int) -> int:
        """Weight gradients that could run."""
        return len(self.backward[r]) - self.weights[r]

    def spare(self, r: int) -> float:
        """How much longer another rank has waited, with what rounding leaves."""
        return max(self.waited) - self.waited[r] + self.slack

    def in_flight(self, r: int) -> int:
        """Microbatches between F and W."""
        return len(self.forward[r]) - self.weights[r]

    def full(self, microbatches: int) -> bool:
        """There is no room for one more microbatch."""
        return microbatches + 1 > self.limit + SLACK

    def until(self, r: int, arrives: float) -> None:
        """Weight gradients while the rank would wait for its input."""
        arrives += self.slack
        while self.owed(r) and self.clock[r] + self.w[r] <= arrives:
            self.run_w(r)
        gap = arrives - 2 * self.slack - self.clock[r]
        late = gap + self.slack > self.spare(r)
        if self.owed(r) and gap > 0 and (self.way.fill or late):
            self.run_w(r)

    def first_round(self) -> None:
        """The first microbatch down and up again, and the forwards that run ahead of it."""
        ranks = range(self.p)
        for r in ranks:
            self.run_f(r)
        ahead = self._ahead()
        for r in ranks:
            for _ in range(ahead[r]):
                self.run_f(r)
        for r in reversed(ranks):
            self.run_i(r)

    def _ahead(self) -> list[int]:
        """Forwards between the first F and the first I of each rank, fewer from rank to rank."""
        last = self.p - 1
        back = self.clock[last] + self.i[last]  # the first gradient is made
        ahead = [0] * self.p
        for r in reversed(range(last)):
            arrives = back + self.sends[r]
            now = self.clock[r]
            while 1 + ahead[r] < self.m and not self.full(1 + ahead[r]):
                then = now + self.f[r]
                if self.way.prompt and then > arrives + self.slack:
                    break
                if not self.way.prompt and now >= arrives - self.slack:
                    break
                now = then
                ahead[r] += 1
            back = max(now, arrives) + self.i[r]
        for r in range(1, self.p):
            if min(ahead[r], ahead[r - 1]) + 1 < self.m:
                # a rank runs no further ahead than the rank before it has sent
                ahead[r] = max(min(ahead[r], ahead[r - 1] - 1), 0)
        return ahead

    def round(self) -> None:
        """One F of the ranks that have one, and one I of all."""
        ranks = range(self.p)
        goes = [len(self.forward[r]) < self.m and self._goes(r) for r in ranks]
        for r in reversed(ranks[:-1]):
            goes[r] = goes[r] and goes[r + 1]
        for r in ranks:
            if goes[r]:
                self._next_f(r)
        for r in reversed(ranks):
            self._next_i(r)

    def _next_f(self, r: int) -> None:
        while self.full(self.in_flight(r)):
            self.run_w(r)
        if r:
            above = self.forward[r - 1][len(self.forward[r])]
            self.until(r, above + self.sends[r - 1])
        self.run_f(r)

    def _next_i(self, r: int) -> None:
        if r + 1 < self.p:
            below = self.backward[r + 1][len(self.backward[r])]
            self.until(r, below + self.sends[r])
        if r == 0 and len(self.forward[r]) == self.m:
            while self.owed(r):
                self.run_w(r)
        self.run_i(r)

    def _goes(self, r: int) -> bool:
        """Whether a rank runs an F in this round."""
        below = r + 1
        two = below < self.p and (
            len(self.forward[r]) >= len(self.forward[below]) + 2
        )
        if not (two and self.way.hold):
            return True
        # the next rank is done with its F and I
        done = (
            self.clock[below] + self.f[below] + self.i[below] + self.sends[r]
        )
        gap = done - self.clock[r]
        if gap <= self.slack:
            return False
        room = 0  # weight gradients that run first
        while self.full(self.in_flight(r) - room) and room < self.owed(r):
            room += 1
        fits = self.f[r] + room * self.w[r] <= gap + self.slack
        return fits or gap > self.spare(r)

    def finish(self) -> None:
        """The weight gradients that are left."""
        for r in range(self.p):
            while self.owed(r):
                self.run_w(r)

    @property
    def longest(self) -> float:
        """The longest time of a rank, from its first action to its last."""
        return max(
            end - ends[0] + f
            for end, ends, f in zip(
                self.clock, self.forward, self.f, strict=True
            )
        )


@lru_cache(maxsize=16)
def order_for(costs: Costs, m: int, limit: float) -> Order:
    """The actions of ranks whose passes take so long, and that hold so many microbatches."""
    best: Board | None = None
    for way in WAYS:
        board = Board(costs, m, limit, way)
        board.first_round()
        for _ in range(1, m):
            board.round()
        board.finish()
        if not best or board.longest < best.longest - board.slack:
            best = board
    assert best
    return best.order
