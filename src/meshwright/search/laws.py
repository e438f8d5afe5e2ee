"""What a step takes at least by its layers alone, cheap enough to ask for every combination of
degrees.

A device computes its layers for every microbatch, and waits as its schedule does where there is
nothing but layers. That is a path of the order with shorter passes, so no step takes less. Of
layers alone a wait is linear in the seconds of their passes; so what it holds of each is counted
once for each pipeline degree.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np

from .. import step
from ..describe.job import Job
from ..num import ceil_div
from ..schedule.stage_costs import Pass
from .kinds import Fullest, kinds
from .nearest import Shapes, pick
from .options import Options
from .table import Column, Index, Table, distinct

NEVER = 1e100
"""Seconds longer than any step: of a schedule that cannot run."""
UNITS = Pass(*np.eye(3))
"""A second of one pass alone, F, I and W side by side."""


class Layers(NamedTuple):
    """A layer in each row, with the smallest seconds of all kinds of layers and settings of
    sequence parallelism.
    """

    f: Column
    i: Column
    w: Column
    kinds: tuple[Column, ...]
    """F, I and W of one of each kind."""

    @property
    def total(self) -> Column:
        return self.f + self.i + self.w


class Laws(NamedTuple):
    """What pipelines of each degree do at least, of layers alone."""

    fullest: Fullest
    every: Column
    """All layers on it."""
    waits: Column
    """Of the schedule that waits least, in seconds of a layer."""

    @classmethod
    def of(
        cls, job: Job, choice: Options, degrees: Table, least: Column
    ) -> Laws:
        """Of pipelines with so many chunks. least: the least that F, I and W take of a layer's
        seconds.
        """
        pp, chunks = degrees["pp"], degrees["interleave"]
        waits = np.full(len(pp), NEVER)
        for kind in kinds(choice):
            rows = np.flatnonzero(kind.filled(job, pp, chunks))
            idle = np.zeros(len(rows))
            # papers' bubbles are no paths of the order
            if step.by_order(job):
                p, v = pp[rows, None], chunks[rows, None]
                full = np.asarray(ceil_div(float(job.model.layers), p))
                one = step.Stages(
                    full * UNITS.f, full * UNITS.b, 0.0, 0.0, 0.0, UNITS
                )
                each = step.least_idle(job, p, one, kind.schedule, v)
                idle = (np.broadcast_to(each, (len(rows), 3)) * least).sum(1)
            waits[rows] = np.minimum(waits[rows], idle)
        layers, copies = float(job.model.layers), choice.copies
        every = np.asarray(ceil_div(layers, pp / copies)) / copies
        return cls(Fullest.of(job, pp, choice.copies), every, waits)

    def unchunked(self, pp: Column) -> Laws:
        """Of each pipeline degree, ascending, with the number of chunks that waits least."""
        first = np.flatnonzero(np.diff(pp, prepend=0.0))
        return Laws(
            pick(self.fullest, first),
            self.every[first],
            np.minimum.reduceat(self.waits, first),
        )

    def seconds(self, layer: Layers, of: Index, m: Column) -> Column:
        """Of m microbatches through these pipelines."""
        every = (m * self.every[of] + self.waits[of]) * layer.total
        alone = m * pick(self.fullest, of).seconds(layer.kinds)
        return np.asarray(np.maximum(alone, every))


def layers(shapes: Shapes) -> Layers:
    """Of every row, with every group nearest and nothing computed again."""
    costs = shapes.costs
    passes = [
        Pass(c.forward, c.backward - c.weight_pass, c.weight_pass)
        for cost in costs
        for c in cost.layers
    ]
    f, i, w = (reduce(np.minimum, each) for each in zip(*passes, strict=True))
    kinds = tuple(
        reduce(np.minimum, [c.forward + c.backward for c in each])
        for each in zip(*(cost.layers for cost in costs), strict=True)
    )
    found: Layers = pick(Layers(f, i, w, kinds), shapes.which)
    return found


def least_of(layer: Layers) -> Column:
    """The least that F, I and W take of the seconds of any of these layers."""
    return np.asarray((np.array(layer[:3]) / layer.total).min(axis=1))


def law(job: Job, table: Table, choice: Options, layer: Layers) -> Column:
    """Seconds that a step of each row takes at least. layer: of the rows."""
    index, number = distinct([table["pp"], table["interleave"]])
    degrees = {k: table[k][index] for k in ("pp", "interleave")}
    m = np.asarray(ceil_div(job.batch, table["dp"] * table["microbatch"]))
    laws = Laws.of(job, choice, degrees, least_of(layer))
    return laws.seconds(layer, number, m)
