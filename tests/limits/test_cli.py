"""The verb `limits`: tables, JSON, files, and one sentence for every mistake."""

import csv
import re
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli.limits import laws
from meshwright.limits.scenario import Scenario, preset
from shell import Shell


def under(scenario: Scenario, *words: Any) -> Scenario:
    """A scenario under other laws."""
    return reduce(lambda s, change: change(s), laws(*words), scenario)


def test_tables(shell: Shell) -> None:
    text = shell("limits h100 --all").out
    # ends, the wall, and the run of width 53,248
    for number in ("2.0e+28", "6.7e+28", "2.7e+31", "8,388,608", "16x32"):
        assert number in text


def test_the_card_says_how_long_its_run_takes(shell: Shell) -> None:
    """Chips x days x share of the peak are its FLOPs; the paper's grid is six times off."""
    card = " ".join(shell("limits h100").out.split())
    days, flops, chips, share = re.search(
        r"of ([\d.]+) days\? linear up to (\S+) FLOP: ([\d.]+) M chips,"
        r" .*? ([\d.]+) % of peak",
        card,
    ).groups()  # type: ignore[union-attr]
    work = float(days) * 86400 * float(chips) * 1e6 * float(share) / 100
    peak = preset("h100").chip.peak("fp16")
    assert work * peak == pytest.approx(float(flops), rel=0.03)
    assert flops == "1.1e+29" and "sure to a factor of 6" in card


def test_json_has_both_crossings(shell: Shell) -> None:
    answer = shell.json("limits h100 v100/sparse")
    assert answer["verb"] == "limits"
    first, second = answer["scenarios"]
    assert (first["scenario"], second["scenario"]) == ("h100", "v100/sparse")
    ends = (first["crossing"][f"{end}_flops"] for end in ("first", "last"))
    assert [f"{flops:.0e}" for flops in ends] == ["2e+28", "7e+28"]
    assert first["bills"][0]["energy_j"] > 0


def test_questions(shell: Shell) -> None:
    answer = shell.json("limits h100 --run 1e27 --chips 1e5")
    smallest, largest = answer["answers"]
    assert smallest["flops"] == pytest.approx(1e27, rel=1e-6)
    assert largest["chips"] <= 1e5


def ends(shell: Shell, *lines: str) -> list[float]:
    """First ends of linear scaling of an H100's curve under some words."""
    return [
        shell.json(f"limits h100 {words}")["scenarios"][0]["crossing"][
            "first_flops"
        ]
        for words in lines
    ]


def test_options_change_the_answer(shell: Shell) -> None:
    """Fewer layers scale farther, more tokens less far."""
    longer = "--tokens-per-parameter 200"
    less = ends(shell, "--failures", longer)
    (base,) = ends(shell, "")
    more = ends(shell, "--months 6", "--overlap", "--depth 0.5")
    assert max(less) < base < min(more)


def test_laws_on_the_line_are_those_of_the_papers_scenarios() -> None:
    base = preset("h100")
    for words, name in (
        (("deepseek", None, None, None), "h100-deepseek"),
        (("fixed", None, None, 8.0), "h100-fixed/sparse"),
    ):
        other = under(base, *words)
        law = preset(name).law
        assert other.law == replace(
            law, name="baseline", source=other.law.source
        )
    back = under(preset("h100/sparse"), None, None, None, 1.0)
    assert back.law.experts is None
    other = under(base, None, 0.5, 200.0, None)
    assert other.law.depth(1e9) == base.law.depth(1e9) / 2
    assert other.law.tokens_per_parameter == 200


@pytest.mark.slow
def test_realistic(shell: Shell) -> None:
    (ladder,) = shell.json("limits h100 --model realistic")["ladders"]
    mortal, sure = ladder["realistic"][:2]
    assert mortal["name"] == "everything counted"
    assert sure["name"] == "chips never fail"
    assert mortal["largest_flops"] < sure["largest_flops"]


@pytest.mark.parametrize("name", ["l.csv", "l.json", "l.png", "l.svg"])
def test_files(name: str, tmp_path: Path, shell: Shell) -> None:
    written = tmp_path / name
    shell(f"limits h100 -o {written}")
    assert written.stat().st_size > 1000
    if name.endswith("csv"):
        rows = list(csv.DictReader(written.read_text().splitlines()))
        assert len(rows) == 31 and float(rows[-1]["flops"]) == pytest.approx(
            2.707375e31, rel=1e-6
        )


@pytest.mark.parametrize("words", ["--restart 1d", "--months 0.001"])
def test_where_no_run_ends_in_time_the_card_says_so(
    words: str, shell: Shell
) -> None:
    """A curve without points neither scales nor goes beyond its grid."""
    said = shell(f"limits h100 {words} --all").out
    assert "linear  never: not even a model as wide as GPT-3" in said
    assert "no run" in said and "beyond" not in said
    several = shell(f"limits h100 a100 {words}").out
    assert several.count("never") == several.count("none") == 2


def test_nothing_does_it(shell: Shell) -> None:
    said = shell("limits h100 --run 1e33", ends=1).err
    assert "no number of chips" in said and "the latency wall, is " in said


def test_a_run_is_before_at_or_after_the_end_and_beyond_the_wall(
    shell: Shell,
) -> None:
    """Linear scaling ends at 1.1e29 FLOP, the grid with a run of 2.7e31, real degrees at 4.7e31."""
    wall = "beyond 2.7e+31 FLOP, the latency wall on the paper's grid"
    for flops, words, beyond in (
        ("5e28", "scales linearly, above 56.0 % of peak", False),
        ("1e29", "scales just about linearly: the end is at 56.0 %", False),
        ("4e29", "scales no longer linearly, below 56.0 % of peak", False),
        ("2e31", "scales no longer linearly, below 56.0 % of peak", False),
        ("4e31", "scales no longer linearly", True),
    ):
        card = " ".join(shell(f"limits h100 --run {flops}").out.split())
        assert words in card and (wall in card) == beyond
