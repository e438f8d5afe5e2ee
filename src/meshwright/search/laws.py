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
from numpy.typing import NDArray

from .. import step
from ..describe.job import Job
from ..num import Num, ceil_div, maximum, minimum
from ..schedule.dealt import Pass
from ..schedule.waits import Wait
from .kinds import fullest, kinds
from .nearest import Shapes, pick
from .space import Column, Options, Table, distinct

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
    typical: Column
    """F, I and W of a typical one."""

    @property
    def total(self) -> Column:
        return self.f + self.i + self.w


class Laws(NamedTuple):
    """What pipelines of each degree do at least, of layers alone."""

    typical: Column
    """Layers but the leading ones on the fullest device."""
    every: Column
    """All layers on it."""
    waits: dict[str, tuple[Wait, ...]]
    """Of each schedule, what they hold of F, I and W of a layer: a column for each pass."""

    @classmethod
    def of(cls, job: Job, choice: Options, pp: Column, chunks: Column) -> Laws:
        """Of these degrees and numbers of chunks."""
        found: dict[str, tuple[Wait, ...]] = {}
        for kind in kinds(choice):
            # papers' bubbles are no paths of the order
            if not step.by_order(job):
                found[kind.schedule.name] = ()
                continue
            rows = np.flatnonzero(kind.filled(job, pp, chunks))
            p = pp[rows, None]
            most = fullest(job, p)
            s = step.Stages(
                most * UNITS.f, most * UNITS.b, 0.0, 0.0, 0.0, UNITS
            )
            waits = step.least_waits(
                job, p, s, kind.schedule, chunks[rows, None]
            )
            known = found.get(kind.schedule.name) or tuple(
                never(len(pp), 3) for _ in waits
            )
            found[kind.schedule.name] = tuple(
                lowered(one, rows, wait)
                for one, wait in zip(known, waits, strict=True)
            )
        return cls(
            fullest(job, pp),
            np.asarray(ceil_div(float(job.model.layers), pp)),
            found,
        )

    def seconds(self, layer: Layers, m: Column) -> Column:
        """Of m microbatches, with the schedule that waits least; the laws have the rows of the
        layers.
        """
        never: Num = NEVER
        idle: list[Num] = [
            sum(_of(wait, layer).of(m) for wait in mine)
            for mine in self.waits.values()
        ]
        waiting = m * self.every * layer.total + reduce(minimum, idle, never)
        return np.asarray(maximum(m * self.typical * layer.typical, waiting))


def _of(wait: Wait, layer: Layers) -> Wait:
    """A wait with the passes of a layer."""
    way, fill = (
        sum(
            share * seconds
            for share, seconds in zip(each.T, layer[:3], strict=True)
        )
        for each in map(np.asarray, (wait.way, wait.fill))
    )
    return Wait(way, fill, np.asarray(wait.most)[:, 0])


def lowered(known: Wait, rows: NDArray[np.intp], wait: Wait) -> Wait:
    """At most the other wait too, in some rows."""
    found = Wait(*(np.array(column) for column in known))
    for column, values in zip(
        found, pick(known, rows).under(wait), strict=True
    ):
        np.asarray(column)[rows] = values
    return found


def never(*shape: int) -> Wait:
    """Of a schedule that cannot run."""
    return Wait(np.full(shape, NEVER), np.zeros(shape), np.zeros(shape))


def layers(job: Job, shapes: Shapes) -> Layers:
    """Of every row, with every group nearest and nothing computed again."""
    costs = shapes.costs
    every = [c.typical for c in costs]
    every += [c.leading for c in costs] if step.leading_layers(job) else []
    passes = [
        Pass(c.forward, c.backward - c.weight_pass, c.weight_pass)
        for c in every
    ]
    f, i, w = (reduce(np.minimum, each) for each in zip(*passes, strict=True))
    typical = reduce(
        np.minimum, [c.typical.forward + c.typical.backward for c in costs]
    )
    found: Layers = pick(Layers(f, i, w, typical), shapes.which)
    return found


def law(job: Job, table: Table, choice: Options, shapes: Shapes) -> Column:
    """Seconds that a step of each row takes at least. shapes: of the rows."""
    index, number = distinct([table["pp"], table["interleave"]])
    m = np.asarray(ceil_div(job.batch, table["dp"] * table["microbatch"]))
    of = Laws.of(job, choice, table["pp"][index], table["interleave"][index])
    laws: Laws = pick(of, number)
    return laws.seconds(layers(job, shapes), m)
