"""Parts 2 to 4 and 12, chips, collectives, transformers and GPUs: what their worked numbers ask
(`ask` of `published/scaling_book.json`).
"""

from __future__ import annotations

from dataclasses import replace

from meshwright.catalog import chip, model, network
from meshwright.cost import torus
from meshwright.describe.assumptions import BOOK_SUM, Assumptions
from meshwright.num import Num
from meshwright.roofline import thresholds as th
from meshwright.roofline.memory import checkpoints
from meshwright.roofline.mesh import LONG, Mesh, bandwidth, place
from meshwright.roofline.work import SCORES, LayerSetting

from .ideal import ideal
from .runs import training_flops, utilisation
from .world import (
    CHIPS_PER_HOST,
    EXACT,
    H100,
    H800,
    POD,
    V4P,
    V5E,
    V5P,
    all_gather_seconds,
    alpha,
    alpha_node,
    pod,
    token,
    world_collective,
    world_layer,
)


def v5e_line(how: Assumptions = EXACT) -> Mesh:
    """TPU v5e 4 x 4: no wraparound."""
    return pod(16, V5E, (4, 4), how)


def gpus(n: int, name: str = H100) -> Mesh:
    """GPUs with the exact factor (n-1)/n."""
    return pod(n, name, None, EXACT)


def gather_rate(chips: int, level: int) -> Num:
    """Bytes per second of an all-gather over so many GPUs at one of their levels."""
    m = gpus(chips)
    return LONG / m.fabric.load("all_gather", LONG, m.everything).busy[level]


def equal_length() -> Num:
    """Sequence length at which attention scores cost as much as all matrix products (MHA, gated, F
    = 4 D, D = 8192).
    """
    m = replace(
        model("llama3-70b"),
        hidden=8192,
        heads=64,
        kv_heads=64,
        head_dim=128,
        ffn=4 * 8192,
    )
    products, scores = (
        sum(op.forward.matrix for op in token(m, part, seq=1))
        for part in ("projections", SCORES)
    )
    return products / scores


def on_ring(kind: str, V: float, n: int) -> Num:
    """Seconds of a collective over a v5e ring of n chips, the factor (n-1)/n left out."""
    mesh = v5e_line(BOOK_SUM)
    return mesh.fabric.time(
        kind, V, ideal(mesh, n, network(V5E).dims[0].bandwidth)
    )


def ring_exchange() -> Num:
    """Seconds of an all-to-all over those of an all-gather of the same array on a ring of 16."""
    return on_ring("all_to_all", 1.0 / 16, 16) / on_ring("all_gather", 1.0, 16)


def on_line(size: float, *share: int) -> Num:
    """Seconds of an all-gather on v5e."""
    return all_gather_seconds(size, v5e_line(), *share)


def on_torus(kind: str, size: float, *share: int) -> Num:
    """Seconds of a collective on v4p 4 x 4 x 4."""
    return world_collective(kind, size, pod(64, V4P), *share)


def bytes_in_latency() -> Num:
    """Bytes that a v5e link carries while one waits for its latency."""
    dim = v5e_line().dims[0]
    rate: float = dim.rate()
    return rate * dim.latency


def to_corner(size: float) -> Num:
    """Seconds of a send to the corner of v5e 4 x 4."""
    return torus.send(size, [torus.axis(d, 4) for d in v5e_line().dims])


def hosts() -> Num:
    """Of a pod."""
    return pod(POD).chips / CHIPS_PER_HOST


def pod_chips() -> Num:
    """Chips of a pod."""
    return pod(POD).chips


def memory_of(chips: int) -> Num:
    """Bytes of memory of so many v5p."""
    return pod(chips).chips * chip(V5P).hbm_bytes


def deepseek_utilisation() -> Num:
    """Share of the FP8 peak in the training of DeepSeek-V3."""
    hours = 2.79e6
    flops = training_flops(37e9, 14.8e12)
    return utilisation(flops, hours * 3600, chip(H800).peak("fp8"))


def checkpoints_of(each: float = 1.0) -> Num:
    """Bytes of the checkpoints of 64 layers of width 8,192, 4e6 tokens."""
    return checkpoints(64, 4e6, 8192, each=each)


def tokens_of(chips: int, name: str) -> Num:
    """Tokens that FSDP in a node needs on so many chips."""
    return chips * alpha(name)


def node_tokens(chips: int, name: str) -> Num:
    """Tokens that FSDP across nodes needs on so many chips."""
    return chips * alpha_node(name)


def expert_tokens(name: str) -> Num:
    """Tokens a GPU needs for FSDP of a mixture of experts across nodes."""
    return th.data_tokens(
        LayerSetting(model(name)).per_token, alpha_node(H100)
    )


def gpu_tensor_limit(width: int, below: int = 0) -> Num:
    """Largest tensor-parallel degree, in a node or, with so many below, across nodes."""
    if below:
        return th.tensor_degree(
            world_layer(width), alpha_node(H100), below=below
        )
    return th.tensor_degree(world_layer(width), alpha(H100))


def in_node(size: float, exact: bool) -> Num:
    """Seconds of an all-gather in a node; exact: with the factor (n-1)/n."""
    node = gpus(8) if exact else pod(8, H100)
    return all_gather_seconds(size, node, 8, 1, 1)


def two_node_bandwidth() -> Num:
    """Bytes per second of a group over two nodes."""
    return bandwidth(gpus(16), place(gpus(16), (8, 2, 1)))


def memory_bandwidth(name: str) -> Num:
    return chip(name).hbm_bandwidth


def spine_bandwidth(switches: int, ports: int) -> Num:
    """Bytes per second of the ports of switches."""
    return switches * ports * network(H100).dims[1].bandwidth


def two_nodes() -> Num:
    """Tokens a GPU needs for DP between two nodes: only half of the array crosses."""
    return th.intensity(chip(H100).peak("bf16"), gather_rate(16, 1))
