"""When gradients of a step of one microbatch are there (`Holding.step_gradients`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout, Model, predict
from meshwright.describe.framework import framework

GB = 2**30


@pytest.mark.parametrize(
    ("vocab", "dp", "fewer"), [(256_000, 8, "logits"), (16_000, 2, "none")]
)
def test_gradients_of_a_loop_are_there_beside_activations_and_not_logits(
    vocab: int, dp: int, fewer: str
) -> None:
    """Kept all the time they stand beside whichever is more, the logits or what a layer's backward
    pass takes; of a loop over layers beside the latter. What that saves is the lesser of them and
    of what the logits take beyond it.
    """
    model = Model("m", 16, 4096, 32, ffn=16384, seq=4096, vocab=vocab)
    usual = framework("maxtext")

    def step(of: Model, when: str) -> dict[str, float]:
        by = replace(
            usual, holding=replace(usual.holding, step_gradients=when)
        )
        layout = Layout(dp=dp, zero=3, recompute="full")
        job = Job(of, f"{dp}xtpu-v5p", dp, layout, framework=by)
        return dict(predict(job).memory_bytes)

    def total(bytes_: dict[str, float]) -> float:
        kinds = ("weights", "gradients", "optimizer", "activations", "buffers")
        return sum(bytes_[kind] for kind in kinds)

    kept, loop = step(model, "kept"), step(model, "loop")
    few = step(replace(model, vocab=128), "kept")["activations"]
    ends = 2 * vocab * 4096 * 4 / dp
    saved = min(kept["gradients"] - ends, kept["activations"] - few)
    assert (saved > GB / 4) is (fewer == "logits")
    assert total(kept) - total(loop) == pytest.approx(saved, rel=0.02, abs=1e6)
