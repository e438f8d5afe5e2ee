"""Nothing that is asked is dropped: a sweep keeps the layout of a file, limits answers each option
under each model or refuses it by name.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from meshwright.cli import limits
from meshwright.cli.main import main
from meshwright.limits.realistic import (
    Realism,
    largest_on,
    numbers_of_chips,
    run_of,
    run_on,
    smallest_for,
    transformer,
)
from meshwright.limits.scenario import preset
from meshwright.prediction.failures import loss_to_failures
from shell import Shell

Capture = pytest.CaptureFixture[str]
JOB = """
model = "llama3-8b"
cluster = "64xh100-sxm"
[layout]
tp = 2
pp = 4
dp = 8
zero = 1
[job]
batch = "64seq"
"""


def layouts(data: dict) -> list[tuple[object, ...]]:
    """tp, pp, zero, schedule and chunks of each point."""
    names = ("tp", "pp", "zero", "schedule", "interleave")
    rows = [p["prediction"]["layout"] for p in data["points"]]
    return [tuple(row.get(n) for n in names) for row in rows]


def test_a_sweep_keeps_the_layout_of_a_file_and_says_so(
    tmp_path: Path, shell: Shell
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(JOB)
    line, over = f"sweep {file}", "--over interleave=1,2,4"
    data = shell.json(f"{line} {over}")
    assert data["fixed"]
    # 1F1B has one chunk on a device, interleaved 1F1B more: the schedule follows
    assert layouts(data) == [
        (2, 4, 1, "1f1b", 1),
        (2, 4, 1, "interleaved", 2),
        (2, 4, 1, "interleaved", 4),
    ]
    assert "layout: that of the file" in shell(f"{line} {over}").out
    searched = shell.json(f"{line} --replan --over chips=64")
    assert not searched["fixed"]
    assert layouts(searched) != [(2, 4, 1, "1f1b", 1)]
    # a flag lies over the file; a list asks for a search
    flagged = shell.json(f"{line} --pp 2 --dp 16 {over}")
    assert [row[:2] for row in layouts(flagged)] == [(2, 2)] * 3
    listed = shell.json(f"{line} --tp 1,2 --over chips=64")
    assert not listed["fixed"]
    assert "--replan" in shell.refused(f"{line} {over} --fixed --replan")


def test_flags_of_a_sweep_say_what_they_keep(shell: Shell) -> None:
    words = "sweep llama3-8b --on 64xh100 --batch 64seq --tp 2 --over chips=64"
    assert "searched at every value, but for tp 2" in shell(words).out


def test_one_field_has_no_column_to_choose_and_money_three_digits(
    shell: Shell,
) -> None:
    words = "sweep llama3-8b --on 64xh100 --batch 64seq --tokens 1T --fixed --zero 3"
    over = "--over chips=32,64 --show cost_usd"
    assert "--show cost_usd is for a sweep of two" in shell.refused(
        f"{words} {over}"
    )
    row = shell(f"{words} {over} --over zero=2,3").out.splitlines()[2]
    assert row.count(" k USD") == 2 and "," not in row


def test_a_run_of_whole_transformers_has_its_smallest_cluster(
    shell: Shell,
) -> None:
    """Time of the run = FLOPs / (chips x peak x utilisation); no width below does so much."""
    asked = "limits h100 --model realistic --run"
    (row,) = shell.json(f"{asked} 1e24")["answers"]
    scenario = preset("h100")
    peak = scenario.chip.peak("fp16")
    took = row["flops"] / (row["chips"] * peak * row["utilisation"])
    assert took == pytest.approx(row["duration_s"])
    assert row["duration_s"] <= scenario.duration_s and row["flops"] >= 1e24
    real = Realism()
    found = smallest_for(scenario, real, 1e24)
    assert found.chips == row["chips"]
    assert real.failures is not None
    kept = float(
        loss_to_failures(
            real.failures, row["chips"], row["parameters"]
        ).goodput
    )
    assert found.prediction.step_time_s < kept * scenario.duration_s
    # sixteen widths to an octave: the next below makes a smaller run than was asked for
    width = found.prediction.job.model.hidden
    below = width - 2 ** (width.bit_length() - 5)
    model = transformer(scenario.law, float(below), real)
    assert run_of(scenario.law, model)[0] < 1e24
    why = shell(f"{asked} 1e29", ends=1).err
    assert "no number of chips makes a run of 1e+29" in why


def test_the_smallest_cluster_is_no_larger_than_one_that_does_the_run() -> (
    None
):
    """The largest run of 1,280 chips, asked for again, needs no more of them; no smaller number of
    the grid between half of them and them does it.
    """
    scenario, real = preset("h100"), Realism()
    large = largest_on(scenario, real, 1280)
    small = smallest_for(scenario, real, large.flops)
    assert small.flops == large.flops
    assert large.chips / 2 < small.chips <= large.chips <= 1280
    width = float(small.prediction.job.model.hidden)
    fewer = [
        n
        for n in numbers_of_chips(scenario, small.chips - 1)
        if 2 * n > small.chips
    ]
    assert fewer
    for n in fewer:
        assert isinstance(run_on(scenario, real, width, n), str)


def test_a_chip_without_fp16_is_asked_in_bf16(shell: Shell) -> None:
    """TPUs: nobody has to say so."""
    line = "limits tpu-v5p-pod --model realistic --run 1e23"
    plain, said = (
        shell.json(f"{line}{more}")["answers"][0]
        for more in ("", " --precision bf16")
    )
    assert (plain["chips"], plain["flops"]) == (said["chips"], said["flops"])


GIVEN = {
    "--model realistic": ["--model", "realistic"],
    "--sensitivity": ["--sensitivity"],
    "--run": ["--run", "1e24"],
    "--chips": ["--chips", "64"],
    "--growth": ["--growth", "4"],
    "--overlap": ["--overlap"],
}


APART = [
    ("--sensitivity", "--run"),
    ("--sensitivity", "--chips"),
    ("--sensitivity", "--growth"),
]
"""Other questions, and dates of ends that are not asked for."""


@pytest.mark.parametrize("two", [*combinations(GIVEN, 2)], ids=" ".join)
def test_two_options_of_limits_are_answered_or_refused_by_name(
    two: tuple[str, str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pair: what is not refused reaches what answers it."""
    seen = set[str]()

    def answers(chosen, run, chips, *, real, **rest):  # type: ignore[no-untyped-def]
        seen.update(
            name
            for name, value in (
                ("--run", run),
                ("--chips", chips),
                ("--model realistic", real),
            )
            if value is not None
        )
        return limits.answer("a card", "answered", {})

    monkeypatch.setattr(limits, "runs_and_clusters", answers)
    monkeypatch.setattr(
        limits,
        "whole_models",
        lambda *rest, **more: limits.answer("a card", "ladder", {}),
    )
    code = main(["limits", "h100", *(w for name in two for w in GIVEN[name])])
    if two in APART:
        assert code == 2 and all(n in capsys.readouterr().err for n in two[:1])
    else:
        assert code == 0
        reached = {"--run", "--chips"} & {*two}
        if reached:
            assert reached <= seen <= {*two}
            assert ("--model realistic" in two) == (
                "--model realistic" in seen
            )


def test_work_under_way_is_said_without_a_terminal(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meshwright.report import console

    monkeypatch.setattr(console, "EVERY_S", 0.0)
    with console.progress() as report:
        report("64 chips", 0.25)
        report("width 4,096", 0.0)
    said = capsys.readouterr().err
    assert said == "meshwright: 64 chips (25 %)\nmeshwright: width 4,096\n"
