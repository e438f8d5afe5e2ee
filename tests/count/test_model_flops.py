"""Model FLOPs: the numerator of MFU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import catalog, predict
from meshwright.count.model import model_flops
from meshwright.spec.job import Job
from meshwright.spec.layout import Layout


def test_a_window_counts_as_wide_as_it_is() -> None:
    """12 L H h min(w, T) a token for the scores, beside the same weights."""
    whole = replace(catalog.model("mistral-7b"), window=None)
    T, w = 131072, 4096
    cut = replace(whole, window=w, full_every=0)
    scores = 12.0 * whole.layers * whole.heads * whole.h
    assert model_flops(whole, T) - model_flops(cut, T) == pytest.approx(scores * (T - w))


@pytest.mark.parametrize("name", catalog.names("models"))
def test_utilisation_stays_below_one(name: str) -> None:
    """At usual lengths. At very long ones the convention counts twice the scores that a causal kernel computes."""
    job = Job(
        catalog.model(name), catalog.cluster("64xh100-sxm"), 64, Layout(dp=64, zero=3, recompute="full"), seq=8192
    )
    assert 0 < predict(job).mfu < predict(job).hfu < 1
