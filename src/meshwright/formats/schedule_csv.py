"""PyTorch's CSV of a pipeline schedule, its compute-only form (write only).

One row per rank, one cell per action: stage, kind, microbatch, as in `0F0,1I3,2W1,0B5`.
`_PipelineScheduleRuntime._load_csv` executes such a file, and torchtitan takes one as
`pipeline_parallel_schedule_csv`.

The format numbers stages, not chunks, so a rank's chunks are its stages in ascending order, and a
stage lives on one rank.

Source: torch.distributed.pipelining.schedules, `_Action.from_str` and `_load_csv` (torch 2.13; a
private interface).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from ..errors import BadInput
from ..schedule.types import Order


def write_order(order: Order, stage_of: Callable[[int, int], int]) -> str:
    """The CSV text. BadInput if a stage lies on two ranks, or if chunks are not numbered as their
    stages are.
    """
    owner: dict[int, int] = {}
    for rank, actions in enumerate(order):
        stages = [
            stage_of(rank, chunk)
            for chunk in sorted({action.chunk for action in actions})
        ]
        if stages != sorted(set(stages)):
            raise BadInput(
                f"the schedule CSV cannot hold chunks out of order: rank {rank} has stages {stages}"
            )
        for stage in stages:
            if owner.setdefault(stage, rank) != rank:
                raise BadInput(
                    f"the schedule CSV needs a stage on one rank: stage {stage} is on"
                    f" {owner[stage]} and {rank}"
                )
    text = io.StringIO()
    rows = (
        [f"{stage_of(r, a.chunk)}{a.kind}{a.microbatch}" for a in actions]
        for r, actions in enumerate(order)
    )
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
