"""Many layouts of one job at once: columns of layouts in, a table out.

table(job, tp=[1, 2, 4, 8], zero=[1, 3])      eight rows: every combination
table(job, layouts)                           one row for each of these
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..describe.choices import FIELDS
from ..describe.display import Displayed
from ..describe.job import Job, demand_job
from ..describe.layout import Layout
from ..errors import BadInput, unknown
from .prediction import Prediction, predict

MOST = 100_000
"""Rows of a table."""
NUMBERS = ("step_time_s", "tokens_per_s", "mfu", "risk_of_oom")


@dataclass(frozen=True)
class Table(Displayed):
    """Many layouts with their predictions; columns by name, as arrays: `t["step_time_s"].argmin()`.

    >>> from meshwright import Job, Table, table
    >>> rows = table(Job("llama3-8b", "8xh100-sxm", batch=64), tp=[1, 2], zero=3)
    >>> isinstance(rows, Table), rows["step_time_s"].shape
    (True, (2,))
    """

    layouts: tuple[Layout, ...]
    predictions: tuple[Prediction | None, ...]
    """None where a rule refuses the layout."""
    refused: tuple[str, ...]
    """Why; empty where it is predicted."""

    def __len__(self) -> int:
        return len(self.layouts)

    def __getitem__(self, column: str) -> Any:
        """A column as an array; nan where a layout is refused."""
        rows = list(self.rows())
        if rows and column not in rows[0]:
            raise unknown("column", column, rows[0])
        return np.array([row[column] for row in rows])

    def __repr__(self) -> str:
        left = sum(p is None for p in self.predictions)
        best = self.best
        fits = f"; the fastest that fits:\n{best!r}" if best else "; none fits"
        return f"Table: {len(self)} layouts, {left} refused{fits}"

    @property
    def best(self) -> Prediction | None:
        """The fastest that fits."""
        fit = [p for p in self.predictions if p and p.fits]
        return min(fit, key=lambda p: p.step_time_s, default=None)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One flat row per layout."""
        for layout, p, why in zip(
            self.layouts, self.predictions, self.refused, strict=True
        ):
            choices = {name: getattr(layout, name) for name in FIELDS}
            numbers = {
                name: getattr(p, name) if p else float("nan")
                for name in NUMBERS
            }
            memory = p.memory_bytes["needed"] if p else float("nan")
            yield {
                **choices,
                **numbers,
                "memory_bytes": memory,
                "fits": bool(p and p.fits),
                "refused": why,
            }


def table(
    job: Job,
    layouts: Iterable[Layout] | None = None,
    /,
    **columns: Sequence[Any] | Any,
) -> Table:
    """Predict many layouts of a job; a row that breaks a rule says so instead of raising.

    layouts: a list of them;  columns: or every combination of these values of layout fields, the
    rest as in the job's layout; dp takes the chips that are left unless it is named.

    >>> from meshwright import Job, table
    >>> job = Job("llama3-8b", "8xh100-sxm", batch=64)
    >>> rows = table(job, tp=[1, 2], zero=[1, 3])
    >>> len(rows), rows.best.layout.dp
    (4, 8)
    """
    demand_job(job)
    if (layouts is None) == (not columns):
        raise BadInput("give layouts, or columns such as tp=[1, 2, 4]")
    if layouts is not None and not isinstance(layouts, Iterable):
        raise _no_layout(layouts)
    chosen = tuple(_combined(job, columns) if layouts is None else layouts)
    if len(chosen) > MOST:
        raise BadInput(
            f"a table has at most {MOST:,} rows, not {len(chosen):,}"
        )
    rows = [_row(job, layout) for layout in chosen]
    return Table(
        chosen, tuple(p for p, _ in rows), tuple(why for _, why in rows)
    )


def _combined(job: Job, columns: Mapping[str, Any]) -> Iterator[Layout]:
    """Every combination of the values."""
    for name in columns:
        if name not in FIELDS:
            raise unknown("layout: field", name, FIELDS)
    values = [_listed(value) for value in columns.values()]
    if np.prod([float(len(v)) for v in values]) > MOST:
        raise BadInput(f"a table has at most {MOST:,} rows")
    for each in product(*values):
        row = {"dp": None, **dict(zip(columns, each, strict=True))}
        yield job.layout.with_(**row).filling(job.cluster.chips)


def _listed(value: Any) -> list[Any]:
    """The values of a column: a list, an array, a range, or one value."""
    if isinstance(value, np.ndarray):
        return [v.item() for v in value.ravel()]
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def _no_layout(given: object) -> BadInput:
    return BadInput(
        f"a table takes Layouts, such as Layout(tp=8, dp=4), not {str(given)[:40]!r}"
    )


def _row(job: Job, layout: Any) -> tuple[Prediction | None, str]:
    if not isinstance(layout, Layout):
        raise _no_layout(layout)
    try:
        return predict(job, layout), ""
    except BadInput as error:
        return None, str(error)
