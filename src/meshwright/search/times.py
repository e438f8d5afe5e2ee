"""Seconds of the pipeline and of what follows it, for all points of a grid at once.

A point is a row under one setting of sequence parallelism and of recomputation: these only change
what a layer costs. So points are rows of one table, in the order of recomputation, and each
schedule is asked once, with all its numbers of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..cost.layer import Clock, LayerCost, Redone
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.recompute import recompute
from ..describe.stages import RULES, Stages
from ..num import Num, apart
from ..program.resident import whole_program
from ..schedule.types import Schedule
from .kinds import Deal, Dealt, Fullest, deals, kinds
from .nearest import abreast, pick, stacked
from .options import Options, Sharding
from .pieces import Grid, Index, Pieces
from .split import NONE
from .table import Column, distinct

Mask = NDArray[np.bool_]
TOGETHER = 65536
"""Points that a schedule is asked for at once: few enough that their columns stay in cache."""


@dataclass(frozen=True)
class Points:
    """Rows under settings of sequence parallelism and recomputation."""

    rows: Layout
    """All rows; their dp counts in time."""
    wide: Layout | None
    """Their dp counts in sharding, where it is another one (of a bound)."""
    counts: Column
    """Microbatches of all rows."""
    costs: step.Body
    """Of distinct rows under each setting of recomputation and of sequence parallelism."""
    which: Index
    """Which of them a point has."""
    sp: Index
    rec: Index
    row: Index
    """Its place on the grid."""
    texts: tuple[str, ...]
    """What is left to say of recomputation: that of all layers is in their costs."""
    text: Index
    """Which of these texts a point has, ascending."""
    held: Dealt
    """What the devices of the rows hold."""
    deal: Index | None = None
    """Which of several ways to deal layers it has, once it has one."""

    def some(self, at: Any) -> Points:
        """Some of them."""
        columns = ("which", "sp", "rec", "row", "text")
        return replace(
            self,
            **{name: pick(getattr(self, name), at) for name in columns},
            deal=None if self.deal is None else self.deal[at],
        )

    def dealt(
        self,
        ways: list[Deal],
        where: list[Mask],
    ) -> tuple[Points, step.Shares]:
        """The points of each mask with a way to deal layers, and what the devices of each hold."""
        parts = [np.flatnonzero(mask) for mask in where]
        index = np.concatenate(parts)
        deal = np.repeat(np.arange(len(ways)), [len(part) for part in parts])
        order = np.argsort(self.text[index], kind="stable")
        some = replace(self.some(index[order]), deal=deal[order])
        return some, self.held.rows(some.row).mixed(ways, deal[order])

    @cached_property
    def near(self) -> Layout:
        """The row of each; its dp counts in time."""
        near: Layout = pick(self.rows, self.row)
        return near

    @cached_property
    def far(self) -> Layout | None:
        """The same with the dp that counts in sharding."""
        far: Layout | None = pick(self.wide, self.row)
        return far

    @cached_property
    def m(self) -> Column:
        """Microbatches."""
        return self.counts[self.row]

    @cached_property
    def parts(self) -> step.Body:
        """What a microbatch costs in each."""
        parts: step.Body = pick(self.costs, self.which)
        return parts

    def by_text(
        self, each: Callable[[Points, str, Any], Any], columns: Any
    ) -> Any:
        """What each text makes of its points and of their columns, one behind the other."""
        if len(self.texts) == 1:
            return each(self, self.texts[0], columns)
        cuts = np.searchsorted(self.text, np.arange(len(self.texts) + 1))
        parts = [
            (slice(a, b), text)
            for text, a, b in zip(self.texts, cuts, cuts[1:], strict=False)
        ]
        parts = [
            (at, text) for at, text in parts if at.stop > at.start
        ] or parts[:1]
        found = [
            each(self.some(at), text, pick(columns, at)) for at, text in parts
        ]
        return stacked(found, [at.stop - at.start for at, _ in parts])

    @property
    def rounds(self) -> Column:
        """Microbatches that a device runs through each of its chunks."""
        return self.m if self.rows.copies == 1 else self.m / self.rows.copies

    def busy(self, job: Job) -> Column:
        """Seconds of all microbatches in the layers of the slowest device at least."""
        each = [
            pick(c.forward + c.backward, self.which) for c in self.costs.layers
        ]
        pp = np.asarray(self.rows.pp)[self.row]
        most = Fullest.of(job, pp, self.rows.copies)
        return np.asarray(self.m * most.seconds(each))

    def stages(self, holders: step.Shares) -> step.Stages:
        """One microbatch of each. holders: what the devices of each hold."""

        def each(points: Points, text: str, by: step.Shares) -> step.Stages:
            parts = step.recomputing(points.parts, text, by.again(text))
            return step.stages(points.near, parts, by)

        stages: step.Stages = self.by_text(each, holders)
        return stages

    def devices(self, held: step.Shares) -> list[step.Device]:
        """Devices that hold these, without what they synchronise."""

        def each(
            points: Points, text: str, by: step.Shares
        ) -> tuple[step.Device, ...]:
            parts = step.recomputing(points.parts, text, by.again(text))
            return tuple(step.device(parts, share) for share in by.values())

        return list(self.by_text(each, held))

    def place(self, *inner: Any, at: Any = slice(None)) -> tuple[Any, ...]:
        """Their index on the axes of a grid, `inner` between those of recomputation and of rows."""
        return (self.sp[at], self.rec[at], *inner, self.row[at])


def left_to_say(text: str) -> str:
    """Of recomputation, once what all layers compute again is part of their backward passes."""
    return text if recompute(text).layers else "none"


def chosen(parts: step.Body, text: str, redone: bool) -> step.Body:
    """What passes cost and send with what all layers compute again; bytes and weights are left out.

    redone: some texts speak of fewer layers, whose share depends on the pipeline.
    """

    def passes(c: LayerCost) -> LayerCost:
        some = c._replace(saved=0.0, weights=0.0, expert_weights=0.0)
        if left_to_say(text) == "none":
            some = step.recomputed(some, text)
        return some if redone else some._replace(redone=Redone())

    ends: dict[str, Any] = {
        name: getattr(parts, name)._replace(
            saved=0.0, weights=0.0, expert_weights=0.0
        )
        for name in ("embedding", "head")
    }
    return parts._replace(layers=tuple(map(passes, parts.layers)), **ends)


def grouped(choice: Options) -> dict[Deal, list[int]]:
    """For each way to deal layers the positions of the schedules that do."""
    found: dict[Deal, list[int]] = {}
    for k, deal in enumerate(deals(choice)):
        found.setdefault(deal, []).append(k)
    return {deal: found[deal] for deal in sorted(found)}


class Orders(NamedTuple):
    """Schedules that are one order, and differ in the rule that deals layers: asked for at once."""

    every: tuple[Schedule, ...]
    """All schedules of the options."""
    slots: NDArray[np.bool_]
    """Of each, whether embedding and loss count as a layer each."""
    of: Index
    """Which of all it is that deals layers in each way; NONE: none of these."""

    @classmethod
    def each(cls, choice: Options, deal: Index) -> list[Orders]:
        """All of the options. deal: in which way each deals layers."""
        ways = choice.schedules
        alike: dict[Any, list[int]] = {}
        for k, way in enumerate(ways):
            other = "" if way.stages in RULES else way.stages
            one = way._replace(stages=other)
            alike.setdefault(one, []).append(k)
        every = tuple(kind.schedule for kind in kinds(choice))
        slots = np.array([way.stages == "slots" for way in ways])
        found = []
        for mine in alike.values():
            of = np.full(deal.max(initial=-1) + 1, NONE, dtype=np.intp)
            of[deal[mine]] = mine
            found.append(cls(every, slots, of))
        return found

    def schedule(self, which: Index) -> Schedule:
        """The schedule of points, each of which has one of these."""
        first: Schedule = self.every[int(which[0])]
        if (which == which[0]).all():
            return first
        both = Stages("even or slots", slots=self.slots[which])
        found: Schedule = replace(first, stages=both)
        return found


def dealt_in(choice: Options, ways: list[Deal]) -> Index:
    """In which of these ways each schedule deals layers."""
    return np.array(
        [ways.index(deal) for deal in deals(choice)], dtype=np.intp
    )


def some_at_a_time(can: Mask) -> Iterator[Index]:
    """The points of a mask."""
    at = np.flatnonzero(can)
    yield from (
        at[start : start + TOGETHER] for start in range(0, len(at), TOGETHER)
    )


def pipelines(
    job: Job,
    clock: Clock,
    points: Points,
    choice: Options,
    can_run: list[Mask],
    limit: Num,
    seconds: Grid,
    bounds: bool,
) -> None:
    """Seconds of the pipeline, (sp, recompute, schedule, 1, row), of points that may stay within
    the limit.

    can_run: of each schedule, by row;  limit: one, or of each row;  bounds: a bound will do.
    """
    ways = grouped(choice)
    if not len(points.row):
        return
    within = points.busy(job) <= pick(limit, points.row)
    where = [
        within & np.any([can_run[k][points.row] for k in mine], axis=0)
        for mine in ways.values()
    ]
    some, holders = points.dealt(list(ways), where)
    if not len(some.row):
        return
    near = some.near
    m = some.m
    send = step.hop(near, some.parts, clock).seconds
    s = some.stages(holders)
    most = pick(limit, some.row)
    short = some.rounds * (s.forward + s.backward) <= most
    runs = np.array(can_run)
    for orders in Orders.each(choice, dealt_in(choice, list(ways))):
        which = orders.of[some.deal]
        can = short & (which != NONE) & runs[which, some.row]
        for at in some_at_a_time(can):
            k = which[at]
            schedule = orders.schedule(k)
            p, v, n, stages, hop = pick(
                (near.pp, near.interleave, m, s, send), at
            )
            least = schedule.rounds(n) * (stages.forward + stages.backward)
            least = least + step.least_idle(
                job,
                p,
                n,
                stages,
                schedule,
                v,
            )
            place = some.place(k, 0, at=at)
            # tight enough, but for sends
            if bounds and not schedule.split_backward:
                seconds[place] = least
                continue
            few = np.flatnonzero(least <= pick(most, at))
            p, v, n, stages, hop, place, k = pick(
                (p, v, n, stages, hop, place, k), few
            )
            if len(few):
                schedule = orders.schedule(k)
                seconds[place] = step.span(
                    job,
                    p,
                    n,
                    stages,
                    hop,
                    schedule,
                    v,
                )


def after(
    p: Pieces,
    job: Job,
    at: Clock,
    points: Points,
    rows: Rows,
    updates: list[Grid],
    folds: list[Deal],
) -> None:
    """Seconds after the pipeline: synchronisation and the optimizer.

    rows: of which the points are;  updates: seconds of the optimizer at each ZeRO stage: (way to
    deal layers, row).
    """
    if not folds:
        return
    runs = [
        np.asarray(np.isfinite(p.pipe[:, :, mine]).any(axis=(2, 3)))
        for mine in grouped(p.choice).values()
    ]
    where = [can[points.sp, points.rec, points.row] for can in runs]
    points, holders = points.dealt(folds, where)
    if not len(points.row):
        return
    units = rows.units(job, at, folds, p.devices, p.choice)
    sharing = _sharing(
        p,
        points,
        holders,
        units,
        rows.number,
        folds,
    )
    _after_zero(
        p,
        job,
        at,
        points,
        sharing,
        updates,
    )
    choice = p.choice
    if p.floors:
        send = step.hop(points.near, points.parts, at)
        s = points.stages(holders)
        ranks = {name: holders[name].rank for name in p.devices}
        for orders in Orders.each(choice, p.folded):
            _ways(
                p,
                job,
                points,
                s,
                send,
                ranks,
                orders,
            )


def _sharing(
    p: Pieces,
    points: Points,
    holders: step.Shares,
    units: dict[int, step.Units],
    which: Index,
    folds: list[Deal],
) -> dict[int, step.Device]:
    """The devices that may be the last to be done, side by side, for each number of copies; units:
    of each; which: of them a row has.
    """
    names = p.devices
    held = step.along(points.near, holders, names)
    silent = abreast(points.devices(held))
    share = abreast([held[end] for end in names])
    folded = np.array([fold.folded for fold in folds])[points.deal]
    number = which[points.row]
    count = int(which.max()) + 1
    sharing = {}
    for copies, found in units.items():
        sides = sorted({fold.folded for fold in folds})
        at = number + count * (folded if len(sides) > 1 else 0)
        ends = [
            pick(
                stacked(
                    [found.ends[side, end] for side in sides],
                    [count] * len(sides),
                ),
                at,
            )
            for end in names
        ]
        each = pick(found._replace(ends={}), number)
        each = each._replace(ends={EVERY: abreast(ends)})
        sharing[copies] = silent.sharing(share, each, EVERY)
    return sharing


EVERY = "every"
"""All of these devices."""


def _after_zero(
    p: Pieces,
    job: Job,
    at: Clock,
    points: Points,
    sharing: dict[int, step.Device],
    updates: list[Grid],
) -> None:
    """Of each ZeRO stage."""
    near = points.near
    m = points.rounds
    choice = p.choice
    how = at.overlap.dp
    # all stages are the same, and only the first counts
    alone = (near.replicas == 1) & (not whole_program(job))
    leads = choice.leads
    parts = choice.parts(near.tp, near.pp)
    runs = choice.sharded(near)
    shape = (len(p.devices), len(points.row))
    for z, sharding in enumerate(choice.zero):
        of = sharing[sharding.copies]
        zero = sharding.zero
        update = updates[z][points.deal, points.row]
        never = (alone & (not leads[z])) | (parts[z] == NONE)
        never = never | ~np.asarray(
            runs[z] if points.far is None else sharding.may_run(points.far)
        )
        waits = step.exposed(of, m, zero, how)
        done = np.broadcast_to(step.done(of, m, waits), shape)
        place = flat(p.after, points.place(points.deal, z))
        if p.floors:
            busy = (
                step.occupied([of], m, zero)
                if len(p.floors) > len(done)
                else ()
            )
            most = [np.broadcast_to(b, shape).max(axis=0) for b in busy]
            _fill(p.floors, 0, place, (*(done + update), *most))
            seconds = np.broadcast_to(waits.outside, shape)[0]
        else:  # papers add all of it up
            each = [apart(of, k, 2) for k in range(len(done))]
            seconds = step.synchronise(each, m, [*done])
        p.after.reshape(-1)[place] = np.where(never, np.inf, seconds + update)


def flat(grid: Grid, place: tuple[Any, ...]) -> Index:
    """Where the points of an index lie in a grid as one column: many grids have them there."""
    found: Any = 0
    for length, at in zip(grid.shape, place, strict=True):
        found = found * length + at
    return np.asarray(found)


class Rows(NamedTuple):
    """Of the rows that points are made of those whose parameters lie on different groups."""

    near: Layout
    far: Layout | None
    """Its dp counts in sharding, where it is another one."""
    parts: step.Body
    held: Dealt
    number: Index
    """Which of them each row is."""

    @classmethod
    def of(
        cls,
        near: Layout,
        far: Layout | None,
        parts: Callable[[Index], step.Body],
        held: Dealt,
    ) -> Rows:
        """parts: what a microbatch costs in some of the rows;  held: what the devices of all rows
        hold."""
        index, number = distinct(_groups(near, far))
        return cls(
            pick(near, index),
            pick(far, index),
            parts(index),
            held.rows(index),
            number,
        )

    def units(
        self,
        job: Job,
        at: Clock,
        folds: list[Deal],
        names: tuple[str, ...],
        choice: Options,
    ) -> dict[int, step.Units]:
        """The collectives of layers, and of what the devices `names` have besides where layers are
        dealt in one of these ways; by the copies of shards.
        """
        near = self.near
        far = self.far
        parts = self.parts
        ways = {fold.folded: fold for fold in folds}  # stages change no end
        held = {
            (folded, end): share
            for folded, fold in ways.items()
            for end, share in step.along(
                near, self.held.under(fold), names
            ).items()
        }
        found = {}
        for copies, some in alike(choice):
            one = some[0]
            stages = [sharding.zero for sharding in some]
            wide = None if far is None else one.layout(far)
            found[copies] = step.units(
                job,
                one.layout(near),
                parts,
                held,
                stages,
                at,
                wide,
            )
        return found


def _groups(near: Layout, far: Layout | None) -> list[Any]:
    """What the groups and the parameters of a row depend on."""
    where = [share for shares in near.placement.values() for share in shares]
    degrees = [getattr(near, name) for name in ("tp", "cp", "dp", "ep", "etp")]
    return [
        *degrees,
        np.asarray(near.pp == 1),
        *where,
        *([] if far is None else [far.dp]),
    ]


def alike(choice: Options) -> list[tuple[int, list[Sharding]]]:
    """The ZeRO stages that shard over the same ranks, by their copies."""
    found: dict[int, list[Sharding]] = {}
    for sharding in choice.zero:
        found.setdefault(sharding.copies, []).append(sharding)
    return [*found.items()]


def _ways(
    p: Pieces,
    job: Job,
    points: Points,
    s: step.Stages,
    send: Any,
    ranks: dict[str, Any],
    orders: Orders,
) -> None:
    """The other half of the floors: the way to each device, and the sends on each link, of the
    points of some schedules.
    """
    near = points.near
    which = orders.of[points.deal]
    mine = (which != NONE) & np.isfinite(p.pipe[points.place(which, 0)])
    for at in some_at_a_time(mine):
        k = which[at]
        schedule = orders.schedule(k)
        pp, v, m, stages, hop, on = pick(
            (near.pp, near.interleave, points.m, s, send, ranks), at
        )
        way = step.ways(
            job,
            pp,
            stages,
            hop.seconds,
            schedule,
            v,
            on,
        )
        sends = step.carried(schedule.rounds(m), hop, schedule, v)
        values = (*(way[name] for name in p.devices), *sends)
        place = flat(p.floors[0][1], points.place(k, 0, at=at))
        _fill(p.floors, 1, place, values)


def _fill(
    floors: tuple[tuple[Grid, Grid], ...],
    which: int,
    at: Index,
    seconds: Iterable[Any],
) -> None:
    """Write one half of each. at: as in `flat`."""
    for floor, value in zip(floors, seconds, strict=False):
        floor[which].reshape(-1)[at] = value
