"""Small pieces of a layer and of a step by themselves: a slow host, scratch of attention, CPU
seconds of messages, and which engine is paid for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from by_hand import CHIP, MODEL, SET, by_hand
from meshwright import step
from meshwright.catalog import cluster, model
from meshwright.cost.network import Fabric
from meshwright.count import vocabulary
from meshwright.count.linear import summed_bytes
from meshwright.count.model import layer
from meshwright.describe.assumptions import Counting, NetworkTime
from meshwright.describe.cluster import Cluster
from meshwright.describe.framework import framework
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layers import kinds
from meshwright.describe.layout import Layout
from meshwright.describe.measured import MeasuredTable
from meshwright.describe.network import Dim, Network
from meshwright.layout import practice
from meshwright.layout.placement import placed
from meshwright.layout.stages import partition
from meshwright.program import cpu
from meshwright.schedule import get as schedule_named
from meshwright.schedule.stage_costs import Pass, StageCosts
from meshwright.step import holding, memory
from meshwright.step.weights import Parameters


def test_a_host_that_is_slower_than_all_kernels() -> None:
    """A layer takes as long as the host, and gradients of inputs and of weights half of a backward
    pass each: they are launched apart."""
    slow = replace(framework("megatron-core"), host_s=100.0)
    at = Job(model("llama3-8b"), cluster("8xh100-sxm"), 8, framework=slow)
    layout = placed(Layout(dp=8), at.cluster.sizes)
    one = step.model_cost(at, layout, step.clock(at)).typical
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
    layout = placed(Layout(cp=cp, dp=1), (cp,))
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
        kind: MeasuredTable(
            ("ranks", "bytes"), ((1.0, 64.0), (1.0, 1e9)), (s,) * 4
        )
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
    assert cpu.features(Layout(dp=1, schedule="1f1b")) == {"plain": 1.0}
    used = cpu.features(
        Layout(tp=2, cp=3, pp=4, dp=5, zero=2, schedule="gpipe", recompute="full")
    )  # fmt: skip
    assert used == {
        "plain": 1.0, "tp": 2, "cp": 3, "zero2": 15, "gpipe": 4, "recompute full": 1.0,
    }  # fmt: skip
    assert cpu.features(Layout(cp=2, dp=1)) == {
        "plain": 1.0,
        "cp": 2,
        "zero0": 2,
    }


def test_when_each_device_is_done() -> None:
    """Three microbatches of 1 s forward and 2 s backward on two stages: the last begins 1 s late,
    and after it the first has 2 s to do; both have 9 s of their own."""
    order = replace(SET.overlap, pp="interleaved")
    at = by_hand(Layout(pp=2, dp=1), 3, overlap=order).job
    layout = placed(Layout(pp=2, dp=1), at.cluster.sizes)
    found = step.step(at, layout, step.model_cost(at, layout, step.clock(at)))
    assert found.busy == pytest.approx((9.0, 9.0))
    assert found.reached[0] == pytest.approx(9.0)
    assert found.reached[-1] == pytest.approx(9.0 + 1.0 + 2.0)
    assert found.total == pytest.approx(12.0)


def test_the_first_of_chunks() -> None:
    """One layer of each chunk runs again: all, a half, a quarter of them."""
    for chunk, share in ((0.5, 1.0), (1.0, 1.0), (2.0, 0.5), (4.0, 0.25)):
        assert step.ModelShare((8,), 0, 0, chunk).again("full:1") == share
    assert step.ModelShare((8,), 0, 0, 4.0).again("full") == 1.0


def test_a_node_is_what_the_nearest_switch_joins() -> None:
    """Nodes of 4 in racks of 12: six ranks of tp leave one; on the axes of a torus none does."""
    dims = (("node", 4), ("rack", 3), ("net", 999))
    racks = Network("r", tuple(Dim(n, 1e9, 0.0, size=s) for n, s in dims))
    at = Job(MODEL, Cluster(CHIP, racks, 24), 24, assumptions=SET)
    assert practice.NEAR.holds(at, Layout(tp=4, dp=1))
    assert not practice.NEAR.holds(at, Layout(tp=6, dp=1))
    said = practice.NEAR.sentence(at, Layout(tp=6, dp=1))
    assert said == "tp 6 leaves the node domain of 4 chips"
    ring = tuple(
        Dim(n, 1e9, 0.0, size=s, kind="ring") for n, s in (("x", 2), ("y", 4))
    )
    torus = replace(at, cluster=Cluster(CHIP, Network("t", ring), 8))
    assert practice.NEAR.holds(torus, Layout(tp=8, dp=1))


def test_what_waits_in_host_memory_is_not_on_the_device() -> None:
    """A quarter of the optimizer's state: three quarters stay; weights take their gradients with
    them."""
    at = by_hand(Layout(dp=1), 1).job
    p = at.precision
    for word, here in (
        ("none", (1.0, 1.0, 1.0)), ("optimizer:0.25", (1.0, 1.0, 0.75)),
        ("optimizer", (1.0, 1.0, 0.0)), ("weights+optimizer", (0.0, 0.0, 0.0)),
    ):  # fmt: skip
        held = memory.states(
            at, Layout(dp=1, offload=word), Parameters(1000.0, 0.0)
        )
        each = (
            p.weight_bytes,
            holding.gradient_bytes(at),
            at.state_bytes,
        )
        assert tuple(held) == pytest.approx(
            tuple(
                1000.0 * x * part for x, part in zip(each, here, strict=True)
            )
        ), word


@pytest.mark.parametrize(("dp", "summed"), [(2, 6.0), (4, 0.0), (8, 0.0)])
def test_one_microbatch_adds_up_no_gradients(dp: int, summed: float) -> None:
    """Four sequences: two replicas add up twice (the new one, the old one and their sum, 2 bytes
    each), four replicas have one microbatch each."""
    apart = replace(Counting(), weight_gradient="added")
    at = by_hand(Layout(dp=2), 2, count=apart).job
    at = replace(at, precision=PRECISIONS["bf16-pure"])
    assert at.precision.weight_bytes == at.precision.gradient_bytes == 2
    found = summed_bytes(at, Layout(dp=dp))
    assert found is not None and float(found) == summed


def test_a_bound_of_few_microbatches_is_the_way_through_all_stages() -> None:
    """ZB-V on four devices of two layers, one microbatch: 8 s down and up, 12 s of input gradients,
    and the first device's own weight gradients, less the 6 s that a device computes. Where the
    second layer of each takes 8 times as long, the way through all stages counts."""
    order = replace(SET.overlap, pp="interleaved", step_barrier="none")
    at = by_hand(
        Layout(pp=4, dp=1), 4, model=replace(MODEL, layers=8), overlap=order
    ).job
    way = schedule_named("zbv")
    none, layer = Pass(0.0, 0.0, 0.0), Pass(1.0, 1.5, 0.5)
    even = StageCosts(partition(at, 4, way, 1), layer, none, none, (), 0.0)

    def least(m: float, d: StageCosts = even, work: float = 6.0) -> float:
        return float(step.least_idle(at, way, (4, m, 1), d, m * work))

    assert least(1.0) == pytest.approx(8.0 + 12.0 + 1.0 - 6.0)
    assert least(20.0) == 0.0
    # of four microbatches the last waits for three devices' input gradients, the rest is hidden
    assert least(4.0) == pytest.approx(3 * 3.0)
    ended = least(1.0, even._replace(last=Pass(7.0, 14.0, 7.0)), 9.0 + 25.0)
    assert ended == pytest.approx(8.0 + 7.0 + 12.0 + 14.0 + 0.5 - 34.0)


def test_logits_keep_their_input_in_16_bits() -> None:
    """Where the matrices of layers keep theirs in 8."""
    at = Job(model("llama3-8b"), cluster("8xh100-sxm"), 8)
    layout = placed(Layout(dp=8), at.cluster.sizes)
    kept = {}
    for name in ("bf16", "fp8"):
        of = replace(at, precision=PRECISIONS[name])
        ops = vocabulary.head(of, layout) + layer(of, layout, kinds(of.model)[0])  # fmt: skip
        kept[name] = {
            op.name: float(op.saved) for op in ops if op.kind == "matmul"
        }
    assert kept["fp8"]["head/logits"] == kept["bf16"]["head/logits"] == 8192 * 4096 * 2  # fmt: skip
    assert kept["fp8"]["ffn/down"] < kept["bf16"]["ffn/down"]
