"""Predictions against published measurements: every complete pre-training row becomes a job and is
predicted as it is.

    validate("runs.json").overall["step_time"]["median_abs_error"]

Nothing is fitted and no source has constants of its own. Rows that cannot be described are skipped
with a sentence; what had to be assumed of a row, or cannot be said in a layout, is a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from meshwright.compare.as_run import predict_as_run
from meshwright.describe.assumptions import REALISTIC, Assumptions
from meshwright.errors import BadInput
from meshwright.prediction.certainty import kind_of

from .. import shipped
from . import collectives, rows
from .comparison import RowComparison
from .jobs import job_and_notes
from .measured import comparisons, workload
from .result import Validation
from .rows import Row, plain, text_of_row
from .silent import filled, held_out, silent


def validate(
    source: str | Path | Sequence[Row],
    assumptions: Assumptions = REALISTIC,
    network: str = "perlmutter",
) -> Validation:
    """Compare published measurements with what the assumption set predicts.

    source: a JSON file of runs, a CSV file of collectives, or the rows themselves;  network:
    catalogue name of the machine whose collectives the CSV holds.  Raises BadInput if the source as
    a whole cannot be read.
    """
    if isinstance(source, (str, Path)):
        content = rows.text_of_rows(source)
        if collectives.is_table(content):
            return Validation(
                tuple(
                    collectives.compare_collectives(
                        source, network, assumptions
                    )
                )
            )
        every = rows.parse_rows(content)
    else:
        every = rows.demand_rows(source)
    outside = Counter(why for row in every if (why := out_of_scope(row)))
    return Validation(
        tuple(
            c
            for row in every
            if not out_of_scope(row)
            for c in row_comparisons(row, assumptions)
        ),
        dict(outside.most_common()),
    )


def published() -> list[Row]:
    """The measurements that ship with the catalogue."""
    return rows.parse_rows(shipped.shipped_text("runs/published.json"))


def blind() -> list[Row]:
    """Measurements beside them that no fit may use, which were predicted before anybody looked."""
    return rows.parse_rows(shipped.shipped_text("runs/blind.json"))


def out_of_scope(row: Row) -> str:
    """What a row is instead of a complete pre-training run; "" if it is one. A row that does not
    say counts as one.
    """
    task = text_of_row(row, "task")
    if task and task != "pretrain":
        return f"{task}, not pre-training"
    incomplete = row.get("complete") is False and not silent(row)
    return (
        "its source does not describe the run completely" if incomplete else ""
    )


def row_comparisons(
    row: Row, assumptions: Assumptions
) -> Iterator[RowComparison]:
    """The comparisons of one row; one with a reason if there are none."""
    base = RowComparison(
        plain(row, "id")[:120],
        plain(row, "source")[:120],
        None,
        held_out=held_out(row),
    )
    try:
        yield from _compared(row, base, assumptions)
    except BadInput as error:
        yield replace(base, skipped=str(error)[:300])
    except (ArithmeticError, ValueError):
        yield replace(base, skipped="its numbers are out of all proportion")


def _compared(
    row: Row, base: RowComparison, assumptions: Assumptions
) -> list[RowComparison]:
    """What a row measured beside its prediction; BadInput if nothing can be compared."""
    by_rule = filled(row, assumptions) if silent(row) else None
    about = by_rule.about if by_rule else job_and_notes(row)
    prediction = predict_as_run(about.under(assumptions))
    job = prediction.job
    base = replace(
        base,
        chip=job.cluster.chip.name,
        kind=kind_of(job),
        job=about.job,
        workload=workload(row, job),
        framework=job.profile.name if job.profile else "",
        range_s=by_rule.range_s if by_rule else None,
        notes=about.notes,
    )
    compared = [
        c
        for c in comparisons(row, prediction, base, about.memory)
        if not by_rule or c.quantity == "step_time"
    ]
    if not compared:
        raise BadInput("nothing it measured can be compared")
    if not all(
        0 <= (number or 0.0) < 1e30
        for c in compared
        for number in (c.predicted, c.measured)
    ):
        raise BadInput("its numbers are out of all proportion")
    return compared


__all__ = ["RowComparison", "Validation", "published", "validate"]
