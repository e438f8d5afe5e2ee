"""What people drop on the page (a config.json, a JOB.toml, a command line) becomes a question."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ..describe.read import brief
from ..errors import BadInput, unknown
from ..formats import LARGEST, parse_json, parse_toml
from ..formats.flags import flags
from ..formats.hf import read_hf
from ..formats.toml import load_job
from ..report.console import SCHEMA
from ..search.evaluate import Progress
from .answers import Answer, Body
from .question import JOB, MODEL, checked, question_of

COMMAND = "meshwright"
VERBS = ("predict", "plan", "sweep", "timeline", "roofline")
"""Commands whose options are a question."""


def read(body: Body, progress: Progress) -> Answer:
    """The question in a text, with a sentence on what it was taken for."""
    text = body.get("text")
    if not isinstance(text, str) or not text.strip():
        raise BadInput("text must be what to read: a config.json, a JOB.toml or a command line")
    if len(text) > LARGEST:
        raise BadInput(f"the text is longer than {LARGEST:,} characters")
    kept = body.get("question") or {}
    question, said = taken(text.strip(), kept if isinstance(kept, Mapping) else {})
    return {"schema": SCHEMA, "question": checked(question), "said": said}


def taken(text: str, kept: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """(question, what the text was taken for); kept: what stands where the text says nothing."""
    if text.startswith("{"):
        data = parse_json(text, "the text")
        if "schema" in data and "verb" in data:
            return result(data), f"a result of meshwright {str(data['verb'])[:20]}"
        model = read_hf(data)
        rest = {k: v for k, v in kept.items() if k not in (MODEL, JOB)}
        return {MODEL: text, **rest}, f"a config.json: {model.name}"
    words = command_words(text)
    if words is not None:
        return words, "a command line"
    job = load_job(parse_toml(text, "the text"), files=False)
    own = bool(job.layout.chips > 1)
    return question_of(job, layout=own), "a JOB.toml"


def command_words(text: str) -> dict[str, str] | None:
    """The question of "meshwright plan llama3-70b --on ..."; None of what is no such command."""
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError:
        return None
    if COMMAND not in words[:4]:
        return None
    words = words[words.index(COMMAND) + 1 :]
    if not words or words[0] not in VERBS:
        raise BadInput(f"the command must be one of {', '.join(VERBS)}")
    names, question = {flag.spelled: flag.name for flag in flags()}, {}
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


def result(data: Mapping[str, Any]) -> dict[str, Any]:
    """The question of a result written by -o."""
    best = data.get("best") or data
    if not isinstance(best, Mapping) or "model" not in best or "cluster" not in best:
        raise BadInput(f"a result of {brief(data.get('verb'))} does not say what was asked")
    texts = {
        MODEL: best["model"],
        "on": best["cluster"],
        "batch": f"{best.get('batch_sequences')}seq",
        "seq": str(best.get("seq_tokens", "")),
    }
    return {k: str(v) for k, v in texts.items()}
