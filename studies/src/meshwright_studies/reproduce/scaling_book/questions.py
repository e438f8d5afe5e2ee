"""What the worked numbers of the book ask (`ask` of `published/scaling_book.json`), beside what the
library answers by itself.

Layers have the book's two matrices, mixtures of FSDP and tensor parallelism take two axes and one
of TPU v5p, and slices are its 16 x 16 x 16.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from meshwright.catalog import chip, model, network
from meshwright.cost import torus
from meshwright.count.blocks import Numbers, matmul
from meshwright.count.model import operations, parameters
from meshwright.describe.assumptions import BOOK_SUM
from meshwright.num import Num, crossing
from meshwright.num import floor as floor
from meshwright.roofline import thresholds as th
from meshwright.roofline.memory import checkpoints as checkpoints
from meshwright.roofline.memory import per_chip as per_chip
from meshwright.roofline.memory import states as states
from meshwright.roofline.mesh import LONG, bandwidth, place
from meshwright.roofline.queries import EXACT
from meshwright.roofline.work import SCORES, LayerSetting

from .ideal import Ideal, compute_bound_splits, ideal, on_axes
from .world import H100, V4P, V5E, V5P, alpha, book_setting, pod, world_layer
from .world import alpha_dcn as alpha_dcn
from .world import alpha_node as alpha_node
from .world import node_egress as node_egress


def ratio(a: Num, b: Num) -> Num:
    return a / b


def product(*factors: Num) -> Num:
    return prod(factors)


def plus(*terms: Num) -> Num:
    return sum(terms)


def peak(name: str, precision: str = "bf16") -> Num:
    """FLOP/s of a chip."""
    return chip(name).peak(precision)


def hbm_bytes(name: str) -> Num:
    """Bytes of a chip."""
    return chip(name).hbm_bytes


def hbm_bandwidth(name: str) -> Num:
    return chip(name).hbm_bandwidth


def link(name: str, dim: int) -> Num:
    """Bytes per second of a dimension of a network."""
    return network(name).dims[dim].bandwidth


def pod_chips() -> Num:
    """Chips of a pod, as the network has them."""
    return pod(8960).chips


def training_flops(parameters: Num, tokens: Num) -> Num:
    """FLOPs of a run: 6 N D, a matrix product forward and backward."""
    one = matmul("", T=1.0, k=1.0, n=1.0, numbers=Numbers(0.0, 0.0, 0.0))
    each = float(one.forward.matrix + one.backward.matrix)
    return each * parameters * tokens


def data_tokens(width: int, a: Num) -> Num:
    """Tokens a chip needs for FSDP; a: C/W of its axes."""
    return th.data_tokens(world_layer(width), a)


def tensor_limit(width: int, a: Num, below: int = 0) -> Num:
    """Largest tensor-parallel degree; below: chips of units that it joins."""
    return th.tensor_degree(world_layer(width), a, below=below)


def mixed_tokens(width: int, edition: str) -> Num:
    """Tokens a chip needs for the best mixture of FSDP and tensor parallelism."""
    a_x, a_y = alpha(V5P, 2), alpha(V5P)
    return th.mixed_tokens(world_layer(width), a_x, a_y, edition)


def best_data_degree(batch: Num, chips: int, width: int) -> Num:
    """Data-parallel degree of the best mixture."""
    a_x, a_y = alpha(V5P, 2), alpha(V5P)
    return th.best_split(world_layer(width), batch, chips, a_x, a_y)


def most_data_degree(batch: float, chips: int, width: int) -> Num:
    """The largest data-parallel degree that is compute-bound."""
    a_x, a_y = alpha(V5P, 2), alpha(V5P)
    return compute_bound_splits(
        world_layer(width), batch, chips, a_x, a_y, "sum"
    )[1]


def slice_split(x: int, most: int | None = 3) -> Ideal:
    """X-way FSDP and tensor parallelism on a slice; most: axes, None as the explorer counts
    them.
    """
    return on_axes(x, 4096 // x, 16, most)


def split_threshold(x: int, edition: str, most: int | None) -> Num | None:
    """Batch from which a split is compute-bound."""
    return slice_split(x, most).threshold(book_setting(), pod(4096), edition)


def compute_seconds(batch: float) -> Num:
    """Of a layer on a slice."""
    return slice_split(512).times(book_setting(), pod(4096), batch).compute


def exchanging_seconds(x: int, batch: float) -> Num:
    """Of a layer, one collective after the other."""
    return slice_split(x).times(book_setting(), pod(4096), batch).comm("sum")


def overtaking(x: int, other: int) -> Num | None:
    """Batch from which one split sends less than another."""
    return crossing(
        lambda b: float(
            exchanging_seconds(other, b) - exchanging_seconds(x, b)
        )
    )


def phantom(x: int) -> Num | None:
    """Batch from which FSDP alone sends less than a split, with the tensor-parallel cost that the
    plot adds at Y = 1.
    """
    # any Y > 1 shows the activations of one of 4096 data shards on one axis
    extra = Ideal(4096, 2, 3, 1)

    def gap(batch: float) -> float:
        more = extra.times(book_setting(), pod(4096), batch).tensor.seconds
        alone = exchanging_seconds(4096, batch) + more
        return float(exchanging_seconds(x, batch) - alone)

    return crossing(gap)


def tensor_bytes(way: str) -> float:
    """Bytes that the tensor axis of a layer carries in a pass of 2^20 tokens, FSDP 512-way and
    tensor parallelism 8-way; gathered inputs are kept.
    """
    s = book_setting()
    return sum(
        float(message.bytes)
        for op in s.ops(s.on(2.0**20 / 512, tp=8))
        for message in getattr(op, way).comm
        if message.axis == "tp"
    )


def layer_parameters(name: str, layer: str) -> float:
    """Parameters of one layer of a model, as far as it counts."""
    setting = LayerSetting(model(name), layer)
    return float(sum(op.weights for op in setting.ops(setting.on(1.0))))


def ffn_parameters(name: str) -> float:
    """Parameters of the feed-forward matrices of a model."""
    return layer_parameters(name, "mlp") * model(name).layers


def attention_parameters(name: str, layers: int = 0) -> float:
    """Parameters of a model's attention projections, in all layers or some."""
    return (
        layer_parameters(name, "projections") - layer_parameters(name, "mlp")
    ) * (layers or model(name).layers)


def vocabulary_parameters(name: str) -> float:
    """Parameters of a model's embedding and output head."""
    return float(
        sum(
            op.weights * n
            for op, n in operations(model(name))
            if op.name in ("embedding", "head/logits")
        )
    )


def all_parameters(name: str) -> float:
    """Everything, norms included."""
    return parameters(model(name))


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
    matrices, scores = (
        sum(op.forward.matrix for op in s.ops(s.on(1.0)))
        for s in (LayerSetting(m, p, seq=1) for p in ("projections", SCORES))
    )
    return matrices / scores


def expert_tokens(name: str) -> Num:
    """Tokens a GPU needs for FSDP of a mixture of experts across nodes."""
    return th.data_tokens(
        LayerSetting(model(name)).per_token, alpha_node(H100)
    )


MESHES = {
    # no wraparound: lines
    "v5e 4x4": partial(pod, 16, V5E, (4, 4), EXACT),
    "v4p 4x4x4": partial(pod, 64, V4P),
    # with the factor (n-1)/n, and as the text leaves it out
    "node": partial(pod, 8, H100, None, EXACT),
    "node, roughly": partial(pod, 8, H100),
}


def collective_seconds(on: str, kind: str, size: float, *share: int) -> Num:
    """Seconds over a group with that many neighbours in each dimension."""
    m = MESHES[on]()
    return m.fabric.time(kind, size, place(m, share))


def on_ring(kind: str, size: float, n: int) -> Num:
    """Seconds of a collective over a v5e ring of n chips, the factor (n-1)/n left out."""
    m = pod(16, V5E, (4, 4), BOOK_SUM)
    return m.fabric.time(kind, size, ideal(m, n, link(V5E, 0)))


def bytes_in_latency() -> Num:
    """Bytes that a v5e link carries while one waits for its latency."""
    dim = MESHES["v5e 4x4"]().dims[0]
    return float(dim.rate() * dim.latency)


def to_corner(size: float) -> Num:
    """Seconds of a send to the corner of v5e 4 x 4."""
    dims = MESHES["v5e 4x4"]().dims
    return torus.send(size, [torus.axis(d, 4) for d in dims])


def gather_rate(gpus: int, level: int) -> Num:
    """Bytes per second of an all-gather over so many GPUs at one of their levels."""
    m = pod(gpus, H100, None, EXACT)
    return LONG / m.fabric.load("all_gather", LONG, m.everything).busy[level]


def two_node_bandwidth() -> Num:
    """Bytes per second of a group over two nodes."""
    m = pod(16, H100, None, EXACT)
    return bandwidth(m, place(m, (8, 2, 1)))
