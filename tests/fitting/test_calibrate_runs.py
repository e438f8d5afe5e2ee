"""`calibrate --from`: steps of one's own machines, a scale, and what later verbs make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright import Job, cluster, model, predict
from meshwright.cli import calibrate
from meshwright.cli.main import main
from meshwright.describe.layout import Layout
from meshwright.formats.machine import load_machine
from meshwright.formats.toml import dump_job
from meshwright.prediction import certainty

JOB = Job(
    model("llama3-8b"), cluster("64xh100-sxm"), 256, Layout(dp=64, zero=3)
)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine file from three steps that took 1.3 times what is predicted."""
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(dump_job(JOB))
    seconds = 1.3 * predict(JOB).step_time_s
    steps = ",".join(f"{seconds:.6f}" for _ in range(3))
    assert (
        main(
            [
                "calibrate",
                "--from",
                "job.toml",
                "--steps",
                steps,
                "-o",
                "ours.toml",
            ]
        )
        == 0
    )
    return tmp_path / "ours.toml"


def test_a_scale_multiplies_every_later_step_and_narrows_its_interval(
    scaled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1.3^(3/4) = 1.217; what the laws do not explain stands apart."""
    machine = load_machine(scaled)
    assert machine.installation.scale == pytest.approx(1.3**0.75, abs=1e-4)
    assert machine.installation.steps == 3
    capsys.readouterr()
    asked = [
        "--batch",
        "512seq",
        "--tp",
        "8",
        "--dp",
        "8",
        "--zero",
        "1",
        "--json",
    ]
    main(["predict", "llama3-8b", "--on", "64xh100-sxm", *asked])
    before = told(capsys)
    main(["predict", "llama3-8b", "--on", f"64x{scaled}", *asked])
    after = told(capsys)
    times = after["step_time_s"] / before["step_time_s"]
    assert times == pytest.approx(machine.installation.scale)
    assert after["time_s"]["other"] == pytest.approx(
        (times - 1) * before["step_time_s"]
    )
    assert sum(after["time_s"].values()) == pytest.approx(after["step_time_s"])

    def width(of: dict[str, Any]) -> float:
        low, high = of["interval_s"]
        return float(high / low)

    assert width(after) < width(before)
    assert "scaled by 3 steps" in after["evidence"]["note"]


def test_an_explained_step_adds_up_with_a_scale(scaled: Path) -> None:
    job = Job(
        model("llama3-8b"), cluster(f"64x{scaled}"), 256, Layout(dp=64, zero=3)
    )
    p = predict(job)
    assert sum(term.value for term in p.term.parts) == pytest.approx(
        p.step_time_s
    )
    assert p.replayed_s is None or p.replayed_s == pytest.approx(
        p.step_time_s, rel=0.02
    )
    assert certainty.certainty(p) is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "job.toml"], "--steps"),
        (["--from", "job.toml", "--steps", "1.0,1.1"], "at least 3"),
        (["--from", "job.toml", "--steps", "1.0,fast,1.1"], "must be seconds"),
        (["--from", "nowhere.json"], "nowhere.json cannot be read"),
        (["--from", "job.toml", "--read", "log.txt"], "give one of them"),
    ],
)
def test_what_cannot_be_calibrated_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(dump_job(JOB))
    assert main(["calibrate", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_fit_asks_for_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "-o", "nowhere/at/all"]) == 2
    assert "must be a folder" in capsys.readouterr().err


def test_rows_of_runs_need_studies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = tmp_path / "runs.json"
    rows.write_text("[]")
    monkeypatch.delitem(calibrate.READERS, ".json")
    assert main(["calibrate", "--from", str(rows)]) == 2
    assert "meshwright[studies]" in capsys.readouterr().err


def test_a_script_of_another_tool_is_a_job_with_its_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As every other verb takes it: what the file does not say, its chips, stands in --on.  Steps
    as long as predicted there are a scale of one.
    """
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32"
        " --seq-length 4096 --global-batch-size 64 --vocab-size 32000 --micro-batch-size 1 --bf16"
        " --tensor-model-parallel-size 8\n"
    )
    on = ["--on", "8xh100-sxm"]
    assert main(["predict", str(script), *on, "--json"]) == 0
    step_s = told(capsys)["step_time_s"]
    ours = tmp_path / "ours.toml"
    words = ["calibrate", "--from", str(script), "-o", str(ours), "--json"]
    seconds = ["--steps", ",".join([str(step_s)] * 3)]
    assert main([*words, *on, *seconds]) == 0
    assert told(capsys)["scale"] == pytest.approx(1.0, rel=1e-6)
    assert main([*words, *seconds]) == 2
    assert "--on" in capsys.readouterr().err
