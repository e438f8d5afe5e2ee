"""How sure a prediction is: published runs beside predictions, and those nearest to a question."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..errors import BadInput
from ..prediction import certainty
from ..report.console import SCHEMA
from ..report.text import layout_words
from ..search.evaluate import Progress
from ..validate import published
from ..validate.jobs import described
from ..validate.rows import Row
from .answers import Answer, Body
from .question import ask, question_of

NEAREST = 10


@cache
def rows() -> Mapping[str, Row]:
    """id -> published run as its source describes it."""
    return {str(row.get("id")): row for row in published()}


def told(run: certainty.Run) -> dict[str, Any]:
    """A run's fields, what is predicted for it among them."""
    return {**run._asdict(), "predicted_s": run.step_s / run.ratio}


def runs(body: Body, progress: Progress) -> Answer:
    """Every published run: predicted beside measured."""
    return {"schema": SCHEMA, "rows": [told(run) for run in certainty.runs()]}


def nearest(body: Body, progress: Progress) -> Answer:
    """The published runs nearest to a question, with how they were made."""
    job, _ = ask(body.get("question"), [])
    near = certainty.nearest(job, NEAREST)
    kind = certainty.kind_of(job)
    return {
        "schema": SCHEMA,
        "class": kind,
        "rows": [
            {**told(run), "of_class": run.class_ == kind, **made(run.id)}
            for run in near
        ],
    }


def made(id: str) -> dict[str, Any]:
    """How a published run was made, and the question that describes it."""
    row = rows().get(id)
    if row is None:
        return {}
    job = described(row).job
    return {
        "source_ref": str(row.get("source_ref", ""))[:200],
        "software": str(row.get("software", ""))[:80],
        "layout_words": layout_words(job.layout),
        "question": question_of(job, layout=True),
    }


def run_question(body: Body, progress: Progress) -> Answer:
    """The question that describes a published run."""
    found = made(str(body.get("id")))
    if not found:
        raise BadInput(
            f"run {str(body.get('id'))[:80]!r} is not among the published ones"
        )
    return {"schema": SCHEMA, "question": found["question"]}
