"""What of a layer's messages hides behind its operations: budgets of seconds, each second spent
once.

An assumption set says for tp, cp and ep behind what their messages hide (`Hide.scope`): the
operation that sends, the product that makes weight gradients, a sublayer, a layer, both passes. The
operations of a scope are one budget; `overlap.outlasting` says what of the messages outlasts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ..describe.assumptions import Hide, Overlap
from ..num import Num, maximum, minimum, total, totals, where
from . import overlap
from .causes import CAUSES, PassCost, Seconds, is_zero

HIDING = ("cp_comm", "ep_comm", "tp_comm")
"""In this order they hide, each behind seconds nothing else hides behind."""
WEIGHT_GRADIENT = "weight gradient"
"""Scope of `Hide`: the product that makes it, in the backward pass alone."""
SHARED_EXPERT = "shared expert"
"""Scope of `Hide`: that part of a feed-forward."""
WIDE = ("sublayer", "layer", "step")
"""Scopes of `Hide` that are wider than the operation that sends."""
BACKWARD = 1
"""Position of the backward pass, where both passes are given."""
SUBLAYER_OF = {"experts": "ffn", "shared": "ffn", "indexer": "attention"}
"""Part of a layer -> what mixes tokens or the feed-forward, where that has another name."""


def hide(passes: Sequence[Sequence[PassCost]], how: Overlap) -> list[Seconds]:
    """Seconds of each pass (forward, backward) of several operations, less what hides."""
    seconds = [
        Seconds(*totals([cost.time for cost in costs])) for costs in passes
    ]
    budget = Budget(passes)
    for cause, option in zip(HIDING, (how.cp, how.ep, how.tp), strict=True):
        if option.scope == "none" or all(
            is_zero(getattr(one, cause)) for one in seconds
        ):
            continue
        for number, (hidden, slower) in enumerate(budget.spend(cause, option)):
            if is_zero(hidden):
                continue
            one = seconds[number]
            shown = {cause: getattr(one, cause) - hidden}
            seconds[number] = one._replace(
                **shown, overlap_slowdown=one.overlap_slowdown + slower
            )
    return seconds


class Budget:
    """Seconds of operations that communication may hide behind; each hides once."""

    def __init__(self, passes: Sequence[Sequence[PassCost]]) -> None:
        self.costs = [cost for costs in passes for cost in costs]
        self.pass_of = [
            number for number, costs in enumerate(passes) for _ in costs
        ]
        self.passes = len(passes)
        self.used: list[Num] = [0.0] * len(self.costs)
        """Seconds of each operation that something hides behind already."""

    def spend(self, cause: str, how: Hide) -> list[tuple[Num, Num]]:
        """For each pass, (seconds of a cause that hide, those by which its work is slower)."""
        column = CAUSES.index(cause)
        sent = [cost.time[column] for cost in self.costs]
        work = self._work(how.scope)
        sending = {i for i, seconds in enumerate(sent) if not is_zero(seconds)}
        hidden: list[Num] = [0.0] * self.passes
        slower: list[Num] = [0.0] * self.passes
        for scope in scopes(self.costs, self.pass_of, how.scope):
            if sending.isdisjoint(scope):
                continue
            left = total([work[i] - self.used[i] for i in scope])
            comm = total([sent[i] for i in scope])
            exposed = overlap.outlasting(left, comm, how)
            passes = {self.pass_of[i] for i in scope}
            for number in passes:
                own = comm
                part: Num = 1.0
                if len(passes) > 1:
                    # what shows of a budget of both passes is dealt by what each sends
                    own = total(
                        [sent[i] for i in scope if self.pass_of[i] == number]
                    )
                    part = share_of(own, comm)
                hidden[number] = hidden[number] + (own - part * exposed.shown)
                slower[number] = slower[number] + part * exposed.slowdown
            if cause != HIDING[-1]:  # nothing hides after it
                spent = share_of(comm - exposed.shown, left)
                for i in scope:
                    used = self.used[i]
                    self.used[i] = used + spent * (work[i] - used)
        return list(zip(hidden, slower, strict=True))

    def _work(self, scope: str) -> list[Num]:
        """Seconds of each operation behind which messages of a scope may hide: of what lies outside
        the scope those that are used already, so that nothing is left of it."""
        return [
            cost.weights
            if scope == WEIGHT_GRADIENT
            else used
            if scope == SHARED_EXPERT and cost.part != "shared"
            else cost.time.compute + cost.time.memory
            for cost, used in zip(self.costs, self.used, strict=True)
        ]


def scopes(
    costs: Sequence[PassCost], pass_of: Sequence[int], scope: str
) -> list[list[int]]:
    """Positions of the operations whose seconds are one budget. pass_of: the pass that each belongs
    to.
    """
    if scope == "step":
        return [list(range(len(costs)))]
    if scope == "operation":
        return [[i] for i in range(len(costs))]
    if scope == WEIGHT_GRADIENT:
        return [[i] for i in range(len(costs)) if pass_of[i] == BACKWARD]
    budgets: dict[tuple[int, str], list[int]] = {}
    for i, (number, cost) in enumerate(zip(pass_of, costs, strict=True)):
        budgets.setdefault(
            (number, sublayer(cost.part) if scope == "sublayer" else ""),
            [],
        ).append(i)
    return list(budgets.values())


@cache
def sublayer(name: str) -> str:
    """What mixes tokens or the feed-forward, from the path of an operation; experts and shared
    experts are feed-forward, an indexer is part of the attention.
    """
    first = name.split("/", 1)[0]
    return SUBLAYER_OF.get(first, first)


def outlasting_weights(back: PassCost, how: Hide) -> Num:
    """Seconds by which what hides beside the product that makes weight gradients sticks out of a
    backward pass. how: that of tp."""
    nothing = is_zero(back.weights) or is_zero(back.time.tp_comm)
    if how.scope != WEIGHT_GRADIENT or nothing:
        return 0.0
    return overlap.outlasting(back.weights, back.time.tp_comm, how).total


def hide_behind_host(
    time: Seconds, costs: Sequence[PassCost], waiting: Num, how: Overlap
) -> Seconds:
    """A backward pass, less what hides while its weight gradients wait for the host.

    waiting: seconds by which these outlast their kernels.  What hides behind compute that gets
    shorter hides behind the longer wait instead, so that a faster chip is never slower; at most
    what its axis ever hides. Only what may hide behind more than its own operation: keys and values
    are sent where no weights are, and beside a weight gradient alone its pass has what sticks out
    already.
    """
    for cause, option in zip(HIDING, (how.cp, how.ep, how.tp), strict=True):
        shown = getattr(time, cause)
        if option.scope not in WIDE or is_zero(shown):
            continue
        sent = total([getattr(cost.time, cause) for cost in costs])
        # (1 - most) of what is sent stays exposed, however much compute is left
        more = maximum(shown - (1.0 - option.most) * sent, 0.0)
        hidden = minimum(more, option.share * waiting)
        waiting = waiting - hidden
        time = time._replace(**{cause: shown - hidden})
    return time


def share_of(part: Num, whole: Num) -> Num:
    """part / whole, 0 of nothing."""
    return where(whole > 0, part / where(whole > 0, whole, 1.0), 0.0)
