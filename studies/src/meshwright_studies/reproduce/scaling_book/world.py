"""What the worked numbers of the book are about: its chips and meshes, its layer, its models and
rounded quantities.
"""

from __future__ import annotations

from functools import cache

from meshwright.catalog import chip, cluster, model, network
from meshwright.count.model import operations, parameters
from meshwright.count.work import Op
from meshwright.describe.assumptions import BOOK_SUM, Assumptions
from meshwright.describe.model import Model
from meshwright.num import product
from meshwright.roofline.mesh import Mesh, mesh, place
from meshwright.roofline.queries import EXACT as EXACT
from meshwright.roofline.thresholds import intensity
from meshwright.roofline.work import Layer, LayerSetting

from .runs import training_flops

V5P = "book-tpu-v5p"
V5E = "book-tpu-v5e"
V4P = "book-tpu-v4p"
H100 = "book-h100"
H800 = "book-h800"
B200 = "book-b200"
MI = 2.0**20
"""The book's M where it means tokens as powers of two."""
CHIPS_PER_HOST = 4
"""TPU v4 and v5p."""
POD = 8960
LLAMA_70B = 70e9
LLAMA_13B = 13e9
"""Parameters as the book rounds them."""
LLAMA_TOKENS = 15e12


def toy(F: int) -> Model:
    """The book's layer: two matrices, nothing else."""
    return Model(
        "the book's layer",
        layers=1,
        hidden=8192,
        heads=1,
        ffn=F,
        vocab=0,
        seq=8192,
        gated=False,
    )


def world_layer(F: int) -> Layer:
    """A layer of width F as thresholds see it."""
    return LayerSetting(toy(F)).per_token


def alpha(name: str, axes: float = 1, precision: str = "bf16") -> float:
    """C/(W M): FLOPs a chip does while one byte arrives over M axes, or from inside its node."""
    return float(
        intensity(
            chip(name).peak(precision), network(name).dims[0].bandwidth * axes
        )
    )


def node_egress(name: str) -> float:
    """Bytes per second out of a node of GPUs."""
    near, far = network(name).dims[:2]
    return (near.size or 1) * far.bandwidth


def alpha_node(name: str, nodes: float = 1) -> float:
    """FLOPs of a chip for each byte that leaves so many nodes."""
    return float(intensity(chip(name).peak("bf16"), nodes * node_egress(name)))


def alpha_dcn() -> float:
    """FLOPs of a v5p chip for each byte of its share of the data-centre network: tokens a slice
    needs.
    """
    return float(
        intensity(chip(V5P).peak("bf16"), network(V5P).dims[-1].bandwidth)
    )


@cache
def pod(
    chips: int,
    name: str = V5P,
    shape: tuple[int, ...] | None = None,
    assumptions: Assumptions = BOOK_SUM,
) -> Mesh:
    """Chips of that name as a mesh."""
    return mesh(cluster(f"{chips}x{name}"), "bf16", assumptions, shape)


def book_setting(F: int = 32768) -> LayerSetting:
    """The book's layer as the curves take it."""
    return LayerSetting(toy(F))


def world_collective(kind: str, V: float, m: Mesh, *share: int) -> float:
    """Seconds of a collective over a group with that many neighbours in each dimension."""
    return float(m.fabric.time(kind, V, place(m, share)))


def all_gather_seconds(V: float, m: Mesh, *share: int) -> float:
    """Seconds of an all-gather of V bytes."""
    return world_collective("all_gather", V, m, *share)


def array_bytes(*dims: float, size: float = 2.0) -> float:
    """Bytes of an array."""
    return float(size * product(dims))


def token(m: Model, layer: str, seq: int = 0) -> list[Op]:
    """What one layer does for a token."""
    setting = LayerSetting(m, layer, seq=seq)
    return setting.ops(setting.on(1.0))


def layer_parameters(name: str, layer: str) -> float:
    """Parameters of one layer of a model, as far as it counts."""
    return float(sum(op.weights for op in token(model(name), layer)))


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


def llama_flops() -> float:
    """FLOPs of training LLaMA-3 70B."""
    return float(training_flops(LLAMA_70B, LLAMA_TOKENS))
