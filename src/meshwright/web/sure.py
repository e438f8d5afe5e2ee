"""How sure a prediction is: every published run beside what is predicted for it, and those nearest to
a question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import log2
from threading import Lock
from typing import Any

from ..count.model import parameters
from ..describe.job import Job
from ..errors import BadInput
from ..prediction.classes import class_of
from ..prediction.prediction import spread
from ..report.console import SCHEMA
from ..report.text import layout_words
from ..search.evaluate import Progress
from ..validate import checked as compared
from ..validate import published
from ..validate.jobs import described
from ..validate.result import Checked
from ..validate.rows import Row
from .answers import Answer, Body
from .question import ask, question_of

NEAREST = 10
OTHER_CHIP, OTHER_CLASS = 3.0, 3.0
"""Distance of another chip, and of another class of runs, in doublings of the model's size."""
DOUBLINGS = {"parameters": 1.0, "chips": 0.5, "seq_tokens": 0.5}
"""What a doubling of each counts."""


@dataclass(frozen=True)
class Shown:
    """A published run."""

    row: Row
    found: Checked
    job: Job

    @property
    def features(self) -> dict[str, float]:
        """What runs are near in."""
        return features(self.job)


def features(job: Job) -> dict[str, float]:
    """Sizes in which two jobs are near."""
    return {
        "parameters": parameters(job.model),
        "chips": float(job.cluster.chips),
        "seq_tokens": float(job.T),
    }


def kind(job: Job) -> str:
    """The class of a job."""
    return class_of(job.profile.name if job.profile else "", bool(job.model.moe))


LOCK = Lock()


@cache
def _runs() -> tuple[Shown, ...]:
    shown = []
    for row in published():
        for found in compared(row):
            if found.quantity == "step_time" and found.ratio:
                shown.append(Shown(row, found, described(row).job))
    return tuple(shown)


def runs_shown() -> tuple[Shown, ...]:
    """All published runs that have a step time, predicted once."""
    with LOCK:
        return _runs()


def runs(body: Body, progress: Progress) -> Answer:
    """Every published run: predicted beside measured."""
    rows = [
        {
            "id": s.found.id,
            "source": s.found.source,
            "chip": s.found.chip,
            "class": s.found.kind,
            "predicted_s": s.found.predicted,
            "measured_s": s.found.measured,
            "model": s.job.model.name,
            "chips": s.job.cluster.chips,
        }
        for s in runs_shown()
    ]
    return {"schema": SCHEMA, "rows": rows}


def distance(a: Job, b: Job) -> float:
    """Doublings between two jobs, with fixed charges for another chip and another class of runs."""
    mine, theirs = features(a), features(b)
    far = sum(w * abs(log2(mine[name] / theirs[name])) for name, w in DOUBLINGS.items())
    far += OTHER_CHIP * (a.cluster.chip.name != b.cluster.chip.name)
    return far + OTHER_CLASS * (kind(a) != kind(b))


def nearest(body: Body, progress: Progress) -> Answer:
    """The published runs nearest to a question, what is predicted for them, and the spread of their
    class.
    """
    job, _ = ask(body.get("question"), [])
    ranked = sorted(runs_shown(), key=lambda s: (distance(job, s.job), s.found.id))
    near: list[Shown] = []
    for s in ranked:  # a table of many layouts of one run would fill the list by itself
        if sum(s.found.source == other.found.source for other in near) < NEAREST // 2:
            near.append(s)
        if len(near) == NEAREST:
            break
    found = spread(job)
    return {
        "schema": SCHEMA,
        "class": kind(job),
        "spread": {k: v for k, v in found.items() if k != "classes"} if found else None,
        "rows": [_near(job, s) for s in near],
    }


def _near(job: Job, s: Shown) -> dict[str, Any]:
    source: Mapping[str, Any] = s.row
    return {
        "id": s.found.id,
        "source": s.found.source,
        "source_ref": str(source.get("source_ref", ""))[:200],
        "year": source.get("year"),
        "model": s.job.model.name,
        "chip": s.job.cluster.chip.name,
        "chips": s.job.cluster.chips,
        "software": str(source.get("software", ""))[:80],
        "layout_words": layout_words(s.job.layout),
        "predicted_s": s.found.predicted,
        "measured_s": s.found.measured,
        "distance": distance(job, s.job),
        "question": question_of(s.job, layout=True),
    }


def run_question(body: Body, progress: Progress) -> Answer:
    """The question that describes a published run."""
    for s in runs_shown():
        if s.found.id == body.get("id"):
            return {"schema": SCHEMA, "question": question_of(s.job, layout=True)}
    raise BadInput(f"run {str(body.get('id'))[:80]!r} is not among the published ones")
