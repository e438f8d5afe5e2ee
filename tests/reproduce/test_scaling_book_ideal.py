"""Continuous splits and curves of the scaling book, which the figures draw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright import Model, MoE
from meshwright.catalog import cluster, model
from meshwright.describe.assumptions import BOOK_SUM
from meshwright.roofline import thresholds as th
from meshwright.roofline.mesh import mesh
from meshwright.roofline.work import LayerSetting
from meshwright_studies.reproduce.scaling_book.ideal import (
    Ideal,
    compute_bound_splits,
    on_axes,
    ratios,
    spanned,
)

TOY = Model("toy", 1, 8192, 64, 32768, 0, 8192, gated=False)
MESH = mesh(cluster("4096xbook-tpu-v5p"), "bf16", BOOK_SUM)
A = MESH.flops / 1.8e11
MODELS = [
    (TOY, "book"),
    (model("llama3-70b"), "mlp"),
    (replace(TOY, moe=MoE(8, 2, 32768)), "book"),
]


@pytest.mark.parametrize(("m", "layer"), MODELS)
@pytest.mark.parametrize("edition", ["sum", "max"])
def test_compute_bound_splits_end_where_the_ratio_is_one(m, layer, edition):
    s = LayerSetting(m, layer)
    one = s.per_token
    batch = 1.3 * MESH.chips * th.mixed_tokens(one, A / 2, A, edition)
    least, most = compute_bound_splits(
        one, batch, MESH.chips, A / 2, A, edition
    )
    assert least < most
    for x in (least, most):
        assert Ideal(x, MESH.chips / x, 2, 1).times(s, MESH, batch).ratio(
            edition
        ) == pytest.approx(1, rel=1e-9)
    least, most = compute_bound_splits(
        one, batch / 1.5, MESH.chips, A / 2, A, edition
    )
    assert least > most


def test_curves():
    assert [spanned(n, 16) for n in (1, 2, 16, 17, 256, 4096)] == [
        0,
        1,
        1,
        2,
        2,
        3,
    ]
    assert (on_axes(512, 8, 16).m_x, on_axes(512, 8, 16, most=3).m_x) == (3, 2)
    tokens = np.array([100.0, 850.0, 2000.0])
    curves = ratios(LayerSetting(TOY), MESH, tokens, 2, 1, 3)
    assert curves["FSDP"] == pytest.approx(tokens / 850) and curves[
        "TP"
    ] == pytest.approx(3 * 32768 / 2550 / 4096)
    assert np.all(
        curves["FSDP+TP, max"] == pytest.approx(2 * curves["FSDP+TP, sum"])
    )


def test_the_same_chips_on_more_axes_are_asked_anew() -> None:
    """512 chips on three axes get three times the bytes of one, whichever is asked first."""
    setting = LayerSetting(TOY)
    one, three = (
        Ideal(512, 8, axes, 1).times(setting, MESH, 1e6).data.seconds
        for axes in (1, 3)
    )
    assert one == pytest.approx(3 * three)
