"""What operations need beside their tensors, and what they keep, by hand: scratch of attention, sums
of gradients, inputs of logits.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import by_hand
from meshwright import Layout
from meshwright.catalog import cluster, model
from meshwright.count import vocabulary
from meshwright.count.microbatch import DeviceMicrobatch, summed_bytes
from meshwright.count.model import layer
from meshwright.describe.assumptions import Counting
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layers import kinds
from meshwright.layout.placement import placed


@pytest.mark.parametrize(
    ("window", "cp", "whole"),
    [(None, 1, 0), (64, 1, 1), (128, 1, 0), (200, 1, 0), (None, 2, 1)],
)
def test_masks_that_are_not_causal_alone_need_scratch(
    window: int | None, cp: int, whole: int
) -> None:
    """Queries, keys and values once more, in fp32: where a window of fewer than 128 tokens, or only
    a part of the queries, makes the mask another one. Four heads of 16 are 3 x 64 wide."""
    of = model("llama3-8b")
    of = replace(
        of, layers=1, hidden=64, heads=4, kv_heads=4, head_dim=16, ffn=256, seq=128,
        window=window, pattern=("sliding",) if window else (),
    )  # fmt: skip
    layout = placed(Layout(cp=cp, dp=1), (cp,))
    at = Job(
        of,
        replace(cluster("8xh100-sxm"), chips=cp),
        1,
        attention_kernel="flash",
        framework="meshwright",
    )
    core = next(
        op
        for op in layer(at, layout, kinds(of)[0])
        if op.name == "attention/core"
    )
    queries = 128 // cp
    assert core.scratch == whole * (queries + 2 * 128) * 64 * 4


@pytest.mark.parametrize(("dp", "summed"), [(2, 6.0), (4, 0.0), (8, 0.0)])
def test_one_microbatch_adds_up_no_gradients(dp: int, summed: float) -> None:
    """Four sequences: two replicas add up twice (the new one, the old one and their sum, 2 bytes
    each), four replicas have one microbatch each."""
    apart = replace(Counting(), weight_gradient="added")
    at = by_hand(Layout(dp=2), 2, count=apart).job
    at = replace(at, precision=PRECISIONS["bf16-pure"])
    assert at.precision.weight_bytes == at.precision.gradient_bytes == 2
    found = summed_bytes(DeviceMicrobatch.from_layout(at, Layout(dp=dp)))
    assert found is not None and float(found) == summed


def test_logits_keep_their_input_in_16_bits() -> None:
    """Where the matrices of layers keep theirs in 8."""
    at = Job("llama3-8b", "8xh100-sxm", 8)
    layout = placed(Layout(dp=8), at.cluster.sizes)
    kept = {}
    for name in ("bf16", "fp8"):
        of = replace(at, precision=PRECISIONS[name])
        ops = vocabulary.head(DeviceMicrobatch.from_layout(of, layout)) + layer(of, layout, kinds(of.model)[0])  # fmt: skip
        kept[name] = {
            op.name: float(op.saved) for op in ops if op.kind == "matmul"
        }
    assert kept["fp8"]["head/logits"] == kept["bf16"]["head/logits"] == 8192 * 4096 * 2  # fmt: skip
    assert kept["fp8"]["ffn/down"] < kept["bf16"]["ffn/down"]
