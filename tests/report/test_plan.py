"""What `plan` prints, from a plan made by hand."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console, RenderableType

from meshwright.catalog import cluster, model
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.prediction.prediction import predict
from meshwright.report.plan import comparison, ranking, report, why
from meshwright.report.text import seconds

JOB = Job(model("llama3-8b"), cluster("64xh100-sxm"), batch=128)
FAST, SLOW, BIG = (predict(JOB, Layout(tp=tp, dp=64 // tp, zero=1)) for tp in (2, 8, 1))


def plan(**changes: Any) -> Any:
    """A plan as the search returns it."""
    fields = {
        "best": FAST,
        "alternatives": (SLOW,),
        "pareto": (FAST, SLOW),
        "searched": 1234567,
        "feasible": 12345,
    }
    fields |= {
        "rejected": {"memory": 7, "heads over tp": 0, "even batch": 99},
        "elapsed_s": 0.25,
        "closest": None,
        "notes": (),
        "idle": "",
        "tried": "ZeRO 0, 1",
        "untried": "ZeRO 2, 3",
    }
    return SimpleNamespace(**{**fields, **changes})


def printed(*parts: RenderableType) -> str:
    console = Console(width=240, file=io.StringIO())
    for part in parts:
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_reason_names_what_binds_and_what_the_runner_up_loses() -> None:
    text = printed(*why(plan()))
    assert "tensor-parallel communication" in text
    loss = SLOW.step_time_s / FAST.step_time_s - 1
    gain = SLOW.time_s["tp_comm"] - FAST.time_s["tp_comm"]
    assert f"{100 * loss:.2f} % slower" in text and f"tp_comm +{seconds(gain)}" in text
    assert "is as fast" in printed(*why(plan(alternatives=(FAST,))))


def test_a_ranking_counts_from_the_fastest() -> None:
    title, same, header, first, second = printed(ranking("layouts", (FAST, SLOW))).splitlines()
    assert title == "layouts" and "ZeRO 1" in same and "recompute none" in same
    assert header.split()[:3] == ["step", "replay", "slower"] and "cp" not in header.split()
    assert first.count("%") == 1 and second.count("%") == 2, "the fastest loses nothing"
    assert first.startswith("1 ") and "tp 8" in second


def test_the_whole_report() -> None:
    text = printed(report(plan(notes=("a note",)), "meshwright predict x"))
    for words in (
        "1,234,567 layouts in 250 ms; 12,345 of those looked at fit",
        "99 combinations of degrees against the rule: even batch",
        "note: a note",
        "again: meshwright predict x",
    ):
        assert words in text
    assert "heads over tp" not in text and text.index("even batch") < text.index(
        "7 do not fit in memory"
    )


def test_the_front_is_shown_if_asked_for() -> None:
    asked, not_asked = (printed(report(plan(pareto=front), "")) for front in ((FAST, SLOW), None))
    assert "time against memory" in asked and "time against memory" not in not_asked


def test_nothing_fits() -> None:
    text = printed(
        report(
            plan(best=None, alternatives=(), pareto=(), closest=BIG, notes=("take 4 chips",)), ""
        )
    )
    assert (
        text.startswith("no layout fits\n  take 4 chips")
        and "closest" in text
        and "again: " not in text
    )


def test_several_assumption_sets() -> None:
    lines = printed(comparison({"a": plan(), "b": plan(best=None)})).splitlines()
    assert lines[1].startswith("a ") and seconds(FAST.step_time_s) in lines[1]
    assert lines[2].split() == ["b", "no", "layout", "fits"]
