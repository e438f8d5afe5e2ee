"""Seconds of the pipeline and of what follows it, for all points of a grid at once.

A point is a row under one setting of sequence parallelism and of recomputation: these only change
what a layer costs. So points are rows of one table, in the order of recomputation, and each
schedule is asked once, with all its numbers of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..cost.layer import Clock
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.recompute import recompute
from ..program.resident import whole_program
from ..schedule.types import Schedule
from .kinds import Deal, Kind, deals, fullest, holders_of, kinds
from .nearest import pick, stacked
from .pieces import Grid, Index, Pieces
from .space import Column, Options, Sharding

Mask = NDArray[np.bool_]
TOGETHER = 65536
"""Points that a schedule is asked for at once: few enough that their columns stay in cache."""


class Points(NamedTuple):
    """Rows under settings of sequence parallelism and recomputation."""

    near: Layout
    """Its dp counts in time."""
    far: Layout | None
    """Its dp counts in sharding, where it is another one (of a bound)."""
    costs: step.Body
    """Of distinct rows under each setting of sequence parallelism."""
    which: Index
    """Which of them a point has."""
    m: Column
    sp: Index
    rec: Index
    row: Index
    """Its place on the grid."""

    def some(self, at: Any) -> Points:
        """Some of them."""
        fields = {name: pick(getattr(self, name), at) for name in self._fields if name != "costs"}
        return self._replace(**fields)

    @property
    def parts(self) -> step.Body:
        """What a microbatch costs in each."""
        parts: step.Body = pick(self.costs, self.which)
        return parts

    def by_recompute(
        self, choice: Options, each: Callable[..., Any], beside: tuple[Any, ...] = ()
    ) -> Any:
        """What each recomputation makes of its points, one behind the other; beside: more columns
        that it is given.
        """
        cuts = np.searchsorted(self.rec, np.arange(len(choice.recompute) + 1))
        parts = [
            (slice(a, b), text)
            for text, a, b in zip(choice.recompute, cuts, cuts[1:], strict=False)
        ]
        parts = [(at, text) for at, text in parts if at.stop > at.start] or parts[:1]
        found = [each(self.some(at), text, *pick(beside, at)) for at, text in parts]
        return stacked(found, [at.stop - at.start for at, _ in parts])

    def busy(self, job: Job, choice: Options) -> Column:
        """Seconds of all microbatches in the typical layers of the fullest device."""
        t = self.costs.typical

        def each(points: Points, text: str) -> Column:
            layers = points.m * fullest(job, np.asarray(points.near.pp))
            # how many of them depends on the pipeline
            share = 0.0 if recompute(text).layers else 1.0
            return np.asarray(
                layers * pick(t.forward + step.backward(t, text, share), points.which)
            )

        seconds: Column = self.by_recompute(choice, each)
        return seconds

    def stages(self, job: Job, choice: Options, deal: Deal) -> step.Stages:
        """One microbatch of each, with layers dealt so."""

        def each(points: Points, text: str) -> step.Stages:
            near = points.near
            return step.stages(near, points.parts, text, holders_of(job, near, deal))

        stages: step.Stages = self.by_recompute(choice, each)
        return stages

    def place(self, *inner: Any, at: Any = slice(None)) -> tuple[Any, ...]:
        """Their index on the axes of a grid, `inner` between those of recomputation and of rows."""
        return (self.sp[at], self.rec[at], *inner, self.row[at])


class Run(NamedTuple):
    """Points under a schedule with its numbers of chunks."""

    schedule: Schedule
    at: Index
    """The point of each."""
    k: Index
    """Position of the schedule among the options."""
    v: Any


def grouped(job: Job, choice: Options) -> dict[Deal, list[list[int]]]:
    """For each way to deal layers the schedules that do, those of one name together: their
    positions.
    """
    found: dict[Deal, dict[str, list[int]]] = {}
    for k, (deal, kind) in enumerate(zip(deals(job, choice), kinds(choice), strict=True)):
        found.setdefault(deal, {}).setdefault(kind.schedule.name, []).append(k)
    return {deal: list(found[deal].values()) for deal in sorted(found)}


def runs_of(every: list[Kind], same: list[int], can: list[Mask]) -> Iterator[Run]:
    """The points that each of these positions of one schedule can run, some at a time; can: for
    each of them, by point.
    """
    number, at = np.nonzero(np.array(can))
    v = np.array([every[k].v for k in same])
    for start in range(0, len(at), TOGETHER):
        n = number[start : start + TOGETHER]
        chunks = v[n] if len(same) > 1 else every[same[0]].v
        yield Run(every[same[0]].schedule, at[start : start + TOGETHER], np.array(same)[n], chunks)


def pipelines(
    job: Job,
    clock: Clock,
    points: Points,
    choice: Options,
    can_run: list[Mask],
    limit: float,
    seconds: Grid,
    bounds: bool,
) -> None:
    """Seconds of the pipeline, (sp, recompute, schedule, 1, row), of points that may stay within
    the limit.

    can_run: of each schedule, by row;  bounds: a bound will do.
    """
    every = kinds(choice)
    if len(points.row):
        points = points.some(np.flatnonzero(points.busy(job, choice) <= limit))
    if not len(points.row):
        return
    near, m = points.near, points.m
    send = step.hop(near, points.parts, clock).seconds
    for deal, names in grouped(job, choice).items():
        s = points.stages(job, choice, deal)
        short = m * (s.forward + s.backward) <= limit
        for same in names:
            for run in runs_of(every, same, [short & can_run[k][points.row] for k in same]):
                p, n, stages, hop = pick((near.pp, m, s, send), run.at)
                least = n * (stages.forward + stages.backward)
                least = least + step.least_idle(job, p, n, stages, run.schedule, run.v)
                place = points.place(run.k, 0, at=run.at)
                if bounds and not run.schedule.split_backward:  # tight enough, but for sends
                    seconds[place] = least
                    continue
                few = np.flatnonzero(least <= limit)
                p, n, stages, hop, v, place = pick((p, n, stages, hop, run.v, place), few)
                seconds[place] = step.span(job, p, n, stages, hop, run.schedule, v)


def after(
    p: Pieces, job: Job, at: Clock, points: Points, updates: list[list[Column]], folds: list[Deal]
) -> None:
    """Seconds after the pipeline: synchronisation and the optimizer.

    updates: seconds of the optimizer for each way to deal layers and each ZeRO stage, by row.
    """
    near, m, choice, how = points.near, points.m, p.choice, at.overlap.dp
    parts, every, names = points.parts, kinds(choice), last(p)
    # all stages are the same, and only the first counts
    alone = (near.replicas == 1) & (not whole_program(job))
    send = step.hop(near, parts, at) if p.floors else None
    for f, fold in enumerate(folds):
        of_copies = {
            copies: _devices(job, at, points, choice, fold, names, some)
            for copies, some in alike(choice)
        }
        for z, sharding in enumerate(choice.zero):
            of, zero, update = of_copies[sharding.copies], sharding.zero, updates[f][z][points.row]
            never = alone & (sharding != choice.all.zero[0])
            never = never | ~np.asarray(
                sharding.runs(near) if points.far is None else sharding.may_run(points.far)
            )
            if p.floors:
                waits = [step.exposed(d, m, zero, how) for d in of]
                busy = step.occupied(of, m, zero) if len(p.floors) > len(names) else ()
                done = [step.done(d, m, w) + update for d, w in zip(of, waits, strict=True)]
                _fill(p.floors, 0, points.place(f, z), (*done, *busy))
                seconds = waits[0].outside
            else:  # papers add all of it up
                seconds = step.synchronise(of, m, zero, how)
            p.after[points.place(f, z)] = np.where(never, np.inf, seconds + update)
        if p.floors:
            s = points.stages(job, choice, fold)
            names_of = [same for names in grouped(job, choice).values() for same in names]
            for same in (same for same in names_of if p.folded[same[0]] == f):
                _ways(p, job, points, s, send, every, same)


def alike(choice: Options) -> list[tuple[int, list[Sharding]]]:
    """The ZeRO stages that shard over the same ranks, by their copies."""
    found: dict[int, list[Sharding]] = {}
    for sharding in choice.zero:
        found.setdefault(sharding.copies, []).append(sharding)
    return [*found.items()]


def _devices(
    job: Job,
    at: Clock,
    points: Points,
    choice: Options,
    deal: Deal,
    names: tuple[str, ...],
    some: list[Sharding],
) -> list[step.Device]:
    """Those that may be the last to be done, with layers dealt so, and shards as `some` (alike)
    have them.
    """
    stages = [sharding.zero for sharding in some]

    def each(points: Points, text: str, units: step.Units) -> tuple[step.Device, ...]:
        near, parts = some[0].layout(points.near), points.parts
        return tuple(
            step.devices(job, near, parts, holders_of(job, near, deal), units, text, names)
        )

    near = some[0].layout(points.near)
    far = None if points.far is None else some[0].layout(points.far)
    units = step.units(job, near, points.parts, stages, at, far)
    return list(points.by_recompute(choice, each, (units,)))


def _ways(
    p: Pieces,
    job: Job,
    points: Points,
    s: step.Stages,
    send: Any,
    every: list[Kind],
    same: list[int],
) -> None:
    """The other half of the floors: the way to each device, and the sends on each link."""
    can = [np.isfinite(p.pipe[points.place(k, 0)]) for k in same]
    for run in runs_of(every, same, can):
        pp, m, stages, hop = pick((points.near.pp, points.m, s, send), run.at)
        way = step.ways(job, pp, stages, hop.seconds, run.schedule, run.v)
        sends = step.carried(m, hop, run.schedule, run.v)
        _fill(
            p.floors,
            1,
            points.place(run.k, 0, at=run.at),
            (*(way[name] for name in last(p)), *sends),
        )


def last(p: Pieces) -> tuple[str, ...]:
    """Devices that may be the last to be done: with as many layers everywhere, those of the first
    and the last device have no less to wait for than those between."""
    return step.DEVICES if "second" in p.ends else (step.DEVICES[0], step.DEVICES[-1])


def _fill(
    floors: tuple[tuple[Grid, Grid], ...], which: int, at: tuple[Any, ...], seconds: Iterable[Any]
) -> None:
    """Write one half of each."""
    for floor, value in zip(floors, seconds, strict=False):
        floor[which][at] = value
