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
from .zero import cuts, gathers, reductions


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
    """What a device waits for, beside m microbatches, of what its ZeRO stage exchanges (`zero`).

    Scope "none": all of them. "step": what outlasts all microbatches. Else a pass hides what is
    exchanged for it, and the first forward and the last backward pass what is exchanged once, less
    the layer that waits for the first weights or makes the last gradients: T_1 + behind(rest). Of
    scope "layer" no layer is the first; of scope "backward" weights are waited for.
    """
    gather, reduction = d.every.under(zero)
    if how.scope == "step":
        work = m * (d.forward + d.backward)
        own = (d.sent + d.sent_back) * m
        sent = d.every.in_step(zero, m)
        shown, slower = overlap.behind(work, own, sent, how)
        return Exposed(0.0, 0.0, shown, 0.0, slower)
    forward = gathers(zero, m)
    backward = gathers(zero, 2 * m) - forward
    waits = Exposed(
        gather.seconds,
        (forward - 1.0) * gather.seconds,
        backward * gather.seconds,
        reduction.seconds,
    )
    if how.scope == "none":
        more = (reductions(zero, m) - 1.0) * reduction.seconds
        return waits._replace(backward=waits.backward + more)
    if how.scope == "layer":
        d = d.steady
    first_weights, last_gradients = d.first.under(zero)
    once, later = d.rest.under(zero)
    waited = how.scope == "backward"
    beside = gather if cuts(zero, "weights") and not waited else NOTHING
    every = beside + reduction if cuts(zero, "gradients") else NOTHING
    f, b, sent, sent_back = d.layer
    back = _behind_passes(
        d.backward, d.sent_back, b, sent_back, beside + later, every, m, how
    )
    if waited:
        return waits._replace(
            backward=waits.backward + back.shown,
            leaves=last_gradients.seconds,
            slowdown=back.slowdown,
        )
    ahead = _behind_passes(d.forward, d.sent, f, sent, once, beside, m, how)
    return Exposed(
        first_weights.seconds,
        ahead.shown,
        back.shown,
        last_gradients.seconds,
        ahead.slowdown + back.slowdown,
    )


def _behind_passes(
    work: Num,
    own: Load,
    layer: Num,
    layer_own: Load,
    once: Load,
    every: Load,
    m: Num,
    how: HidePass,
) -> overlap.Exposed:
    """What outlasts m passes of `work` seconds that send `own`: `once` beside one of them, less a
    layer of it, and `every` beside each of the others.
    """
    found = NO_WAIT
    if once is not NOTHING:
        rest = own + layer_own * -1.0
        found = overlap.behind(work - layer, rest, once, how)
    if every is not NOTHING:
        found = found + overlap.behind(work, own, every, how) * (m - 1)
    return found


def occupied(of: Sequence[Device], m: Num, zero: int) -> Busy:
    """Seconds each dimension of the network carries what the busiest device sends in a step, but
    for its pipeline.
    """
    found = Busy()
    for d in of:
        passes = (d.sent.busy + d.sent_back.busy) * m
        busy = passes + d.every.in_step(zero, m).busy
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
    cut = cuts(zero, "optimizer")
    mine = dense / (layout.shards if cut else 1.0)
    if job.model.moe:
        mine = mine + expert / (layout.expert_shards if cut else 1.0)
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
