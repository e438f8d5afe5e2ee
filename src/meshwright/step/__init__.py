"""The time of one training step: layers make stages, stages make a pipeline; synchronisation and
the optimizer follow.

Every function takes a job and a layout whose numbers may be arrays, so one layout and a table of a
million are the same code. `Body` holds what a layer costs; schedule, ZeRO stage and recomputation
are applied to it afterwards, which lets the search evaluate every such choice without counting a
layer again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
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
    dealt,
    either,
    hop,
    least_idle,
    least_waits,
    ordered,
    passes_of,
    pick,
    shares,
    slowest,
    span,
    staged,
    stages,
    sum_of,
    ways,
)
from .sync import (
    ENDS,
    Device,
    Exposed,
    along,
    device,
    devices,
    done,
    every_step,
    exposed,
    held,
    occupied,
    quantised,
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


def pipelined(
    job: Job, layout: Layout, s: Stages, send: Load, refine: bool = False
) -> Pipeline:
    """All microbatches of a step; refine: as in `ordered`."""
    return ordered(
        job,
        layout.pp,
        microbatches(job, layout),
        s,
        send.seconds,
        schedule_of(layout),
        layout.interleave,
        refine,
    )


def updated(
    job: Job, layout: Layout, parts: Body, by: Shares, at: Clock
) -> Num:
    """Seconds of the optimizer."""
    owned = owners(job, layout, parts, by)
    return update(job, layout, owned, layout.zero, at)


def owners(job: Job, layout: Layout, parts: Body, by: Shares) -> list[Held]:
    """What the devices hold that may have the most to update."""
    return [held(job, layout, parts, by, end) for end in by.called(*ENDS)]


def step(
    job: Job,
    layout: Layout,
    parts: Body,
    at: Clock | None = None,
    refine: bool = False,
) -> Step:
    """One step of the job; the layout's numbers may be arrays (categorical fields may not);
    refine: as in `ordered`.
    """
    at = at or clock(job)
    m = rounds(job, layout)
    how = at.overlap.dp
    by = shares(job, layout, schedule_of(layout), layout.interleave)
    work = recomputing(parts, layout.recompute, by.again(layout.recompute))
    names = by.called(*DEVICES)
    of = devices(job, layout, work, by, (layout.zero,), at)
    passes = {
        name: (d.forward, d.backward)
        for name, d in zip(names, of, strict=True)
    } | {"whole": by["whole"].passes(work)}
    choice = slowest(layout, passes)
    s = staged(layout, work, by, passes_of(choice, passes), passes["whole"])
    slow = pick(choice, {name: by[name] for name in passes})
    send = hop(layout, parts, at)
    waits = tuple(exposed(d, m, layout.zero, how) for d in of)
    busy = tuple(done(d, m, w) for d, w in zip(of, waits, strict=True))
    found = Step(
        pipelined(job, layout, s, send, refine),
        waits[0].outside,
        updated(job, layout, parts, by, at),
        tuple(of),
        busy=busy,
        waiting=waits,
        slowest=slow,
    )
    if not by_order(job):  # papers add up
        return found._replace(outside=synchronise(of, m, busy))
    ranks = {name: by[name].rank for name in names}
    return found._replace(
        reached=_reached(job, layout, found, s, send, ranks),
        links=occupied(of, m, layout.zero)
        + carried(m, send, schedule_of(layout), layout.interleave)
        if shared(at.overlap)
        else Busy(),
    )


def _reached(
    job: Job,
    layout: Layout,
    found: Step,
    s: Stages,
    send: Load,
    ranks: Mapping[str, Num],
) -> tuple[Num, ...]:
    """When each device is done: its own seconds, the optimizer, and the way to it."""
    way = ways(
        job,
        layout.pp,
        s,
        send.seconds,
        schedule_of(layout),
        layout.interleave,
        ranks,
    )
    return tuple(
        seconds + found.update + way[name]
        for seconds, name in zip(found.busy, ranks, strict=True)
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
    "either",
    "sum_of",
    "Body",
    "Device",
    "Held",
    "Pipeline",
    "Share",
    "Shares",
    "Stages",
    "Step",
    "along",
    "barrier",
    "Unit",
    "Units",
    "body",
    "boundary",
    "by_order",
    "carried",
    "clock",
    "dealt",
    "DEVICES",
    "device",
    "devices",
    "done",
    "every_step",
    "exposed",
    "held",
    "hop",
    "kept_clock",
    "least_idle",
    "least_waits",
    "occupied",
    "ordered",
    "owners",
    "pick",
    "pipelined",
    "quantised",
    "recomputed",
    "recomputing",
    "redo",
    "shared",
    "shares",
    "slowest",
    "span",
    "stage_message",
    "staged",
    "stages",
    "step",
    "step_time",
    "synchronise",
    "unit",
    "units",
    "update",
    "updated",
    "ways",
]
