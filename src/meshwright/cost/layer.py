"""Seconds and bytes of one layer (or of a stage's embedding or head) for one microbatch: its
operations, timed and added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeAlias

from ..count import recompute
from ..count.work import Message, Op, Pass
from ..describe.assumptions import Overlap
from ..describe.layout import Layout
from ..num import Num, content_key, where
from . import host, overlap
from .chip import Rates, alone
from .load import NOTHING, Load
from .network import Fabric

AXIS_CAUSE = {"tp": 1, "tp_model": 1, "tp_ff": 1, "cp": 2, "ep": 3, "etp": 3}
"""axis of a message -> position among the communication causes, counted from `memory`."""
WEIGHT_GRADIENT = "weight gradient"
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
        return Seconds(*(seconds * factor for seconds in self))

    def __rmul__(self, factor: Num) -> Seconds:  # type: ignore[override]
        return self * factor

    @property
    def total(self) -> Num:
        """All causes together."""
        some = [seconds for seconds in self if not _never(seconds)]
        return reduce(add, some) if some else 0.0


CAUSES = Seconds._fields
Time: TypeAlias = Any
"""Seconds by cause (`Seconds`), or plain seconds where only totals matter."""


class Half(NamedTuple):
    """One pass of one operation."""

    scope: str
    """The sublayer it belongs to."""
    time: Seconds
    """Nothing hidden yet, but for SUMMA's panels."""
    sent: Load
    weights: Num = 0.0
    """Seconds of the product that makes weight gradients."""

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

    time: Time
    """Forward seconds of what runs again."""
    sent: Load
    """What that sends."""
    saved: Num
    """Bytes kept from the forward to the backward pass."""


class Redone(dict[str, Redo]):
    """By the name of the parts that run again (`Recompute.parts`); adds and scales like the seconds
    of a layer.
    """

    __slots__ = ()

    def __add__(self, other: Redone) -> Redone:
        both = {
            k: Redo(*(a + b for a, b in zip(v, other[k], strict=True)))
            for k, v in self.items()
            if k in other
        }
        return Redone({**self, **other, **both})

    def __mul__(self, factor: Num) -> Redone:
        return Redone(
            {
                k: Redo(v.time * factor, v.sent * factor, v.saved * factor)
                for k, v in self.items()
            }
        )


class LayerCost(NamedTuple):
    """One layer, one microbatch, one device."""

    forward: Time = Seconds()
    backward: Time = Seconds()
    sent: Load = NOTHING
    """What the forward pass sends, hidden or not."""
    sent_back: Load = NOTHING
    """What the backward pass sends."""
    weight_pass: Num = 0.0
    """The part of `backward` that only makes weight gradients."""
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
    offloaded: Num = 0.0
    """Of `saved`, what waits in host memory."""


class Clock(NamedTuple):
    """What turns work into seconds: the chip, the network, what overlaps."""

    rates: Rates
    fabric: Fabric
    overlap: Overlap


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
        self._groups: dict[str, tuple[Num, ...]] = {}
        self._loads: dict[tuple[Any, ...], Load] = {}

    def message(self, message: Message, pieces: Num = 0.0) -> Load:
        """The cost of one collective (of one of its `pieces`, if it is cut into panels)."""
        fabric = self.clock.fabric
        axis = message.axis
        if axis not in self._groups:
            self._groups[axis] = self.layout.group(axis)
        key = (
            message.kind,
            axis,
            message.copies,
            *content_key(message.bytes, pieces),
        )
        if key not in self._loads:
            whole = isinstance(pieces, float) and pieces == 0.0
            volume = message.bytes if whole else message.bytes / pieces
            # a latency is paid with the seconds here, and never by itself
            load = fabric.load(
                message.kind, volume, self._groups[axis], message.copies
            )
            self._loads[key] = Load(load.seconds, 0.0, load.busy)
        return self._loads[key]

    def half(self, op: Op, work: Pass) -> Half:
        """One pass of one operation: the slower of arithmetic and memory, and the communication it
        waits for.
        """
        idle = isinstance(work.memory, float) and work.memory == 0.0
        compute, memory = (0.0, 0.0) if idle else alone(work, self.clock.rates)
        if not (isinstance(op.panels, (int, float)) and op.panels == 0):
            return self._in_panels(op, work, compute, memory)
        comm: list[Num] = [0.0, 0.0, 0.0, 0.0]
        sent = NOTHING
        for m in work.comm:
            load = self.message(m)
            comm[AXIS_CAUSE[m.axis]] = comm[AXIS_CAUSE[m.axis]] + load.seconds
            sent = sent + load
        return Half(
            sublayer(op.name), Seconds(compute, memory, *comm[1:]), sent
        )

    def _in_panels(
        self, op: Op, work: Pass, compute: Num, memory: Num
    ) -> Half:
        panel = NOTHING
        for m in work.comm:
            panel = panel + self.message(m, op.panels)
        shown = overlap.summa(panel.seconds, compute + memory, op.panels)
        return Half(
            sublayer(op.name),
            Seconds(compute, memory, shown),
            panel * op.panels,
        )

    def weight_gradient(self, op: Op, back: Seconds) -> Num:
        """Seconds of the product that makes weight gradients: half of `back` where both are one
        pass, alike.
        """
        if not op.backward.parts:
            return 0.5 * (back.compute + back.memory)
        compute, memory = alone(op.backward.parts[-1], self.clock.rates)
        return compute + memory

    def with_weights(self, back: Half) -> Num:
        """Seconds of the product that makes weight gradients, and of what hides beside it and
        sticks out.
        """
        how = self.clock.overlap.tp
        if how.scope != WEIGHT_GRADIENT or _never(back.weights):
            return back.weights
        return (
            back.weights
            + overlap.outlasting(back.weights, back.time.tp_comm, how).total
        )

    def layer(
        self,
        ops: Sequence[Op],
        part: str = "layer",
        ways: Mapping[str, str] | None = None,
        boundary: Num = 0.0,
    ) -> LayerCost:
        """All operations of a layer added up, or of another part of the model ("embedding",
        "head"), and what the host adds.

        ways: name -> parts of it that may run again;  boundary: bytes of its input.
        """
        forward, backward = [], []
        weight_pass: Num = 0.0
        saved: Num = 0.0
        weights: Num = 0.0
        expert: Num = 0.0
        every = []
        for op in ops:
            ahead = self.half(op, op.forward)
            back = self.half(op, op.backward)
            if op.kind == "matmul":
                gradient = self.weight_gradient(op, back.time)
                back = Half(back.scope, back.time, back.sent, gradient)
            forward.append(ahead)
            backward.append(back)
            if self.details:
                every.append(Timed(op, ahead, back))
            weight_pass = weight_pass + self.with_weights(back)
            saved = saved + op.saved
            if op.expert:
                expert = expert + op.weights
            else:
                weights = weights + op.weights
        ahead_s, back_s = self.together(forward, backward)
        wait = 0.0
        if forward and (by := self.clock.rates.shapes):
            experts = not (isinstance(expert, float) and expert == 0.0)
            wait, wait_back = host.seconds(by.how, part, experts)
            longer, weight_longer = host.split(
                back_s.total, weight_pass, wait_back
            )
            ahead_s = ahead_s._replace(host=host.added(ahead_s.total, wait))
            back_s = back_s._replace(host=longer + weight_longer)
            weight_pass = weight_pass + weight_longer
        return LayerCost(
            ahead_s,
            back_s,
            sent(forward),
            sent(backward),
            weight_pass,
            saved,
            weights,
            expert,
            Redone(
                {
                    name: self.redo(
                        ops,
                        forward,
                        parts,
                        boundary,
                        wait,
                    )
                    for name, parts in (ways or {}).items()
                }
            ),
            Operations(every),
        )

    def redo(
        self,
        ops: Sequence[Op],
        forward: Sequence[Half],
        parts: str,
        boundary: Num,
        wait: float,
    ) -> Redo:
        """What it costs to run some parts of a layer again.

        forward: their halves;  wait: seconds in which the host launches all of them, some of them
        in their share.
        """
        runs = recompute.again(ops, parts)
        halves = [
            half.part(one.share)
            for half, one in zip(forward, runs, strict=True)
            if one is not recompute.NEVER
        ]
        (time,) = self.together(halves)
        waits = host.added(time.total, wait * len(halves) / max(len(ops), 1))
        time = time._replace(host=waits)
        return Redo(time, sent(halves), recompute.kept(ops, runs, boundary))

    def together(self, *passes: Sequence[Half]) -> list[Seconds]:
        """Passes of several operations (forward, backward), less what hides: cp, then ep, then tp,
        each behind seconds nothing else hides behind.
        """
        how = self.clock.overlap
        halves = [half for one in passes for half in one]
        of = [number for number, one in enumerate(passes) for _ in one]
        found = [_sum([half.time for half in one]) for one in passes]
        used: list[Num] = [0.0] * len(halves)
        for cause, option in (
            ("cp_comm", how.cp),
            ("ep_comm", how.ep),
            ("tp_comm", how.tp),
        ):
            if option.scope == "none":
                continue
            column = CAUSES.index(cause)
            sending = {
                i
                for i, half in enumerate(halves)
                if not _never(half.time[column])
            }
            if not sending:
                continue
            hidden: list[Num] = [0.0] * len(passes)
            longer: list[Num] = [0.0] * len(passes)
            for scope in scopes(halves, of, option.scope):
                if sending.isdisjoint(scope):
                    continue
                spent = [used[i] for i in scope]
                times = [halves[i].time for i in scope]
                if option.scope == WEIGHT_GRADIENT:
                    times = [
                        Seconds(
                            halves[i].weights, tp_comm=halves[i].time.tp_comm
                        )
                        for i in scope
                    ]
                work = sum(
                    t.compute + t.memory - u
                    for t, u in zip(times, spent, strict=True)
                )
                comm = sum(getattr(t, cause) for t in times)
                shown, slower = overlap.outlasting(work, comm, option)
                for number in {of[i] for i in scope}:
                    mine = sum(
                        getattr(halves[i].time, cause)
                        for i in scope
                        if of[i] == number
                    )
                    part = _share(mine, comm)
                    hidden[number] = hidden[number] + (mine - part * shown)
                    longer[number] = longer[number] + part * slower
                # spread over the operations as their own seconds are
                share = _share(comm - shown, work)
                for i, t, u in zip(scope, times, spent, strict=True):
                    used[i] = u + share * (t.compute + t.memory - u)
            for number, (less, more) in enumerate(
                zip(hidden, longer, strict=True)
            ):
                one = found[number]
                kept = {cause: getattr(one, cause) - less}
                found[number] = one._replace(
                    **kept, overlap_slowdown=one.overlap_slowdown + more
                )
        return found


def sent(halves: Sequence[Half]) -> Load:
    """What several operations send."""
    return sum((half.sent for half in halves if half.sent.busy), NOTHING)


def scopes(
    halves: Sequence[Half], of: Sequence[int], scope: str
) -> list[list[int]]:
    """Positions of the operations whose seconds are one budget. of: the pass that each belongs
    to.
    """
    if scope == "step":
        return [list(range(len(halves)))]
    if scope == "operation":
        return [[i] for i in range(len(halves))]
    if scope == WEIGHT_GRADIENT:
        return [[i] for i in range(len(halves)) if of[i] == BACKWARD]
    budgets: dict[tuple[int, str], list[int]] = {}
    for i, (number, half) in enumerate(zip(of, halves, strict=True)):
        budgets.setdefault(
            (number, half.scope if scope == "sublayer" else ""), []
        ).append(i)
    return list(budgets.values())


def _never(seconds: Num) -> bool:
    """Nothing, in any row."""
    return isinstance(seconds, float) and seconds == 0.0


def _share(part: Num, whole: Num) -> Num:
    """part / whole, 0 of nothing."""
    return where(whole > 0, part / where(whole > 0, whole, 1.0), 0.0)


def _sum(parts: list[Seconds]) -> Seconds:
    """Sum by cause, in order."""
    totals = []
    for seconds in zip(*parts, strict=True):
        total: Num = 0.0
        for value in seconds:
            if not (isinstance(value, float) and value == 0.0):
                total = total + value
        totals.append(total)
    return Seconds(*totals)


def scaled(c: LayerCost, factor: float) -> LayerCost:
    """Every field times a factor."""
    fields: tuple[Any, ...] = c
    return LayerCost(*(x * factor for x in fields))


def mean(
    parts: Mapping[Any, LayerCost],
    counts: Iterable[tuple[Any, int]],
    divide: bool = True,
) -> LayerCost:
    """The mean of several kinds of layer, each as often as `counts` says (divide = False: their
    sum); nothing if there are none.
    """
    counts = tuple(counts)
    whole = sum(n for _, n in counts) if divide else 1
    if len(counts) == 1 and counts[0][1] == whole:
        return parts[counts[0][0]]
    result = LayerCost()
    for kind, n in counts:
        more: tuple[Any, ...] = scaled(parts[kind], n / whole)
        result = LayerCost(*(a + b for a, b in zip(result, more, strict=True)))
    return result
