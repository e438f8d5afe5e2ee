"""The command that checks the trainer on a GPU, without one: everything but the times."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from meshwright.describe.chip import Chip  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
CHIP = Chip("toy", {"fp32": 1e11, "bf16": 1e11}, 1e10, 1e10, 1e10)


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("gpu", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_loops_are_timed_and_start_at_the_same_loss(script: Any) -> None:
    j = script.job(script.SHAPES[3], CHIP, toy=True)
    assert (j.batch, j.layout.microbatch) == (4, 1)
    assert script.measured(j, script.ours, "cpu") > 0
    device = torch.device("cpu")
    steps, decoder = (
        script.plain(j, device, compiled=False),
        script.Decoder(j.model, range(2), j.T),
    )
    script.initialise(decoder, j.model, 1)
    x, y = script.batch(j, 0, device)
    assert next(steps) == pytest.approx(
        float(script.loss(decoder(x), y).detach()), abs=1e-5
    )


def test_every_shape_is_a_job_of_one_to_eight_billion_parameters_width(
    script: Any,
) -> None:
    assert len(script.SHAPES) >= 10
    for s in script.SHAPES:
        j = script.job(s, CHIP, toy=False)
        assert 2048 <= j.model.hidden <= 4096 and j.precision.compute == "bf16"
        assert script.job(s, CHIP, toy=True).model.hidden <= 128


def test_losses_of_a_layout_are_those_of_one_process(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        script,
        "LAYOUTS",
        {name: script.LAYOUTS[name] for name in ("1", "pp2")},
    )
    assert [
        name
        for name, difference in script.strict("cpu", 2)
        if difference <= 1e-5
    ] == [
        "1",
        "pp2",
    ]


@pytest.mark.slow
def test_the_whole_command(
    script: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        sys,
        "argv",
        ["gpu.py", "--device", "cpu", "--shapes", "2", "--no-calibrate"],
    )
    assert script.main() == 0
    assert "not predicted" in capsys.readouterr().out
