"""What follows the pipeline: weights and gradients are synchronised, and the optimizer updates what
a device owns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from ..cost import overlap
from ..cost.chip import alone
from ..cost.layer import Clock
from ..cost.load import NOTHING, Busy, Load
from ..cost.offload import update as on_host
from ..cost.shapes import step_quantises
from ..count import optimizer
from ..describe.assumptions import HidePass
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.offload import offload
from ..num import Num, maximum, where
from .microbatch import Body
from .pipeline import (
    Passed,
    Share,
    Shares,
    added,
    sum_of,
    where_share,
)
from .units import SILENT, Held, Unit, Units, tied


class Device(NamedTuple):
    """What one device of the pipeline works on a microbatch, and what it has to synchronise."""

    forward: Num
    backward: Num
    sent: Load
    """By the forward pass, on the same links."""
    sent_back: Load
    layer: tuple[Num, Num, Load, Load]
    """The same four of the one layer whose weights arrive first and whose gradients leave last."""
    first: Unit = SILENT
    """That layer, and embedding and head: exposed once a step."""
    rest: Unit = SILENT
    """All other layers."""
    every: Unit = SILENT
    """All of them."""

    def sharing(self, share: Share, each: Units, end: str) -> Device:
        """With the collectives of what it holds."""
        one = share.one
        but_one = (n - m for n, m in zip(share.layers, one, strict=True))
        ends = each.ends[end]
        return self._replace(
            first=_sum(each.layers, one) + ends,
            rest=_sum(each.layers, but_one),
            every=_sum(each.layers, share.layers) + ends,
        )

    @property
    def steady(self) -> Device:
        """As if before and after it there were more layers: none waits for the first unit or makes
        the last.
        """
        layer = (0.0, 0.0, NOTHING, NOTHING)
        return self._replace(layer=layer, first=SILENT, rest=self.every)


def _sum(units: Iterable[Unit], often: Iterable[Num]) -> Unit:
    """Of several layers, each so often."""
    found: Unit = sum_of(zip(often, units, strict=True)) or SILENT
    return found


def ranks_of(layout: Layout, by: Shares, ends: Sequence[str]) -> Shares:
    """What some of them hold: the whole model the first and nothing the others where a device is
    alone.
    """
    alone = layout.pp == 1
    return Shares({end: _or_alone(by, end, alone) for end in ends})


def device(parts: Body, share: Share) -> Device:
    """A device that holds these shares of the model, with nothing to synchronise yet."""
    one = Share(share.one, 0.0, 0.0).passed(parts)
    return Device(*_passes(share.passed(parts)), _passes(one))


def _passes(passed: Passed) -> tuple[Num, Num, Load, Load]:
    """Seconds of both passes, and what they send."""
    return (
        added(passed, "forward"),
        added(passed, "backward"),
        added(passed, "sent", NOTHING),
        added(passed, "sent_back", NOTHING),
    )


def _or_alone(by: Shares, end: str, alone: Any) -> Share:
    """The shares of an end, of the whole model on the first and of nothing on the others where a
    device is alone.
    """
    whole = by["whole"]
    if end != "first":
        whole = whole._replace(
            layers=tuple(0.0 for _ in whole.layers), embedding=0.0, head=0.0
        )
    return where_share(alone, whole, by[end])


class Exposed(NamedTuple):
    """Seconds of a device's weight and gradient collectives in a step, as far as they do not
    hide.
    """

    arrives: Num
    """Of the first weights, before the step can begin."""
    forward: Num
    """Of weights, beside forward passes."""
    backward: Num
    """Of weights and gradients, beside backward passes."""
    leaves: Num
    """Of the last gradients."""
    slowdown: Num = 0.0
    """By which compute is slower beside those that hide."""

    @property
    def total(self) -> Num:
        """All of them."""
        return (
            self.arrives
            + self.forward
            + self.backward
            + self.leaves
            + self.slowdown
        )

    @property
    def outside(self) -> Num:
        """Before the first pass of the device and after its last one."""
        return self.arrives + self.leaves


NO_WAIT = overlap.Exposed(0.0, 0.0)


def exposed(d: Device, m: Num, zero: int, how: HidePass) -> Exposed:
    """What does not hide beside m microbatches.

    ZeRO 0 all-reduces gradients once a step; 1 reduce-scatters them and gathers weights; 2
    reduce-scatters after every microbatch; 3 also gathers the weights before each pass. What is
    done once hides behind the first forward or the last backward pass, less the layer that waits
    for the first unit or makes the last one, which is exposed: T_1 + behind(rest); of scope "layer"
    no unit is the first. Scope "backward": gathers of weights are waited for. Scope "step": all
    of it hides behind all microbatches.
    """
    often = m if zero >= 2 else 1.0
    if how.scope == "none":
        if zero == 0:
            return Exposed(0.0, 0.0, 0.0, d.every.all_reduce.seconds)
        gather = d.every.gather.seconds
        scatter = d.every.scatter.seconds
        once, again = (
            ((m - 1) * gather, m * gather) if zero == 3 else (0.0, 0.0)
        )
        return Exposed(gather, once, again + (often - 1) * scatter, scatter)
    if how.scope == "step":
        sent = (
            d.every.all_reduce
            if zero == 0
            else d.every.scatter * often
            + d.every.gather * (2 * m if zero == 3 else 1.0)
        )
        work = m * (d.forward + d.backward)
        own = (d.sent + d.sent_back) * m
        shown, slower = overlap.behind(work, own, sent, how)
        return Exposed(0.0, 0.0, shown, 0.0, slower)
    if how.scope == "layer":
        d = d.steady
    forward, back, sent, sent_back = d.layer
    first = d.forward - forward, d.sent + sent * -1.0
    last = d.backward - back, d.sent_back + sent_back * -1.0

    def hide(work: Num, own: Load, hidden: Load) -> overlap.Exposed:
        return overlap.behind(work, own, hidden, how)

    if zero == 0:
        shown, slower = hide(*last, d.rest.all_reduce)
        return Exposed(
            0.0,
            0.0,
            shown,
            d.first.all_reduce.seconds,
            slower,
        )
    waited = how.scope == "backward"
    each = d.every.gather.seconds
    gather = each if waited else d.first.gather.seconds
    ahead = NO_WAIT if waited else hide(*first, d.rest.gather)
    with_last = d.rest.scatter
    between = d.every.scatter
    if zero == 3 and not waited:
        ahead = ahead + hide(d.forward, d.sent, d.every.gather) * (m - 1)
        with_last = d.every.gather + with_last
        between = d.every.gather + between
    behind = hide(*last, with_last)
    if zero >= 2:
        behind = behind + hide(d.backward, d.sent_back, between) * (m - 1)
    slower = ahead.slowdown + behind.slowdown
    again = each if waited and zero == 3 else 0.0
    return Exposed(
        gather,
        ahead.shown + again * (m - 1),
        behind.shown + again * m,
        d.first.scatter.seconds,
        slower,
    )


def occupied(of: Sequence[Device], m: Num, zero: int) -> Busy:
    """Seconds each dimension of the network carries what the busiest device sends in a step, but
    for its pipeline.
    """
    found = Busy()
    for d in of:
        often = m if zero >= 2 else 1.0
        once = d.every.scatter.busy * often + d.every.gather.busy * (
            2 * m if zero == 3 else 1.0
        )
        busy = (d.sent.busy + d.sent_back.busy) * m + (
            d.every.all_reduce.busy if zero == 0 else once
        )
        found = (
            Busy(map(maximum, found, busy))
            if found and busy
            else found or busy
        )
    return found


def device_seconds(d: Device, m: Num, waits: Exposed) -> Num:
    """Seconds from a device's first pass to its last gradient, with all that its passes wait
    for.
    """
    return m * (d.forward + d.backward) + waits.total


def synchronise(of: Sequence[Device], m: Num, ends: Sequence[Num]) -> Num:
    """Seconds by which the step outlasts m microbatches on the slowest device: each device has its
    own to wait for, until it is `device_seconds`.
    """
    busy = [m * (d.forward + d.backward) for d in of]
    return reduce(maximum, ends) - reduce(maximum, busy)


ENDS = ("first", "second", "last")
"""Devices that may be the fullest: most microbatches in flight, most layers, the logits; there may
be several of the second."""


def held(job: Job, layout: Layout, parts: Body, by: Shares, end: str) -> Held:
    """Parameters (dense, expert) of the first or the last device; a device that is alone holds a
    tied embedding once.
    """
    alone = layout.pp == 1
    passed = where_share(alone, by["whole"], by[end]).passed(parts)
    dense = added(passed, "weights")
    if job.model.tied_embeddings:
        dense = dense - where(alone, tied(job, layout), 0.0)
    return Held(
        dense, added(passed, "expert_weights") if job.model.moe else 0.0
    )


def update(
    job: Job, layout: Layout, ends: Sequence[Held], zero: int, at: Clock
) -> Num:
    """Seconds of the optimizer on the device with the most parameters to update, and of each step
    whatever it holds (`Stack.step_s`); ends: what the candidates hold."""
    if not job.how.count.optimizer_step:
        return 0.0
    dense, expert = _most(ends)
    mine = dense / (layout.shards if zero else 1.0)
    if job.model.moe:
        mine = mine + expert / (layout.expert_shards if zero else 1.0)
    r = at.rates
    away = offload(layout.offload).optimizer
    arithmetic, traffic = alone(
        optimizer.update(job, mine * (1.0 - away) if away else mine), r
    )
    busy = arithmetic + traffic
    if away:  # the host updates its share meanwhile
        busy = maximum(busy, on_host(job, mine * away))
    return busy + quantised(ends, at) + every_step(at)


def quantised(ends: Sequence[Held], at: Clock) -> Num:
    """Seconds in which the device with the most parameters quantises them, where that is done once
    a step.
    """
    shapes = at.rates.shapes
    return step_quantises(sum(_most(ends)), shapes) if shapes else 0.0


def _most(ends: Sequence[Held]) -> tuple[Num, Num]:
    """Parameters (dense, expert) of the device with the most of each."""
    dense, expert = zip(*ends, strict=True)
    return reduce(maximum, dense), reduce(maximum, expert)


def every_step(at: Clock) -> float:
    """Seconds of the host in each step, beside all layers."""
    shapes = at.rates.shapes
    return shapes.how.stack.step_s if shapes else 0.0
