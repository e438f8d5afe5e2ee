"""How sure a prediction is: published runs beside predictions, and those nearest to a question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..describe import shipped
from ..describe.layout import Layout
from ..describe.read import read
from ..errors import BadInput
from ..formats import parse_toml
from ..prediction import certainty
from ..report.console import SCHEMA
from ..report.text import layout_words
from ..search import Progress
from .answers import Answer, Body
from .question import ask, question_in

NEAREST = 10


@cache
def descriptions() -> Mapping[str, Any]:
    """id of a published run -> source_ref, software, and its job as the text of a job file."""
    return dict(json.loads(shipped.text("runs/described.json")))


def made(id: str) -> dict[str, Any]:
    """How a published run was made, and the question that describes it; {} if it is not one."""
    if id not in descriptions():
        return {}
    run = dict(descriptions()[id])
    text = run.pop("job")
    layout = read(Layout, parse_toml(text, id)["layout"], "layout")
    return {
        **run,
        "layout_words": layout_words(layout),
        "question": question_in(text, layout=True),
    }


def run_fields(run: certainty.PublishedRun) -> dict[str, Any]:
    """A run's fields, what is predicted for it among them."""
    return {**run._asdict(), "predicted_s": run.step_s / run.ratio}


def run_table(body: Body, progress: Progress) -> Answer:
    """Every published run: predicted beside measured."""
    return {
        "schema": SCHEMA,
        "rows": [run_fields(run) for run in certainty.evidence_runs()],
    }


def nearest_table(body: Body, progress: Progress) -> Answer:
    """The published runs nearest to a question, with how they were made."""
    job, _ = ask(body.get("question"), [])
    near = certainty.nearest_runs(job, NEAREST)
    kind = certainty.kind_of(job)
    return {
        "schema": SCHEMA,
        "class": kind,
        "rows": [
            {
                **run_fields(run),
                "of_class": run.class_ == kind,
                **made(run.id),
            }
            for run in near
        ],
    }


def run_question(body: Body, progress: Progress) -> Answer:
    """The question that describes a published run."""
    id = body.get("id", "")
    run = made(id)
    if not run:
        raise BadInput(f"run {id[:80]!r} is not among the published ones")
    return {"schema": SCHEMA, "question": run["question"]}
