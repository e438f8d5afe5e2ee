"""Schedules as the grid sees them: where each can run, and how it deals layers to devices."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import step
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.stages import stages as stages_named
from ..layout.stages import microbatches, schedule_with
from ..schedule.schedule import Schedule
from ..step import memory
from . import framework
from .nearest import pick
from .options import Options, Way
from .table import Column, Index, distinct

Mask = NDArray[np.bool_]


class Kind(NamedTuple):
    """A schedule as the grid sees it; v are the chunks of rows."""

    schedule: Schedule
    counts: tuple[int, ...]
    """Numbers of chunks that it may have."""
    beside: bool = False
    """The space has even stages too, so that those of slots count where they differ."""

    def filled(self, job: Job, p: Column, v: Column) -> Any:
        """Where it has so many chunks, and there are layers for all stages."""
        takes = (
            v == self.counts[0]
            if len(self.counts) == 1
            else np.isin(v, self.counts)
        )
        stages = np.asarray(self.schedule.stage_count(p, v))
        return takes & self._dealt(job, stages)

    def _dealt(self, job: Job, stages: Column) -> Any:
        how = stages_named(self.schedule.stages)
        chunked = self.counts[0] > 1
        if how.layers:
            return (stages == len(how.layers)) & (
                sum(how.layers) == job.model.layers
            )
        ends = 2 if job.model.vocab and (chunked or how.slots) else 0
        found = stages <= job.model.layers + ends
        if how.slots:
            found = found & (job.model.vocab > 0)
            found = found & differs(job, stages) if self.beside else found
        # papers add up chunks that hold as many layers
        even = step.by_order(job) or not chunked
        return found if even else found & (job.model.layers % stages == 0)

    def runs(self, job: Job, p: Column, m: Column, v: Column) -> Mask:
        """Where it can run (on one stage: `runs`)."""
        can: Mask = np.array(self.filled(job, p, v))
        rows = np.flatnonzero(can)
        can[rows] = self.schedule.legal(p[rows], m[rows], v[rows])
        return can


def differs(job: Job, stages: Column) -> Any:
    """Where embedding and loss as layers give other stages: where just the ends are light, they are
    already."""
    return (-job.model.layers % stages != 2) & (stages > 2)


def kinds(choice: Options) -> list[Kind]:
    """The schedules of the options."""
    beside = any(way.stages == "even" for way in choice.schedules)
    return [
        Kind(way.bound, counts, beside)
        for way, counts in zip(choice.schedules, choice.chunks, strict=True)
    ]


@cache
def by_need(ways: tuple[tuple[int, Way, int], ...]) -> list[Any]:
    """(its number, schedule, chunks), the one first that holds the activations of the fewest
    microbatches on one stage.
    """

    def flying(of: tuple[int, Way, int]) -> float:
        _, way, v = of
        alone = memory.in_flight(1.0, 2.0, way.bound, float(v), step.ENDS[0])
        return float(alone)

    return sorted(ways, key=flying)


def pipelines_of(job: Job, rows: Layout) -> tuple[Layout, Column, Index]:
    """(a row of each pipeline, its microbatches, the number of that of every row): what the rules
    of schedules look at.
    """
    m = np.asarray(microbatches(job, rows))
    index, number = distinct([rows.pp, rows.interleave, m])
    return pick(rows, index), m[index], number


def runs(job: Job, choice: Options, rows: Layout) -> list[Mask]:
    """Where each schedule can run. On one stage all take as long: only that counts which holds
    least, of those the first.
    """
    rows, m, number = pipelines_of(job, rows)
    p = np.asarray(rows.pp)
    v = np.asarray(rows.interleave)
    every = kinds(choice)
    found = [
        kind.runs(job, p, m, v) & framework.schedules(job, rows, way)
        for kind, way in zip(every, choice.schedules, strict=True)
    ]
    one = np.flatnonzero(p == 1)
    alone = pick(rows, one)
    free = np.ones(len(one), dtype=bool)
    ways = tuple(
        (k, way, n)
        for k, (way, counts) in enumerate(
            zip(choice.schedules, choice.chunks, strict=True)
        )
        for n in (counts if stages_named(way.stages).layers else counts[:1])
    )
    for mask in found:
        mask[one] = False
    for k, way, n in by_need(ways):
        if not free.any():
            break
        chunks = np.full(len(one), float(n))
        can = free & every[k].runs(job, p[one], m[one], chunks)
        can = can & framework.schedules(
            job, replace(alone, interleave=chunks), way
        )
        free = free & ~can
        found[k][one] |= can & (v[one] == n)
    return [mask[number] for mask in found]


def some_schedule(job: Job, rows: Layout, choice: Options) -> Mask:
    """Where some schedule may run, with as many microbatches as it needs and so many replicas or
    fewer.
    """
    rows, _, number = pipelines_of(job, rows)
    p, v = np.asarray(rows.pp), np.asarray(rows.interleave)
    found = [
        kind.filled(job, p, v)
        & framework.schedules(job, rows, way, exact=False)
        for kind, way in zip(kinds(choice), choice.schedules, strict=True)
    ]
    return np.asarray(np.any(found, axis=0))[number]


class Deal(NamedTuple):
    """How layers are dealt to chunks."""

    folded: bool = False
    stages: str = "even"
    copies: int = 1


def deals(choice: Options) -> list[Deal]:
    """The ways in which the schedules deal layers."""
    return [
        Deal(kind.schedule.folded, kind.schedule.stages, kind.schedule.copies)
        for kind in kinds(choice)
    ]


def holders_of(job: Job, layout: Layout, deal: Deal) -> step.ModelShares:
    """What the devices hold."""
    folded = "zbv" if deal.copies == 1 else "dualpipe"
    schedule = schedule_with(
        folded if deal.folded else "interleaved", deal.stages
    )
    return step.shares(job, layout, schedule, layout.interleave)
