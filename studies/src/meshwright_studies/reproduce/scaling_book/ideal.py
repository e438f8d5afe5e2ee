"""Rooflines as curves: times and their ratio against the batch, for splits whose axes need not be
whole.

A split of X x Y chips spans M_X and M_Y axes of equal bandwidth W; a group of n chips on axes of 16
needs ceil(log_16 n) of them. Source: How To Scale Your Model, part 5: its plots of times and
ratios, and its interactive split explorer.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.cost.torus import Part, TorusGroup
from meshwright.num import Num, ceil, log2, maximum, sqrt, where
from meshwright.roofline import thresholds as th
from meshwright.roofline.mesh import Mesh
from meshwright.roofline.times import EDITIONS, Times, bound_from, layer_step
from meshwright.roofline.work import Layer, LayerSetting


def spanned(n: Num, length: Num) -> Num:
    """Axes of that length that n chips span: ceil(log_length n)."""
    return ceil(log2(n) / log2(length))


def ideal(mesh: Mesh, n: Num, bandwidth: Num, dim: int = 0) -> TorusGroup:
    """n chips on axes that together give that many bytes per second, n being any number: the book's
    X, Y and W M.

    dim: groups on axes of their own load different ones."""
    group = [n if i == dim else 1.0 for i, _ in enumerate(mesh.fabric.dims)]
    return TorusGroup.on(group, ((Part(n, bandwidth, row=True, dim=dim),),))


@dataclass(frozen=True)
class Ideal:
    """X x Y chips on M_X and M_Y whole axes, disjoint."""

    x: float
    y: float
    m_x: float
    m_y: float

    def times(self, setting: LayerSetting, mesh: Mesh, batch: Num) -> Times:
        """The forward pass of one layer; W is that of the mesh's first axis."""
        W = mesh.fabric.rates[0]
        data = ideal(mesh, self.x, W * maximum(self.m_x, 1), 0)
        tensor = ideal(mesh, self.y, W * maximum(self.m_y, 1), 1)
        return layer_step(
            setting, mesh, batch / self.x, {"replicas": data, "tp": tensor}
        ).forward

    def threshold(
        self, setting: LayerSetting, mesh: Mesh, edition: str
    ) -> float | None:
        """Batch from which it is compute-bound; None = never."""
        return bound_from(
            lambda batch: self.times(setting, mesh, batch), edition
        )


def on_axes(x: int, y: int, length: int, most: int | None = None) -> Ideal:
    """The split as the book's explorer counts axes: each group as many as it spans.

    most: axes there are; the tensor-parallel group takes its own first and the data-parallel one
    what is left (at least 1). The explorer itself does not look: 512 x 8 has 3 + 1 axes on its
    torus of 3.
    """
    m_x = float(spanned(x, length))
    m_y = float(spanned(y, length))
    return Ideal(
        x, y, m_x if most is None else max(1.0, min(m_x, most - m_y)), m_y
    )


def ratios(
    setting: LayerSetting,
    mesh: Mesh,
    tokens_per_chip: Num,
    m_x: float,
    m_y: float,
    axes: float,
) -> dict[str, Num]:
    """T_math/T_comms against tokens a chip: FSDP or TP alone on `axes` axes, and the best mixture
    on m_x + m_y of them."""
    one = setting.per_token
    n = mesh.chips
    a = th.intensity(mesh.flops, mesh.fabric.rates[0])
    alone = {
        "FSDP": tokens_per_chip / th.data_tokens(one, a / axes),
        "TP": th.tensor_degree(one, a / axes) / n + 0 * tokens_per_chip,
    }
    at = (one, tokens_per_chip * n, n, a / m_x, a / m_y)
    return alone | {f"FSDP+TP, {e}": th.best_ratio(*at, e) for e in EDITIONS}


def compute_bound_splits(
    layer: Layer, batch: Num, chips: Num, a_x: Num, a_y: Num, edition: str
) -> tuple[Num, Num]:
    """(least, most) X that is compute-bound; least > most where none is.

    Added up: d a_x X/B + a_y N/(F X) < 1, between the roots of a quadratic; the larger: N a_y/F < X
    < B/(d a_x).
    """
    most = batch / th.data_tokens(layer, a_x)
    least = chips / th.tensor_degree(layer, a_y)
    if edition == "max":
        return least, most
    room = 1 - 4 * least / most
    root = where(room < 0, -1.0, sqrt(maximum(room, 0.0)))
    return most * (1 - root) / 2, most * (1 + root) / 2
