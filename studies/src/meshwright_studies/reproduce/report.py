"""What `reproduce` returns: checks, tables and figures of one paper."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from meshwright.errors import BadInput

from ..validate.markdown import markdown_table

STATUSES = ("match", "loose", "open", "explained", "erratum", "mismatch")
SOURCES = ("printed", "authors' code", "own", "formula")
SCHEMA = 2
"""Version of `Report.to_dict`."""


@dataclass(frozen=True)
class Check:
    """One published number beside ours."""

    id: str
    published: float | None
    computed: float | None
    status: str
    """match (within tolerance), loose (the source prints a round number; ours is what its inputs
    give), open (the source gives no number), explained (a named defect or the rounding of the
    source accounts for it), erratum (the printed number is wrong, the note says why), mismatch."""
    note: str = ""
    source: str = "printed"
    """Where `published` is from: printed in the paper; authors' code (and the data they published
    with it); own (an independent implementation, ours or a file's); formula (a closed form of the
    paper, put into numbers by us)."""

    @property
    def rel_diff(self) -> float | None:
        """computed / published - 1; None where that has no meaning."""
        if self.published is None or self.computed is None:
            return None
        return relative(self.published, self.computed)

    def to_dict(self) -> dict[str, Any]:
        return {column: getattr(self, column) for column in COLUMNS}


COLUMNS = (
    "id",
    "published",
    "computed",
    "rel_diff",
    "status",
    "source",
    "note",
)
"""Of a check, in the order of its table."""


@dataclass(frozen=True)
class PaperTable:
    """Rows under named columns; the file it is written to is called `name`."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def table_of(
    name: str, title: str, rows: Iterable[Mapping[str, Any]]
) -> PaperTable:
    """A table of rows that say, in the same order, what stands under each column."""
    every = list(rows)
    return PaperTable(
        name,
        title,
        columns=tuple(every[0]) if every else (),
        rows=tuple(tuple(row.values()) for row in every),
    )


@dataclass(frozen=True)
class PaperFigure:
    """A picture that is computed and drawn only when written."""

    name: str
    draw: Callable[[], Any]
    """() -> a matplotlib figure."""
    table: Callable[[], PaperTable] | None = None
    """() -> the numbers it shows, written beside it."""


def pictures(
    paper: str,
    module: str,
    names: Iterable[str],
    tables: Mapping[str, Callable[[], PaperTable]] = MappingProxyType({}),
) -> tuple[PaperFigure, ...]:
    """The pictures that a module draws (its `PICTURES`: name -> how), imported when one is
    written, because it needs matplotlib; tables: name -> the numbers behind it.
    """

    def draw(name: str) -> Any:
        return import_module(f"{__package__}.{module}").PICTURES[name]()

    return tuple(
        PaperFigure(f"{paper}-{name}", partial(draw, name), tables.get(name))
        for name in names
    )


@dataclass(frozen=True)
class Report:
    """A paper made again."""

    paper: str
    checks: tuple[Check, ...]
    tables: tuple[PaperTable, ...] = ()
    figures: tuple[PaperFigure, ...] = ()
    notes: tuple[str, ...] = ()
    elapsed_s: float = 0.0

    @cached_property
    def summary(self) -> dict[str, Any]:
        """How many checks of each status and of each source, and the largest difference among those
        that match.
        """
        counts, sources = (
            Counter(getattr(c, k) for c in self.checks)
            for k in ("status", "source")
        )
        differences = [
            abs(c.rel_diff)
            for c in self.checks
            if c.status == "match" and c.rel_diff is not None
        ]
        return {
            **{s: counts[s] for s in STATUSES},
            "worst_match": max(differences, default=0.0),
            "by_source": {s: sources[s] for s in SOURCES if sources[s]},
        }

    def to_dict(self) -> dict[str, Any]:
        """The fields of `reproduce --json`."""
        return {
            "schema": SCHEMA,
            "paper": self.paper,
            "checks": [c.to_dict() for c in self.checks],
            "summary": self.summary,
            "notes": list(self.notes),
            "tables": [t.name for t in self.tables],
            "figures": [f.name for f in self.figures],
            "elapsed_s": self.elapsed_s,
        }

    def write(self, folder: Path) -> None:
        """Tables as CSV and Markdown, figures as PNG and SVG; raises BadInput if the folder cannot
        be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for table in (self.check_table, *self.tables):
                write_table(table, folder)
            for figure in self.figures:
                write_figure(figure, folder)
        except OSError as error:
            raise BadInput(
                f"cannot write to {str(folder)[:200]}: {error.strerror or error}"
            ) from None

    @property
    def check_table(self) -> PaperTable:
        """The checks as a table."""
        rows = tuple(tuple(c.to_dict().values()) for c in self.checks)
        return PaperTable(
            f"{self.paper}-checks",
            f"Published beside computed: {self.paper}",
            COLUMNS,
            rows,
        )


def judged(
    id: str,
    published: float,
    computed: float,
    good: bool,
    note: str = "",
    *,
    otherwise: str = "mismatch",
    source: str = "printed",
) -> Check:
    """A check that is a match if it is good, and else something."""
    status = "match" if good else otherwise
    return Check(
        id,
        published,
        computed=computed,
        status=status,
        note=note,
        source=source,
    )


def holds(id: str, good: bool, note: str = "") -> Check:
    """A statement of the paper, 1 (as a float; counts are whole numbers), that ours bears out or
    not.
    """
    return judged(id, 1.0, computed=float(good), good=good, note=note)


def check(
    id: str,
    published: float,
    computed: float,
    tolerance: float,
    note: str = "",
    source: str = "printed",
) -> Check:
    """A check that matches within a relative tolerance and is a mismatch beyond it."""
    return judged(
        id,
        published,
        computed=computed,
        good=near_published(published, computed, tolerance),
        note=note,
        source=source,
    )


def near_published(
    published: float, computed: float, tolerance: float
) -> bool:
    """Within a relative tolerance."""
    difference = relative(published, computed)
    return difference is not None and abs(difference) <= tolerance


def sourced(source: str, checks: Iterable[Check]) -> Iterator[Check]:
    """The checks with where their published numbers are from."""
    return (replace(c, source=source) for c in checks)


def relative(published: float, computed: float) -> float | None:
    """computed / published - 1; 0 if both are 0, None if only the published number is, or one is
    not finite.
    """
    if published == computed:
        return 0.0
    if (
        published == 0
        or not math.isfinite(published)
        or not math.isfinite(computed)
    ):
        return None
    return computed / published - 1


def merge(paper: str, reports: Iterable[Report]) -> Report:
    """Several reports as one; check ids are prefixed with their paper."""
    reports = list(reports)
    return Report(
        paper,
        checks=tuple(
            replace(c, id=f"{r.paper}/{c.id}")
            for r in reports
            for c in r.checks
        ),
        tables=tuple(t for r in reports for t in r.tables),
        figures=tuple(f for r in reports for f in r.figures),
        notes=tuple(f"{r.paper}: {n}" for r in reports for n in r.notes),
        elapsed_s=sum(r.elapsed_s for r in reports),
    )


def write_table(table: PaperTable, folder: Path) -> None:
    """NAME.csv with full precision and NAME.md to read."""
    plain = folder / f"{table.name}.csv"
    pretty = folder / f"{table.name}.md"
    with plain.open("w", newline="", encoding="utf-8") as f:
        csv.writer(f).writerows([table.columns, *table.rows])
    lines = [[cell_text(cell) for cell in row] for row in table.rows]
    text = markdown_table(table.columns, lines)
    pretty.write_text(f"# {table.title}\n\n{text}\n", "utf-8")


def cell_text(value: Any, digits: int = 6) -> str:
    """A cell for reading."""
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def sides(
    published: float | None, computed: float | None, digits: int = 6
) -> tuple[str, str]:
    """Both sides of a check for reading; of a statement whether it holds."""
    if isinstance(published, float) and published == 1 and computed in (0, 1):
        return "yes", "yes" if computed else "no"
    return cell_text(published, digits), cell_text(computed, digits)


def write_figure(figure: PaperFigure, folder: Path) -> None:
    """NAME.png and NAME.svg, and the figure's table; raises BadInput if matplotlib is not
    installed.
    """
    try:
        from meshwright.report.plots import image  # matplotlib: only here
    except ImportError:
        raise BadInput(
            "figures need matplotlib: pip install 'meshwright[plot]'"
        ) from None
    drawn = figure.draw()
    if figure.table:
        write_table(figure.table(), folder)
    for kind in (".png", ".svg"):
        (folder / f"{figure.name}{kind}").write_bytes(image(drawn, kind))
