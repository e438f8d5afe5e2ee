"""Small pieces of a layer and of a step by themselves: a slow host, scratch of attention, CPU
seconds of messages, and which engine is paid for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshwright import step
from meshwright.catalog import cluster, model
from meshwright.cost.network import Fabric
from meshwright.count.model import layer
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.framework import framework
from meshwright.describe.job import Job
from meshwright.describe.layers import kinds
from meshwright.describe.layout import Layout
from meshwright.describe.measured import Table
from meshwright.describe.network import Dim, Network
from meshwright.layout.placement import placed
from meshwright.program import cpu


def test_a_host_that_is_slower_than_all_kernels() -> None:
    """A layer takes as long as the host, and gradients of inputs and of weights half of a backward
    pass each: they are launched apart."""
    slow = replace(framework("megatron-core"), host_s=100.0)
    at = Job(model("llama3-8b"), cluster("8xh100-sxm"), 8, framework=slow)
    layout = placed(Layout(dp=8), at.cluster.sizes)
    one = step.body(at, layout, step.clock(at)).typical
    assert one.forward == pytest.approx(100.0)
    assert one.backward > one.forward
    assert one.weight_pass == pytest.approx(one.backward / 2)


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
    layout = placed(Layout(cp=cp), (cp,))
    at = Job(
        of,
        replace(cluster("8xh100-sxm"), chips=cp),
        1,
        attention_kernel="flash",
        framework=framework("meshwright"),
    )
    core = next(
        op
        for op in layer(at, layout, kinds(of)[0])
        if op.name == "attention/core"
    )
    queries = 128 // cp
    assert core.scratch == whole * (queries + 2 * 128) * 64 * 4


def measured(**seconds: float) -> Fabric:
    tables = {
        kind: Table(("ranks", "bytes"), ((1.0, 64.0), (0.0, 1e9)), (s,) * 4)
        for kind, s in seconds.items()
    }
    dim = Dim("switch", 1e9, 0.0, collectives=tables)
    return Fabric.of(Network("n", (dim,)), NetworkTime("ring"))


def test_a_message_costs_sender_and_receiver() -> None:
    assert cpu.send(measured(send=3.0), 100.0) == pytest.approx(6.0)
    column: Any = np.array([1.0, 2.0])
    assert cpu.send(measured(), column).tolist() == [0.0, 0.0]


def test_an_engine_is_paid_for_what_a_layout_uses() -> None:
    """Feature -> ranks of its group."""
    assert cpu.features(Layout(schedule="1f1b")) == {"plain": 1.0}
    used = cpu.features(
        Layout(tp=2, cp=3, pp=4, dp=5, zero=2, schedule="gpipe", recompute="full")
    )  # fmt: skip
    assert used == {
        "plain": 1.0, "tp": 2, "cp": 3, "zero2": 15, "gpipe": 4, "recompute full": 1.0,
    }  # fmt: skip
    assert cpu.features(Layout(cp=2)) == {"plain": 1.0, "cp": 2, "zero0": 2}
