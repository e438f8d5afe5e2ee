"""The verb `limits`: tables, JSON, files, and one sentence for every mistake."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli.limits import under_laws
from meshwright.cli.main import main
from meshwright.limits.scenario import preset

Capture = pytest.CaptureFixture[str]


def told(capsys: Capture, *words: str) -> str:
    assert main(["limits", *words]) == 0
    return capsys.readouterr().out


def fields(capsys: Capture, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(told(capsys, *words, "--json"))
    return answer


def test_tables(capsys: Capture) -> None:
    text = told(capsys, "h100", "--all")
    # ends, the wall, and the run of width 53,248
    for number in ("2.0e+28", "6.7e+28", "2.7e+31", "8,388,608", "16x32"):
        assert number in text


def test_json_has_both_crossings(capsys: Capture) -> None:
    answer = fields(capsys, "h100", "v100/sparse")
    assert answer["verb"] == "limits"
    first, second = answer["scenarios"]
    assert (first["scenario"], second["scenario"]) == ("h100", "v100/sparse")
    ends = (first["crossing"][f"{end}_flops"] for end in ("first", "last"))
    assert [f"{flops:.0e}" for flops in ends] == ["2e+28", "7e+28"]
    assert first["bills"][0]["energy_j"] > 0


def test_questions(capsys: Capture) -> None:
    answer = fields(capsys, "h100", "--run", "1e27", "--chips", "1e5")
    smallest, largest = answer["answers"]
    assert smallest["flops"] == pytest.approx(1e27, rel=1e-6)
    assert largest["chips"] <= 1e5


def test_options_change_the_answer(capsys: Capture) -> None:
    base, longer, overlapped, mortal = (
        fields(capsys, "h100", *words)["scenarios"][0]["crossing"][
            "first_flops"
        ]
        for words in ((), ("--months", "6"), ("--overlap",), ("--failures",))
    )
    assert min(longer, overlapped) > base > mortal


def test_laws_on_the_line_are_those_of_the_papers_scenarios() -> None:
    base = preset("h100")
    for words, name in (
        (("deepseek", None, None, None), "h100-deepseek"),
        (("fixed", None, None, 8.0), "h100-fixed/sparse"),
    ):
        (other,) = under_laws([base], *words)
        law = preset(name).law
        assert other.law == replace(
            law, name="baseline", source=other.law.source
        )
    (back,) = under_laws([preset("h100/sparse")], None, None, None, 1.0)
    assert back.law.experts is None
    (other,) = under_laws([base], None, 0.5, 200.0, None)
    assert other.law.depth(1e9) == base.law.depth(1e9) / 2
    assert other.law.tokens_per_parameter == 200


def test_a_law_on_the_line_changes_the_answer(capsys: Capture) -> None:
    """Fewer layers scale farther, more tokens less far; closed forms are those of the paper's
    laws only.
    """
    base, fewer, longer = (
        fields(capsys, "h100", *words)["scenarios"][0]
        for words in (
            (),
            ("--depth", "0.5"),
            ("--tokens-per-parameter", "200"),
        )
    )
    ends = [x["crossing"]["first_flops"] for x in (longer, base, fewer)]
    assert ends == sorted(ends) and len(set(ends)) == 3
    assert base["closed_forms"]
    assert fewer["closed_forms"] is longer["closed_forms"] is None
    assert main(["limits", "h100", "--depth", "-1"]) == 2
    assert "--depth must be above 0" in capsys.readouterr().err


@pytest.mark.slow
def test_realistic(capsys: Capture) -> None:
    (ladder,) = fields(capsys, "h100", "--model", "realistic")["ladders"]
    mortal, sure = ladder["realistic"][:2]
    assert mortal["name"] == "everything counted"
    assert sure["name"] == "chips never fail"
    assert mortal["largest_flops"] < sure["largest_flops"]


@pytest.mark.parametrize("name", ["l.csv", "l.json", "l.png", "l.svg"])
def test_files(name: str, tmp_path: Path, capsys: Capture) -> None:
    told(capsys, "h100", "-o", str(tmp_path / name))
    written = tmp_path / name
    assert written.stat().st_size > 1000
    if name.endswith("csv"):
        rows = list(csv.DictReader(written.read_text().splitlines()))
        assert len(rows) == 31 and float(rows[-1]["flops"]) == pytest.approx(
            2.707375e31, rel=1e-6
        )


@pytest.mark.parametrize(
    "words",
    [
        ("h101",),
        ("h100", "--months", "0"),
        ("h100", "--model", "ideal"),
        ("h100", "--run", "1"),
        ("h100", "-o", "x.pdf"),
        ("h100", "--sensitivity", "-o", "x.png"),
        ("nothing.toml",),
    ],
)
def test_mistakes(words: tuple[str, ...], capsys: Capture) -> None:
    assert main(["limits", *words]) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith("meshwright: ")
        and error.count("\n") == 1
        and "Traceback" not in error
    )


def test_nothing_does_it(capsys: Capture) -> None:
    assert main(["limits", "h100", "--run", "1e33"]) == 1
    said = capsys.readouterr().err
    assert "no number of chips" in said and "the latency wall, is " in said


def test_a_run_beyond_the_wall_of_the_grid_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Between the grid's last run, 2.7e31 FLOP, and the wall of real degrees, 4.7e31."""
    wall = "beyond 2.7e+31 FLOP, the latency wall on the paper's grid"
    for flops, beyond in (("4e31", True), ("2e31", False), ("1e27", False)):
        assert main(["limits", "h100", "--run", flops]) == 0
        card = " ".join(capsys.readouterr().out.split())
        assert (wall in card) == beyond


def test_a_table_has_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits", "h100", "--sensitivity", "-o", "x.png"]) == 2
    assert "answer with a table, not a curve" in capsys.readouterr().err
