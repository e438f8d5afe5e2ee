"""All worked numbers of the scaling book, and how they are judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright_studies.reproduce import reproduce
from meshwright_studies.reproduce.scaling_book import (
    FIGURES,
    published,
    tables,
)
from refusals import refusal

CASES = published.shipped()
ROUNDED = {
    "P5-23": "the text divides by 432, we by 433.5",
    "P5-23N": "the text divides by 108, we by 108.4",
    "P5-20": "the text rounds the batch",
    "P5-Q1d": "we count norms",
    "P6-04": "we count norms",
    "P6-11": "the text adds 20.97e12, we 20.97152e12",
    "P6-13b": "the text rounds to 1752 days",
    "P6-21": "we count norms",
    "P6-21b": "we count norms",
    "P6-21c": "we count norms",
}
"""Cases whose expected value carries a rounding of its own."""


@pytest.fixture(scope="module")
def report():
    return reproduce("scaling-book")


def test_every_case_is_computed_and_agrees(report):
    # 164 worked numbers, and both passes of a row of the take-aways
    assert len(CASES) == len({c.id for c in CASES}) == 166
    assert report.summary["mismatch"] == 0 == report.summary["explained"]
    assert report.summary["erratum"] == 22
    assert sum(report.summary[s] for s in ("match", "loose", "open")) == 144


def test_a_match_is_the_printed_number_to_its_digits(report):
    """Half a unit of the last digit, or 1 %; what the book rounds further is loose, what it leaves
    to the reader is open.
    """
    for check in report.checks:
        if check.status == "match" and abs(check.rel_diff) > 0.01:
            digits, power = f"{check.published:.6e}".split("e")
            unit = 10.0 ** (int(power) - len(digits.rstrip("0").split(".")[1]))
            assert abs(check.computed - check.published) <= 0.501 * unit, check
        assert (check.status == "open") == (check.published is None)
    status = {c.id: c.status for c in report.checks}
    assert {status[k] for k in ("P5-19", "P5-19b", "P5-25", "P5-33")} == {
        "loose"
    }


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_our_answer(case):
    rel = 4e-3 if case.id in ROUNDED else 1e-9
    assert case.answer() == pytest.approx(case.computed, rel=rel)


def test_errata_show_what_should_have_been_printed(report):
    for check in report.checks:
        if check.status == "erratum":
            assert check.note and abs(check.rel_diff) > 0.005
    assert next(
        c for c in report.checks if c.id == "P5-17"
    ).computed == pytest.approx(1.6256e6, rel=1e-4)


def test_a_wrong_number_is_a_mismatch():
    case = next(c for c in CASES if c.id == "P5-04")
    assert published.judge(case, case).status == "match"
    for wrong in (
        {"printed": 900.0},
        {"computed": 900.0},
        {"kind": "erratum", "computed": 700.0},
        {"kind": "derived", "printed": None, "computed": 700.0},
    ):
        other = published.judge(replace(case, **wrong), case)
        assert other.status == "mismatch"
    unknown = published.judge(replace(case, id="P5-99"), None)
    assert (
        unknown.status == "mismatch"
        and unknown.computed is None
        and "no computation" in unknown.note
    )
    assert (
        "inputs differ"
        in published.judge(replace(case, inputs="alpha 3000"), case).note
    )


def test_against_a_file(tmp_path):
    rows = [
        {
            "id": "P5-04",
            "printed": 850,
            "computed": 850.0,
            "tol": 0.02,
            "kind": "ok",
        },
        {"id": "X", "printed": 1},
    ]
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": rows}))
    summary = reproduce("scaling-book", file).summary
    assert (summary["match"], summary["mismatch"]) == (1, 1)
    for wrong in (
        {"id": 3},
        {"id": "a", "printed": "one"},
        {"id": "a", "computed": 10**400},
        {"id": "a", "tol": float("nan")},
        {"id": "a", "kind": "odd"},
        [],
    ):
        file.write_text(json.dumps({"cases": [wrong]}))
        with refusal("case 1"):
            reproduce("scaling-book", file)


def test_the_page_counts_what_the_terminal_counts():
    page = Path(__file__).parents[2] / "docs" / "roofline.md"
    text = " ".join(page.read_text("utf-8").split())
    report = reproduce("scaling-book")
    of = report.summary
    assert (
        f"Of the {len(report.checks)} checks, {of['match']} match, {of['loose']} are loose (the"
        f" book rounds), {of['open']} are open (it asks and prints nothing), {of['erratum']} are"
        " errata"
    ) in text
    assert of["mismatch"] == of["explained"] == 0


def test_explorer_steps():
    rows = {row["fsdp"]: row for row in tables.explorer()}
    book, real = (f"compute_bound_from_max_{how}" for how in ("book", "real"))
    assert [rows[x][book] for x in (4096, 2048, 1024, 512)] == pytest.approx(
        [3481600, 1740800, 870400, 435200]
    )
    assert rows[512][real] == pytest.approx(652800)
    assert rows[256][book] == "never"
    assert len(rows) == 13


def test_times_have_the_plateaus_of_the_printed_figure():
    flat = {
        row["fsdp"]: row["comm_sum_s"]
        for row in tables.times_table()
        if row["batch_tokens"] == tables.BATCHES[0]
    }
    assert flat[4096] == pytest.approx(1.99e-3, rel=0.01)
    assert flat[512] == pytest.approx(373e-6, rel=0.01)
    assert flat[256] == pytest.approx(186e-6, rel=0.01)


@pytest.mark.parametrize("figure", FIGURES[:4], ids=lambda f: f.name)
def test_figures_have_labelled_axes(figure):
    drawn = figure.draw()
    labels = [drawn.get_supxlabel(), drawn.get_supylabel()] + [
        t for ax in drawn.axes for t in (ax.get_xlabel(), ax.get_ylabel())
    ]
    assert any("tokens" in t for t in labels) and any(
        "time" in t or "T_{" in t for t in labels
    )
    assert all(
        line.get_marker() != "None" or line.get_color() == "black"
        for ax in drawn.axes
        for line in ax.lines
    )
