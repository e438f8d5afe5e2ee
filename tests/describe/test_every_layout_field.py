"""A field of a layout reaches every face, or is refused: flags, files, JSON, text, tables, the
space of a search.

The tests go over `fields(Layout)`, so a field that is added tomorrow is tested without another
line; and they try one.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from meshwright import (
    Job,
    Layout,
    Prediction,
    dump_job,
    load_job,
    plan,
)
from meshwright.describe.choices import FIELDS
from meshwright.describe.fields import fields_of
from meshwright.describe.layout import DEGREES
from meshwright.formats import parse_toml
from meshwright.formats.flags import (
    job_and_space,
    read_flags,
    write_flags,
)
from meshwright.formats.options import flags
from meshwright.layout.placement import placed
from meshwright.report.plan import ranking_table
from meshwright.report.text import layout_words
from meshwright.search import SEARCH_FIELDS, Plan, Space
from meshwright.sweep import Sweep, SweepPoint
from refusals import refusal


def printed(part: RenderableType) -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(part)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def predicted(layout: Layout) -> Prediction:
    return Prediction(JOB, placed(layout.filling(1), JOB.cluster.sizes))


JOB = Job("llama3-8b", "64xh100-sxm", 64)


def another(name: str) -> Any:
    """A value that is not the default."""
    if name in DEGREES:
        return 2
    default = getattr(Layout(), name)
    texts = {
        "schedule": ("gpipe",),
        "zero": (3,),
        "sequence_parallel": (False,),
        "recompute": ("full",),
        "stages": ("slots",),
        "offload": ("activations",),
        "microbatch_group": (2,),
    }
    return next(
        v
        for v in texts.get(name) or fields_of(Layout)[name].kind.words
        if v != default
    )


@dataclass(frozen=True)
class Wider(Layout):
    """A layout with one more choice, as a new scheme would add it."""

    exchange: str = "gather"


@pytest.mark.parametrize("name", FIELDS)
def test_flags_and_files_carry_it(name: str) -> None:
    layout = replace(Layout(), **{name: another(name)})
    words = write_flags(layout, JOB)
    given = {
        word[2:].replace("-", "_"): text
        for word, text in zip(words[::2], words[1::2], strict=True)
    }
    base = {"on": "64xh100-sxm", "batch": "64seq", "schedule": layout.schedule}
    assert read_flags("llama3-8b", base | given, fill=False).layout == layout
    assert (
        load_job(
            parse_toml(dump_job(replace(JOB, layout=layout)), "a file")
        ).layout
        == layout
    )
    assert name in {flag.name for flag in flags()}


@pytest.mark.parametrize("name", FIELDS)
def test_json_text_and_tables_show_it(name: str) -> None:
    """What two layouts differ in stands in each of them."""
    one, other = (
        predicted(replace(Layout(tp=4, pp=4), **more))
        for more in ({}, {name: another(name)})
    )
    assert one.to_dict()["layout"][name] != other.to_dict()["layout"][name]
    assert layout_words(one.layout) != layout_words(other.layout)
    first, second = (
        Sweep("batch", (SweepPoint(1, p.job, p),)).rows()[0]
        for p in (one, other)
    )
    assert first[name] != second[name]


def test_a_field_of_tomorrow() -> None:
    """JSON, text, tables, flags and files derive from the fields of the layout; a search that knows
    nothing of it refuses.
    """
    wide = Wider(tp=2, dp=1, exchange="ulysses")
    p = predicted(wide)
    assert p.to_dict()["layout"]["exchange"] == "ulysses"
    assert "exchange ulysses" in layout_words(wide)
    found = Plan(p, (predicted(Wider(tp=2)),))
    assert "ulysses" in printed(
        ranking_table("layouts", (p, *found.alternatives), found)
    )
    assert write_flags(wide, JOB)[-2:] == ["--exchange", "ulysses"]
    assert 'exchange = "ulysses"' in dump_job(replace(JOB, layout=wide))


def test_a_search_refuses_a_field_that_its_tables_do_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Never `plan --context ulysses` that plans something else."""
    monkeypatch.delitem(SEARCH_FIELDS, "panels")
    with refusal("panels is not searched: it can only be given to predict"):
        job_and_space({"panels": "8"})


@pytest.mark.parametrize("name", FIELDS)
def test_a_search_keeps_to_it(name: str) -> None:
    """Each layout of the answer has the value that was asked for."""
    job, value = Job("gpt2", "16xh100-sxm", 32), another(name)
    more: dict[str, Any] = {
        "panels": {"scheme": "summa"},
        "interleave": {"schedule": "interleaved"},
        "microbatch_group": {"schedule": "interleaved"},
    }.get(name, {})
    if name in ("ep", "etp"):
        job = Job("mixtral-8x7b", "64xh100-sxm", 64)
    if name == "etp":
        more = {"tp": 2}
    found = plan(job, Space(**{**more, name: value}), top=4)
    assert found.best
    assert {
        getattr(p.layout, name) for p in (found.best, *found.alternatives)
    } == {value}
