"""Where the device decides whether gradients may be used, and the host reads results later, a run
is the same: shown on the CPU, whose fused AdamW knows `found_inf` too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from jobs import LLAMA, SETTINGS, job, share, tokens  # noqa: E402
from small_runs import described  # noqa: E402

from meshwright.cli import main as cli  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.formats.run_folder import metrics  # noqa: E402
from meshwright.train import checkpoint, loop, session  # noqa: E402
from meshwright.train.initial import local  # noqa: E402
from meshwright.train.launch import fork_ranks  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from shell import Shell  # noqa: E402

CLIPPED = replace(SETTINGS, clip=0.5)


def ahead(trainer: Trainer) -> Trainer:
    """As on a GPU."""
    trainer.ahead = True
    for group in trainer.optimizer.param_groups:
        group["fused"] = True
    return trainer


def steps(
    layout: Layout, device: torch.device, early: bool
) -> tuple[list[Any], list[Any], set[float]]:
    """Results of six steps, read at the end; this rank's weights; AdamW's counts of steps."""
    trainer = Trainer(job(LLAMA, layout), CLIPPED, device)
    trainer = ahead(trainer) if early else trainer
    results = []
    for step in range(6):
        with pytest.MonkeyPatch.context() as patch:
            if step == 2:
                patch.setattr(loop.gradients, "settle", spoilt(trainer))
            batch = share(trainer, tokens(step))
            results.append(trainer.launch(step, *batch))
    every = list(trainer.parameters().values())
    counts = {float(trainer.state(p)["step"]) for p in every}
    said = [result() for result in results]
    return said, [local(p.detach()) for p in every], counts


def spoilt(trainer: Trainer) -> Any:
    """In place of `settle`: a NaN in the gradients of the last rank."""
    settle = loop.gradients.settle

    def spoil(stages: Any, layout: Any) -> None:
        settle(stages, layout)
        if dist.get_rank() == 1:
            first = next(iter(trainer.parameters().values()))
            local(first.grad).view(-1)[-1] = torch.nan

    return spoil


def test_the_device_decides_as_the_host_does(tmp_path: Path) -> None:
    """Losses, norms, skips and weights of six steps with clipping, one of them with a NaN in the
    gradients of the last rank only; results are read when all steps are launched.
    """
    layout = Layout(dp=2, zero=1, microbatch=4)

    def work(device: torch.device) -> None:
        found = [steps(layout, device, early) for early in (False, True)]
        (a, mine, counts), (b, theirs, others) = found
        for x, y in zip(a, b, strict=True):
            assert y.loss == pytest.approx(x.loss, abs=1e-5)
            assert (x.gradient_norm is None) == (y.gradient_norm is None)
            assert x.lr == y.lr and x.skipped == y.skipped
        assert [r.skipped for r in b] == [0, 0, 1, 1, 1, 1]
        assert counts == others == {5.0}
        assert max(r.gradient_norm or 0 for r in b) > (CLIPPED.clip or 0)
        for x, y in zip(mine, theirs, strict=True):
            assert torch.allclose(x, y, atol=2e-5)

    fork_ranks(work, 2, timeout_s=120)


def test_a_run_a_step_ahead_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    """Every row is there, in order, with its own numbers; checkpoints and evaluations are of the
    steps they say.
    """
    monkeypatch.chdir(tmp_path)
    said = {"steps": 7, "data": "synthetic", "save_every": 3, "keep": 9}
    of = job(LLAMA, Layout(dp=1, microbatch=4))
    named = described(of, eval_every=5, lr=1e-3, **said)
    shell(f"train {named} -o plain")
    made = session.Trainer
    monkeypatch.setattr(
        session, "Trainer", lambda *a, **k: ahead(made(*a, **k))
    )
    shell(f"train {named} -o early")
    one, other = (
        metrics(Path(name) / "metrics.jsonl") for name in ("plain", "early")
    )
    assert [row["step"] for row in other] == [*range(1, 8)]
    for a, b in zip(one, other, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], abs=1e-5)
        assert ("eval_loss" in a) == ("eval_loss" in b)
        assert b["lr"] == a["lr"] and b["step_time_s"] > 0
    kept = [path.name for path in checkpoint.complete(Path("early"))]
    assert kept == [f"step-{n:08d}" for n in (3, 6, 7)]


def test_one_message_of_a_step_goes_to_all_ranks(
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It has loss, norm, CPU seconds, bytes of each rank and whether to stop; one more is sent by
    the checkpoint at the end. Told is the fullest of two ranks, each with about half of all.
    """
    send, sent = dist.all_reduce, []

    def counted(x: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("group") is None and len(args) < 2:
            sent.append(x.numel())
            Path(f"{dist.get_rank()}.sent").write_text(str(sent))
        return send(x, *args, **kwargs)

    monkeypatch.setattr(dist, "all_reduce", counted)
    of = job(LLAMA, Layout(dp=2, zero=1, microbatch=4))
    named = described(of, steps=4, data="synthetic", lr=1e-3)
    assert cli.run(["train", named]) == 0
    assert "GiB on the fullest rank" in capfd.readouterr().err
    for rank in range(2):
        found = Path(f"{rank}.sent").read_text()
        assert found == str([2 + 2 + 2] * 4 + [1])
    for row in metrics(Path("run/metrics.jsonl")):
        assert row["cpu_s"] > 0 and "extra" not in row
        fullest = row["fullest_rank_bytes"]
        assert 1.5 * fullest < row["memory_bytes"] <= 2 * fullest
