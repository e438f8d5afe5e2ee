"""What the worked numbers of the book are about: its chips and meshes, its layer, its models and
rounded quantities.
"""

from __future__ import annotations

from functools import cache

from meshwright.catalog import chip, cluster, network
from meshwright.describe.assumptions import BOOK_SUM, Assumptions
from meshwright.describe.model import Model
from meshwright.roofline.mesh import Mesh, mesh
from meshwright.roofline.thresholds import intensity
from meshwright.roofline.work import Layer, LayerSetting

V5P = "book-tpu-v5p"
V5E = "book-tpu-v5e"
V4P = "book-tpu-v4p"
H100 = "book-h100"


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
