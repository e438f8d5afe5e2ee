"""torch.compile: the same numbers within rounding, of layers with experts their first halves; what
PyTorch cannot compile is refused (`test_train_rules`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from jobs import DEEPSEEK, LLAMA, SETTINGS, job, share, tokens  # noqa: E402

from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.model import Model  # noqa: E402
from meshwright.train.launch import fork_ranks  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.oracle import fake_world  # noqa: E402

SMALL = replace(LLAMA, layers=2)
EXPERTS = replace(DEEPSEEK, layers=2)
"""A dense layer, then one with experts of which one is shared."""


def run(
    layout: Layout, compiled: bool, to: Path, model: Model = SMALL
) -> list[float]:
    """Losses and norms of three steps."""

    def work(device: torch.device) -> None:
        trainer = Trainer(
            job(model, layout), replace(SETTINGS, compile=compiled), device
        )
        last = vars(trainer.stages[min(trainer.stages)].blocks[-1])
        assert compiled == ("run" in last or "attend" in last)
        results = [
            trainer.step(step, *share(trainer, tokens(step)))
            for step in range(3)
        ]
        if dist.get_rank() == 0:
            to.write_text(
                json.dumps(
                    [
                        value
                        for r in results
                        for value in (r.loss, r.gradient_norm)
                    ]
                )
            )

    fork_ranks(work, int(layout.chips), timeout_s=600)
    return list(json.loads(to.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp=1, microbatch=4, recompute="full"),
        Layout(dp=2, zero=3, microbatch=4),
        Layout(pp=2, dp=1, microbatch=2),
        Layout(tp=2, pp=2, dp=1, microbatch=2),
        Layout(cp=2, dp=1, microbatch=4),
    ],
    ids=["full recomputation", "zero3", "pp2", "tp2 pp2", "cp2"],
)
@pytest.mark.filterwarnings("ignore")  # of inductor, of itself
def test_compiled_layers_give_the_same_numbers(
    layout: Layout, tmp_path: Path
) -> None:
    assert run(layout, True, tmp_path / "x") == pytest.approx(
        run(layout, False, tmp_path / "x"), abs=2e-6
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of inductor, of itself
def test_layers_of_experts_give_the_same_numbers(tmp_path: Path) -> None:
    layout = Layout(dp=2, ep=2, microbatch=4, recompute="full")
    assert run(layout, True, tmp_path / "x", EXPERTS) == pytest.approx(
        run(layout, False, tmp_path / "x", EXPERTS), abs=2e-6
    )


@pytest.mark.parametrize(
    "layout",
    [
        Layout(tp=2, dp=1, microbatch=4),
        Layout(tp=2, dp=1, microbatch=4, sequence_parallel=False),
        Layout(cp=2, dp=1, microbatch=4),
        Layout(tp=2, dp=1, microbatch=4, recompute="op"),
    ],
    ids=["tp2", "tp2, whole sequences", "cp2", "tp2, operators again"],
)
@pytest.mark.filterwarnings("ignore")  # of dynamo, of itself
def test_a_layer_is_one_graph(layout: Layout) -> None:
    """Traced forward and backward as rank 0 of a group that sends nothing; a break of the graph is
    an error (`fullgraph`)."""
    with fake_world(0, 2):
        trainer = Trainer(job(SMALL, layout), SETTINGS, torch.device("cpu"))
        for block in trainer.stages[0].blocks:
            block.run = torch.compile(
                block.run, fullgraph=True, backend="aot_eager"
            )
        trainer.accumulate(*share(trainer, tokens(0)))
        torch._dynamo.reset()
