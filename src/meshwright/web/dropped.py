"""What people drop on the page (a config.json, a JOB.toml, a command line) becomes a question."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .. import catalog
from ..describe.job import TRAIN, Job
from ..describe.layout import Layout
from ..errors import BadInput, unknown
from ..formats import LARGEST, bridge, parse_json, parse_toml
from ..formats.hf import read_hf
from ..formats.logs import Log, steps_of
from ..formats.options import flags
from ..formats.toml import load_job
from ..formats.words import words as command_line
from ..report.console import SCHEMA
from ..search import Progress
from .answers import Answer, Body
from .question import (
    FIRST,
    JOB,
    MODEL,
    check_question,
    describe_model,
    question_of,
)

TOML = re.compile(r"^\s*(\[|[\w.'\"-]+\s*=)", re.MULTILINE)
"""A line that a JOB.toml may have: a table, or a key with its value."""
STARTS = re.compile(r"^meshwright$|(^|/)run\.py$")
VERBS = ("predict", "plan", "sweep", "timeline", "roofline")
"""Commands whose options are a question."""


def read_dropped(body: Body, progress: Progress) -> Answer:
    """The question in a text, with a sentence on what it was taken for."""
    text = body.get("text", "")
    if not text.strip():
        raise BadInput(
            "text must be what to read: a config.json, a JOB.toml or a command line"
        )
    if len(text) > LARGEST:
        raise BadInput(f"the text is longer than {LARGEST:,} characters")
    question, said = question_in_text(
        text.strip(), body.get("question", {}), progress
    )
    return {
        "schema": SCHEMA,
        "question": check_question(question),
        "said": said,
    }


def question_in_text(
    text: str, kept: Mapping[str, Any], progress: Progress
) -> tuple[dict[str, Any], str]:
    """(question, what the text was taken for); kept: what stands where the text says nothing."""
    is_json = text.startswith("{")
    if not is_json and (words := command_words(text)) is not None:
        return words, "a command line"
    file, log = foreign_in_text(text, progress)
    if file is not None:
        question, said = question_in_file(file, kept)
        if log:
            said = f"the log of {said.removeprefix('a file of ')}"
        return question, said
    if is_json:
        data = parse_json(text, "the text")
        if "schema" in data and "verb" in data:
            raise BadInput(
                "a result does not say all that was asked: paste the JOB.toml of it, as plan -o"
                " plan.toml writes it"
            )
        model = read_hf(data)
        rest = {k: v for k, v in kept.items() if k not in (MODEL, JOB)}
        return {MODEL: text, **rest}, f"a config.json: {model.name}"
    if not TOML.search(text):
        raise BadInput(
            "the text is none of what is read here: a config.json, a JOB.toml, a meshwright"
            " command, another tool's script, configuration or log, or a link to this page"
        )
    job = load_job(parse_toml(text, "the text"), files=False, bare=False)
    own = job.layout != Layout()
    return question_of(job, layout=own), "a JOB.toml"


def foreign_in_text(
    text: str, progress: Progress
) -> tuple[bridge.ForeignFile | None, Log | None]:
    """(What another tool reads as this text, or what a log of it says of its arguments; None if no
    tool here knows it, the steps of a log).
    """
    try:
        log = steps_of(text)
    except BadInput:
        return read_bridge(text, progress), None
    return bridge.arguments_of_log(text, None), log


KINDS = (".json", ".sh", ".yaml", ".toml")
"""As what a text may be read by a tool's reader."""


def read_bridge(text: str, progress: Progress) -> bridge.ForeignFile | None:
    """The text as a file of another tool; None if no tool here knows it."""
    for kind in KINDS if text.startswith("{") else KINDS[1:]:
        progress("reading", 0.0)
        try:
            return bridge.read_file(f"{DROPPED}{kind}", text)
        except BadInput as error:
            if not any(words in str(error) for words in NOT_THEIRS):
                raise
    return None


DROPPED = "dropped"
NOT_THEIRS = ("is no file of", "is not valid", "must hold", "is nested")
"""What a reader says of a text that is none of its tool's files."""


def question_in_file(
    file: bridge.ForeignFile, kept: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """The question of another tool's file; what it leaves open stays as it is on the page."""
    job = job_in_file(file, kept)
    left = (
        f"; not in it: {', '.join([*file.left][:NAMED])}" if file.left else ""
    )
    return question_of(
        job, layout=True
    ), f"a file of {file.format.title}{left}"


def job_in_file(file: bridge.ForeignFile, kept: Mapping[str, Any]) -> Job:
    """The job of another tool's file; kept: what stands where the file says nothing.

    BadInput for a model that it only half describes: the page's would be another one.
    """
    for why in file.missing:
        raise BadInput(
            f"this file of {file.format.title} {why.partition(':')[0]}: put that into it, or take"
            " its model out to keep the page's"
        )
    tables = {
        name: dict(t) if isinstance(t, Mapping) else t
        for name, t in file.tables.items()
    }
    if isinstance(tables.get(MODEL), dict):
        tables[MODEL].setdefault("name", f"a model of {file.format.title}")
    tables.setdefault(MODEL, describe_model(str(kept.get(MODEL) or FIRST)))
    count, chip = catalog.split_count(str(kept.get("on") or "8xh100-sxm"))
    on = file.on or chip
    if not catalog.COUNT.match(on):
        on = f"{file.chips or count}x{on}"
    tables["cluster"] = {"on": on}
    tables["job"].setdefault("batch", str(kept.get("batch") or "4Mi"))
    return load_job(tables, files=False)


NAMED = 6
"""Keys that a sentence names."""


def command_words(text: str) -> dict[str, str] | None:
    """The question of "meshwright plan llama3-70b --on ..."; None of what is no such command."""
    try:
        words = command_line(text.replace("\\\n", " "))
    except ValueError:
        return None
    at = next(
        (i for i, word in enumerate(words[:4]) if STARTS.search(word)), None
    )
    if at is None:
        return None
    words = words[at + 1 :]
    if not words or words[0] not in VERBS:
        raise BadInput(f"the command must be one of {', '.join(VERBS)}")
    names = {
        flag.spelled: flag.name for flag in flags() if flag.table != TRAIN
    }
    question = {}
    rest = iter(words[1:])
    for word in rest:
        option, equals, value = word.partition("=")
        if option in names:
            question[names[option]] = value if equals else next(rest, "")
        elif word.startswith("--"):
            raise unknown("the command: option", option, names)
        else:
            question[MODEL] = word
    return question
