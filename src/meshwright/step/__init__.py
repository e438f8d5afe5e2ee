"""The time of one training step: layers make stages, stages make a pipeline; synchronisation and
the optimizer follow.

Every function takes a job and a layout whose numbers may be arrays, so one layout and a table of a
million are the same code. `Body` holds what a layer costs; schedule, ZeRO stage and recomputation
are applied to it afterwards, which lets the search evaluate every such choice without counting a
layer again.
"""

from __future__ import annotations

from functools import cached_property, reduce
from typing import NamedTuple

from ..cost.layer import Clock
from ..cost.load import Busy, Load
from ..describe.assumptions import Overlap
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import microbatches, rounds, schedule_of
from ..num import Num, maximum, minimum
from .microbatch import (
    ENDS_CALLED,
    Body,
    body,
    boundary,
    clock,
    kept_clock,
    labels,
    recomputed,
    recomputing,
    redo,
    stage_message,
    timed,
)
from .pipeline import (
    DEVICES,
    Pipeline,
    Share,
    Shares,
    Stages,
    barrier,
    by_order,
    carried,
    fill_and_drain,
    hop,
    least_idle,
    passes_of,
    pipeline_time,
    shares,
    slowest,
    stage_costs,
    staged,
    stages,
    sum_of,
    value_of_slowest,
    where_share,
)
from .sync import (
    ENDS,
    Device,
    Exposed,
    device,
    device_seconds,
    every_step,
    exposed,
    held,
    occupied,
    quantised,
    ranks_of,
    synchronise,
    update,
)
from .units import Held, Unit, Units, unit, units


class Step(NamedTuple):
    """Seconds of one step."""

    pipeline: Pipeline
    outside: Num
    """Before and after it: first weights, last gradients."""
    update: Num
    devices: tuple[Device, ...] = ()
    """What they wait for, first to last."""
    reached: tuple[Num, ...] = ()
    """When each of them is done, with the optimizer, however the others fare."""
    busy: tuple[Num, ...] = ()
    """From the first pass of each of them to its last gradient."""
    waiting: tuple[Exposed, ...] = ()
    """What of its collectives each of them waits for."""
    links: Busy = Busy()
    """Seconds each dimension of the network is busy, where hidden sends share it with all the
    rest.
    """
    slowest: Share = Share((), 0.0, 0.0)
    """What the device holds that the pipeline waits for."""

    @property
    def total(self) -> Num:
        """The longest of the order of the pipeline, of each device by itself, and of each link."""
        return maximum(self._alone, self.links.most)

    @property
    def sync(self) -> Num:
        """Seconds of weight and gradient collectives that show."""
        rest = self.pipeline.total + self.update
        return reduce(
            maximum, (done - rest for done in self.reached), self.outside
        )

    @property
    def slowdown(self) -> Num:
        """The part of `sync` that is compute made slower by collectives that hide, on the device
        that sets the end of the step; of numbers only.
        """
        mine = self.waiting[self.awaited]
        return minimum(mine.slowdown, maximum(self.sync - mine.outside, 0.0))

    @property
    def waits(self) -> Num:
        """Seconds for which sends wait because links are full."""
        return maximum(self.links.most - self._alone, 0.0)

    @property
    def awaited(self) -> int:
        """The device that sets the end of the step, or the first, where the order of the pipeline
        does; of numbers only.
        """
        if not self.reached:
            return max(
                range(len(self.busy)), key=lambda i: float(self.busy[i])
            )
        ends = [
            float(self.pipeline.total + (self.outside + self.update)),
            *map(float, self.reached),
        ]
        return max(ends.index(max(ends)) - 1, 0)

    @property
    def _alone(self) -> Num:
        return reduce(
            maximum,
            self.reached,
            self.pipeline.total + (self.outside + self.update),
        )


class Work(NamedTuple):
    """One microbatch on the devices of a pipeline, with what they compute again, whatever the order
    of its schedule and the ZeRO stage.
    """

    by: Shares
    """The devices' shares by name, first to last; a device that is alone has the first one's."""
    devices: tuple[Device, ...]
    """With nothing to synchronise."""
    stages: Stages
    slowest: Share
    """What the device holds that the pipeline waits for."""
    send: Load
    """Between two stages."""

    ranks: dict[str, Num]
    """Name of each device -> its place in the pipeline."""


def work(job: Job, layout: Layout, parts: Body, by: Shares, at: Clock) -> Work:
    """What a microbatch of the layout costs on devices that hold these shares of the model."""
    text = layout.recompute
    again = recomputing(parts, text, by.again(text))
    names = by.called(*DEVICES)
    alone = ranks_of(layout, by, names)
    of = tuple(device(again, alone[name]) for name in names)
    passes = {
        name: (d.forward, d.backward)
        for name, d in zip(names, of, strict=True)
    } | {"whole": by["whole"].passes(again)}
    choice = slowest(layout, passes)
    return Work(
        alone,
        of,
        staged(layout, again, by, passes_of(choice, passes), passes["whole"]),
        value_of_slowest(choice, {name: by[name] for name in passes}),
        hop(layout, parts, at),
        {name: by[name].rank for name in names},
    )


class Piped(NamedTuple):
    """Microbatches in the order of a schedule."""

    seconds: Pipeline
    way: dict[str, Num]
    """Name of a device -> seconds in which it has nothing to do yet, or nothing any more."""
    links: Busy
    """Seconds each dimension of the network carries what stages send."""


def pipelined(
    job: Job, layout: Layout, of: Work, refine: bool = False
) -> Piped:
    """All microbatches of a step; refine: as in `pipeline_time`."""
    schedule, v = schedule_of(layout), layout.interleave
    m = microbatches(job, layout)
    s, send = of.stages, of.send.seconds
    seconds = pipeline_time(job, layout.pp, m, s, send, schedule, v, refine)
    if not by_order(job):
        return Piped(seconds, {}, Busy())
    return Piped(
        seconds,
        fill_and_drain(job, layout.pp, s, send, schedule, v, of.ranks),
        carried(rounds(job, layout), of.send, schedule, v),
    )


def synchronised(
    job: Job, layout: Layout, of: Work, each: Units
) -> tuple[Device, ...]:
    """The devices with the collectives of what they hold."""
    return tuple(
        d.sharing(share, each, end)
        for d, (end, share) in zip(of.devices, of.by.items(), strict=True)
    )


def updated(
    job: Job, layout: Layout, parts: Body, by: Shares, at: Clock
) -> Num:
    """Seconds of the optimizer."""
    return update(job, layout, owners(job, layout, parts, by), layout.zero, at)


def owners(job: Job, layout: Layout, parts: Body, by: Shares) -> list[Held]:
    """What the devices hold that may have the most to update."""
    return [held(job, layout, parts, by, end) for end in by.called(*ENDS)]


class StepCosts:
    """What makes up one step of a layout (or of each row of a table), computed once, when it is
    first asked for.
    """

    def __init__(
        self,
        job: Job,
        layout: Layout,
        parts: Body,
        at: Clock,
        refine: bool = False,
    ) -> None:
        """refine: as in `pipeline_time`."""
        self.job, self.layout, self.parts, self.at = job, layout, parts, at
        self.refine = refine

    @cached_property
    def by(self) -> Shares:
        """What the devices hold."""
        layout = self.layout
        return shares(self.job, layout, schedule_of(layout), layout.interleave)

    @cached_property
    def work(self) -> Work:
        """One microbatch."""
        return work(self.job, self.layout, self.parts, self.by, self.at)

    @cached_property
    def piped(self) -> Piped:
        """All of them."""
        return pipelined(self.job, self.layout, self.work, self.refine)

    @cached_property
    def updated(self) -> Num:
        """Seconds of the optimizer."""
        return updated(self.job, self.layout, self.parts, self.by, self.at)

    @cached_property
    def step(self) -> Step:
        """The whole."""
        job, layout, mine = self.job, self.layout, self.work
        stages = (layout.zero,)
        each = units(job, layout, self.parts, mine.by, stages, self.at)
        return joined(
            job,
            layout,
            mine,
            self.piped,
            synchronised(job, layout, mine, each),
            self.updated,
            self.at,
        )


def step(
    job: Job,
    layout: Layout,
    parts: Body,
    at: Clock | None = None,
    refine: bool = False,
) -> Step:
    """One step of the job; the layout's numbers may be arrays (categorical fields may not);
    refine: as in `pipeline_time`.
    """
    return StepCosts(job, layout, parts, at or clock(job), refine).step


def joined(
    job: Job,
    layout: Layout,
    of: Work,
    pipe: Piped,
    devices: tuple[Device, ...],
    updated: Num,
    at: Clock,
) -> Step:
    """A step of its parts: microbatches in the order of the schedule, what each device has to
    synchronise, and the seconds of the optimizer.
    """
    m = rounds(job, layout)
    waits = tuple(exposed(d, m, layout.zero, at.overlap.dp) for d in devices)
    busy = tuple(
        device_seconds(d, m, w) for d, w in zip(devices, waits, strict=True)
    )
    found = Step(
        pipe.seconds,
        waits[0].outside,
        updated,
        devices,
        busy=busy,
        waiting=waits,
        slowest=of.slowest,
    )
    if not by_order(job):  # papers add up
        return found._replace(outside=synchronise(devices, m, busy))
    return found._replace(
        reached=tuple(
            seconds + updated + way
            for seconds, way in zip(busy, pipe.way.values(), strict=True)
        ),
        links=occupied(devices, m, layout.zero) + pipe.links
        if shared(at.overlap)
        else Busy(),
    )


def shared(how: Overlap) -> bool:
    """Sends and synchronisation hide at the same time, on the same links."""
    return (
        how.pp != "none"
        and how.dp.scope != "none"
        and how.dp.links == "shared"
    )


def step_time(job: Job, layout: Layout) -> Num:
    """Seconds of one step."""
    at = clock(job)
    return step(job, layout, body(job, layout, at), at).total


__all__ = [
    "ENDS",
    "ENDS_CALLED",
    "labels",
    "where_share",
    "sum_of",
    "Body",
    "Device",
    "Held",
    "Pipeline",
    "Share",
    "Shares",
    "Stages",
    "Step",
    "ranks_of",
    "StepCosts",
    "barrier",
    "Unit",
    "Units",
    "body",
    "boundary",
    "by_order",
    "carried",
    "clock",
    "stage_costs",
    "DEVICES",
    "device",
    "device_seconds",
    "every_step",
    "exposed",
    "held",
    "joined",
    "hop",
    "kept_clock",
    "least_idle",
    "occupied",
    "pipeline_time",
    "owners",
    "value_of_slowest",
    "pipelined",
    "quantised",
    "recomputed",
    "recomputing",
    "redo",
    "shared",
    "shares",
    "slowest",
    "stage_message",
    "staged",
    "stages",
    "step",
    "step_time",
    "synchronise",
    "timed",
    "unit",
    "units",
    "update",
    "updated",
    "fill_and_drain",
]
