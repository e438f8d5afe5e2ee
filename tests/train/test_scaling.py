"""fp16: the loss falls under any layout, an overflow skips the step on all ranks, a resumed run
goes on bit by bit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from jobs import LLAMA, SETTINGS, each_rank, job, share, spoil, tokens  # noqa: E402

from layouts import cut  # noqa: E402
from meshwright.describe.job import PRECISIONS  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.training import Settings  # noqa: E402
from meshwright.train import checkpoint  # noqa: E402
from meshwright.train import initial as replicas  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.optimizer import LEAST, Scaler  # noqa: E402
from refusals import refusal  # noqa: E402

SMALL = replace(LLAMA, layers=2)


def run(
    layout: Layout,
    folder: Path,
    precision: str = "fp16",
    spoilt: int | None = None,
    scale: float = 2.0**16,
) -> Any:
    """[loss, scale, was the update skipped] of six steps on one batch, saved after the fourth, or
    of those after the newest checkpoint.

    spoilt: the step in which one gradient of the last rank, and of no other, overflows.
    """
    settings = replace(
        SETTINGS, lr=3e-3, steps=6, loss_scale=scale, scale_growth=2
    )

    def work(device: torch.device) -> list[Any]:
        trainer = Trainer(
            replace(job(SMALL, layout), precision=PRECISIONS[precision]),
            settings,
            device,
        )
        found, rows = checkpoint.complete(folder), []
        for step in range(
            checkpoint.load(trainer, found[-1]) if found else 0, settings.steps
        ):
            before = replicas.prints(trainer.stages)
            if step == spoilt and dist.get_rank() == dist.get_world_size() - 1:
                spoil(trainer, torch.inf)
            result = trainer.step(step, *share(trainer, tokens(0)))
            rows.append(
                [
                    result.loss,
                    result.loss_scale,
                    before == replicas.prints(trainer.stages),
                ]
            )
            assert (result.gradient_norm is None) == rows[-1][2]
            replicas.check_replicas(trainer.stages, step)
            if step == 3:
                checkpoint.save(trainer, folder, 4, keep=9)
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, rows)
        assert all(other == rows for other in every), (
            "every rank decides the same"
        )
        return rows

    folder.mkdir(exist_ok=True)
    return each_rank(work, layout.chips)[0]


LAYOUTS = [
    cut("pp2 microbatch2"),
    cut("dp2 zero3 microbatch4"),
    cut("tp2 microbatch4"),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=["pp2", "zero3", "tp2"])
def test_an_overflow_on_one_rank_skips_the_step_on_all(
    layout: Layout, tmp_path: Path
) -> None:
    """The scale doubles every two good steps and halves at the overflow; the loss falls, near that
    of fp32.
    """
    rows = run(layout, tmp_path / "a", spoilt=2)
    losses, scales, skipped = zip(*rows, strict=True)
    assert skipped == (False, False, True, False, False, False)
    assert [scale / 2**16 for scale in scales] == [1, 1, 2, 1, 1, 2]
    assert losses[3] == losses[2] and losses[5] < losses[0] - 0.3
    exact = [row[0] for row in run(layout, tmp_path / "b", "fp32")]
    assert [losses[0], losses[1], losses[2]] == pytest.approx(
        exact[:3], abs=2e-3
    ) and losses[0] != exact[0]
    assert run(layout, tmp_path / "a") == rows[4:], "resumed, bit by bit"


def test_a_scale_far_too_large_comes_down(tmp_path: Path) -> None:
    """Gradients overflow by themselves until it is small enough."""
    rows = run(cut("microbatch8"), tmp_path, scale=2.0**26)
    assert rows[0][2] and not rows[-1][2] and rows[-1][0] <= rows[0][0]


def fp16(first: float = 2.0**16, growth: int = 2000) -> Scaler:
    return Scaler(True, Settings(loss_scale=first, scale_growth=growth))


def test_the_scale_has_bounds_and_damage_is_refused() -> None:
    scaler = fp16(LEAST)
    assert not scaler.update(float("nan")) and scaler.scale == LEAST
    off = Scaler(False, Settings())
    assert not off.update(float("inf")) and off.scale == 1 and off.update(1.0)
    with refusal("it has no right scaler"):
        scaler.load({"scale": "much"})


def test_skips_are_counted_where_a_smaller_scale_does_not_help() -> None:
    """In fp16 an overflow is the scale's business, unless the loss itself is no number or the scale
    is 1.
    """
    plain, half = Scaler(False, Settings()), fp16(4.0)
    for scaler, counts in ((plain, [1, 2, 3, 4]), (half, [0, 0, 1, 2])):
        found = []
        for _ in range(4):
            scaler.update(float("inf"), 1.0)
            found.append(scaler.in_a_row)
        assert found == counts and scaler.skipped == 4
        scaler.update(1.0, 1.0)
        assert scaler.in_a_row == 0 and scaler.skipped == 4
    large = fp16(4.0)
    large.update(float("nan"), float("nan"))
    assert large.in_a_row == 1
    assert not plain.update(1.0, float("nan")), (
        "a loss that is no number is enough"
    )


def test_a_scale_of_one_comes_back_and_no_scale_starts_anew() -> None:
    one, again, grown = (
        fp16(1.0),
        fp16(),
        fp16(4.0, growth=2),
    )
    again.load(one.state())
    assert again.scale == 1
    again = fp16()
    again.load(Scaler(False, Settings()).state())
    assert again.scale == Settings().loss_scale
    # of a run whose scale grew more seldom
    grown.load({"scale": 4.0, "good": 7, "skipped": 0})
    assert grown.update(1.0) and grown.scale == 8
