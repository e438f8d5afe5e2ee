"""`calibrate --from`: steps of one's own machines, a scale, and what later verbs make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshwright import Job, predict
from meshwright.cli import calibrate
from meshwright.describe.layout import Layout
from meshwright.formats.machine import load_machine
from meshwright.formats.toml import dump_job
from meshwright.prediction import certainty
from shell import Shell

JOB = Job("llama3-8b", "64xh100-sxm", 256, Layout(dp=64, zero=3))


@pytest.fixture
def scaled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> Path:
    """A machine file from three steps that took 1.3 times what is predicted."""
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(dump_job(JOB))
    seconds = 1.3 * predict(JOB).step_time_s
    steps = ",".join(f"{seconds:.6f}" for _ in range(3))
    shell(f"calibrate --from job.toml --steps {steps} -o ours.toml")
    return tmp_path / "ours.toml"


def test_a_scale_multiplies_every_later_step_and_narrows_its_interval(
    scaled: Path, shell: Shell
) -> None:
    """1.3^(3/4) = 1.217; what the laws do not explain stands apart."""
    machine = load_machine(scaled)
    assert machine.installation.scale == pytest.approx(1.3**0.75, abs=1e-4)
    assert machine.installation.steps == 3
    line = "predict llama3-8b --batch 512seq --tp 8 --dp 8 --zero 1 --on"
    before = shell.json(f"{line} 64xh100-sxm")
    after = shell.json(f"{line} 64x{scaled}")
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
    job = Job("llama3-8b", f"64x{scaled}", 256, Layout(dp=64, zero=3))
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
        ("--from job.toml", "--steps"),
        ("--from job.toml --steps 1.0,1.1", "at least 3"),
        ("--from job.toml --steps 1.0,fast,1.1", "must be seconds"),
        ("--from nowhere.json", "nowhere.json cannot be read"),
        ("--from job.toml --read log.txt", "give one of them"),
    ],
)
def test_what_cannot_be_calibrated_is_said(
    elsewhere: Path,
    shell: Shell,
    arguments: str,
    words: str,
) -> None:
    Path("job.toml").write_text(dump_job(JOB))
    assert words in shell.refused(f"calibrate {arguments}")


def test_a_fit_asks_for_a_folder(shell: Shell) -> None:
    assert "must be a folder" in shell.refused("fit -o nowhere/at/all")


def test_a_fit_needs_two_laboratories(tmp_path: Path, shell: Shell) -> None:
    rows = tmp_path / "runs.json"
    rows.write_text("[{}, {}]")
    assert "of 2 rows 0 can be used, of 0 laboratories" in shell.refused(
        f"fit {rows} -o {tmp_path}"
    )


def test_rows_of_runs_need_studies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shell: Shell,
) -> None:
    rows = tmp_path / "runs.json"
    rows.write_text("[]")
    monkeypatch.delitem(calibrate.READERS, ".json")
    assert "meshwright[studies]" in shell.refused(f"calibrate --from {rows}")


def test_a_script_of_another_tool_is_a_job_with_its_steps(
    tmp_path: Path, shell: Shell
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
    on = "--on 8xh100-sxm"
    step_s = shell.json(f"predict {script} {on}")["step_time_s"]
    steps = ",".join([str(step_s)] * 3)
    line = f"calibrate --from {script} -o {tmp_path}/ours.toml --steps {steps}"
    assert shell.json(f"{line} {on}")["scale"] == pytest.approx(1.0, rel=1e-6)
    assert "--on" in shell.refused(line)
