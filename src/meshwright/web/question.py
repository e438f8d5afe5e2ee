"""What a page asks: a flat table of texts, the same in an address, on a command line and in a file.

    {"model": "llama3-70b", "on": "512xh100-sxm", "batch": "4Mi", "tp": "4,8"}

Keys are the options of the command (`formats.flags`); `model` is a name of the catalogue or the
text of a config.json, and `job`, in its place, the text of a JOB.toml. Files are never opened here.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from pprint import pformat
from typing import Any

from ..describe.job import TRAIN, Job
from ..describe.layout import Layout
from ..describe.read import read, to_dict
from ..errors import BadInput, command, unknown
from ..formats import STDIN, parse_json, parse_toml
from ..formats.flags import (
    describe,
    job_and_space,
    with_schedule,
)
from ..formats.hf import read_hf
from ..formats.options import flags
from ..formats.toml import dump_job, laid_by_set, load_job, thing_named
from ..formats.toml_writer import dumps_toml
from ..search import Space

MODEL, JOB = "model", "job"
FIRST = "llama3-70b"
"""The model of the question that the page opens with."""
OPENING = {
    "model": FIRST,
    "on": "512xh100-sxm",
    "batch": "4Mi",
    "tokens": "15T",
}
"""The question that the page opens with (state.js has the same)."""
FILES = (".toml", ".json", ".yaml", ".yml", ".sh")
LONGEST = 2000
"""Characters of a text of a question, but for models and jobs."""
Question = Mapping[str, str]


def keys() -> tuple[str, ...]:
    """What a question may hold, in canonical order."""
    known = (
        flag
        for flag in flags()
        if flag.table not in (MODEL, TRAIN) and flag.name != "placement"
    )
    return (MODEL, JOB, *(flag.name for flag in known))


def check_question(question: Question | None) -> dict[str, str]:
    """The texts of a question, in canonical order, without those left empty.  Raises BadInput."""
    texts = question or {}
    allowed = keys()
    for key, text in texts.items():
        if key not in allowed:
            raise unknown("question: field", key, allowed)
        if len(text) > LONGEST and key not in (MODEL, JOB):
            raise BadInput(
                f"question.{key} is longer than {LONGEST:,} characters"
            )
    return {
        key: texts[key].strip()
        for key in allowed
        if texts.get(key, "").strip()
    }


def _tables(question: Question, given: Mapping[str, str]) -> dict[str, Any]:
    """The tables of `load_job` that a question and these of its fields make."""
    model = question.get(MODEL, "")
    job = question.get(JOB)
    if job is not None:
        given_tables = describe(STDIN, given, io.StringIO(job))
        return (
            given_tables
            if not model
            else {**given_tables, MODEL: describe_model(model)}
        )
    if not model:
        raise BadInput(f"--model is missing: give it, such as {FIRST}")
    if Path(model).suffix.lower() in FILES:
        raise BadInput(
            f"model {model[:80]!r}: files are not read here, give their text"
        )
    return {**describe(FIRST, given), MODEL: describe_model(model)}


def describe_model(model: str) -> Any:
    """A model's name, or all fields of the one in the text of a config.json."""
    if not model.startswith("{"):
        return model
    return to_dict(read_hf(parse_json(model, "the config.json")))


def ask(question: Question | None, notes: list[str]) -> tuple[Job, Space]:
    """The job of a question, and the space that its layout fields leave to a search."""
    texts = check_question(question)
    given, space = job_and_space(
        {k: v for k, v in texts.items() if k not in (MODEL, JOB)}
    )
    job = load_job(
        _tables(texts, given),
        files=False,
        notes=notes,
        bare=False,
    )
    return job, space


def sole_values(space: Space) -> dict[str, Any]:
    """The layout that a space leaves.  Raises BadInput where it leaves several."""
    for name, values in space.choices.items():
        if len(values) > 1:
            raise BadInput(
                f"question.{name} has {len(values)} values: a prediction takes one"
            )
    return {name: values[0] for name, values in space.choices.items()}


def laid_out(
    job: Job, layout: Mapping[str, Any], notes: list[str] | None = None
) -> Layout:
    """The layout of a table of its fields: what it does not say is what the set alone allows, and
    replicas fill the chips; notes: receives a sentence on what the set filled in.
    """
    said = with_schedule(layout)
    given_layout = read(Layout, said, "layout", thing_named)
    return laid_by_set(job, given_layout, said, notes).filling(
        job.cluster.chips
    )


def question_of(job: Job, layout: bool = False) -> dict[str, str]:
    """The question that describes a job, in names where the catalogue has them, else as a JOB.toml.

    layout: with the job's own layout, each field fixed.
    """
    return question_in(dump_job(job), layout)


def question_in(text: str, layout: bool) -> dict[str, str]:
    """The question in the text of a job file that `dump_job` wrote; see `question_of`."""
    data = parse_toml(text, "the job")
    model = data[MODEL]
    cluster = data["cluster"]
    fixed = (
        {k: as_typed(v) for k, v in data["layout"].items() if k != "placement"}
        if layout
        else {}
    )
    if [*model] != ["name"] or [*cluster] != ["on"]:
        return {JOB: without_layout(text), **fixed}
    rest = {**cluster, **data.get("software", {}), **data["job"]}
    if any(isinstance(value, (dict, list)) for value in rest.values()):
        return {JOB: without_layout(text), **fixed}
    named = {
        MODEL: model["name"],
        **{k: as_typed(v) for k, v in rest.items()},
        **fixed,
    }
    return {key: named[key] for key in keys() if key in named}


def as_typed(value: object) -> str:
    """A value as one types it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def without_layout(text: str) -> str:
    """The JOB.toml without its layout, which a question holds in fields of its own."""
    kept = {
        k: v for k, v in parse_toml(text, "the job").items() if k != "layout"
    }
    return dumps_toml(kept).strip()


def command_of(
    question: Question,
    clusters: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
) -> str:
    """The command that answers a question; a model or job given as text is a file there.

    clusters: to compare, by a sweep;  prices: chip -> one's own USD/h.
    """
    named = {flag.name: flag.spelled for flag in flags()}
    model = question.get(MODEL, "")
    first = "config.json" if model.startswith("{") else model or "job.toml"
    words = ["sweep" if clusters else "plan", first]
    for key, text in question.items():
        if key in named:
            words += [named[key], text]
    for chip, rate in (prices or {}).items():
        words += ["--price", f"{chip}={rate:g}"]
    if clusters:
        words += ["--over", f"on={','.join(clusters)}"]
    return command(shlex.join(words))


def python_of(
    question: Question,
    clusters: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
) -> str:
    """The lines of Python that answer a question.

    clusters: to compare;  prices: chip -> one's own USD/h.
    """
    texts = {k: v for k, v in question.items() if k not in (MODEL, JOB)}
    given, space = job_and_space(texts)
    source = _tables(question, given)
    limits = ", ".join(
        f"{name}={values!r}" for name, values in space.choices.items()
    )
    used = ("Space", "cluster", "load_job", "plan")
    needed = [bool(limits), bool(clusters), True, True]
    names = ", ".join(
        name for name, yes in zip(used, needed, strict=True) if yes
    )
    described = pformat(source, sort_dicts=False, width=80)
    lines = [f"job = load_job({described})"]
    if prices:
        lines.append(f"prices = {dict(prices)!r}  # USD for an hour of a chip")
    one = [
        f"found = plan(job, Space({limits}))"
        if limits
        else "found = plan(job)"
    ]
    one.append("print(found)")
    if prices:
        one[:0] = RENTED
    if clusters:
        lines.append(f"for name in {[*clusters]!r}:")
        one = ["job = replace(job, cluster=cluster(name))", *one]
        one = [f"    {line}" for line in one]
    head = [f"from meshwright import {names}", ""]
    if clusters or prices:
        head = ["from dataclasses import replace", "", *head]
    return "\n".join([*head, *lines, *one, ""])


RENTED = (
    "chip = job.cluster.chip",
    "chip = replace(chip, usd_per_hour=prices.get(chip.name, chip.usd_per_hour))",
    "job = replace(job, cluster=replace(job.cluster, chip=chip))",
)
"""Lines of Python: the job on chips at one's own prices."""
