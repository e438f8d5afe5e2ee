"""Hybrid sharding (HSDP): ZeRO inside groups of dp ranks, gradients all-reduced across them, by
hand.
"""

from __future__ import annotations

from dataclasses import replace

from meshwright import (
    Cluster,
    Dim,
    Job,
    Layout,
    Network,
    Space,
    catalog,
    plan,
    predict,
)
from meshwright.layout.placement import placed
from refusals import refusal

NEAR, FAR = 4e11, 2.5e10
NETWORK = Network(
    "two",
    (
        Dim("node", NEAR, 0.0, 8, efficiency=1.0),
        Dim("far", FAR, 0.0, efficiency=1.0),
    ),
)
JOB = Job(
    "llama3-8b",
    Cluster(catalog.chip("h100-sxm"), NETWORK, 64),
    64,
    assumptions="lbl-2024",
)
"""Rings without latency: an all-gather of V bytes over n ranks of one dimension takes (n - 1)/n V /
bandwidth.
"""


def at(**layout: int) -> Layout:
    return placed(Layout(**layout), JOB.cluster.sizes)


def test_groups_smaller_than_a_node_and_larger() -> None:
    """Shards lie nearest; what is left of a node belongs to the copies."""
    assert at(dp=64, dp_replicate=16).group("shards") == (4, 1)
    assert at(dp=64, dp_replicate=16).group("copies") == (2, 8)
    assert at(dp=64, dp_replicate=4).group("shards") == (8, 2)
    assert at(dp=64, dp_replicate=4).group("copies") == (1, 4)
    # two of dp, two of cp
    assert at(tp=2, cp=2, dp=16, dp_replicate=8).group("shards") == (
        4,
        1,
    )
    assert at(tp=2, cp=2, dp=16, dp_replicate=8).group("copies") == (1, 8)


def test_experts_are_sharded_in_groups_too() -> None:
    """Mixtral, ep 8 of 64 ranks: 8 replicas of an expert, 4 of them in a group of 2."""
    job = Job("mixtral-8x7b", "64xh100-sxm", 64)
    layout = placed(
        Layout(dp=64, ep=8, zero=1, dp_replicate=2), job.cluster.sizes
    )
    assert (layout.expert_replicas, layout.expert_shards) == (8, 4)
    assert layout.group("edp shards") == (1, 4) and layout.group(
        "edp copies"
    ) == (1, 2)
    assert predict(job, layout).step_time_s > 0
    with refusal("replicas of an expert"):
        predict(job, Layout(dp=64, ep=8, zero=1, dp_replicate=16))


def test_a_plan_takes_groups_of_a_node_where_they_are_faster() -> None:
    """Small weights, slow links between nodes, every microbatch waits: copies of what a node shards
    win.
    """
    slow = replace(
        NETWORK,
        dims=(NETWORK.dims[0], replace(NETWORK.dims[1], bandwidth=2e9)),
    )
    job = Job(
        "llama3-8b",
        Cluster(catalog.chip("h100-sxm"), slow, 64),
        128,
        precision="bf16-pure",
    )
    found = plan(
        job, Space(zero=3, pp=1, tp=1, cp=1, microbatch=1), pareto=False
    )
    assert found.best and found.best.layout.dp_replicate == 8
    whole = plan(
        job,
        Space(zero=3, pp=1, tp=1, cp=1, microbatch=1, dp_replicate=1),
        pareto=False,
    )
    assert whole.best and found.best.step_time_s < whole.best.step_time_s
