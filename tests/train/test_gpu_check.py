"""The command that checks the trainer on a GPU, without one: everything but the times."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from meshwright.cli.calibrate import from_files  # noqa: E402
from meshwright.count.model import parameters  # noqa: E402
from meshwright.describe.assumptions import REALISTIC  # noqa: E402
from meshwright.describe.chip import Chip  # noqa: E402
from meshwright.formats.nccl_tests import load_samples  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
CHIP = Chip("toy", {"fp32": 1e11, "bf16": 1e11}, 1e10, 1e10, 1e10)


@pytest.fixture(scope="module")
def script() -> Any:
    sys.path.insert(0, str(SCRIPT.parent))  # as Python does for a script
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


@pytest.fixture(scope="module")
def quick(script: Any) -> list[Any]:
    """Every layout, six steps in place of twenty."""
    return list(script.strict("cpu", script.TOY_RANKS, steps=6))


def test_every_layout_has_the_losses_of_one_process(
    script: Any, quick: list[Any]
) -> None:
    assert [row.layout for row in quick] == [*script.LAYOUTS]
    assert {row.precision for row in quick} == {"fp32"}
    assert max(row.difference for row in quick) <= 1e-5
    assert all(row.fine for row in quick)


def test_the_bound_of_bf16_tells_rounding_from_tokens_of_another_rank(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halves of the sequence, where the trainer goes by a chunk and its mirror image."""
    cp2 = script.LAYOUTS["cp2"]
    alone = script.losses(script.LAYOUTS["1"], "cpu", "bf16")

    def difference() -> float:
        both = zip(alone, script.losses(cp2, "cpu", "bf16"), strict=True)
        return float(max(abs(a - b) for a, b in both))

    assert difference() <= script.BOUNDS["bf16"] / 4

    def halves(trainer: Any, whole: torch.Tensor) -> tuple[Any, ...]:
        part = trainer.mesh.index("cp")
        return tuple(
            x.chunk(2, 1)[part] for x in (whole[:, :-1], whole[:, 1:])
        )

    monkeypatch.setattr(script.Trainer, "share", halves)
    assert difference() >= script.BOUNDS["bf16"] * 4


def test_a_layout_that_differs_ends_in_exit_code_1(
    script: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And is named in the table with its bound."""
    rows = [
        script.Sameness("1", "fp32", 9e-6),
        script.Sameness("cp2", "bf16", 5e-3),
    ]
    monkeypatch.setattr(script, "strict", lambda *given: iter(rows))
    words = ["--device", "cpu", "--shapes", "0", "--no-calibrate"]
    words += ["--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *words])
    assert script.main() == 1
    out = capsys.readouterr().out
    assert "| cp2 | bf16 | 5.0e-03 | 3.9e-03 |" in out
    assert "| MATH |" in out and "| CUDNN_ATTENTION |" not in out
    assert "| tp 1 pp 1 dp 8 | yes | 6,667 | 39.0% |" in out  # torchtitan's
    del rows[1]
    assert script.main() == 0


def test_a_start_goes_on_behind_what_was_found(
    script: Any, tmp_path: Path
) -> None:
    """A stage that was interrupted runs again, those before it do not; another check is refused."""
    calls: list[str] = []

    def stage(name: str, fails: bool = False) -> dict[str, float]:
        calls.append(name)
        if fails:
            raise KeyboardInterrupt
        return {"seconds": 0.5}

    first = script.Stages(tmp_path, {"device": "a"})
    assert first.once("step 0", lambda: stage("0")) == {"seconds": 0.5}
    with pytest.raises(KeyboardInterrupt):
        first.once("step 1", lambda: stage("1", fails=True))
    again = script.Stages(tmp_path, {"device": "a"})
    assert again.once("step 0", lambda: stage("0")) == {"seconds": 0.5}
    assert again.once("step 1", lambda: stage("1")) == {"seconds": 0.5}
    assert calls == ["0", "1", "1"]
    with pytest.raises(SystemExit, match="another machine"):
        script.Stages(tmp_path, {"device": "b"})


def test_parts_of_one_device_beside_their_laws(
    script: Any, tmp_path: Path
) -> None:
    """A second start takes what the first one saved."""
    import gpu_parts

    j = script.job(script.SHAPES[0], CHIP, toy=True)
    once = script.Stages(tmp_path, {}).once
    tables = [*gpu_parts.one_device(j, "cpu", once)]
    (forward, backward) = once("products", lambda: None)
    assert forward[:2] == ["64 x 32 x 64", "forward"] and forward[2] > 0
    # the toy chip is bound by arithmetic: a launch, then 2 m n k at 41 % of its peak
    launch = REALISTIC.chip.launch_s
    assert forward[3] == pytest.approx(
        launch + 2 * 64 * 32 * 64 / (0.41 * 1e11), rel=0.1
    )
    for how, counted, walk in once("memory", lambda: None):
        assert counted == pytest.approx(walk, rel=0.05), how
    kept = {row[0]: row[1] for row in once("memory", lambda: None)}
    assert kept["full"] < kept["op"] < kept["none"]
    stored = once("checkpoint", lambda: None)
    assert stored["unequal"] == 0
    # weights and AdamW's two moments, in fp32
    assert stored["bytes"] >= 12 * parameters(j.model)
    assert tables == [*gpu_parts.one_device(j, "cpu", once)]


def test_collectives_beside_their_laws_are_what_calibrate_reads(
    script: Any, tmp_path: Path
) -> None:
    import gpu_parts

    once = script.Stages(tmp_path, {}).once
    network = script.network_of("h100-sxm", 2, toy=True)
    tables = gpu_parts.several_devices(network, "cpu", [2], tmp_path, once)
    assert [len(t.splitlines()) for t in tables] == [17, 3]
    samples = load_samples(tmp_path / "collectives.csv")
    assert {s.kind for s in samples} >= {
        *("all_reduce", "all_gather", "reduce_scatter"),
        "all_to_all",
    }
    # 2 (n-1)/n of 2^20 bytes at 1e9 B/s at most; protocols reach a part of it
    law = once("all_reduce 2", lambda: None)[-1][-1]
    assert 2**20 / 1e9 < law < 2 * 2**20 / 1e9
    machine = tmp_path / "machine.toml"
    read = (str(tmp_path / "collectives.csv"),)
    assert from_files(read, "h100-sxm", str(machine)).code == 0
    assert "all_reduce" in machine.read_text("utf-8")
    assert gpu_parts.sizes_of_groups(6) == [2, 4]


@pytest.mark.slow
def test_the_whole_command(
    script: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        sys,
        "argv",
        [
            *("gpu.py", "--device", "cpu", "--shapes", "2"),
            *("--no-calibrate", "--folder", str(tmp_path)),
        ],
    )
    assert script.main() == 0
    assert "not predicted" in capsys.readouterr().out
