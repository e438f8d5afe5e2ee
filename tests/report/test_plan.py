"""What `plan` prints, from a plan made by hand."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from meshwright import Job, Layout, Prediction, predict
from meshwright.catalog import cluster
from meshwright.report import run_card
from meshwright.report.lines import IndentedLine
from meshwright.report.plan import (
    difference_words,
    families_table,
    plan_report,
    ranking_table,
    reason,
    versus,
)
from meshwright.report.run_card import (
    alternatives,
    faster,
    tie_words,
)
from meshwright.report.text import layout_words, seconds, short_words
from meshwright.search import Family, Plan, why_simpler

JOB = Job("llama3-8b", "64xh100-sxm", batch=128)
FAST, SLOW, BIG = (
    predict(JOB, Layout(tp=tp, dp=64 // tp, zero=1)) for tp in (2, 8, 1)
)
NEXT = predict(JOB, Layout(tp=2, dp=32, zero=2))


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
    return Plan(**{**fields, **changes})


def behind(p: Prediction) -> str:
    """What a layout takes beside the fastest."""
    return f"{100 * (p.merit_s / FAST.merit_s - 1):+.0f} %"


def printed(*parts: RenderableType) -> str:
    console = Console(width=240, file=io.StringIO())
    for part in parts:
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_reason_names_what_the_next_one_loses() -> None:
    text = reason(plan())
    loss = SLOW.merit_s / FAST.merit_s - 1
    gain = SLOW.time_s["tp_comm"] - FAST.time_s["tp_comm"]
    more = f"tensor-parallel communication +{seconds(gain)}"
    assert f"takes {100 * loss:+.1f} %: {more}" in text
    assert "takes" not in reason(plan(alternatives=(NEXT,))), "it is a tie"


def test_a_ranking_counts_from_the_first_and_marks_ties() -> None:
    rows = (FAST, NEXT, NEXT, SLOW)
    shown = printed(
        ranking_table("layouts", rows, plan(alternatives=rows[1:]))
    ).splitlines()
    header, first, second, last, ties = shown
    assert header.split() == [
        "layouts",
        "step",
        "vs",
        "first",
        "memory",
        "risk",
        "what",
    ]
    assert first.startswith("1 ") and "%  " not in first.partition("=")[0]
    assert " = " in second and " = " not in last and "a tie" in ties
    assert last.startswith("4 ") and "tp 8" in last, (
        "the same layout is shown once"
    )


def test_small_differences_are_none() -> None:
    """78 ns of 3 s."""
    later: Any = SimpleNamespace(
        time_s={**FAST.time_s, "host": FAST.time_s["host"] + 78e-9},
        memory_bytes=FAST.memory_bytes,
        risk_of_oom=FAST.risk_of_oom,
    )
    assert versus(FAST, later) == "the same in every cause"


def test_a_difference_that_counts_the_risk_says_so() -> None:
    said = "compares step time / P(fits)"
    assert said not in printed(ranking_table("layouts", (FAST, SLOW), plan()))
    risky = predict(replace(JOB, cluster=cluster("64xa100-40")), FAST.layout)
    assert risky.risk_of_oom - FAST.risk_of_oom > 0.01
    assert said in printed(ranking_table("layouts", (FAST, risky), plan()))


def test_families_are_marked_with_ties_and_reasons() -> None:
    rows = (
        Family("a", FAST),
        Family("b", NEXT),
        Family("c", SLOW, "a reason"),
    )
    text = printed(
        *families_table(plan(families=rows, kept=("tp inside a node",)))
    )
    best, tie, slow, *said = text.splitlines()[1:]
    assert (
        "best" in best
        and f"{behind(NEXT)} tie" in tie
        and behind(SLOW) in slow
        and "tie" not in slow
    )
    assert said == [
        "search limited to common practice: tp inside a node (name the field to override it, such"
        " as --tp 16)",
        "c: a reason",
    ]


def test_what_is_faster_and_not_the_answer_says_why() -> None:
    """A family that no run vouches for: the best is not the best of all layouts searched."""
    other = Layout(tp=4, dp=16, zero=3)
    quick = predict(replace(JOB, cluster=cluster("64xb200")), other)
    family = Family("a sharding without runs", quick, "no run has it")
    one = plan(alternatives=(SLOW,), families=(Family("a", FAST), family))
    assert one.slower(quick) < -0.1 and one.beyond is family
    said = reason(one)
    assert "of the layouts that published runs vouch for" in said
    assert "no run has it" in said and "all layouts searched" not in said
    rows = [row.text for row in alternatives(one)]
    assert any(text.endswith("(no run has it)") for text in rows)
    usual = plan(families=(Family("a", FAST), Family("b", SLOW)))
    assert usual.beyond is None
    assert "best risk-adjusted time of all layouts" in reason(usual)


def test_everything_fits_80_columns() -> None:
    """On a terminal of 80; a command to copy is never broken, and in a pipe no line is."""
    rows = (
        Family(
            "outside published practice",
            SLOW,
            "a long reason " * 20,
        ),
    )
    note = "a sentence that is longer than one line of any terminal, " * 4
    one = plan(notes=(note,), families=rows)
    for width in (80, 120):
        console = Console(width=width, file=io.StringIO())
        for part in plan_report(one, "meshwright predict x").renderables:  # type: ignore[attr-defined]
            console.print(part)
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(map(len, lines)) <= width
        assert any(
            behind(SLOW) in line for line in lines
        ) and "…" not in "".join(lines)
        assert any(
            line.startswith("      longer") or "      " in line[:6]
            for line in lines
        )
    console = Console(width=80, soft_wrap=True, file=io.StringIO())
    console.print(IndentedLine(note))
    assert console.file.getvalue() == f"{note}\n"  # type: ignore[attr-defined]


def test_the_whole_report() -> None:
    text = printed(
        plan_report(plan(notes=("a note",)), "meshwright predict x")
    )
    for words in (
        "Searched 1,234,567 layouts in 250 ms: 0 excluded by bounds, 7 out of memory, 12,345",
        "99 combinations of degrees skipped: even batch",
        "note: a note",
        "again: meshwright predict x",
    ):
        assert words in text
    assert "heads over tp" not in text


def test_the_front_is_shown_if_asked_for() -> None:
    asked, not_asked = (
        printed(plan_report(plan(pareto=front), ""))
        for front in ((FAST, SLOW), None)
    )
    assert (
        "time against memory" in asked
        and "time against memory" not in not_asked
    )


def test_nothing_fits() -> None:
    text = printed(
        plan_report(
            plan(
                best=None,
                alternatives=(),
                pareto=(),
                closest=BIG,
                notes=("take 4 chips",),
            ),
            "",
        )
    )
    assert layout_words(BIG.layout, BIG.microbatches) in text.splitlines()
    assert "note: take 4 chips" in text
    assert "Why this layout" not in text and "again: " not in text


def test_a_difference_that_the_risk_makes_says_so() -> None:
    """1 % faster by itself, 5 % over the chance to fit."""
    best: Any = SimpleNamespace(step_time_s=2.0)
    other: Any = SimpleNamespace(step_time_s=1.98)
    found: Any = SimpleNamespace(best=best, tie=lambda p: True)
    found.slower = lambda p: -0.01
    assert difference_words(found, other) == "-1.0 %, a tie"
    found.slower = lambda p: -0.05
    said = difference_words(found, other)
    assert said == "-5.0 % step time / P(fits), a tie"


def test_what_a_card_proposes_can_be_copied() -> None:
    """Flags and a layout stand whole on 80 columns, however long they are."""
    long = Layout(
        tp=4,
        pp=16,
        cp=2,
        dp=16,
        ep=64,
        etp=1,
        zero=1,
        microbatch=2,
        schedule="interleaved",
        interleave=2,
        recompute="full",
        offload="optimizer+weights",
    )
    other: Any = SimpleNamespace(
        layout=long, step_time_s=1.16, risk_of_oom=0.07, train_time_s=None
    )
    best: Any = SimpleNamespace(
        layout=Layout(dp=8), step_time_s=2.0, risk_of_oom=0.01
    )
    flags = "--cuda-graphs full --dispatcher deepep --precision fp8-mixed --tp-overlap all"
    offer: Any = SimpleNamespace(
        best=best,
        tuned=SimpleNamespace(prediction=other, flags=flags, change=-0.42),
    )
    (row,) = faster(offer)
    said = " ".join(line.plain for line in row.lines(80))
    said = " ".join(said.split())
    assert f"42 % faster with {flags} on {short_words(long)}" in said


def test_a_faster_tie_says_what_speaks_for_the_best() -> None:
    """A tie that takes less than the best is not left without a reason; one that does not, is."""
    offer: Any = SimpleNamespace(best=FAST)
    assert tie_words(offer, FAST) == "a tie within 6 %"
    less: Any = SimpleNamespace(
        layout=NEXT.layout, step_time_s=0.97 * FAST.step_time_s
    )
    has = why_simpler(JOB, FAST.layout, NEXT.layout)
    assert has
    assert tie_words(offer, less) == f"a tie within 6 %; the best has {has}"
    less.step_time_s = 0.9 * FAST.step_time_s
    assert tie_words(offer, less).startswith(
        "a tie within 6 % with the risks of both; "
    )


def test_a_set_that_no_run_was_compared_with_has_ties_of_equal_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_card, "resolution", lambda job: 0.0)
    offer: Any = SimpleNamespace(best=FAST)
    assert tie_words(offer, FAST) == "a tie"
