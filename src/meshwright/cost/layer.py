"""Seconds and bytes of one layer (or of a stage's embedding or head) for one microbatch: its
operations, timed and added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import repeat
from operator import add, mul
from typing import Any, NamedTuple

from ..count import recompute
from ..count.work import Op, Pass
from ..describe.assumptions import Hide, Overlap
from ..describe.layout import Layout
from ..exchange.types import Message
from ..num import (
    SCALARS,
    Num,
    content_key,
    maximum,
    minimum,
    total,
    totals,
    where,
)
from . import host, overlap
from .chip import ChipRates, pass_seconds
from .dispatch_kernels import has_dispatch_kernel
from .load import NOTHING, Load
from .network import Fabric
from .shapes import sum_pairs

CAUSE_OF = {
    **dict.fromkeys(("tp", "tp_model", "tp_ff"), "tp_comm"),
    "cp": "cp_comm",
    **dict.fromkeys(("ep", "etp"), "ep_comm"),
}
"""Axis of a message -> the cause that its seconds are counted under."""
WIDE = ("sublayer", "layer", "step")
"""Scopes of `Hide` that are wider than the operation that sends."""
WEIGHT_GRADIENT = "weight gradient"
SHARED = "shared expert"
"""Scope of `Hide` that is one part of a feed-forward."""
BACKWARD = 1
"""Scope of `Hide` that lies in the backward pass only, and the position of that pass."""


class Seconds(NamedTuple):
    """Seconds by cause; adds and scales like a number."""

    compute: Num = 0.0
    memory: Num = 0.0
    """Memory traffic that outlasts the arithmetic."""
    tp_comm: Num = 0.0
    cp_comm: Num = 0.0
    ep_comm: Num = 0.0
    host: Num = 0.0
    """By which launching the kernels outlasts them."""
    overlap_slowdown: Num = 0.0
    """By which compute is slower while communication hides behind it."""

    def __add__(self, other: Seconds) -> Seconds:  # type: ignore[override]
        return Seconds(*map(add, self, other))

    def __mul__(self, factor: Num) -> Seconds:  # type: ignore[override]
        return Seconds(*map(mul, self, repeat(factor)))

    def __rmul__(self, factor: Num) -> Seconds:  # type: ignore[override]
        return self * factor

    @property
    def total(self) -> Num:
        """Seconds of the causes together."""
        return total(self)


CAUSES = Seconds._fields
HIDING = ("cp_comm", "ep_comm", "tp_comm")
"""In this order they hide, each behind seconds nothing else hides behind."""


class Causes(NamedTuple):
    """Seconds of both passes by cause; adds and scales like a number."""

    forward: Seconds = Seconds()
    backward: Seconds = Seconds()

    @property
    def both(self) -> Seconds:
        """One after the other."""
        return self.forward + self.backward

    def __add__(self, other: Causes) -> Causes:  # type: ignore[override]
        return Causes(
            self.forward + other.forward, self.backward + other.backward
        )

    def __mul__(self, factor: Num) -> Causes:  # type: ignore[override]
        return Causes(self.forward * factor, self.backward * factor)


NO_CAUSES = Causes()
"""Where only totals matter."""


class Half(NamedTuple):
    """One pass of one operation."""

    scope: str
    """The part of a layer it belongs to: the first word of its path."""
    time: Seconds
    """Nothing hidden yet, but for SUMMA's panels."""
    sent: Load
    weights: Num = 0.0
    """Seconds of the product that makes weight gradients."""
    launched: Num = 0.0
    """Collectives that the host launches: those of one rank are none."""

    def part(self, share: Num) -> Half:
        """Some of it."""
        whole = isinstance(share, float) and share == 1.0
        return (
            self
            if whole
            else Half(self.scope, self.time * share, self.sent * share)
        )


class Timed(NamedTuple):
    """An operation with its seconds: what a tree of terms is made of."""

    op: Op
    forward: Half
    backward: Half
    times: Num = 1.0
    """In a layer, on average over its kinds."""


class Operations(tuple[Timed, ...]):
    """Operations of a layer; adds and scales like their seconds."""

    __slots__ = ()

    def __add__(self, other: Operations) -> Operations:  # type: ignore[override]
        return Operations((*self, *other))

    def __mul__(self, factor: Num) -> Operations:  # type: ignore[override]
        return Operations(
            timed._replace(times=timed.times * factor) for timed in self
        )


class Redo(NamedTuple):
    """What recomputation adds to the backward pass of a layer, and leaves in memory."""

    time: Num
    """Forward seconds of what runs again."""
    sent: Load
    """What that sends."""
    saved: Num
    """Bytes kept from the forward to the backward pass."""
    causes: Seconds = NO_CAUSES.forward
    """`time` by cause."""

    def __add__(self, other: Redo) -> Redo:  # type: ignore[override]
        fields: Any = zip(self, other, strict=True)
        return Redo(*(a + b for a, b in fields))

    def __mul__(self, factor: Num) -> Redo:  # type: ignore[override]
        fields: tuple[Any, ...] = self
        return Redo(*(x * factor for x in fields))


class Redone(dict[str, Redo]):
    """By the name of the parts that run again (`Recompute.parts`); adds and scales like the seconds
    of a layer.
    """

    __slots__ = ()

    def __add__(self, other: Redone) -> Redone:
        shared = {k: v + other[k] for k, v in self.items() if k in other}
        return Redone({**self, **other, **shared})

    def __mul__(self, factor: Num) -> Redone:
        return Redone({k: v * factor for k, v in self.items()})


class LayerCost(NamedTuple):
    """One layer, one microbatch, one device."""

    forward: Num = 0.0
    backward: Num = 0.0
    sent: Load = NOTHING
    """What the forward pass sends, hidden or not."""
    sent_back: Load = NOTHING
    """What the backward pass sends."""
    weight_pass: Num = 0.0
    """The part of `backward` that only makes weight gradients, and by which the messages beside
    these lengthen it."""
    saved: Num = 0.0
    """Bytes kept for backward when nothing is recomputed."""
    weights: Num = 0.0
    """Parameters replicated over dp x cp."""
    expert_weights: Num = 0.0
    """Parameters replicated over edp."""
    redone: Redone = Redone()
    """What the parts of a layer that may run again cost."""
    operations: Operations = Operations()
    """What the seconds are the sum of, where details are kept."""
    causes: Causes = NO_CAUSES
    """`forward` and `backward` by cause."""

    def longer(self, causes: Causes) -> LayerCost:
        """This cost with so many seconds more."""
        return self._replace(
            forward=self.forward + causes.forward.total,
            backward=self.backward + causes.backward.total,
            causes=self.causes + causes,
        )


class Clock(NamedTuple):
    """What turns work into seconds: the chip, the network, what overlaps."""

    rates: ChipRates
    fabric: Fabric
    """With all chips of a node at work."""
    overlap: Overlap

    def links(self, layout: Layout) -> Fabric:
        """The network as the layout fills it."""
        return self.fabric.under(*layout.placement.values())


@cache
def sublayer(name: str) -> str:
    """What mixes tokens or the feed-forward, from the path of an operation; experts and shared
    experts are feed-forward, an indexer is part of the attention.
    """
    first = name.split("/", 1)[0]
    return PARTS_OF.get(first, first)


PARTS_OF = {"experts": "ffn", "shared": "ffn", "indexer": "attention"}


class Timer:
    """Times operations of one layout; equal messages are timed once."""

    def __init__(
        self, clock: Clock, layout: Layout, details: bool = False
    ) -> None:
        """details: keep the operations."""
        self.clock, self.layout, self.details = clock, layout, details
        self.links = clock.links(layout)
        self._groups: dict[str, tuple[Num, ...]] = {}
        self._loads: dict[tuple[Any, ...], Load] = {}

    def message(self, message: Message) -> Load:
        """The cost of one collective."""
        kind, axis, volume, draw = message
        key = kind, axis, draw, content_key(volume)
        known = self._loads.get(key)
        if known is not None:
            return known
        if axis not in self._groups:
            self._groups[axis] = self.layout.group(axis)
        group = self._groups[axis]
        load = self.links.load(kind, volume, group, draw)
        seconds = load.seconds
        if axis == "tp" and kind in ("all_gather", "reduce_scatter"):
            seconds = seconds + self.copy_s(volume) * where(
                seconds > 0, 1.0, 0.0
            )
        # a latency is paid with the seconds here, and never by itself
        self._loads[key] = Load(seconds, 0.0, load.busy)
        return self._loads[key]

    def copy_s(self, volume: Num) -> Num:
        """Seconds in which a tensor of that many bytes is put together from shards of its sequence,
        or cut into them: read and written once, where they do not lie one after the other.
        """
        rates = self.clock.rates
        if not rates.shapes or rates.shapes.how.stack.sequence_first:
            return 0.0
        return 2.0 * volume / rates.memory

    def half(self, op: Op, work: Pass) -> Half:
        """One pass of one operation: the slower of arithmetic and memory, and the communication it
        waits for. The backward pass of a matrix knows the product that makes weight gradients: half
        of it where both products are one kernel, alike.
        """
        each: list[tuple[Num, Num]] = [(0.0, 0.0)]
        if not _never(work.memory):
            parts, rates = work.parts or (work,), repeat(self.clock.rates)
            each = [*map(pass_seconds, parts, rates)]
        compute, memory = sum_pairs(each)
        weights: Num = 0.0
        if op.kind == "matmul" and work is op.backward:
            share = 0.5 if len(each) == 1 else 1.0
            weights = share * (each[-1][0] + each[-1][1])
        part = op.name.split("/", 1)[0]
        if not work.comm:
            return Half(part, Seconds(compute, memory), NOTHING, weights)
        cut = not (isinstance(op.panels, SCALARS) and op.panels == 0)
        comm: dict[str, Num] = {}
        launched: Num = 0.0
        sent = NOTHING
        for m in work.comm:
            one = m._replace(bytes=m.bytes / op.panels) if cut else m
            load = self.message(one)
            cause = CAUSE_OF[m.axis]
            comm[cause] = comm.get(cause, 0.0) + load.seconds
            sent = sent + load
            launched = launched + where(load.seconds > 0, 1.0, 0.0)
        if cut:
            panel, sent = sent.seconds, sent * op.panels
            comm = {
                "tp_comm": overlap.summa(panel, compute + memory, op.panels)
            }
        time = Seconds(compute, memory, **comm)
        return Half(part, time, sent, weights, launched)

    def beside_weights(self, back: Half) -> Num:
        """Seconds by which what hides beside the product that makes weight gradients sticks out."""
        how = self.clock.overlap.tp
        nothing = _never(back.weights) or _never(back.time.tp_comm)
        if how.scope != WEIGHT_GRADIENT or nothing:
            return 0.0
        return overlap.outlasting(back.weights, back.time.tp_comm, how).total

    def layer(
        self,
        ops: Sequence[Op],
        part: str = "layer",
        ways: Mapping[str, str] | None = None,
        boundary: Num = 0.0,
    ) -> LayerCost:
        """Operations of a layer added up, or of another part of the model ("embedding",
        "head"), and what the host adds.

        ways: name -> parts of it that may run again;  boundary: bytes of its input.
        """
        forward, backward = [], []
        for op in ops:
            forward.append(self.half(op, op.forward))
            backward.append(self.half(op, op.backward))
        weights = total([half.weights for half in backward])
        # what messages beside weight gradients lengthen the backward pass by: where the host hides
        # part of it the input gradients, which do not wait for them, take no less
        longer = total([self.beside_weights(half) for half in backward])
        expert = total([op.weights for op in ops if op.expert])
        ahead, back = self.together(forward, backward)
        wait: Num = 0.0
        if ops and (by := self.clock.rates.shapes):
            wait, wait_back = host.host_seconds(
                by.how,
                part=part,
                experts=not _never(expert),
                collectives=(
                    total([half.launched for half in forward]),
                    total([half.launched for half in backward]),
                ),
                dispatched=has_dispatch_kernel(ops),
            )
            # half of the launches make weight gradients: what zero bubble runs apart waits
            # for that half, the pass as one queue for all
            how = by.how.stack.launches
            rest = host.host_excess(weights, 0.5 * wait_back, how)
            back = self.meanwhile(back, backward, rest)
            ahead = ahead._replace(
                host=host.host_excess(ahead.total, wait, how)
            )
            excess = host.host_excess(back.total, wait_back, how)
            alone = host.host_excess(back.total - longer, wait_back, how)
            back = back._replace(host=excess)
            weights = weights + rest
            longer = longer + excess - alone
        return LayerCost(
            ahead.total,
            backward=back.total,
            sent=sent_load(forward),
            sent_back=sent_load(backward),
            weight_pass=weights + longer,
            saved=total([op.saved for op in ops]),
            weights=total([op.weights for op in ops if not op.expert]),
            expert_weights=expert,
            redone=Redone(
                {
                    name: self.redo(
                        ops,
                        forward,
                        parts,
                        boundary=boundary,
                        wait=wait,
                    )
                    for name, parts in (ways or {}).items()
                }
            ),
            operations=Operations(map(Timed, ops, forward, backward))
            if self.details
            else Operations(),
            causes=Causes(ahead, back),
        )

    def meanwhile(
        self, time: Seconds, halves: Sequence[Half], waiting: Num
    ) -> Seconds:
        """A backward pass, less what hides while its weight gradients wait for the host.

        waiting: seconds by which these outlast their kernels.  What hides behind compute that gets
        shorter hides behind the longer wait instead, so that a faster chip is never slower; at most
        what its axis ever hides. Only what may hide behind more than its own operation: keys and
        values are sent where no weights are, and beside a weight gradient alone its pass has what
        sticks out already.
        """
        how = self.clock.overlap
        for cause, option in zip(
            HIDING, (how.cp, how.ep, how.tp), strict=True
        ):
            shown = getattr(time, cause)
            if option.scope not in WIDE or _never(shown):
                continue
            sent = total([getattr(half.time, cause) for half in halves])
            # (1 - most) of what is sent stays exposed, however much compute is left
            more = maximum(shown - (1.0 - option.most) * sent, 0.0)
            hidden = minimum(more, option.share * waiting)
            waiting = waiting - hidden
            time = time._replace(**{cause: shown - hidden})
        return time

    def redo(
        self,
        ops: Sequence[Op],
        forward: Sequence[Half],
        parts: str,
        boundary: Num,
        wait: Num,
    ) -> Redo:
        """What it costs to run some parts of a layer again.

        forward: their halves;  wait: seconds in which the host launches all of them, some of them
        in their share.
        """
        runs = recompute.recomputed_ops(ops, parts)
        halves = [
            half.part(one.share)
            for half, one in zip(forward, runs, strict=True)
            if one.runs
        ]
        (time,) = self.together(halves)
        if by := self.clock.rates.shapes:
            # a layer of no operations waits for nothing
            part = wait * len(halves) / max(len(ops), 1)
            how = by.how.stack.launches
            time = time._replace(host=host.host_excess(time.total, part, how))
        return Redo(
            time.total,
            sent_load(halves),
            recompute.saved_bytes_of(ops, runs, boundary),
            time,
        )

    def together(self, *passes: Sequence[Half]) -> list[Seconds]:
        """Passes of several operations (forward, backward), less what hides."""
        how = self.clock.overlap
        seconds_of = [
            Seconds(*totals([half.time for half in one])) for one in passes
        ]
        budget = Budget(passes)
        for cause, option in zip(
            HIDING, (how.cp, how.ep, how.tp), strict=True
        ):
            if option.scope == "none" or all(
                _never(getattr(one, cause)) for one in seconds_of
            ):
                continue
            for number, (hidden, slower) in enumerate(
                budget.spend(cause, option)
            ):
                if _never(hidden):
                    continue
                one = seconds_of[number]
                shown = {cause: getattr(one, cause) - hidden}
                seconds_of[number] = one._replace(
                    **shown, overlap_slowdown=one.overlap_slowdown + slower
                )
        return seconds_of


class Budget:
    """Seconds of operations that communication may hide behind; each hides once."""

    def __init__(self, passes: Sequence[Sequence[Half]]) -> None:
        self.halves = [half for one in passes for half in one]
        self.pass_of = [
            number for number, one in enumerate(passes) for _ in one
        ]
        self.passes = len(passes)
        self.used: list[Num] = [0.0] * len(self.halves)

    def spend(self, cause: str, how: Hide) -> list[tuple[Num, Num]]:
        """For each pass, (seconds of a cause that hide, those by which its work is slower)."""
        column = CAUSES.index(cause)
        sent = [half.time[column] for half in self.halves]
        work = [
            half.weights
            if how.scope == WEIGHT_GRADIENT
            else used
            if how.scope == SHARED and half.scope != "shared"
            else half.time.compute + half.time.memory
            for half, used in zip(self.halves, self.used, strict=True)
        ]
        sending = {i for i, seconds in enumerate(sent) if not _never(seconds)}
        hidden: list[Num] = [0.0] * self.passes
        longer: list[Num] = [0.0] * self.passes
        for scope in scopes(self.halves, self.pass_of, how.scope):
            if sending.isdisjoint(scope):
                continue
            left = total([work[i] - self.used[i] for i in scope])
            comm = total([sent[i] for i in scope])
            shown, slower = overlap.outlasting(
                left,
                comm,
                how,
            )
            places = {self.pass_of[i] for i in scope}
            for number in places:
                mine = comm
                part: Num = 1.0
                if len(places) > 1:
                    own = [i for i in scope if self.pass_of[i] == number]
                    mine = total([sent[i] for i in own])
                    part = _share(mine, comm)
                hidden[number] = hidden[number] + (mine - part * shown)
                longer[number] = longer[number] + part * slower
            if cause != HIDING[-1]:  # nothing hides after it
                self.take(
                    scope,
                    work,
                    _share(comm - shown, left),
                )
        return list(zip(hidden, longer, strict=True))

    def take(
        self,
        scope: list[int],
        work: list[Num],
        share: Num,
    ) -> None:
        """A share of what is left of some operations' seconds is used."""
        for i in scope:
            spent = self.used[i]
            self.used[i] = spent + share * (work[i] - spent)


def sent_load(halves: Sequence[Half]) -> Load:
    """What several operations send."""
    return sum((half.sent for half in halves if half.sent.busy), NOTHING)


def scopes(
    halves: Sequence[Half], pass_of: Sequence[int], scope: str
) -> list[list[int]]:
    """Positions of the operations whose seconds are one budget. pass_of: the one that each belongs
    to.
    """
    if scope == "step":
        return [list(range(len(halves)))]
    if scope == "operation":
        return [[i] for i in range(len(halves))]
    if scope == WEIGHT_GRADIENT:
        return [[i] for i in range(len(halves)) if pass_of[i] == BACKWARD]
    budgets: dict[tuple[int, str], list[int]] = {}
    for i, (number, half) in enumerate(zip(pass_of, halves, strict=True)):
        budgets.setdefault(
            (number, sublayer(half.scope) if scope == "sublayer" else ""),
            [],
        ).append(i)
    return list(budgets.values())


def _never(seconds: Num) -> bool:
    """Nothing, in any row."""
    return isinstance(seconds, float) and seconds == 0.0


def _share(part: Num, whole: Num) -> Num:
    """part / whole, 0 of nothing."""
    return where(whole > 0, part / where(whole > 0, whole, 1.0), 0.0)


def scale(c: LayerCost, factor: float) -> LayerCost:
    """Every field times a factor."""
    fields: tuple[Any, ...] = c
    return LayerCost(*(x * factor for x in fields))


def in_sequence(a: LayerCost, b: LayerCost) -> LayerCost:
    """One after the other."""
    fields: tuple[Any, ...] = b
    total = LayerCost(*(x + y for x, y in zip(a, fields, strict=True)))
    ahead, back = total.causes
    return total._replace(forward=ahead.total, backward=back.total)
