"""Tokens to experts that travel once to each node: by hand, against measured kernels, and as a
bound.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from meshwright import Job, Layout, catalog, predict
from meshwright.cost.dispatch_kernels import has_dispatch_kernel, once_a_node
from meshwright.cost.network import Fabric
from meshwright.count.model import count_microbatch
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.software import Software
from meshwright.exchange.reach import Draw, expected_reach
from published_rows import published

H100 = Fabric.from_network(catalog.network("dgx-h100"), NetworkTime("nccl"))


@pytest.mark.parametrize(
    ("nodes", "way", "error"),
    [
        (1, "combine", 0.08),
        (2, "dispatch", 0.12),
        (4, "dispatch", 0.06),
        (4, "combine", 0.06),
        (2, "combine", 0.20),
    ],
)
def test_measured_kernels(nodes: int, way: str, error: float) -> None:
    """DeepEP on nodes of 8 H100. On 8 nodes the same table has the FP8 dispatch as slow as 16 bits,
    on one node by a third slower than bytes say: not judged.
    """
    rows = [r for r in published("deepep") if r["nodes"] == str(nodes)]
    wide = 1.0 if way == "dispatch" else 2.0
    errors = []
    for r in rows:
        k = int(r["top_k"])
        V = float(r["tokens"]) * k * float(r["hidden"]) * wide
        errors.append(
            abs(
                once_a_node(H100, V, (8, nodes), Draw(k), "deepep").seconds
                * 1e6
                / float(r[f"{way}_us"])
                - 1
            )
        )
    assert median(errors) <= error


@pytest.mark.parametrize("way", ["dispatch", "combine"])
def test_measured_kernels_of_hybridep(way: str) -> None:
    """One NVLink domain of 8 B200 and of 8 to 36 GB200: the ranks of an NVL72 are as near as those
    of a node.
    """
    errors = []
    for r in published("hybridep"):
        n, k, width = int(r["ranks"]), 8, 4096 * 7168 * 2.0
        received = width * n * (1 - (1 - 1 / n) ** k)
        net = Fabric.from_network(
            catalog.network(
                "gb200-nvl72" if r["chip"] == "gb200" else "dgx-b200"
            ),
            NetworkTime("nccl"),
        )
        group = (float(n), *(1.0 for _ in net.rates[1:]))
        seconds = net.load("hybridep", width * k, group, Draw(k)).seconds
        errors.append(seconds / (received / float(r[f"{way}_gbps"]) / 1e9) - 1)
    assert abs(median(errors)) <= 0.05 and max(abs(e) for e in errors) <= 0.2


@pytest.mark.parametrize(
    "draw",
    [
        Draw(8),
        Draw(8, row=256),
        Draw(8, groups=8, top_groups=4),
        Draw(8, groups=16, top_groups=1),
    ],
)
def test_arrays_busy_and_floor(draw: Draw) -> None:
    V, g, n = (
        np.array([0.0, 1e6, 1e9]),
        np.array([8.0, 8.0, 4.0]),
        np.array([1.0, 4.0, 16.0]),
    )
    load = H100.load("deepep", V, (g, n), draw)
    one = [
        H100.load("deepep", *row, draw)
        for row in zip(
            V.tolist(), zip(g.tolist(), n.tolist(), strict=True), strict=True
        )
    ]
    assert np.array_equal(load.seconds, [x.seconds for x in one])
    assert all(x.busy.most <= x.seconds for x in one)
    for group in ((8, 4), (1, 32), (2, 16), (8, 64)):
        floor = H100.bound.load("deepep", 1e8, (8, 4), draw).seconds
        assert floor <= H100.load("deepep", 1e8, group, draw).seconds


@pytest.mark.parametrize(("width", "rate"), [(1.0, 153e9), (2.0, 158e9)])
def test_links_hold_deepep_up_on_an_h800(width: float, rate: float) -> None:
    """Its authors' rates count what stays on a rank too (deepseek-ai/DeepEP@ebfe47e4, README.md)."""
    H800 = Fabric.from_network(
        catalog.network("dgx-h800"), NetworkTime("nccl")
    )
    row = 4096 * 7168 * width
    seconds = H800.load("deepep", 8 * row, (8, 1), Draw(8)).seconds
    assert row * expected_reach(8, Draw(8)) / seconds == pytest.approx(
        rate, rel=0.03
    )


@pytest.mark.parametrize("network", ["dgx-h100", "dgx-b200", "gb200-nvl72"])
def test_multiprocessors_hold_deepep_up_on_faster_links(network: str) -> None:
    """One rate on links of 369 and 720 GB/s, where a share would say twice as much on the latter."""
    net = Fabric.from_network(catalog.network(network), NetworkTime("nccl"))
    left = 1e10 / 8 * expected_reach(8, Draw(8)) * 7 / 8
    load = net.load("deepep", 1e10, (8, *(1,) * (len(net.rates) - 1)), Draw(8))
    assert left / load.busy.most == pytest.approx(275e9)
    assert load.busy.most < load.seconds


def test_groups_of_experts_keep_a_token_to_fewer_nodes() -> None:
    """DeepSeek-V3's router takes experts of 4 of 8 groups, a node each: it sends over 3.98 nodes
    where 5.25 would have experts of a token; an all-to-all sends as much for each.
    """
    v3 = catalog.model("deepseek-v3")
    layout = Layout(dp=64, ep=64, zero=1)
    job = Job(v3, "64xh100-sxm", 64, layout)
    anywhere = replace(
        job, model=replace(v3, moe=replace(v3.moe, groups=1, top_groups=1))
    )

    def seconds(of: Job, dispatcher: str) -> float:
        told = replace(of, software=Software(dispatcher=dispatcher))
        return predict(told).time_s["ep_comm"]

    few, all_ = (seconds(of, "deepep") for of in (job, anywhere))
    assert few / all_ == pytest.approx(3.98 / 5.25, abs=0.04)
    assert seconds(job, "alltoall") == seconds(anywhere, "alltoall")


@pytest.mark.parametrize(
    ("dispatcher", "sorts"),
    [("alltoall", False), ("deepep", False), ("hybridep", True)],
)
def test_what_sorts_by_itself_spares_the_host(
    dispatcher: str, sorts: bool
) -> None:
    """DeepEP hands tokens over as they came: passes of their own count and sort them."""
    layout = Layout(dp=8, ep=8, zero=1)
    job = Job("qwen3-30b-a3b", "8xh100-sxm", 8, layout)
    once = replace(job, software=Software(dispatcher=dispatcher))
    (ops, *_) = count_microbatch(once, layout).layers
    assert has_dispatch_kernel(ops) == sorts


@pytest.mark.parametrize(
    ("experts", "k", "ranks"),
    [(128, 8, 8), (128, 4, 64), (256, 8, 64), (384, 8, 32), (32, 4, 8)],
)
def test_neighbours_reach_the_places_that_a_benchmark_deals_them_to(
    experts: int, k: int, ranks: int
) -> None:
    """Against each token's own experts, as NeMo AutoModel's FakeBalancedGate and torchtitan's
    forced balance number them: those from i k on, modulo all.
    """
    each = experts // ranks
    places = [
        len({(i * k + j) % experts // each for j in range(k)})
        for i in range(experts)
    ]
    mean = sum(places) / experts
    found = expected_reach(float(ranks), Draw(k, experts))
    assert found == pytest.approx(mean)
    columns = expected_reach(np.array([1.0, ranks]), Draw(k, experts))
    assert columns == pytest.approx([1.0, mean])
    assert found <= expected_reach(float(ranks), Draw(k))


def test_neighbours_are_sent_to_fewer_ranks_than_drawn_experts() -> None:
    """Qwen3-30B on 8 ranks: a token's 8 experts are on one rank, where drawn ones are on 5.3."""
    run = Job("qwen3-30b-a3b", "8xh100-sxm", 64, Layout(dp=8, ep=8, zero=1))
    time = {
        routing: predict(
            replace(
                run,
                software=Software(dispatcher="deepep", routing=routing),
            )
        ).time_s["ep_comm"]
        for routing in ("drawn", "neighbours")
    }
    drawn, near = time["drawn"], time["neighbours"]
    assert near < drawn / 3
    sends = [
        predict(
            replace(run, software=Software(dispatcher="alltoall", routing=way))
        ).step_time_s
        for way in ("drawn", "neighbours")
    ]
    assert sends[0] == sends[1]  # an all-to-all sends each copy by itself


@pytest.mark.parametrize("graphs", ["off", "parts", "full"])
def test_graphs_of_layers_hold_padded_experts(graphs: str) -> None:
    """As many tokens go the same way: what is left of the host's launches alone is less. What
    replicas send hides behind a host that bounds the step, and so shows a little more.
    """
    run = Job("qwen3-30b-a3b", "8xb200", 64, Layout(dp=8, ep=8, zero=1))
    drawn, padded = (
        predict(
            replace(
                run, software=Software(cuda_graphs=graphs, routing=routing)
            )
        )
        for routing in ("drawn", "padded")
    )
    for name in ("compute", "memory", "ep_comm"):
        assert padded.time_s[name] == drawn.time_s[name]
    assert padded.memory_bytes == drawn.memory_bytes
    spared = drawn.time_s["host"] - padded.time_s["host"]
    assert (spared > 0.1 * drawn.step_time_s) == (graphs == "parts")
    assert (spared == 0.0) == (graphs != "parts")
