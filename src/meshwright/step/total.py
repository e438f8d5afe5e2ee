"""The time of a step: microbatches in the order of the schedule, what each device has to
synchronise, and the optimizer.

    total = max(the order of the slowest device and what comes before and after it,
                each device by itself, each dimension of the network by itself)

`microbatch_on`, `pipeline_of` and `join` are its parts, for one layout or columns of them;
`costs.StepCosts` makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from ..cost.layer import Clock, LayerCost
from ..cost.load import Busy
from ..describe.assumptions import Overlap
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import microbatches, schedule_of
from ..num import Num, largest, maximum, minimum
from ..schedule.stage_costs import PassSeconds, StageCosts
from .microbatch import ModelCost, model_with_recomputation
from .pipeline import (
    FillAndDrain,
    Pipeline,
    SendsAndBubble,
    exchanged_pipeline,
    exchanges,
    least_idle,
    paper_pipeline,
    replay_total,
    stage_sends,
)
from .shares import ModelShares
from .sync import (
    DevicePasses,
    Passes,
    SyncWait,
    device_passes,
    sync_wait,
)
from .weights import DeviceSync

if TYPE_CHECKING:  # as in `pipeline`
    from ..schedule.replays import Paths


class DeviceStep(NamedTuple):
    """A device in a step."""

    passes: Passes
    """Of a microbatch."""
    sync: DeviceSync
    work: Num
    """Seconds of its microbatches."""
    wait: SyncWait
    """For its collectives."""
    idle_way: FillAndDrain | None = None
    """While it has nothing to do yet, or nothing any more; None where papers add up."""

    @property
    def span(self) -> Num:
        """Seconds from the first weights that it gathers to its last gradient."""
        return self.work + self.wait.total


@dataclass(frozen=True, eq=False)
class Step:
    """Seconds of one step. Its end is the latest of: the pipeline with what comes before and after
    it; each device with its own synchronisation, however the others fare; each link with all that
    it carries.
    """

    pipeline: Pipeline
    outside: Num
    """Before and after the pipeline: the first weights and the last gradients of the first device;
    where papers add up, what the device with most work and synchronisation takes beyond the one
    with most work."""
    update: Num
    devices: tuple[DeviceStep, ...] = ()
    """Those that may be the slowest (`ModelShares.slow`)."""
    links: Busy = Busy()
    """Seconds each dimension of the network is busy, where hidden sends share it with all the
    rest.
    """

    @cached_property
    def device_ends(self) -> tuple[Num, ...]:
        """When each device is done, with the optimizer, however the others fare; none where papers
        add up.
        """
        return tuple(
            d.span + self.update + d.wait.fill_and_drain_with_wait(d.idle_way)
            for d in self.devices
            if d.idle_way
        )

    @property
    def total(self) -> Num:
        """The longest of the order of the pipeline, of each device by itself, and of each link."""
        return maximum(self._without_full_links, self.links.most)

    @cached_property
    def sync(self) -> Num:
        """Seconds of weight and gradient collectives that show."""
        rest = self.pipeline.total + self.update
        return reduce(
            maximum, (done - rest for done in self.device_ends), self.outside
        )

    @cached_property
    def slowdown(self) -> Num:
        """The part of `sync` that is compute made slower by collectives that hide, on the device
        that sets the end of the step; of numbers only.
        """
        wait = self.devices[self.critical_device].wait
        # a part of `sync`: never more than what of it is left beside the collectives outside
        return minimum(wait.slowdown, maximum(self.sync - wait.outside, 0.0))

    @property
    def link_wait(self) -> Num:
        """Seconds for which sends wait because links are full."""
        # links that are not full make nobody wait
        return maximum(self.links.most - self._without_full_links, 0.0)

    @cached_property
    def critical_device(self) -> int:
        """The device that sets the end of the step, or the first, where the order of the pipeline
        does; of numbers only.
        """
        if not self.device_ends:
            spans = [float(d.span) for d in self.devices]
            return spans.index(max(spans))
        ends = [
            float(self.pipeline.total + (self.outside + self.update)),
            *map(float, self.device_ends),
        ]
        # the first end is the pipeline's own: where that is the last of all, device 0 stands for it
        return max(ends.index(max(ends)) - 1, 0)

    @cached_property
    def _without_full_links(self) -> Num:
        """The end of the step as far as no link is full: the pipeline's order, or a device."""
        return reduce(
            maximum,
            self.device_ends,
            self.pipeline.total + (self.outside + self.update),
        )


class Microbatch(NamedTuple):
    """One microbatch on the devices of a pipeline, with what they compute again, whatever the order
    of its schedule and the ZeRO stage.
    """

    shares: ModelShares
    """What the devices hold."""
    devices: tuple[DevicePasses, ...]
    stages: StageCosts
    sent: Busy
    """Seconds each dimension is busy with what a rank sends of one microbatch through one chunk,
    forward and backward."""


def microbatch_on(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    device_shares: ModelShares,
    clock: Clock,
) -> Microbatch:
    """What a microbatch of the layout costs on devices that hold these shares of the model."""
    mode = layout.recompute
    again = model_with_recomputation(
        cost, mode, device_shares.recompute_share(mode)
    )
    sends, sent = stage_sends(layout, cost, clock, device_shares.partition)
    stages = StageCosts(
        device_shares.partition, tuple(map(_passes, again.parts)), sends
    )
    slow = device_passes(again, device_shares.slow)
    return Microbatch(device_shares, slow, stages, sent)


def _passes(part: LayerCost) -> PassSeconds:
    """F, I and W of one microbatch; recomputation belongs to I."""
    w = part.weight_pass
    return PassSeconds(part.forward, part.backward - w, w)


def pipeline_of(
    job: Job,
    layout: Layout,
    microbatch: Microbatch,
    paths: Paths | None,
) -> Pipeline:
    """All microbatches of a step in the order of a schedule.

    paths: of one layout, whose order is replayed (`replays.replayed`); None: what it takes at least
    (`least_idle`), by which a search ranks before it replays the best. Papers say what all
    microbatches wait in closed form.
    """
    schedule, stages = schedule_of(layout), microbatch.stages
    shape = layout.pp, microbatches(job, layout), layout.interleave
    barrier = job.how.overlap.has_barrier
    if not job.how.overlap.follows_schedule:
        slow = stages.load(stages.slowest)
        if exchanges(job):
            return exchanged_pipeline(
                schedule, shape, stages, slow=slow, barrier=barrier
            )
        return paper_pipeline(
            job.how.overlap,
            schedule,
            shape,
            slow=slow,
            others=stages.others,
            send=stages.sends.farthest,
        )
    m = schedule.rounds(shape[1])
    busy = largest(d.whole.work for d in microbatch.devices) * m
    sends_and_bubble: SendsAndBubble
    if paths is not None and layout.pp > 1:
        total, sends_and_bubble = replay_total(
            schedule, shape, stages, busy, paths=paths, barrier=barrier
        )
    else:
        idle = least_idle(schedule, shape[1], stages, busy, barrier)
        total, sends_and_bubble = busy + idle, lambda: (0.0, idle)
    links = microbatch.sent * (m * schedule.chunks(layout.interleave))
    return Pipeline(total, sends_and_bubble, links)


def device_steps(
    m: Num,
    zero: int,
    devices: Sequence[DevicePasses],
    syncs: Sequence[DeviceSync],
    how: Overlap,
) -> tuple[DeviceStep, ...]:
    """Devices in a step, whatever its order. m: microbatches that a rank runs through each of its
    chunks;  zero: ZeRO stage.
    """
    tied = syncs[0].tied_gradients.seconds
    return tuple(
        DeviceStep(
            passes.whole,
            sync,
            m * passes.whole.work,
            wait=sync_wait(passes, sync, m, zero, how=how.dp)._replace(
                tied_gradients=tied
            ),
        )
        for passes, sync in zip(devices, syncs, strict=True)
    )


def join(
    pipeline: Pipeline,
    devices: Sequence[DeviceStep],
    idle_ways: Sequence[FillAndDrain],
    update_seconds: Num,
    links: Busy,
) -> Step:
    """A step of its parts. idle_ways: of each device (`pipeline.fill_and_drain`), none where papers
    add up;  update_seconds: of the optimizer;  links: as in `Step`.
    """
    outside = devices[0].wait.outside
    if not idle_ways:  # papers add up
        spans, works = [d.span for d in devices], [d.work for d in devices]
        outside = reduce(maximum, spans) - reduce(maximum, works)
    ordered = zip_longest(devices, idle_ways)
    return Step(
        pipeline,
        outside,
        update_seconds,
        devices=tuple(d._replace(idle_way=way) for d, way in ordered),
        links=links,
    )


def shares_links(how: Overlap, zero: int) -> bool:
    """Sends and synchronisation hide at the same time, on the same links, with a ZeRO stage. Papers
    add up what is sent, whatever else lies on the links.
    """
    dp = how.dp.at(zero)
    ordered = how.pp == "interleaved"
    return ordered and dp.scope != "none" and dp.links == "shared"
