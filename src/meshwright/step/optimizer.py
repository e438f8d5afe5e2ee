"""The time of the optimizer: update, quantisation and launches of the device with most to do."""

from __future__ import annotations

from collections.abc import Sequence

from ..cost import host
from ..cost.chip import pass_seconds
from ..cost.layer import Clock
from ..cost.offload import offload_update as on_host
from ..cost.shapes import step_quantises
from ..count import optimizer
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.offload import offload
from ..num import Num, largest, maximum
from .parameters import Parameters, shard
from .zero import is_sharded


def update(
    job: Job,
    layout: Layout,
    owned: Sequence[Parameters],
    zero: int,
    clock: Clock,
) -> Num:
    """Seconds of the optimizer on the device with the most parameters to update, and of each step
    whatever it updates (`host_seconds`).

    owned: parameters of the devices that may have the most.
    """
    if not job.how.count.optimizer_step:
        return 0.0
    cut = is_sharded(zero, "optimizer")
    number = largest(shard(layout, one) if cut else one.total for one in owned)
    away = offload(layout.offload).optimizer
    on_device = number * (1.0 - away) if away else number
    arithmetic, traffic = pass_seconds(
        optimizer.update(job, on_device, sharded=is_sharded(zero, "weights")),
        clock.rates,
    )
    busy = arithmetic + traffic
    if away:  # the host updates its share meanwhile
        busy = maximum(busy, on_host(job, number * away))
    return (
        busy
        + quantise_seconds(owned, clock)
        + host_seconds(job.model.layers / layout.pp, clock)
    )


def quantise_seconds(owned: Sequence[Parameters], clock: Clock) -> Num:
    """Seconds in which the device with the most parameters quantises them, where that is done once
    a step.
    """
    shapes = clock.rates.shapes
    each = step_quantises(1.0, shapes) if shapes else 0.0
    return largest(one.total for one in owned) * each if each else 0.0


def host_seconds(layers: Num, clock: Clock) -> Num:
    """Seconds of the host in each step, beside its passes. layers: of a stage, on average."""
    shapes = clock.rates.shapes
    if not shapes:
        return 0.0
    return host.every_step(shapes.how, layers)
