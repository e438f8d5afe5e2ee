"""The verb `limits`: tables, JSON, files, and one sentence for every mistake."""

import csv
import json
from pathlib import Path

import pytest

from meshwright.cli.main import main

Capture = pytest.CaptureFixture[str]


def told(capsys: Capture, *words: str) -> str:
    assert main(["limits", *words]) == 0
    return capsys.readouterr().out


def test_tables(capsys: Capture) -> None:
    text = told(capsys, "h100")
    assert "2.0e+28" in text and "6.7e+28" in text and "2.7e+31" in text
    assert "8,388,608" in text and "16x32" in text  # the run of width 53,248


def test_json_has_both_crossings(capsys: Capture) -> None:
    found = json.loads(told(capsys, "h100", "v100/sparse", "--json"))
    assert found["verb"] == "limits" and [
        s["scenario"] for s in found["scenarios"]
    ] == [
        "h100",
        "v100/sparse",
    ]
    crossing = found["scenarios"][0]["crossing"]
    assert (
        f"{crossing['first_flops']:.0e} {crossing['last_flops']:.0e}"
        == "2e+28 7e+28"
    )
    assert found["scenarios"][0]["bills"][0]["energy_j"] > 0


def test_questions(capsys: Capture) -> None:
    both = json.loads(
        told(capsys, "h100", "--run", "1e27", "--chips", "1e5", "--json")
    )["answers"]
    assert (
        both[0]["flops"] == pytest.approx(1e27, rel=1e-6)
        and both[1]["chips"] <= 1e5
    )
    assert "200" not in told(capsys, "h100", "--run", "1e26").splitlines()[0]


def test_options_change_the_answer(capsys: Capture) -> None:
    ends = {}
    for words in ((), ("--months", "6"), ("--overlap",), ("--failures",)):
        scenario = json.loads(told(capsys, "h100", *words, "--json"))[
            "scenarios"
        ][0]
        ends[words] = scenario["crossing"]["first_flops"]
    base = ends[()]
    assert (
        ends[("--months", "6")] > base
        and ends[("--overlap",)] > base > ends[("--failures",)]
    )


@pytest.mark.slow
def test_realistic(capsys: Capture) -> None:
    ladder = json.loads(
        told(capsys, "h100", "--model", "realistic", "--json")
    )["ladders"][0]
    names = [c["name"] for c in ladder["realistic"]]
    assert names[:2] == ["everything counted", "chips never fail"]
    assert (
        ladder["realistic"][0]["largest_flops"]
        < ladder["realistic"][1]["largest_flops"]
    )


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
    assert "no number of chips" in capsys.readouterr().err
