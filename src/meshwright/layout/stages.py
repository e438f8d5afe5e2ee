"""How a step is dealt out: microbatches to replicas, layers to the stages and chunks of a
pipeline.
"""

from __future__ import annotations

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, ceil_div, where
from ..schedule import get as schedule_named
from ..schedule.dealt import Cut
from ..schedule.types import Schedule


def microbatches(job: Job, layout: Layout) -> Num:
    """m = B / (dp b), rounded up: the last one may be partly empty."""
    return ceil_div(job.batch, layout.dp * layout.microbatch)


def cut(job: Job, pp: Num, schedule: Schedule, v: Num) -> Cut:
    """The layers dealt to the stages of a pipeline; a device that is alone has one stage."""
    return Cut.of(job.model.layers, pp, where(pp == 1, 1.0, schedule.chunks(v)), schedule.folded)


def stage_layers(layers: int, stages: int) -> list[range]:
    """The layers of each stage: as even as can be; where they do not divide, the last stage has one
    fewer, then the first, then those between.

    The same order as in the prediction (`schedule.dealt.Cut`): the ends also hold the head and the
    embedding.
    """
    most, spare = -(-layers // stages), -layers % stages
    fewer = [stages - 1, 0, *range(stages - 2, 0, -1)][:spare]
    bounds = [0]
    for stage in range(stages):
        bounds.append(bounds[-1] + most - (stage in fewer))
    return [range(a, b) for a, b in zip(bounds, bounds[1:], strict=False)]


def stage_numbers(layout: Layout, rank: int) -> list[int]:
    """The stages a rank of the pp axis holds, by chunk."""
    schedule, p, v = schedule_named(layout.schedule), int(layout.pp), int(layout.interleave)
    return (
        [0]
        if p == 1
        else [schedule.stage_of(rank, chunk, p, v) for chunk in range(int(schedule.chunks(v)))]
    )


def stage_count(layout: Layout) -> int:
    """Stages of the whole pipeline."""
    return (
        1
        if layout.pp == 1
        else int(layout.pp * schedule_named(layout.schedule).chunks(layout.interleave))
    )
