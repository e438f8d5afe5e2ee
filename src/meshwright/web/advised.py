"""What to change of a run whose script or log is pasted, or of the layout on the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..advice.answer import Advice
from ..advice.answer import advise as compute
from ..advice.judged import Option
from ..compare.logged import compare_log
from ..describe.job import Job
from ..errors import BadInput
from ..formats import LARGEST
from ..prediction.prediction import predict
from ..report.advise_card import fields, flags
from ..report.console import envelope
from ..search import Progress
from .answers import Answer, Body, layout_asked
from .dropped import foreign_in_text, job_in_file
from .question import ask


def answer_advise(body: Body, progress: Progress) -> Answer:
    """Single changes of a run by what each gives, then the best pair and triple."""
    text = body.get("text", "")
    if text.strip():
        if len(text) > LARGEST:
            raise BadInput(f"the text is longer than {LARGEST:,} characters")
        kept = body.get("question") or {}
        advice = of_text(text, kept, progress)
    else:
        job, space = ask(body.get("question"), [])
        layout = layout_asked(body, job, space)
        advice = compute(replace(job, layout=layout), progress=progress)
    fields = advice.to_dict()
    for name in ("changes", "numerics"):
        pairs = zip(getattr(advice, name), fields[name], strict=True)
        fields[name] = [
            {**row, **change_words(advice, each)} for each, row in pairs
        ]
    for name in ("pair", "triple"):
        if each := getattr(advice, name):
            fields[name] |= change_words(advice, each)
    return envelope("advise", fields)


def change_words(advice: Advice, each: Option) -> dict[str, Any]:
    """A change as a page shows it: its flags, the fields of the job, and seconds by cause."""
    return {
        "words": flags(each),
        "said": fields(advice, each),
        "time_s": each.prediction.time_s,
    }


def of_text(text: str, kept: Mapping[str, Any], progress: Progress) -> Advice:
    """The advice on a script, a configuration or a log; kept: the question on the page."""
    file, log = foreign_in_text(text, progress)
    if file is None:
        raise BadInput(
            "the text is not a script, configuration or log that is known here"
        )
    job: Job = job_in_file(file, kept).filled
    measured: list[float] = []
    if log:
        beside = compare_log("the log", log, predict(job))
        measured = beside.steady_s
    return compute(
        job,
        measured,
        format=file.format.name,
        taken=file.taken,
        names=file.names,
        progress=progress,
    )
