"""What one constant does, by hand: the median of the others, and nothing of the group left out."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest

from meshwright import Job, Layout, predict
from meshwright_studies.fitting.baselines import (
    constant,
    occupied_s,
    useful_s,
)


def test_a_constant_is_the_median_of_the_others_of_its_kind() -> None:
    """Three laboratories; without b its kind knows only a's two runs, c's kind none but all."""
    ratio = np.log([2.0, 4.0, 9.0, 100.0])
    labs = ["a", "a", "b", "c"]
    kinds = ["x", "x", "x", "y"]
    wide = ["16", "16", "16", "16"]
    found = np.exp(constant(ratio, labs, kinds, wide))
    assert found == pytest.approx([9.0, 9.0, 8**0.5, 4.0])
    alone = constant(np.array([log(2.0), log(3.0)]), ["a", "b"], ["x", "y"])
    assert np.exp(alone) == pytest.approx([3.0, 2.0])


def test_what_a_constant_counts() -> None:
    """6 FLOPs a weight and token at the peak; with full recomputation a third more of the layers, and
    of four stages and eight microbatches three eighths of idle time."""
    job = Job(
        "llama3-8b",
        "8xh100-sxm",
        64,
        Layout(tp=2, pp=4, dp=1, microbatch=8, recompute="full"),
    )
    p = predict(job)
    peak = 8 * job.cluster.chip.peak("bf16")
    flops = p.model_flops_per_s_per_chip * 8 * p.step_time_s
    assert useful_s(p) == pytest.approx(flops / peak)
    plain = predict(replace(job, layout=replace(job.layout, recompute="none")))
    idle = 1.0 + 3 / 8
    assert occupied_s(plain) == pytest.approx(
        plain.hfu * plain.step_time_s * idle
    )
    assert 1.2 < occupied_s(p) / occupied_s(plain) < 4 / 3
