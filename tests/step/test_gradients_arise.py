"""When the gradients of a step of one microbatch are there: as activations leave, and until its
optimizer frees them.
"""

from dataclasses import replace

import pytest

from meshwright import Job, Layout, Model, predict
from meshwright.describe.framework import framework
from meshwright.describe.software import Software
from meshwright.prediction.prediction import Prediction
from meshwright.step.memory import FixedBytes
from meshwright.step.zero import States
from meshwright.units import GIB

LLAMA = 8030261248
ENDS = 2 * 128256 * 4096 + 4096
"""Parameters of embedding, head and last norm of llama3-8b."""


def test_the_moments_by_hand() -> None:
    """Gradients of 8 bytes, 2 of them early, beside 30 of activations and beside the last 5."""
    fixed = FixedBytes(States(10.0, 8.0, 20.0), 1.0, early=2.0)
    assert [use.total for use in fixed.uses(30.0, 5.0)] == [63.0, 44.0]
    assert fixed.apart(30.0) == 69.0
    late = fixed._replace(copies=40.0)
    assert [use.total for use in late.uses(30.0, 5.0)] == [63.0, 44.0, 79.0]
    held = fixed._replace(early=None)
    assert [use.total for use in held.uses(30.0, 5.0)] == [69.0]


def run(m: int, on: str = "8xh100-sxm", **layout: object) -> Prediction:
    """Llama-3-8B under FSDP without recomputation, in m microbatches."""
    chips = int(on.partition("x")[0])
    how = Layout(**{"dp": chips, "zero": 3, **layout})  # type: ignore[arg-type]
    return predict(Job("llama3-8b", on, chips * m, framework="fsdp"), how)


def test_a_second_microbatch_finds_the_gradients_of_the_first() -> None:
    one, two = run(1).memory_bytes, run(2).memory_bytes
    late = (LLAMA - ENDS) * 4 / 8
    assert two["allocated"] - one["allocated"] == pytest.approx(late, rel=1e-3)
    # in blocks of the stream that reduces them, which are given back before anything fails
    assert one["reserved"] == pytest.approx(two["reserved"] - 0.05 * late)
    assert one["needed"] == pytest.approx(two["needed"] - 1.02 * late)


def test_buckets_of_whole_gradients_stay() -> None:
    one, two = (run(m, zero=0).memory_bytes for m in (1, 2))
    assert one["allocated"] == two["allocated"]


def test_one_device_has_one_stream() -> None:
    one = run(1, "1xb300").memory_bytes
    assert one["reserved"] == pytest.approx(1.05 * one["allocated"])
    assert one["gradients"] == 4 * ENDS


def test_the_most_may_be_all_gradients_and_one_layer() -> None:
    """Llama 3.2 3B in 16 bits with recomputation and torchtune's compiled chunks: 24.9 GiB on an
    A100 (pytorch/torchtune@bd2a0fc7, README.md), of which weights, moments and gradients are 23.9.
    """
    job = Job(
        "llama3.2-3b",
        "1xa100-80",
        2,
        seq=4096,
        framework="fsdp",
        precision="bf16-pure",
        optimizer="adamw-pure",
        software=Software(loss="compiled chunks", compiled=True),
    )
    layout = Layout(microbatch=2, recompute="full", zero=3)
    use = predict(job, layout).memory_bytes
    assert use["allocated"] == pytest.approx(24.9 * GIB, rel=0.02)
    assert use["gradients"] == pytest.approx(2 * 3.213e9, rel=1e-3)
    whole = predict(replace(job, batch=4), layout).memory_bytes
    assert whole["allocated"] > 1.1 * use["allocated"]


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
    assert (saved > GIB / 4) is (fewer == "logits")
    assert total(kept) - total(loop) == pytest.approx(saved, rel=0.02, abs=1e6)
