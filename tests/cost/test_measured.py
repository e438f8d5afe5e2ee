"""Measured tables: laws between and beyond their points, the same for numbers and arrays."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import catalog
from meshwright.cost import measured
from meshwright.cost.chip import (
    ChipRates,
    compute_time,
    exposed_memory,
    rates,
)
from meshwright.count import blocks
from meshwright.count.work import Pass
from meshwright.describe.assumptions import PYTORCH, REALISTIC
from meshwright.describe.measured import MeasuredTable
from meshwright.describe.read import read, to_dict
from refusals import refusal

POINTS = ((16.0, 128.0, 1024.0), (32.0, 512.0), (64.0, 256.0))


def gemm(t: float, k: float, n: float) -> float:
    """Launch + FLOPs / rate + bytes / bandwidth."""
    return 5e-6 + 2 * t * k * n / 1e11 + 4 * (t * k + k * n + t * n) / 2e10


TABLE = MeasuredTable(
    ("tokens", "inner", "outer"),
    POINTS,
    tuple(gemm(*sizes) for sizes in itertools.product(*POINTS)),
)
RANDOM = replace(
    TABLE, seconds=tuple(1e-6 * (3 + 7 * i % 5) for i in range(12))
)


@given(st.floats(16, 4096), st.floats(32, 2048), st.floats(64, 1024))
def test_a_law_of_launch_flops_and_bytes_is_reproduced_between_and_beyond(
    t: float, k: float, n: float
) -> None:
    assert measured.table_seconds(TABLE, (t, k, n)) == pytest.approx(
        gemm(t, k, n), rel=1e-9
    )


def test_arrays_are_scalars() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.uniform(1, 3000, (3, 50))
    many = measured.table_seconds(RANDOM, tuple(sizes))
    assert many == pytest.approx(
        [
            measured.table_seconds(RANDOM, tuple(map(float, one)))
            for one in sizes.T
        ]
    )


def chip(**kernels: MeasuredTable) -> object:
    return replace(
        catalog.chip("a100-80"),
        kernels={
            f"bf16/{name.replace('_', ' ')}": table
            for name, table in kernels.items()
        },
    )


def test_a_calibrated_chip_takes_what_was_measured() -> None:
    r = rates(chip(matmul_forward=RANDOM), "bf16", PYTORCH.chip)
    op = blocks.matmul(
        "x",
        128.0,
        512.0,
        512.0,
        numbers=blocks.Numbers(one=0.0, act=2.0, wgt=2.0),
        matrix=blocks.Matrix(calls=2.0),
    )
    expected = 2 * measured.table_seconds(RANDOM, (128.0, 512.0, 256.0))
    assert compute_time(op.forward, r) == expected
    assert exposed_memory(op.forward, expected, r) == 0
    plain = rates(
        catalog.chip("a100-80"),
        "bf16",
        replace(PYTORCH.chip, model="roofline"),
    )
    # not measured: the roofline
    assert compute_time(op.backward, r) == compute_time(op.backward, plain)


def test_bytes_of_measured_kernels_were_moved_while_they_were_measured() -> (
    None
):
    """So were those of passes fused into them, where any was measured; of others they count."""
    of = rates(catalog.chip("a100-80"), "bf16", PYTORCH.chip)
    table = MeasuredTable(("elements",), ((1.0, 2.0),), (1.0, 1.0))
    known = of._replace(kernels={"norm": table}, memory=5.0)
    plain = of._replace(memory=5.0)

    def shows(kernel: str, r: ChipRates) -> float:
        return float(exposed_memory(Pass(memory=20.0, kernel=kernel), 1.0, r))  # fmt: skip

    assert shows("norm", known) == shows("fused", known) == 0.0
    assert shows("other", known) == shows("", known) == 3.0
    assert shows("norm", plain) == shows("fused", plain) == 3.0


def test_other_sets_and_precisions_do_not_look_at_the_tables() -> None:
    assert not rates(
        chip(matmul_forward=RANDOM), "bf16", REALISTIC.chip
    ).kernels
    assert not rates(chip(matmul_forward=RANDOM), "fp16", PYTORCH.chip).kernels


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seconds": [1.0]}, "12 numbers"),
        ({"points": [[2, 1], [1, 2], [1]]}, "ascend"),
        ({"axes": ["a"]}, "each of 1 to 5 axes"),
        ({"seconds": [-1.0] * 12}, "must be at least 0, not -1"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(
    change: dict[str, object], sentence: str
) -> None:
    with refusal(sentence):
        read(MeasuredTable, {**to_dict(TABLE), **change}, "table")
    assert read(MeasuredTable, to_dict(TABLE), "table") == TABLE
