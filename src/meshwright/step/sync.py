"""What a device waits for of the weights and gradients that it exchanges with its replicas: what
does not hide behind its passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..cost import overlap
from ..cost.load import NOTHING, Busy, Load
from ..describe.assumptions import HidePass
from ..num import Num, maximum
from .passes import NO_PASSES, DevicePasses, Passes
from .pipeline import FillAndDrain
from .weights import SILENT, DeviceSync
from .zero import is_sharded, reductions


class SyncWait(NamedTuple):
    """Seconds of a device's weight and gradient collectives in a step, as far as they do not
    hide.
    """

    first_weights: Num
    """Before the step can begin: the gather of the layer that the device begins with."""
    forward: Num
    """Of weights, beside forward passes."""
    backward: Num
    """Of weights and gradients, beside backward passes."""
    last_gradients: Num
    """After the last pass: the reduction for the layer whose gradients are made last."""
    slowdown: Num = 0.0
    """By which compute is slower beside those that hide."""
    per_pass: tuple[Num, Num] = (0.0, 0.0)
    """Of `forward` and `backward`, beside each pass of the device."""
    tied_gradients: Num = 0.0
    """Of a table that the first and the last stage hold (`DeviceSync.tied_gradients`), after all
    other gradients: every device waits for it with its update, whose norm is that of all gradients.
    """

    @property
    def total(self) -> Num:
        """Seconds that show before, beside and after the passes."""
        return (
            self.first_weights
            + self.forward
            + self.backward
            + self.last_gradients
            + self.slowdown
            + self.tied_gradients
        )

    def fill_and_drain_with_wait(self, way: FillAndDrain) -> Num:
        """Seconds of a way to this device, whose passes on other stages wait as its own do."""
        forward, backward = self.per_pass
        return way.seconds + (way.forward * forward + way.backward * backward)

    @property
    def outside(self) -> Num:
        """Before the first pass of the device and after its last one."""
        return self.first_weights + self.last_gradients + self.tied_gradients


HIDDEN = overlap.Exposed(0.0, 0.0)
"""Nothing shows and nothing slows compute down."""


def sync_wait(
    passes: DevicePasses, sync: DeviceSync, m: Num, zero: int, how: HidePass
) -> SyncWait:
    """What a device waits for of what its ZeRO stage (`zero`) exchanges beside its m microbatches,
    by scope of the set's overlap (`how`):

        none      all of it is waited for
        step      what outlasts all microbatches together
        pass      a pass hides what is exchanged for it, the first forward and the last backward
                  pass also what is exchanged once a step. One layer hides nothing: it waits for
                  the first weights, or makes the last gradients. T_1 of it + behind(rest)
        layer     the same, but no layer is taken as the first or last (as if before and
                  after the device there were more)
        backward  as pass, but nothing hides behind forward passes: all gathers are waited for
    """
    whole, first = passes
    how = how.at(zero)
    reduction = sync.total.reduction
    if how.scope == "none":
        return _wait_for_all(sync, reduction, m, zero)
    if how.scope == "step":
        own = (whole.sent + whole.sent_back) * m
        sent = sync.in_step(zero, m)
        shown, slower = overlap.behind(m * whole.work, own, sent, how)
        return SyncWait(0.0, 0.0, shown, last_gradients=0.0, slowdown=slower)
    if how.scope == "layer":
        first, sync = NO_PASSES, sync._replace(first=SILENT, rest=sync.total)
    first_weights, last_gradients = sync.first
    rest_weights, rest_gradients = sync.rest
    gathers_bare = how.scope == "backward"
    _, forward_gather, backward_gather = sync.gathered(zero)
    hidden = NOTHING if gathers_bare else backward_gather
    every = hidden + reduction if is_sharded(zero, "gradients") else NOTHING
    f, b, sent, sent_back = first
    forward, backward, own, own_back = whole
    back, each_back = _behind_passes(
        backward,
        own_back,
        b,
        layer_own=sent_back,
        once=hidden + rest_gradients,
        every=every,
        m=m,
        how=how,
    )
    wait = _wait_for_all(sync, NOTHING, m, zero)
    ahead = HIDDEN
    if not gathers_bare:
        ahead, each = _behind_passes(
            forward,
            own,
            f,
            layer_own=sent,
            once=rest_weights,
            every=forward_gather,
            m=m,
            how=how,
        )
        wait = SyncWait(
            first_weights.seconds, ahead.shown, 0.0, 0.0, per_pass=(each, 0.0)
        )
    return wait._replace(
        backward=wait.backward + back.shown,
        last_gradients=last_gradients.seconds,
        slowdown=ahead.slowdown + back.slowdown,
        per_pass=(wait.per_pass[0], wait.per_pass[1] + each_back),
    )


def _wait_for_all(
    sync: DeviceSync, reduction: Load, m: Num, zero: int
) -> SyncWait:
    """All seconds of a step's gathers and reductions, where nothing hides."""
    first, forward, backward = sync.gathered(zero)
    later = reductions(zero, m) - 1.0
    reduced = reduction.seconds if is_sharded(zero, "gradients") else 0.0
    return SyncWait(
        first.seconds,
        (m - 1.0) * forward.seconds,
        backward.seconds * m + later * reduction.seconds,
        reduction.seconds,
        per_pass=(forward.seconds, backward.seconds + reduced),
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
) -> tuple[overlap.Exposed, Num]:
    """(what shows of a step's collectives beside its m forward or m backward passes, seconds that
    show beside each pass that is not the first or last).

    work, own: seconds of a pass, and what it sends itself;  layer, layer_own: the same of the one
    layer behind which nothing hides;  once: exchanged once a step, beside one pass without that
    layer;  every: exchanged again beside each of the other m - 1 passes.
    """
    wait = other = HIDDEN
    if once is not NOTHING:
        rest = own + layer_own * -1.0
        wait = overlap.behind(work - layer, rest, once, how)
    if every is not NOTHING:
        other = overlap.behind(work, own, every, how)
        wait = wait + other * (m - 1)
    return wait, other.shown


def link_traffic(
    devices: Iterable[tuple[Passes, DeviceSync]], m: Num, zero: int
) -> Busy:
    """Seconds each dimension of the network carries what the busiest device sends in a step, but
    for its pipeline.
    """
    most = Busy()
    for passes, sync in devices:
        busy = (
            (passes.sent.busy + passes.sent_back.busy) * m
            + sync.in_step(zero, m).busy
            + sync.tied_gradients.busy
        )
        most = (
            Busy(map(maximum, most, busy)) if most and busy else most or busy
        )
    return most
