"""What `compare` computes, on invented runs whose truth is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import OPTIMIZER_S, SLOWER, pipeline_run

from meshwright import cli
from meshwright.compare import compare
from meshwright.formats.run_folder import read
from meshwright.schedule import SCHEDULES, get
from meshwright.spec.layout import Layout

LAYOUTS = {
    "gpipe": Layout(pp=4, schedule="gpipe"), "1f1b": Layout(pp=4, schedule="1f1b"),
    "interleaved": Layout(pp=4, schedule="interleaved", interleave=2), "interleaved-zb": Layout(pp=4, schedule="interleaved-zb", interleave=2),
    "zbv": Layout(pp=4, schedule="zbv"), "dualpipev": Layout(pp=4, schedule="dualpipev"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_bubbles_of_a_run_are_those_of_its_schedule(name: str, tmp_path: Path) -> None:
    """Equal stages: the replay of the records gives the closed form, whatever the clock says."""
    layout = LAYOUTS[name]
    chunks = int(get(name).chunks(layout.interleave))
    f, i, w = 1.0, 1.25, 0.75
    found = compare(
        read(pipeline_run(tmp_path / "run", layout, [(f / chunks, i / chunks, w / chunks)] * 4 * chunks))
    ).virtual
    assert found
    expected = SCHEDULES[name].bubble(4, 8, layout.interleave, f, i, w) / (8 * (f + i + w))
    assert found.bubble.as_planned
    assert found.bubble.expected == pytest.approx(expected) == found.bubble.closed_form
    assert found.bubble.measured == pytest.approx(expected) == found.bubble.measured_raw
    assert found.step_s == pytest.approx(8 * (f + i + w) * (1 + expected) + OPTIMIZER_S)


def test_causes_and_remainder_add_up_to_the_measured_step(tmp_path: Path) -> None:
    found = compare(read(pipeline_run(tmp_path / "run", LAYOUTS["1f1b"], [(1.0, 1.0, 1.0), (1.0, 1.5, 1.0)] * 2)))
    step = found.step
    assert step and step.rank in (1, 3)
    by = {cause.name: cause for cause in step.causes}
    assert by["forward"].measured_s == pytest.approx(8) and by["backward"].measured_s == pytest.approx(20)
    assert by["optimizer"].measured_s == pytest.approx(OPTIMIZER_S)
    assert sum(cause.measured_s or 0 for cause in step.causes) + step.remainder_s == pytest.approx(
        step.measured_s, rel=1e-12
    )
    assert sum(step.remainder.values()) == pytest.approx(step.remainder_s)
    assert sum(cause.predicted_s for cause in step.causes) == pytest.approx(found.predicted.step_time_s)
    assert step.remainder["within actions"] == pytest.approx((SLOWER - 1) * 28)
    assert found.contention == pytest.approx(SLOWER)
    assert found.crowd == (4, 2) and any("4 threads of ranks share 2 cores" in why for why in found.why())


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("job.toml", None, "no folder of a run"),
        ("metrics.jsonl", "", "no finished step"),
        ("metrics.jsonl", '{"step": 1}\n', "step_time_s must be a number"),
        ("metrics.jsonl", "oops\n{}\n", "metrics.jsonl, line 1: not a line of JSON"),
        ("record/rank-0001.jsonl", None, "not those of ranks 0 to 3"),
        ("record/rank-0001.jsonl", "{}\n", "is no record of a rank"),
        ("record/rank-0001.jsonl", '{"schema": "meshwright-record/1", "place": {}}\n', "rank must be a number"),
    ],
)
def test_bad_run_folders_are_refused_with_a_sentence(
    file: str, text: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pipeline_run(tmp_path / "run", LAYOUTS["1f1b"], [(1.0, 1.0, 1.0)] * 4)
    (folder / file).unlink() if text is None else (folder / file).write_text(text)
    assert cli.run(["compare", str(folder)]) == 2
    assert says in capsys.readouterr().err
