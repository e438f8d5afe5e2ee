"""How a step is dealt out: microbatches to replicas, layers to the stages and chunks of a
pipeline.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import Any

from ..describe.job import Job
from ..describe.layers import among
from ..describe.layout import Layout
from ..describe.model import Model
from ..describe.stages import read_stages as stages_named
from ..errors import BadInput
from ..num import SCALARS, Num, ceil_div, where
from ..schedule import get as schedule_named
from ..schedule.partition import LayerDeal, StagePartition, stage_sizes
from ..schedule.schedule import Schedule


def microbatches(job: Job, layout: Layout) -> Num:
    """m = B / (dp b), rounded up: the last one may be partly empty."""
    return ceil_div(job.batch, layout.dp * layout.microbatch)


def schedule_of(layout: Layout) -> Schedule:
    """The schedule as the layout runs it: with its way to deal layers to stages."""
    return schedule_with(
        layout.schedule, layout.stages, layout.microbatch_group
    )


@cache
def schedule_with(name: str, stages: str, group: int = 0) -> Schedule:
    """The schedule of that name with a way to deal layers to its stages, and groups of so many
    microbatches, if it has any.
    """
    schedule = schedule_named(name)
    if group and schedule.grouped:
        schedule = schedule.grouped(group)
    return (
        schedule
        if schedule.stages == stages
        else replace(schedule, stages=stages)
    )


def partition(
    model: Model, pp: Num, schedule: Schedule, v: Num
) -> StagePartition:
    """The layers dealt to the stages of a pipeline; a device that is alone has one stage."""
    return in_chunks(
        model, pp, schedule, where(pp == 1, 1.0, schedule.chunks(v))
    )


def in_chunks(
    model: Model, pp: Num, schedule: Schedule, chunks: Num
) -> StagePartition:
    """The partition with so many chunks, on a device that is alone too."""
    how = stages_named(schedule.stages)
    deal = LayerDeal(
        how.layers or model.layers,
        schedule.stage_of,
        rule=how.text,
        kinds=among(model),
        further=float(model.mtp_layers),
        copies=schedule.copies,
    )
    cut: Any = schedule.depth(pp), chunks, deal
    # one object for equal numbers, which remembers what it was asked
    plain = isinstance(pp, SCALARS) and isinstance(chunks, SCALARS)
    return _known(*cut) if plain else StagePartition(*cut)


_known = lru_cache(maxsize=1024, typed=True)(StagePartition)


def stage_layers(layers: int, stages: int, how: str = "even") -> list[range]:
    """The layers of each stage: by a rule (`stage_sizes`), or as a list has them. BadInput for a
    list of another length."""
    given = stages_named(how).layers
    if given and len(given) != stages:
        raise BadInput(
            f"layout.stages {how} assigns layers to {len(given)} stages, but there are {stages}"
        )
    sizes = given or stage_sizes(layers, stages, how)
    bounds = [0, *accumulate(sizes)]
    return [range(a, b) for a, b in pairwise(bounds)]


def stage_numbers(layout: Layout, rank: int) -> list[int]:
    """The stages a rank of the pp axis holds, by chunk."""
    schedule = schedule_named(layout.schedule)
    p = int(layout.pp)
    v = int(layout.interleave)
    return (
        [0]
        if p == 1
        else [
            schedule.stage_of(rank, chunk, p, v)
            for chunk in range(int(schedule.chunks(v)))
        ]
    )


def stage_count(layout: Layout) -> int:
    """Stages of the whole pipeline."""
    return (
        1
        if layout.pp == 1
        else int(
            schedule_named(layout.schedule).stage_count(
                layout.pp, layout.interleave
            )
        )
    )
