"""Scaling laws: the shapes of the paper, rounding, and the smooth mode."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.limits.laws import (
    FITTED_DEPTH,
    LAWS,
    SPARSE,
    Law,
    Power,
    law,
    round_to,
    shape,
    widths,
)
from refusals import refusal


def test_the_grid_of_the_paper() -> None:
    grid = widths()
    assert len(grid) == 55 and grid[0] == 12288 and grid[-1] == 128 * 12288
    sparse = replace(LAWS["baseline"], experts=SPARSE)
    for grown, first in (
        (LAWS["baseline"], 6.454885e24),
        (sparse, 5.163908e25),
    ):
        s = shape(grown, grid)
        assert s.flops[0] == pytest.approx(first, rel=1e-6)
        assert (s.tokens == 20 * s.parameters).all()
        assert (s.F == 4 * s.D).all()
        # T = 120 N^2 / E, the closed form of section 1
        assert s.flops == pytest.approx(120 * s.parameters**2 / s.E)


@pytest.mark.parametrize("D", [2048.0, 12288.0, 65536.0])
def test_the_law_of_depth_has_twice_the_layers_of_the_papers_fit(
    D: float,
) -> None:
    """L = 3.67 (N / 1e6)^0.27 with the N = 12 D^2 L of a transformer."""
    L = FITTED_DEPTH(4 * D**2)
    assert pytest.approx(3.67 * (12 * D**2 * L / 1e6) ** 0.27) == L
    assert 2.0 < LAWS["baseline"].depth(4 * D**2) / L < 2.15


@pytest.mark.parametrize(
    ("x", "near"),
    [
        (0.2, 1),
        (5.4, 5),
        (11, 10),
        (13, 12),
        (576.2, 576),
        (95, 96),
        (15, 14),
        (1.5, 1),
    ],
)
def test_rounding(x: float, near: float) -> None:
    """To f 2^k, the smaller of two equally near: 11 lies between 10 and 12, 15 between 14 and 16,
    13 between 12 and 14."""
    assert round_to(x, (1, 3, 5, 7, 9)) == near
    assert round_to(np.array([x]), (1, 3, 5, 7, 9))[0] == near


def test_smooth_laws_do_not_round() -> None:
    smooth = replace(LAWS["baseline"], mantissas=())
    s, rough = shape(smooth, 20000.0), shape(LAWS["baseline"], 20000.0)
    assert pytest.approx(0.10056 * (4 * 20000.0**2) ** 0.3751) == s.L
    assert s.L != rough.L and pytest.approx(rough.L, rel=0.2) == s.L
    assert s.batch == pytest.approx(2**22 * (s.flops / 3e23) ** (1 / 6))


def test_a_law_of_ones_own() -> None:
    mine = Law(
        "mine",
        Power(1e6, 0.25, 1e24),
        depth=Power(100.0),
        ffn_ratio=3.0,
        tokens_per_parameter=100.0,
        mantissas=(1,),
    )
    s = shape(mine, 4096.0)
    assert (s.F, s.L, s.E) == (12288.0, 128.0, 1.0)
    assert s.tokens == 100 * s.parameters == 100 * 2 * 128 * 4096 * 12288
    # T = 12 L D F x tokens = 9.96e22, so 561,700 tokens: 274 sequences, nearest 256
    assert s.batch == 256 * mine.seq


def test_unknown_laws() -> None:
    with refusal("deepseek"):
        law("deepsek")
