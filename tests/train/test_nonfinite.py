"""Gradients, losses and states that are not finite: a step is skipped, a run ends, nothing sound is
lost.
"""

from __future__ import annotations

import math
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from jobs import (  # noqa: E402
    LLAMA,
    SETTINGS,
    each_rank,
    job,
    loss_and_norm,
    share,
    spoil,
    tokens,
)
from small_runs import described, rows  # noqa: E402

from layouts import cut  # noqa: E402
from meshwright.cli import main as cli  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.train import checkpoint  # noqa: E402
from meshwright.train import initial as replicas  # noqa: E402
from meshwright.train.initial import local  # noqa: E402
from meshwright.train.launch import RankFailed, fork_ranks  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.storage import Reader  # noqa: E402
from shell import Shell  # noqa: E402

LAYOUTS = {
    "one process": cut("microbatch4"),
    "dp2": cut("dp2 zero1 microbatch4"),
    "tp2": cut("tp2 microbatch4"),
    "pp2": cut("pp2 microbatch2"),
}
SMALL = replace(LLAMA, layers=2)


def run(
    layout: Layout, spoilt: int | None, left_out: int | None
) -> list[float]:
    """Losses of five steps. In step `spoilt` one gradient of the last rank is NaN; step `left_out`
    is not made.
    """

    def work(device: torch.device) -> list[float]:
        trainer, found = Trainer(job(SMALL, layout), SETTINGS, device), []
        for step in range(5):
            batch = share(trainer, tokens(step))
            if step == left_out:
                found.append(loss_and_norm(trainer, *batch)[0])
                continue
            if step == spoilt and dist.get_rank() == dist.get_world_size() - 1:
                spoil(trainer)
            before = replicas.prints(trainer.stages)
            result = trainer.step(step, *batch)
            found.append(result.loss)
            assert (before == replicas.prints(trainer.stages)) == (
                step == spoilt
            )
            assert (result.gradient_norm is None) == (step == spoilt)
            assert result.skipped == (spoilt is not None and step >= spoilt)
        return found

    return list(each_rank(work, layout.chips)[0])


@pytest.mark.parametrize("name", LAYOUTS)
def test_one_nan_is_one_step_less(name: str, elsewhere: Path) -> None:
    found = run(LAYOUTS[name], 2, None)
    assert found == run(LAYOUTS[name], None, 2), (
        "bit by bit as if the update had not been"
    )
    assert (
        all(map(math.isfinite, found))
        and found[3:] != run(LAYOUTS[name], None, None)[3:]
    )


def diverging(**train: Any) -> str:
    """A job whose learning rate is far too large."""
    said = {"steps": 30, "lr": 1e6, "clip": "none", "warmup": 2}
    said |= {"save_every": 4, "keep": 3, "record": "none", "data": "synthetic"}
    layout = cut("dp2 zero1 microbatch2")
    return described(job(SMALL, layout, 4), **said | train)


def test_a_run_that_diverges_ends_and_keeps_what_is_finite(
    elsewhere: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Ten updates in a row that cannot be made end it, exit code 3, and `restarts` do not try
    again.
    """
    assert cli.run(["train", diverging(restarts=3)]) == 3
    told = capfd.readouterr().err
    assert (
        "not finite in 10 steps one after the other" in told
        and "train.max_skipped" in told
    )
    assert (
        "the update is skipped, number 1 of the run" in told
        and "again from" not in told
    )
    assert rows()[-1]["skipped"] >= 10 and rows()[-1]["step"] < 30
    newest = checkpoint.complete(Path("run"))[-1]
    assert f"the newest complete checkpoint is {newest.name}" in told
    reader = Reader(newest)
    for name in reader.shapes:
        assert torch.isfinite(reader.whole(name)).all(), name


def test_the_last_sound_checkpoint_is_finished_before_the_run_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It is written in the background, on a disk so slow that the steps that end the run are
    faster.
    """
    monkeypatch.chdir(tmp_path)
    publish = checkpoint.publish

    def slowly(*args: Any, **kwargs: Any) -> None:
        time.sleep(4)
        publish(*args, **kwargs)

    monkeypatch.setattr(checkpoint, "publish", slowly)
    assert cli.run(["train", diverging(save_every=8)]) == 3
    last = rows()[-1]["step"]
    newest = f"step-{(last - 1) // 8 * 8:08d}"
    assert last > 8 and [
        path.name for path in checkpoint.complete(Path("run"))
    ][-1:] == [newest]
    assert (
        f"the newest complete checkpoint is {newest}" in capfd.readouterr().err
    )


def poisoned(trainer: Trainer, value: float) -> None:
    """One weight of the last rank."""
    if dist.get_rank() == dist.get_world_size() - 1:
        with torch.no_grad():
            local(next(iter(trainer.parameters().values()))).view(-1)[-1] = (
                value
            )


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_state_that_is_not_finite_is_never_published_and_prunes_nothing(
    value: float, tmp_path: Path
) -> None:
    def work(device: torch.device) -> None:
        trainer = Trainer(
            job(SMALL, cut("dp2 zero3 microbatch4")), SETTINGS, device
        )
        saver = checkpoint.Saver(trainer, tmp_path, keep=1)
        saver.save(1)
        poisoned(trainer, value)
        saver.save(2)

    says = (
        "after step 2 a weight or a moment is not finite: it is not saved, the newest complete checkpoint"
        " is step-00000001"
    )
    with pytest.raises(RankFailed, match=says) as found:
        fork_ranks(work, 2, timeout_s=60)
    assert not found.value.again and found.value.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_neither_resume_nor_export_takes_a_state_that_is_not_finite(
    elsewhere: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As a version without this check has written it, beside a sound one."""
    assert (
        cli.run(["train", diverging(steps=8, lr=1e-3, async_save=False)]) == 0
    )

    def work(device: torch.device) -> None:
        wanted = job(SMALL, cut("dp2 zero1 microbatch2"), 4)
        trainer = Trainer(wanted, SETTINGS, device)
        checkpoint.load(trainer, Path("run/step-00000008"))
        poisoned(trainer, math.nan)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoint, "finite", lambda trainer: True)
            checkpoint.save(trainer, Path("run"), 12, keep=9)

    fork_ranks(work, 2, timeout_s=60)
    assert (
        cli.run(["export", "run", "--to", "safetensors", "-o", "weights"]) == 2
    )
    assert (
        "that are not finite, in weights/" in capfd.readouterr().err
        and not Path("weights").exists()
    )
    assert cli.run(["train", "job.toml", "--resume", "--steps", "16"]) == 0
    told = capfd.readouterr().err
    assert (
        "step-00000012 holds weights or moments that are not finite; going on from step-00000008"
        " instead" in told
    )
    assert [row["step"] for row in rows()] == [*range(1, 17)]


def test_permanent_checkpoints_stay(elsewhere: Path, shell: Shell) -> None:
    """Written every 5 steps and kept for good, beside the newest of those of every 2."""
    shell(
        "train",
        diverging(steps=12, lr=1e-3, save_every=2, keep=1, keep_every=5),
    )
    names = [path.name for path in checkpoint.complete(Path("run"))]
    assert names == ["step-00000005", "step-00000010", "step-00000012"]
    assert (
        tomllib.loads(Path("run/job.toml").read_text())["train"]["keep_every"]
        == 5
    )
