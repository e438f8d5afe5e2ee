"""torch.compile: the same numbers within rounding, of layers with experts too, all but the products
of the experts; what PyTorch cannot compile is refused (`test_train_rules`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

torch = pytest.importorskip("torch")
from jobs import DEEPSEEK, LLAMA, SETTINGS, each_rank, job, share, tokens  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

from layouts import cut  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.model import Model  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.model import Decoder  # noqa: E402
from meshwright.train.oracle import fake_world  # noqa: E402

SMALL = replace(LLAMA, layers=2)
EXPERTS = replace(DEEPSEEK, layers=2)
"""A dense layer, then one with experts of which one is shared."""


def run(layout: Layout, compiled: bool, model: Model) -> list[float]:
    """Losses and norms of three steps."""

    def work(device: torch.device) -> list[float]:
        trainer = Trainer(
            job(model, layout), replace(SETTINGS, compile=compiled), device
        )
        last = vars(trainer.stages[min(trainer.stages)].blocks[-1])
        assert compiled == ("run" in last or "attend" in last)
        results = [
            trainer.step(step, *share(trainer, tokens(step)))
            for step in range(3)
        ]
        return [v for r in results for v in (r.loss, r.gradient_norm)]

    return list(each_rank(work, layout.chips, 600)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "model"),
    [
        ("microbatch4 full", SMALL),
        ("dp2 zero3 microbatch4", SMALL),
        ("pp2 microbatch2", SMALL),
        ("tp2 pp2 microbatch2", SMALL),
        ("cp2 microbatch4", SMALL),
        ("dp2 ep2 microbatch4 full", EXPERTS),
        ("tp2 dp2 ep2 zero3 microbatch4", EXPERTS),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
@pytest.mark.filterwarnings("ignore")  # of inductor, of itself
def test_compiled_layers_give_the_same_numbers(
    words: str, model: Model
) -> None:
    compiled, eager = (run(cut(words), how, model) for how in (True, False))
    assert compiled == pytest.approx(eager, abs=2e-6)


@pytest.mark.filterwarnings("ignore")  # of dynamo, of itself
def test_experts_with_any_number_of_rows_are_one_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their element-wise operations. With a graph for each number of rows, every step would compile
    again, until PyTorch gives up and runs them one by one.
    """
    counted = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(
        torch, "compile", partial(torch.compile, backend=counted)
    )
    part = Decoder(EXPERTS, range(2), EXPERTS.seq)
    part.compile_blocks()
    (experts,) = part.experts
    for rows in (5, 3, 11, 7):
        up, gate = torch.randn(2, rows, 6).requires_grad_().unbind()
        assert torch.allclose(
            experts.activate(up, gate), experts.act(gate) * up
        )
    assert counted.frame_count == 1
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "layout",
    [
        cut("tp2 microbatch4"),
        cut("tp2 microbatch4 whole"),
        cut("cp2 microbatch4"),
        cut("tp2 microbatch4 op"),
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
