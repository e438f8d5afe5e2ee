"""Parts 2 to 4 and 12: chips, collectives, transformers and GPUs; each worked number, computed."""

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
from .runs import days, training_flops, utilisation
from .training import Case
from .world import (
    B200,
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
    array_bytes,
    llama_flops,
    node_egress,
    pod,
    token,
    world_collective,
    world_layer,
)

HBD = array_bytes(1024, 4096)
"""bf16[B, D] of the exercises of part 3."""
QUIZ = array_bytes(2048, 8192)
"""bf16[2048, 8192] of its quiz."""
GPU_ARRAY = array_bytes(1024, 16384)


def v5e_line(how: Assumptions = EXACT) -> Mesh:
    """TPU v5e 4 x 4: no wraparound."""
    return pod(16, V5E, (4, 4), how)


def torus4() -> Mesh:
    """TPU v4p 4 x 4 x 4."""
    return pod(64, V4P)


def gpus(n: int, name: str = H100) -> Mesh:
    """GPUs with the exact factor (n-1)/n."""
    return pod(n, name, None, EXACT)


def level_rate(m: Mesh, level: int) -> Num:
    """Bytes per second of an all-gather over the whole mesh at one of its levels."""
    return LONG / float(
        m.fabric.load("all_gather", LONG, m.everything).busy[level]
    )


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


def ring_hops() -> Num:
    """Seconds an all-gather of almost nothing takes over 4 chips with wraparound."""
    return all_gather_seconds(1.0, torus4(), 4, 1, 1)


def two_nodes() -> Num:
    """Tokens a GPU needs for DP between two nodes: only half of the array crosses."""
    return th.intensity(chip(H100).peak("bf16"), level_rate(gpus(16), 1))


CASES: dict[str, Case] = {
    "P3-01": lambda: on_ring("all_gather", QUIZ, 4),
    "P3-02": lambda: all_gather_seconds(QUIZ, v5e_line(), 4, 1),
    "P3-03": lambda: all_gather_seconds(
        array_bytes(256, 256), v5e_line(), 4, 1
    ),
    "P3-04": lambda: all_gather_seconds(HBD / 4, torus4(), 4, 1, 1),
    "P3-05": lambda: all_gather_seconds(HBD, torus4(), 4, 4, 1),
    "P3-06": lambda: world_collective(
        "all_reduce", HBD / 16, torus4(), 1, 1, 4
    ),
    "P3-06N": lambda: world_collective(
        "all_reduce", HBD / 16, torus4(), 1, 1, 4
    ),
    "P3-05N1": lambda: all_gather_seconds(HBD / 4, torus4(), 4, 1, 4),
    "P3-05N2": lambda: all_gather_seconds(HBD, torus4(), 4, 4, 4),
    "P3-07": ring_hops,
    "P3-08": lambda: v5e_line().dims[0].rate() * v5e_line().dims[0].latency,
    "P3-09": ring_exchange,
    "P2-01": lambda: array_bytes(8, 128, 8192),
    "P2-02": lambda: torus.send(
        1.7e7, [torus.axis(d, 4) for d in v5e_line().dims]
    ),
    "P2-03": lambda: pod(POD).chips / CHIPS_PER_HOST,
    "P2-04": lambda: pod(POD).chips * chip(V5P).hbm_bytes,
    "P4-01": lambda: utilisation(
        training_flops(37e9, 14.8e12),
        2.79e6 * 3600,
        chip(H800).peak("fp8"),
    ),
    "P4-02": equal_length,
    "P4-03": lambda: checkpoints(64, 4e6, 8192, each=20),
    "P4-04": lambda: checkpoints(64, 4e6, 8192),
    "P12-01": lambda: alpha(H100),
    "P12-02": lambda: alpha_node(H100),
    "P12-03": lambda: 16000 * alpha_node(H100),
    "P12-04": lambda: alpha(H800),
    "P12-05": lambda: 2048 * alpha(H800),
    "P12-05b": lambda: 4096.0 * 15360,
    "P12-06": lambda: th.data_tokens(
        LayerSetting(model("gpt-oss-120b")).per_token, alpha_node(H100)
    ),
    "P12-07": two_nodes,
    "P12-08": lambda: th.tensor_degree(
        world_layer(28000), alpha_node(H100), below=8
    ),
    "P12-09": lambda: alpha(B200),
    "P12-10": lambda: alpha_node(B200),
    "P12-11": lambda: all_gather_seconds(2.0**29, gpus(8), 8, 1, 1),
    "P12-12": lambda: all_gather_seconds(GPU_ARRAY, pod(8, H100), 8, 1, 1),
    "P12-12b": lambda: all_gather_seconds(GPU_ARRAY, gpus(8), 8, 1, 1),
    "P12-13": lambda: level_rate(gpus(8), 0),
    "P12-14": lambda: level_rate(gpus(256), 1),
    "P12-15": lambda: level_rate(gpus(1024), 2),
    "P12-16": lambda: th.tensor_degree(world_layer(28672), alpha(H100)),
    "P12-17": lambda: days(llama_flops(), 4096, chip(H100).peak("bf16"), 0.45),
    "P12-18": lambda: 4e6 / 4096,
    "P12-19": lambda: alpha_node(H100, nodes=8),
    "P12-20": lambda: 192 * 4096 / 192,
    "P12-21": lambda: 384 * 4096 / 768,
    "P12-22": lambda: 1536 * 4096 / 3072,
    "P12-23": lambda: bandwidth(gpus(16), place(gpus(16), (8, 2, 1))),
    "P12-24": lambda: node_egress("book-gb200-nvl72"),
    "P12-25": lambda: chip(B200).hbm_bandwidth,
    "P12-26": lambda: 16 * 64 * network(H100).dims[1].bandwidth,
}
