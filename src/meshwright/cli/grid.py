"""`sweep` over two fields: points on many processes or an engine, kept in a file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInput
from .command import Answer

if TYPE_CHECKING:
    from .kept import Swept

KINDS = (".json", ".csv", ".jsonl")


def two(
    asked: Swept,
    over: Sequence[str],
    workers: int | None,
    engine: str | None,
    column: str,
    output: str | None,
) -> Answer:
    """The table of two fields, whose points are kept."""
    from ..grid import engine_at, grid, point_row
    from ..report import console, files
    from ..report.grid import grid_card, grid_report
    from ..report.lines import noted
    from ..sweep import parse

    if workers is not None and workers < 1:
        raise BadInput(f"--workers must be at least 1, not {workers}")
    kind = Path(output or "").suffix.lower()
    if output and kind not in KINDS:
        raise BadInput(
            f"-o {output[:80]} must end in {', '.join(KINDS)} for two fields"
        )
    job, space, fixed, notes, prices = asked
    with console.progress() as progress:
        points = grid(
            job,
            [parse(text) for text in over],
            space,
            fixed,
            file=output if kind == ".jsonl" else None,
            workers=workers,
            engine=engine_at(engine) if engine else None,
            progress=progress,
            compute=partial(point_row, prices=prices),
        )
    rows = [*points.rows]
    whole = any(row.get("step_time_s") for row in rows)
    return Answer(
        points.to_dict,
        lambda: grid_card(points, column, notes),
        lambda: [grid_report(points, column), *noted(notes)],
        files=None
        if kind == ".jsonl"
        else {".csv": lambda: files.csv_text(rows)},
        code=130 if points.interrupted else 0 if whole else 1,
    )
