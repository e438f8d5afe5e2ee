"""The chip with a memory hierarchy: oracle values, scalar = array, and what faster memories may
do.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import (
    assumptions,
    chip,
)
from meshwright.cost.chip import compute_time, exposed_memory, rates
from meshwright.cost.hierarchy import (
    MemoryLevels,
    levels,
    product_time,
)
from meshwright.count.blocks import Numbers, matmul
from meshwright.count.work import Product
from refusals import refusal

EPOCH = assumptions("epoch-2024").chip


def of(name: str) -> MemoryLevels:
    c = chip(name)
    assert c.sustained
    return levels(c, "fp16", c.sustained, EPOCH.launch_s, 2.0)


# microseconds of y[out, tokens] = W[out, inner] x[inner, tokens], from an independent
# implementation of the paper
ORACLE = [
    ("epoch-a100", (12288, 6144, 2048), 1171.04),
    ("epoch-a100", (1024, 1024, 1024), 12.601),
    ("epoch-h100", (3072, 6144, 16384), 897.475),
    ("epoch-h100", (1024, 1024, 1024), 7.6006),
    ("epoch-v100", (1024, 1024, 1024), 23.500),
    ("epoch-v100", (256, 256, 256), 4.797),
    ("epoch-a100", (256, 256, 256), 4.669),
    ("epoch-h100", (256, 256, 256), 4.581),
]


@pytest.mark.parametrize(("name", "shape", "us"), ORACLE)
def test_oracle(name: str, shape: tuple[int, int, int], us: float) -> None:
    assert product_time(of(name), Product(*shape)) * 1e6 == pytest.approx(
        us, rel=1e-4
    )


def test_the_peak_follows_from_the_hierarchy() -> None:
    for name in ("epoch-v100", "epoch-a100", "epoch-h100", "epoch-h100-pcie"):
        c = chip(name)
        assert c.hierarchy is not None and c.hierarchy.peak == c.peak("fp16")


def test_arithmetic_and_shared_memory_run_at_the_clock_that_a_chip_holds() -> (
    None
):
    half, whole = (
        levels(chip("epoch-h100"), "fp16", share, EPOCH.launch_s, 2.0)
        for share in (0.5, 1.0)
    )
    assert (half.matrix, half.shared) == (whole.matrix / 2, whole.shared / 2)
    assert (half.l2, half.hbm) == (whole.l2, whole.hbm)


def test_scalars_and_arrays_agree() -> None:
    rng = np.random.default_rng(1)
    out, inner, tokens = (
        np.floor(2 ** rng.uniform(0, 16, 200)) for _ in range(3)
    )
    for gradient in (False, True):
        for name in ("epoch-v100", "epoch-h100"):
            table = product_time(
                of(name), Product(out, inner, tokens, gradient)
            )
            one = [
                product_time(of(name), Product(*row, gradient))
                for row in zip(
                    out.tolist(), inner.tolist(), tokens.tolist(), strict=True
                )
            ]
            assert table == pytest.approx(one, rel=1e-15)


SIZES = st.integers(1, 2**17)


@given(
    SIZES,
    SIZES,
    SIZES,
    st.booleans(),
    st.sampled_from(["hbm", "l2", "shared", "matrix", "l2_bytes"]),
)
def test_more_of_anything_is_never_slower(
    out: int, inner: int, tokens: int, gradient: bool, field: str
) -> None:
    machine = of("epoch-h100")._replace(dsmem=False)
    better = machine._replace(**{field: 4 * getattr(machine, field)})
    p = Product(out, inner, tokens, gradient)
    assert product_time(better, p) <= product_time(machine, p) * (1 + 1e-12)


@given(SIZES, SIZES, SIZES, st.booleans())
def test_bounds(out: int, inner: int, tokens: int, gradient: bool) -> None:
    """Never faster than the arithmetic, nor than reading the weights that do not stay, the inputs
    and outputs once.
    """
    machine = of("epoch-a100")
    seconds = (
        product_time(machine, Product(out, inner, tokens, gradient))
        - machine.launch_s
    )
    assert seconds >= 2.0 * out * inner * tokens / machine.matrix * (1 - 1e-9)
    weights = 2.0 * out * inner * (2 if gradient else 1)
    stays = 2 * 2.0 * out * inner <= max(
        machine.l2_bytes, 4 * machine.register_bytes
    )
    moved = (0.0 if stays else weights) + 2.0 * (out + inner) * tokens
    assert seconds >= moved / machine.hbm * (1 - 1e-9)


def test_any_model_can_be_timed_with_it() -> None:
    """The same products, whoever counts them: an op of a transformer layer costs what its two
    passes' products cost.
    """
    c = chip("epoch-h100")
    r = rates(c, "fp16", EPOCH)
    op = matmul(
        "x", 4096.0, 1024.0, 3072.0, numbers=Numbers(one=0.0, act=2.0, wgt=2.0)
    )
    forward = compute_time(op.forward, r) + exposed_memory(
        op.forward, compute_time(op.forward, r), r
    )
    backward = compute_time(op.backward, r) + exposed_memory(
        op.backward, compute_time(op.backward, r), r
    )
    assert forward == pytest.approx(
        product_time(of("epoch-h100"), Product(3072, 1024, 4096))
    )
    both = [Product(1024, 3072, 4096), Product(3072, 1024, 4096, True)]
    assert backward == pytest.approx(
        sum(product_time(of("epoch-h100"), p) for p in both)
    )


def test_a_chip_without_the_data_says_so() -> None:
    with refusal("memory hierarchy"):
        rates(replace(chip("epoch-h100"), hierarchy=None), "fp16", EPOCH)
