"""Small pieces of a step by themselves: a slow host, when each device is done, what waits in host
memory, a bound of few microbatches.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import MODEL, SET, by_hand
from meshwright import step
from meshwright.catalog import cluster, model
from meshwright.describe.framework import framework
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.layout.placement import placed
from meshwright.layout.stages import partition
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


def test_a_bound_of_few_microbatches_is_the_way_through_all_stages() -> None:
    """ZB-V on four devices of two layers, one microbatch: 8 s down and up, 12 s of input gradients,
    and the first stage's weight gradient, less the 6 s that a device computes."""
    order = replace(SET.overlap, pp="interleaved", step_barrier="none")
    at = by_hand(
        Layout(pp=4, dp=1), 4, model=replace(MODEL, layers=8), overlap=order
    ).job
    way = schedule_named("zbv")
    none, layer = Pass(0.0, 0.0, 0.0), Pass(1.0, 1.5, 0.5)
    even = StageCosts(partition(at, 4, way, 1), layer, none, none, (), 0.0)

    def least(m: float, d: StageCosts = even, work: float = 6.0) -> float:
        return float(step.least_idle(at, way, m, d, m * work))

    assert least(1.0) == pytest.approx(8.0 + 12.0 + 0.5 - 6.0)
    assert least(20.0) == 0.0
    ended = least(1.0, replace(even, last=Pass(7.0, 14.0, 7.0)), 9.0 + 25.0)
    assert ended == pytest.approx(8.0 + 7.0 + 12.0 + 14.0 + 0.5 - 34.0)
