"""PyTorch's CSV of a pipeline schedule, its compute-only form (read and write).

One row per rank, one cell per action: stage, kind, microbatch, as in `0F0,1I3,2W1,0B5`.
`_PipelineScheduleRuntime._load_csv` executes such a file, and torchtitan takes one as
`pipeline_parallel_schedule_csv`. Read are also empty cells, where a rank idles, and pairs
`(0F1;4B0)OVERLAP_F_B`, whose actions come one after the other, as PyTorch runs them unless told
otherwise.

The format numbers stages, not chunks, so a rank's chunks are its stages in ascending order, and a
stage lives on one rank.

Source: torch.distributed.pipelining.schedules, `_Action.from_str` and `_load_csv` (torch 2.13; a
private interface).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable

from ..errors import BadInput
from ..schedule.types import Action, Order

CELL = re.compile(r"(\d{1,9})([FBIW])(\d{1,9})")
PAIR = re.compile(r"\(([^();]*);([^();]*)\)OVERLAP_F_B")
Placement = list[list[int]]
"""For each rank, the stages of its chunks."""


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


def read_order(text: str) -> tuple[Order, Placement]:
    """The order, and the stages of each rank's chunks. BadInput at a cell that is not a
    computation.
    """
    rows = [
        [part for cell in row for part in _cell(cell.strip(), rank)]
        for rank, row in enumerate(_rows(text))
    ]
    placement = [sorted({stage for stage, _, _ in row}) for row in rows]
    order = [
        [
            Action(kind, stages.index(stage), microbatch)
            for stage, kind, microbatch in row
        ]
        for row, stages in zip(rows, placement, strict=True)
    ]
    return order, placement


def _rows(text: str) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise BadInput(f"the schedule is not a CSV file: {error}") from None


def _cell(cell: str, rank: int) -> list[tuple[int, str, int]]:
    """The (stage, kind, microbatch) of a cell: none, one, or the two of a pair."""
    pair = PAIR.fullmatch(cell)
    matches = (
        [
            CELL.fullmatch(part.strip())
            for part in (pair.groups() if pair else [cell])
        ]
        if cell
        else []
    )
    actions = [
        (int(match[1]), match[2], int(match[3])) for match in matches if match
    ]
    if len(actions) < len(matches):
        raise BadInput(
            f"row {rank + 1} of the schedule CSV has {cell[:40]!r}, which is not a computation:"
            " write stage, kind (F, B, I or W) and microbatch, such as 0F0, and leave"
            " communication out (PyTorch's compute_only format)"
        )
    return actions
