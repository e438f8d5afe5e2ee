"""What is set around the steps of a run, and the sum by which weights of replicas are compared."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from jobs import LLAMA, SETTINGS, job  # noqa: E402

from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.prediction.prediction import predict  # noqa: E402
from meshwright.train import launch, session  # noqa: E402
from meshwright.train.attempt import RunPlan  # noqa: E402
from meshwright.train.initial import digest  # noqa: E402
from meshwright.train.launch import fork_ranks  # noqa: E402


def test_what_the_environment_says_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (*launch.ALLOCATOR, launch.CUBLAS[0]):
        monkeypatch.delenv(name, raising=False)
    launch.environment("cpu", False)
    assert not any(name in os.environ for name in launch.ALLOCATOR)
    launch.environment("cuda", True)
    assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:native")
    launch.environment("cuda", False)
    assert "PYTORCH_ALLOC_CONF" not in os.environ


def test_a_run_collects_garbage_when_it_is_asked_to(tmp_path: Path) -> None:
    """Not at a time of Python's choice inside a step; and runs deterministic kernels if asked."""
    seen = tmp_path / "seen"
    step = session.Session.step

    def noted(self: session.Session, *args: object) -> bool:
        on = gc.isenabled(), torch.are_deterministic_algorithms_enabled()
        seen.write_text(str(on))
        return step(self, *args)  # type: ignore[arg-type]

    wanted = job(LLAMA, Layout(dp=1, microbatch=8))
    settings = {
        **vars(SETTINGS),
        "steps": 2,
        "data": "synthetic",
        "deterministic": True,
        "output": str(tmp_path),
    }
    plan = RunPlan(wanted, type(SETTINGS)(**settings), predict(wanted), None)

    def work(device: torch.device) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session.Session, "step", noted)
            session.work(plan, device)
        assert gc.isenabled() and gc.get_freeze_count() == 0

    fork_ranks(work, 1, timeout_s=100)
    assert seen.read_text() == "(False, True)"
    with launch.collected():
        cycle: list[object] = []
        cycle.append(cycle)
        young = gc.get_count()[0]
        del cycle
        for step in range(launch.EVERY):
            launch.collect(step + 1)
        assert gc.get_count()[0] < max(young, 20)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_bit_and_its_place_count(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the sum by hand in whole numbers; pieces make no difference."""
    torch.manual_seed(1)
    x = torch.randn(7, 5).to(dtype)
    kind = torch.int32 if dtype == torch.float32 else torch.int16
    step = 0x9E3779B97F4A7C15
    total = 0
    for i, bits in enumerate(x.view(kind).flatten().tolist()):
        low = i * step % 2**64
        signed = low - 2**64 if low >= 2**63 else low
        factor = ((signed ^ (signed >> 29)) * step | 1) % 2**64
        total = (total + factor * bits) % 2**64
    assert int(digest(x)) % 2**64 == total
    monkeypatch.setattr("meshwright.train.initial.AT_ONCE", 4)
    assert int(digest(x)) % 2**64 == total
    found = {total}
    for place in range(35):
        for bit in (0, 3, 14):
            y = x.clone()
            y.view(kind).view(-1)[place] ^= 1 << bit
            found.add(int(digest(y)) % 2**64)
    assert len(found) == 1 + 35 * 3
    assert int(digest(x.flip(0))) % 2**64 != total
