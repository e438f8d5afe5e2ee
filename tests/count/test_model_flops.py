"""Model FLOPs: the numerator of MFU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout, Model, catalog, predict
from meshwright.count.model import executed_flops, model_flops
from meshwright.describe.assumptions import REALISTIC


def test_a_window_counts_as_wide_as_it_is() -> None:
    """12 L H h min(w, T) a token for the scores, beside the same weights."""
    whole = replace(catalog.model("mistral-7b"), window=None)
    T, w = 131072, 4096
    cut = replace(whole, window=w, full_every=0)
    scores = 12.0 * whole.layers * whole.heads * whole.h
    assert model_flops(whole, T) - model_flops(cut, T) == pytest.approx(
        scores * (T - w)
    )


@pytest.mark.parametrize("name", catalog.names("models"))
def test_utilisation_stays_below_one(name: str) -> None:
    """MFU at usual lengths: at very long ones the convention counts twice the scores that a causal
    kernel computes. HFU never passes what the chip sustains."""
    job = Job(
        name,
        "64xh100-sxm",
        64,
        Layout(dp=64, zero=3, recompute="full"),
        seq=8192,
    )
    p = predict(job)
    assert 0 < p.mfu < 1
    assert 0 < p.hfu < job.cluster.chip.sustained


TOY = Model("toy", 3, 512, 8, 1536, 1000, 256, kv_heads=2)
MATRICES = 3 * (512 * (512 + 2 * 128) + 512 * 512 + 3 * 512 * 1536)
"""Weights of matrix products in its layers; the head has 512 x 1000 more."""
T = 1024


@pytest.mark.parametrize(
    ("recompute", "share", "passes", "scores"),
    [
        ("none", 1.0, 3, 7),
        ("full", 1.0, 4, 9),
        ("full", 0.25, 3.25, 7.5),
        ("core_attn", 1.0, 3, 9),
    ],
)
def test_executed_flops_by_hand(
    recompute: str, share: float, passes: float, scores: float
) -> None:
    """Flash attention: 2 products of scores forward and 5 backward, each over the T (T + 1)/2 pairs
    that the mask leaves; matrices 1 and 2 times; recomputation runs the layers, or a share of them,
    not the head, forward once more."""
    pairs = T * (T + 1) / 2
    layers = passes * 2 * MATRICES * T + scores * 2 * pairs * 512 * 3
    counting = replace(REALISTIC.count, full="whole")
    got = executed_flops(TOY, T, counting, "flash", recompute, share)
    assert got == pytest.approx(layers + 3 * 2 * 512 * 1000 * T, rel=1e-12)


@pytest.mark.parametrize("seq", [2048, 2**14, 2**17])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("kernel", ["flash", "unfused"])
def test_kernels_never_run_faster_than_the_chip_sustains(
    seq: int, recompute: str, kernel: str
) -> None:
    """However long the sequence: MFU may pass the ceiling of the chip, HFU may not."""
    layout = Layout(tp=8, cp=8, dp=8, zero=3, recompute=recompute)
    job = Job(
        "llama3-70b",
        "512xh100-sxm",
        64,
        layout,
        seq=seq,
        attention_kernel=kernel,
    )
    assert predict(job).hfu <= 0.70
