"""Seconds of a matrix product by its shape: tiles in waves, a ramp with the inner width, memory
traffic.

Y[m, n] = X[m, k] W[k, n], g of them side by side (experts), on U multiprocessors that compute one
tile of Y each at a time:

    t = max(c, b) + a min(c, b)
    c = 2 g m n k Q (1 + k0 / k) / rate,   b = bytes / bandwidth

Q is what is paid over what is useful. A wave computes U tiles; with w waves of them an output pays
for w U tiles. Less than one wave costs a whole one; beyond it the price lies between useful and
paid work, (1 - gamma) useful + gamma paid, since the last wave does not leave all units idle. The
kernel is the best of four tiles and of k split 1, 2 or 4 ways.

Products of experts are launched one by one, each with a time of its own beside its arithmetic;
those that make the gradients of weights cost as if each expert had some more tokens. On TPUs they
are one kernel, in which all products do: a tile of rows in which two experts meet is computed for
both.

Source: tables of 16-bit products of seven GPUs, ai-dynamo/aiconfigurator@095f58a51 (Apache-2.0,
NVIDIA), and grouped products of two, MooreThreads/SimuMax@4dcaae513 (Apache-2.0), and of three
TPUs, openxla/tokamax@783ea95 (Apache-2.0); of AMD's, ROCm/aiter@e4048607a (MIT);
tests/cost/test_kernels.py.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

from ..describe.kernels import Kernels
from ..num import (
    SCALARS,
    Num,
    anywhere,
    ceil,
    content_key,
    maximum,
    minimum,
    on_distinct,
    option_columns,
    smallest,
    where,
)

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 1.1), (64, 256, 1.15))
"""(rows, columns, time for each element over that of the first)."""
SPLITS = ((1, 1.0), (2, 1.06), (4, 1.12))
"""(ways in which the inner width is cut, time for each element): the parts are added up
afterwards.
"""
OPTIONS = tuple(
    (float(m), float(n), float(s), m * n * f * g / s)
    for m, n, f in TILES
    for s, g in SPLITS
)
"""(rows, columns, ways, what a tile costs in elements) of each kernel to choose from."""


class ProductShape(NamedTuple):
    """One product, or several side by side."""

    m: Num
    n: Num
    k: Num
    groups: Num = 1.0


def tile_cost(shape: ProductShape, law: Kernels) -> Num:
    """Elements of the output, times what tiles and waves make them cost: at least m n g."""
    m, n, _, groups = shape
    if (
        isinstance(m, SCALARS)
        and isinstance(n, SCALARS)
        and isinstance(groups, SCALARS)
    ):
        return _known(
            m,
            n,
            groups,
            units=law.units,
            waves=law.waves,
        )
    key = law.units, law.waves, *map(content_key, (m, n, groups))
    if key not in _latest:
        if len(_latest) >= LATEST:
            _latest.clear()
        paid = partial(_paid, units=law.units, waves=law.waves)
        _latest[key] = on_distinct(paid, m, n, groups)
    return _latest[key]


_latest: dict[Any, Num] = {}
LATEST = 32
LANES = 128
"""Numbers side by side in a register of a TPU: tiles are multiples of it."""


def _paid(m: Num, n: Num, groups: Num, units: int, waves: float) -> Num:
    law = partial(_paid_by, m, n, groups, units=units, waves=waves)
    return smallest(law(option_columns(OPTIONS, m * n * groups)))


def _paid_by(
    m: Num, n: Num, groups: Num, kernel: Any, units: int, waves: float
) -> Num:
    """What a kernel pays, or each of a column of them."""
    rows, columns, cut, area = kernel
    one = m * n * groups
    wave = units * area
    tiles = groups * cut * ceil(m / rows) * ceil(n / columns)
    whole = ceil(tiles / units) * wave
    return maximum(minimum(whole, wave), one + waves * (whole - one))


@lru_cache(maxsize=65536)
def _known(
    m: float, n: float, groups: float, units: int, waves: float
) -> float:
    """What is paid for plain numbers, remembered: a layer has few shapes, and a job many layers."""
    law = partial(_paid_by, m, n, groups, units=units, waves=waves)
    return float(min(map(law, OPTIONS)))


def arithmetic(
    shape: ProductShape, law: Kernels, weight_gradient: bool = False
) -> Num:
    """FLOPs of a product as the matrix units pay for them.

    weight_gradient: tokens are the inner width, else the rows.
    """
    share: Num = 1.0
    if anywhere(shape.groups > 1):
        shape, share = of_experts(shape, law, weight_gradient)
    return 2.0 * tile_cost(shape, law) * (shape.k + law.depth) / share


def of_experts(
    shape: ProductShape, law: Kernels, weight_gradient: bool
) -> tuple[ProductShape, Num]:
    """A product of experts with the tokens that it costs more, and its rate over that of others."""
    m, n, k, groups = shape
    grouped = groups > 1
    width = m if weight_gradient else k
    aligned = ceil(n / LANES) * ceil(width / LANES) * LANES**2
    odd = aligned > n * width
    share = law.experts * where(odd, law.unaligned, 1.0)
    if weight_gradient:
        k = k + where(grouped, law.crowd_weights, 0.0)
    else:
        m = m + where(grouped, law.crowd, 0.0)
    return ProductShape(m, n, k, groups), where(grouped, share, 1.0)


def launches_s(
    shape: ProductShape, law: Kernels, weight_gradient: bool
) -> Num:
    """Seconds of a launch, and of each expert's after the first; those that make the gradients of
    weights have theirs in `crowd_weights`."""
    if weight_gradient:
        return law.launch_s
    return law.launch_s + law.expert_s * (shape.groups - 1.0)


def beside_sums(arithmetic_s: Num, sums_s: Num, law: Kernels) -> Num:
    """Seconds that fp32 sums of a product take beyond those of its other traffic: (a' - a) min(c,
    b'), b' their bytes / bandwidth."""
    return (law.added_sums - law.added) * minimum(arithmetic_s, sums_s)


def side_by_side(arithmetic_s: Num, traffic_s: Num, law: Kernels) -> Num:
    """Seconds of arithmetic and of memory traffic beside each other."""
    return maximum(arithmetic_s, traffic_s) + law.added * minimum(
        arithmetic_s, traffic_s
    )
