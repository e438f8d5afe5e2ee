"""Runs of `meshwright train`, beside what was predicted for them, also while they train."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..compare import compare
from ..compare.logged import compare_log
from ..errors import BadInput
from ..formats.logs import steps_of
from ..formats.run_folder import read_run
from ..prediction.prediction import predict
from ..report.console import SCHEMA, envelope
from ..search import Progress
from .answers import Answer, Body, prediction_fields
from .question import ask, laid_out

MOST_STEPS = 2000
"""Steps of a curve; longer runs are thinned out."""
FILE = re.compile(
    r"job\.toml|attempts\.jsonl|metrics\.jsonl|record/rank-\d{4}\.jsonl"
)
"""Of a run's folder, what a page may send."""
SERIES = ("step", "loss", "step_time_s", "tokens_per_s", "grad_norm")


class Folders:
    """The run folders that a server shows: those named when it started, and no others."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self.paths = paths

    def list(self, body: Body, progress: Progress) -> Answer:
        """Names of the runs."""
        return {"schema": SCHEMA, "runs": [*self.paths]}

    def run(self, body: Body, progress: Progress) -> Answer:
        """A run beside its prediction."""
        name = body.get("run", "")
        if name not in self.paths:
            raise BadInput(
                f"run {name[:80]!r} is not shown here: start meshwright serve with its folder"
            )
        return of_folder(self.paths[name])


def of_folder(path: Path) -> dict[str, Any]:
    """What is known of a run: the prediction, and beside it what it measured so far."""
    run = read_run(path)
    fields = {
        "folder": path.name,
        "series": series(run.metrics),
        "prediction": prediction_fields(predict(run.job), ()),
    }
    comparison = (
        {**compare(run).to_dict(), "run": path.name} if run.metrics else None
    )
    return envelope("compare", {**fields, "comparison": comparison})


def of_files(body: Body, progress: Progress) -> Answer:
    """A run whose files were dropped, beside its prediction."""
    files = body.get("files", {})
    for name in files:
        if not FILE.fullmatch(name):
            raise BadInput(
                f"files: {name[:80]!r} is not read of a run; these are: job.toml, attempts.jsonl,"
                " metrics.jsonl, record/rank-0000.jsonl, ..."
            )
    with TemporaryDirectory() as at:
        folder = Path(at, "the run")
        (folder / "record").mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8")
        try:
            return of_folder(folder)
        except BadInput as error:
            raise BadInput(str(error).replace(f"{at}/", "")) from None


def of_log(body: Body, progress: Progress) -> Answer:
    """The log of another tool's run beside the prediction of the question."""
    notes: list[str] = []
    job, _ = ask(body.get("question"), notes)
    said = body.get("layout", {})
    layout = laid_out(job, said) if said else job.layout
    log = steps_of(body.get("text", ""))
    logged = compare_log("the log", log, predict(job, layout))
    fields = {
        "folder": f"log of {logged.log.kind}",
        "series": logged.series,
        "prediction": prediction_fields(logged.predicted, notes),
        "comparison": logged.to_dict(),
    }
    return envelope("compare", fields)


def series(rows: Any) -> dict[str, list[Any]]:
    """Columns of the metrics, thinned out."""
    every = max(len(rows) // MOST_STEPS, 1)
    kept = rows[::every]
    return {
        name: [row.get(name) for row in kept]
        for name in SERIES
        if any(name in r for r in kept)
    }
