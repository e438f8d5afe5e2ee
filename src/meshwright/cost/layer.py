"""Seconds and bytes of one layer (or of a stage's embedding or head) for one microbatch: its
operations, timed and added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..count import recompute
from ..count.work import Op, Pass
from ..describe.assumptions import Overlap
from ..describe.frozendict import FrozenDict
from ..describe.layout import Layout
from ..exchange.types import Message
from ..num import SCALARS, Num, content_key, total, where
from . import hiding, host, overlap
from .causes import (
    CAUSE_OF,
    NO_CAUSES,
    Causes,
    PassCost,
    Seconds,
    is_zero,
    sent_load,
)
from .chip import ChipRates, pass_seconds
from .dispatch_kernels import has_dispatch_kernel
from .load import NOTHING, Load
from .network import Fabric
from .shapes import sum_pairs


class OpCost(NamedTuple):
    """An operation with its seconds: what a tree of terms is made of."""

    op: Op
    forward: PassCost
    backward: PassCost
    times: float = 1.0
    """How often the part of the model has it."""


class RecomputeCost(NamedTuple):
    """What recomputation adds to the backward pass of a layer, and leaves in memory."""

    time: Num
    """Forward seconds of what runs again."""
    sent: Load
    """What that sends."""
    saved: Num
    """Bytes kept from the forward to the backward pass."""
    causes: Seconds = NO_CAUSES.forward
    """`time` by cause."""


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
    recompute: Mapping[str, RecomputeCost] = FrozenDict()
    """Parts of a layer that may run again (`describe.recompute.Recompute.parts`) -> what they cost.
    """
    operations: tuple[OpCost, ...] = ()
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

    def pass_cost(self, op: Op, work: Pass) -> PassCost:
        """One pass of one operation: the slower of arithmetic and memory, and the communication it
        waits for. The backward pass of a matrix knows the product that makes weight gradients: half
        of its seconds where both products are one kernel.
        """
        each: list[tuple[Num, Num]] = [(0.0, 0.0)]
        if not is_zero(work.memory):
            rates = self.clock.rates
            each = [pass_seconds(one, rates) for one in work.parts or (work,)]
        compute, memory = sum_pairs(each)
        weights: Num = 0.0
        if op.kind == "matmul" and work is op.backward:
            share = 0.5 if len(each) == 1 else 1.0
            weights = share * (each[-1][0] + each[-1][1])
        part = op.name.split("/", 1)[0]
        if not work.comm:
            return PassCost(part, Seconds(compute, memory), NOTHING, weights)
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
        return PassCost(part, time, sent, weights, launched)

    def layer(
        self,
        ops: Sequence[Op],
        part: str = "layer",
        ways: Mapping[str, str] | None = None,
        boundary: Num = 0.0,
    ) -> LayerCost:
        """Operations of a layer added up, or of another part of the model ("embedding",
        "head"), and what the host adds.

        ways: name -> parts of it that may run again (`LayerCost.recompute`);  boundary: bytes of
        its input.
        """
        how = self.clock.overlap
        forward = [self.pass_cost(op, op.forward) for op in ops]
        backward = [self.pass_cost(op, op.backward) for op in ops]
        weights = total([cost.weights for cost in backward])
        # what messages beside weight gradients lengthen the backward pass by: where the host hides
        # part of it the input gradients, which do not wait for them, take no less
        longer = total(
            [hiding.outlasting_weights(cost, how.tp) for cost in backward]
        )
        expert = total([op.weights for op in ops if op.expert])
        ahead, back = hiding.hide((forward, backward), how)
        wait: Num = 0.0
        if ops and (by := self.clock.rates.shapes):
            wait, wait_back = host.host_seconds(
                by.how,
                part=part,
                experts=not is_zero(expert),
                collectives=(
                    total([cost.launched for cost in forward]),
                    total([cost.launched for cost in backward]),
                ),
                dispatched=has_dispatch_kernel(ops),
            )
            # half of the launches make weight gradients: what zero bubble runs apart waits
            # for that half, the pass as one queue for all
            launches = by.how.stack.launches
            rest = host.host_excess(weights, 0.5 * wait_back, launches)
            back = hiding.hide_behind_host(back, backward, rest, how)
            ahead = ahead._replace(
                host=host.host_excess(ahead.total, wait, launches)
            )
            excess = host.host_excess(back.total, wait_back, launches)
            alone = host.host_excess(back.total - longer, wait_back, launches)
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
            recompute={
                name: self.recompute_cost(
                    ops, forward, parts, boundary=boundary, wait=wait
                )
                for name, parts in (ways or {}).items()
            },
            operations=tuple(map(OpCost, ops, forward, backward))
            if self.details
            else (),
            causes=Causes(ahead, back),
        )

    def recompute_cost(
        self,
        ops: Sequence[Op],
        forward: Sequence[PassCost],
        parts: str,
        boundary: Num,
        wait: Num,
    ) -> RecomputeCost:
        """What it costs to run some parts of a layer again.

        forward: the forward passes of `ops`;  boundary: bytes of the layer's input;  wait: seconds
        in which the host launches all of them, some of them in their share.
        """
        runs = recompute.recomputed_ops(ops, parts)
        costs = [
            cost.share(one.share)
            for cost, one in zip(forward, runs, strict=True)
            if one.runs
        ]
        (time,) = hiding.hide((costs,), self.clock.overlap)
        if by := self.clock.rates.shapes:
            # a layer of no operations waits for nothing
            part = wait * len(costs) / max(len(ops), 1)
            how = by.how.stack.launches
            time = time._replace(host=host.host_excess(time.total, part, how))
        return RecomputeCost(
            time.total,
            sent_load(costs),
            recompute.saved_bytes_of(ops, runs, boundary),
            time,
        )


def in_sequence(a: LayerCost, times: float, b: LayerCost) -> LayerCost:
    """A part of the model so many times, and another one behind it; nothing of them runs again."""
    causes = a.causes * times + b.causes
    return LayerCost(
        causes.forward.total,
        backward=causes.backward.total,
        sent=a.sent * times + b.sent,
        sent_back=a.sent_back * times + b.sent_back,
        weight_pass=a.weight_pass * times + b.weight_pass,
        saved=a.saved * times + b.saved,
        weights=a.weights * times + b.weights,
        expert_weights=a.expert_weights * times + b.expert_weights,
        operations=(
            *(op._replace(times=times) for op in a.operations),
            *b.operations,
        ),
        causes=causes,
    )
