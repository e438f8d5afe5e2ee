"""What a step takes at least by its layers alone, cheap enough to ask for every combination of
degrees.

A device computes its layers for every microbatch, and waits as its schedule does where there is
nothing but layers. That is a path of the order with shorter passes, so no step takes less. Of
layers alone a wait is linear in the seconds of their passes; so what it holds of each is counted
once for each pipeline degree, and with the shares that passes have of any layer's seconds it is a
table of pipeline degrees and numbers of microbatches.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from .. import step
from ..describe.job import Job
from ..num import ceil_div
from ..schedule.dealt import Pass
from ..schedule.waits import Wait
from .kinds import Fullest, kinds
from .nearest import Shapes, pick
from .options import Options
from .pieces import Grid, Index
from .table import Column, Table, distinct

NEVER = 1e100
"""Seconds longer than any step: of a schedule that cannot run."""
DENSE = 64
"""Numbers of microbatches up to which laws hold each."""
APART = 1.05
"""Times that larger ones are apart."""
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
    numbers: Column
    """Of microbatches, ascending."""
    waits: Grid
    """(degree, number of microbatches) of the schedule that waits least, in seconds of a layer."""

    @classmethod
    def of(
        cls,
        job: Job,
        choice: Options,
        degrees: Table,
        shares: tuple[Column, Column],
        most: float,
    ) -> Laws:
        """Of pipelines with so many chunks, for up to so many microbatches.

        shares: the least and the most that F, I and W take of a layer's seconds.
        """
        pp = degrees["pp"]
        chunks = degrees["interleave"]
        numbers = rounded(most)
        waits = np.full((len(pp), len(numbers)), NEVER)
        for kind in kinds(choice):
            rows = np.flatnonzero(kind.filled(job, pp, chunks))
            least: Any = 0.0
            # papers' bubbles are no paths of the order
            if step.by_order(job):
                p = pp[rows, None]
                v = chunks[rows, None]
                full = np.asarray(ceil_div(float(job.model.layers), p))
                s = step.Stages(
                    full * UNITS.f,
                    full * UNITS.b,
                    0.0,
                    0.0,
                    0.0,
                    UNITS,
                )
                each = step.least_waits(job, p, s, kind.schedule, v)
                least = sum(_scaled(wait, shares).of(numbers) for wait in each)
            waits[rows] = np.minimum(waits[rows], least)
        layers, copies = float(job.model.layers), choice.copies
        every = np.asarray(ceil_div(layers, pp / copies)) / copies
        return cls(Fullest.of(job, pp, choice.copies), every, numbers, waits)

    def unchunked(self, pp: Column) -> Laws:
        """Of each pipeline degree, ascending, with the number of chunks that waits least."""
        first = np.flatnonzero(np.diff(pp, prepend=0.0))
        waits = np.minimum.reduceat(self.waits, first)
        return Laws(
            pick(self.fullest, first),
            self.every[first],
            self.numbers,
            waits,
        )

    def seconds(self, layer: Layers, of: Index, m: Column) -> Column:
        """Of m microbatches through these pipelines; a wait falls with their number."""
        waits = self.waits[of, np.searchsorted(self.numbers, m)]
        every = (m * self.every[of] + waits) * layer.total
        alone = m * pick(self.fullest, of).seconds(layer.kinds)
        return np.asarray(np.maximum(alone, every))


def rounded(most: float) -> Column:
    """Numbers of microbatches up to this or more: all small ones, and some others."""
    steps = np.log(max(most / DENSE, 1.0)) / np.log(APART)
    others = DENSE * APART ** np.arange(1.0, steps + 2)
    return np.append(np.arange(1.0, DENSE + 1), np.floor(others))


def _scaled(wait: Wait, shares: tuple[Column, Column]) -> Wait:
    """A wait that holds so much of F, I and W, a column each, in seconds of a layer: at most."""
    rows = (len(np.asarray(wait.way)), len(UNITS))
    way, fill, most = (np.broadcast_to(of, rows) for of in wait)
    low, high = shares
    way = way * np.where(way > 0, low, high)
    fill = fill * np.where(fill > 0, high, low)
    return Wait(
        way.sum(axis=1, keepdims=True),
        fill.sum(axis=1, keepdims=True),
        most[:, :1],
    )


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


def shares_of(layer: Layers) -> tuple[Column, Column]:
    """The least and the most that F, I and W take of the seconds of any of these layers."""
    each = np.array(layer[:3]) / layer.total
    return each.min(axis=1), each.max(axis=1)


def law(job: Job, table: Table, choice: Options, layer: Layers) -> Column:
    """Seconds that a step of each row takes at least. layer: of the rows."""
    index, number = distinct([table["pp"], table["interleave"]])
    degrees = {k: table[k][index] for k in ("pp", "interleave")}
    m = np.asarray(ceil_div(job.batch, table["dp"] * table["microbatch"]))
    laws = Laws.of(job, choice, degrees, shares_of(layer), m.max())
    return laws.seconds(layer, number, m)
