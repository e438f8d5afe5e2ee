"""The verbs that studies add to the command, and the files that they read for its other verbs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import meshwright
from meshwright.cli.calibrate import READERS
from meshwright.cli.command import Answer, verb, word
from meshwright.errors import BadInput

Paper = Annotated[
    str, Parameter(help="lbl, epoch, scaling-book, megatron or all.")
]
Against = Annotated[
    str | None,
    word(
        "Published numbers in a file or folder instead of those shipped.",
        "PATH",
    ),
]
Runs = Annotated[
    str | None,
    Parameter(
        help="Measured runs (JSON) or collectives (CSV); default: the published ones."
    ),
]
Fitted = Annotated[
    str, Parameter(help="Runs (.json); default: the published ones.")
]
Folder = Annotated[
    str | None,
    Parameter(
        name=("--output", "-o"),
        help="A folder in place of the installed catalogue.",
        metavar="FOLDER",
    ),
]


@verb(writes="tables and figures go into this folder")
def reproduce(
    paper: Paper = "all",
    /,
    *,
    output: str | None,
    against: Against = None,
) -> Answer:
    """Reproduce the papers' tables and figures and check them against the published values."""
    from .report.results import reproduced, reproduced_card
    from .reproduce import reproduce as compute

    data = compute(paper, against, output).to_dict()
    return Answer(
        lambda: data,
        lambda: reproduced_card(data, output),
        lambda: [reproduced(data)],
        files=None,
    )


@verb(writes=".json, .csv or .md")
def validate(runs: Runs = None, /) -> Answer:
    """Predict measured runs as they were made, and report the errors."""
    from meshwright.report import files

    from .report.results import validated, validated_card
    from .validate import published
    from .validate import validate as compute
    from .validate.markdown import markdown

    result = compute(published() if runs is None else runs)
    data = result.to_dict()
    return Answer(
        lambda: data,
        lambda: validated_card(data),
        lambda: [validated(result)],
        files={
            ".csv": lambda: files.csv_text(data["rows"]),
            ".md": lambda: markdown(result),
        },
    )


@verb(causes=False)
def fit(runs: Fitted = "published", /, *, output: Folder = None) -> Answer:
    """Fit the numbers that only runs tell to runs, judge them with each laboratory left out, and
    write them into the catalogue, with how sure they make a prediction.
    """
    from rich.console import Group

    from .fitting.answer import answer
    from .fitting.evidence import descriptions
    from .report.fitted import fitted_report
    from .validate import published
    from .validate.rows import parse_rows, text_of_rows

    folder = (
        Path(output)
        if output
        else Path(meshwright.__file__).parent / "catalog"
    )
    if not folder.is_dir():
        raise BadInput(f"--output must be a folder, not {str(output)[:80]!r}")
    rows = (
        published() if runs == "published" else parse_rows(text_of_rows(runs))
    )
    result = answer(rows)
    data = result.to_dict()
    files = {
        **result.files(datetime.now(UTC).date().isoformat()),
        "runs/described.json": descriptions(
            rows, {seen.run.id for seen in result.laboratories}
        ),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    wrote = f"wrote {', '.join(files)} in {folder}"
    return Answer(lambda: data, lambda: Group(*fitted_report(data), wrote))


def measured_rows(path: str) -> Iterator[Any]:
    """The steps of a file of runs (.json), for `calibrate --from`."""
    from meshwright.compare.installation import MeasuredStep

    from .fitting.runs import runs
    from .validate.rows import parse_rows, text_of_rows

    for run in runs(parse_rows(text_of_rows(path))):
        yield MeasuredStep(run.id, run.job, run.step_s)


READERS[".json"] = measured_rows
