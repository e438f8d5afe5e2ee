"""Time of one matrix product on a chip with a hierarchy of memories: HBM, L2, shared memory,
registers, tensor cores.

A product is tiled over its weight matrix. At each level a tile of the weights stays below, and
tokens stream past it: the more tiles a level needs, the more often the activations cross its
boundary. The product takes as long as its slowest boundary, or its arithmetic, plus the launch of
the kernel.

Letters: y[n, T] = W[n, k] x[k, T] (here `out` n, `inner` k, `tokens` T), W bytes of weights, w
bytes of an element. Source: Erdil & Schneider-Joseph 2024, arXiv 2411.01137, section 4.1; the
accounting of residency, padding and distributed shared memory follows the calculation behind their
tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..count.work import Product
from ..describe.chip import Chip
from ..errors import BadInput
from ..num import Num, cache_key, ceil, ceil_div, maximum, minimum, sqrt, where

PAD = 8
"""Every dimension of a product is padded to a multiple of this: the tile of a tensor core."""
BLOCKS = 4
"""Processing blocks of a multiprocessor, each with its own registers."""


class MemoryLevels(NamedTuple):
    """A chip as a product sees it: rates in B/s and FLOP/s, capacities in bytes."""

    matrix: float
    """Sustained FLOP/s of the matrix units."""
    hbm: float
    l2: float
    shared: float
    """Shared memory of all multiprocessors together."""
    l2_bytes: float
    """Usable."""
    register_bytes: float
    """Usable, of one processing block."""
    sms: float
    dsmem: bool
    launch_s: float
    element_bytes: float


def levels(
    chip: Chip,
    precision: str,
    share: float,
    launch_s: float,
    element_bytes: float,
) -> MemoryLevels:
    """The levels of a chip that holds `share` of its boost clock; BadInput if its memories are not
    known.

    Shared memory runs at the sustained clock, caches and HBM do not depend on it.
    """
    h = chip.hierarchy
    if h is None:
        raise BadInput(
            f"chip {chip.name} has no memory hierarchy in its data (chip.hierarchy), which this"
            " chip model needs"
        )
    faster = chip.peak(precision) / chip.matrix_flops.get(
        "fp16", chip.peak(precision)
    )
    shared = h.smem_bytes_per_clock * h.sms * h.boost_hz * share
    return MemoryLevels(
        share * h.peak * faster,
        hbm=chip.hbm_bandwidth,
        l2=h.l2_bandwidth,
        shared=shared,
        l2_bytes=h.usable * h.l2_bytes,
        register_bytes=h.usable * h.register_bytes,
        sms=h.sms,
        dsmem=h.dsmem,
        launch_s=launch_s,
        element_bytes=element_bytes,
    )


class Traffic(NamedTuple):
    """Bytes that cross one boundary: `fixed` by the weights, `per_token` by the activations of one
    token.
    """

    fixed: Num
    per_token: Num

    def __add__(self, other: Traffic) -> Traffic:  # type: ignore[override]
        return Traffic(
            self.fixed + other.fixed, self.per_token + other.per_token
        )

    def seconds(self, tokens: Num, rate: float) -> Num:
        """Time of the traffic of `tokens` tokens."""
        return (self.fixed + self.per_token * tokens) / rate


def tiles(out: Num, inner: Num, capacity: float, w: float) -> tuple[Num, Num]:
    """(rows, columns) of tiles, real numbers, when tiles of `capacity` bytes cover W[out, inner] as
    squarely as they can.

    n = ceil(W / capacity) tiles of area a = out inner / n;  height = max(min(out, sqrt a), a /
    inner), width = a / height.
    """
    area = out * inner / ceil_div(out * inner * w, capacity)
    square = minimum(out, sqrt(area))
    least = area / inner
    height = maximum(square, least)
    # a tile as wide as W is one column, whatever rounding says
    return out / height, where(least >= square, 1.0, inner * height / area)


def level_crossing(
    out: Num,
    inner: Num,
    weight_gradient: bool,
    capacity: float,
    units: float,
    dsmem: bool,
    w: float,
) -> tuple[Traffic, Num]:
    """Traffic between a level and `units` memories of `capacity` bytes below it, and bytes per
    token between those units.

    Weights and gradients that fit below (2 W <= capacity units) do not move at all. Otherwise W is
    read, for weight gradients also written; inputs are read once for each row of tiles; outputs are
    read and written for each column
    (the first time only written), or, for weight gradients, output gradients are read once for each
    column. dsmem: the units read each other's memory, so they tile as one; what a unit's own tile
    needs comes from the others.
    """
    W = out * inner * w
    rows, columns = tiles(
        out, inner, capacity * units if dsmem else capacity, w
    )
    fixed = where(
        capacity * units >= 2 * W, 0.0, 2 * W if weight_gradient else W
    )
    output = columns if weight_gradient else 2 * columns - 1
    between: Num = 0.0
    if dsmem:
        r, c = tiles(out, inner, capacity, w)
        between = where(r > 1, r * inner * w, 0.0) + (
            where(c > 1, c * out * w, 0.0)
            if weight_gradient
            else 2 * (c - 1) * out * w
        )
    return Traffic(fixed, rows * inner * w + output * out * w), between


def boundaries(
    chip: MemoryLevels, out: Num, inner: Num, weight_gradient: bool
) -> tuple[Traffic, Traffic, Traffic]:
    """Traffic through HBM, through L2 and through shared memory.

    L2 carries what HBM sends and what the multiprocessors take; shared memory what they take, what
    they exchange and what their registers take. The tile L2 works on is at least what the registers
    of one multiprocessor hold.
    """
    w = chip.element_bytes
    own = BLOCKS * chip.register_bytes
    hbm, _ = level_crossing(
        out,
        inner,
        weight_gradient,
        capacity=max(chip.l2_bytes, own),
        units=1,
        dsmem=False,
        w=w,
    )
    l2, exchanged = level_crossing(
        out,
        inner,
        weight_gradient,
        capacity=own,
        units=chip.sms,
        dsmem=chip.dsmem,
        w=w,
    )
    registers, _ = level_crossing(
        out,
        inner,
        weight_gradient,
        capacity=chip.register_bytes,
        units=BLOCKS * chip.sms,
        dsmem=False,
        w=w,
    )
    return hbm, hbm + l2, l2 + registers + Traffic(0.0, exchanged)


def pad(x: Num) -> Num:
    """The next multiple of PAD."""
    return PAD * ceil(x / PAD)


def product_time(chip: MemoryLevels, product: Product) -> Num:
    """Seconds of one matrix product: max(HBM, L2, shared memory, arithmetic) + launch.

    `copies` products (experts) share the tokens evenly; they are `copies` times the traffic and the
    arithmetic, and launched together.
    """
    tokens = product.tokens / product.copies
    crossed = boundaries(
        chip, product.out, product.inner, product.weight_gradient
    )
    busy = (
        2 * pad(product.out) * pad(product.inner) * pad(tokens) / chip.matrix
    )
    for traffic, rate in zip(
        crossed, (chip.hbm, chip.l2, chip.shared), strict=True
    ):
        busy = maximum(busy, traffic.seconds(tokens, rate))
    return busy * product.copies + chip.launch_s


def time(chip: MemoryLevels, products: Iterable[Product]) -> Num:
    """Seconds of several matrix products, one after the other; equal ones are computed once."""
    total: Num = 0.0
    known: dict[tuple[Any, ...], Num] = {}
    for product in products:
        key = cache_key(*product)
        if key not in known:
            known[key] = product_time(chip, product)
        total = total + known[key]
    return total
