"""A page that holds its answers: what `meshwright report` writes, of a job or a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..describe.job import Job
from ..describe.layout import Layout
from ..errors import BadInput, MeshwrightError
from ..formats.toml import load_job
from ..report.console import SCHEMA
from ..search import Progress
from .endpoints import endpoints
from .page import key, single
from .question import question_of
from .runs import of_folder

CHIPS = ["h100-sxm", "h200", "b200", "mi300x", "tpu-v5p"]
SCENARIOS = ["h100", "a100", "v100"]
"""What the page shows where nothing was chosen."""
Answers = dict[str, Any]


def recorded_report(source: str, progress: Progress) -> str:
    """The page of a JOB.toml or the folder of a run.  Raises BadInput."""
    path = Path(source[:4096])
    if path.is_dir():
        state, answers = of_run(path)
    elif path.suffix.lower() == ".toml":
        state, answers = of_job(load_job(path), progress)
    else:
        raise BadInput(
            f"{source[:80]!r} must be a JOB.toml, such as plan -o plan.toml writes, or the folder"
            " of a run"
        )
    return single(address(state), {**answers, **catalogue(progress)})


def catalogue(progress: Progress) -> Answers:
    """The names that every page needs."""
    return {key("catalogue", {}): endpoints()["catalogue"].ask({}, progress)}


def address(state: Mapping[str, str]) -> str:
    """The address of a state."""
    return "#" + "&".join(
        f"{name}={quote(text, safe=',:/')}" for name, text in state.items()
    )


def of_run(path: Path) -> tuple[dict[str, str], Answers]:
    """A run beside its prediction."""
    fields = of_folder(path)
    name = str(fields["folder"])
    shown = {"schema": SCHEMA, "runs": [name]}
    state = {
        "view": "runs",
        **question_of(load_job(path / "job.toml", files=False)),
    }
    return state, {
        key("folders", {}): shown,
        key("folder", {"run": name}): fields,
    }


def of_job(
    job: Job, progress: Progress, asked_as: Mapping[str, str] | None = None
) -> tuple[dict[str, str], Answers]:
    """Every view of a job; a layout in its file is laid beside the best. asked_as: the question, as
    it was typed.
    """
    question = dict(asked_as or question_of(job))
    mine = {
        k: v
        for k, v in question_of(job, layout=True).items()
        if k not in question
    }
    state = {"view": "plan", **question}
    answers: Answers = {}
    asked = endpoints()

    def keep(name: str, body: Mapping[str, Any]) -> Any:
        progress(name, len(answers) / 15)
        answer = asked[name].ask(body, progress)
        fields = list(answer) if isinstance(answer, Iterator) else answer
        answers[key(name, body)] = fields
        return fields

    best = keep("plan", {"question": question, "families": False, "top": 1})[
        "best"
    ]
    keep("plan", {"question": question})
    if job.layout != Layout():
        state["mine"] = " ".join(f"{k} {v}" for k, v in mine.items())
        keep("predict", {"question": question, "layout": mine})
    if best:
        body = {"question": question, "layout": best["layout"]}
        for name in ("beside", "choices", "copies", "machine"):
            keep(name, body)
        keep("what_if", {"question": question})
        drawn = {"schedule": "1f1b", **mine} if mine else best["layout"]
        answerable(keep, "timeline", {"question": question, "layout": drawn})
    for name, rest in (
        ("clusters", {"clusters": clusters_of(question), "prices": {}}),
        ("roofline", {"layer": "book"}),
        ("nearest", {}),
        ("scaling", {}),
    ):
        answerable(keep, name, {"question": question, **rest})
    keep("runs", {})
    keep("scenarios", {})
    keep("limits", {"scenarios": SCENARIOS, "months": 3, "linear": 0.8})
    return state, answers


def clusters_of(question: Mapping[str, str]) -> list[str]:
    """Clusters to compare: the question's own, then as many of the usual chips (clusters.js)."""
    count, _, own = question.get("on", "").partition("x")
    chips = [own or CHIPS[0], *(c for c in CHIPS if c != (own or CHIPS[0]))]
    return [f"{count or 512}x{chip}" for chip in chips[: len(CHIPS)]]


def answerable(keep: Any, name: str, body: Mapping[str, Any]) -> None:
    """What some jobs have no answer to is left out: the page says so."""
    try:
        keep(name, body)
    except MeshwrightError:
        return
