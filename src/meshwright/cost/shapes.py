"""The chip model "by-shape": each operation by the law of its kind of kernel, with the constants of
the chip and the software's part.

Arithmetic and what memory traffic adds to it are told apart: t = max(c, b) + a min(c, b) + launch =
(c + launch) + (t - c - launch).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..count.work import LOSS, SUMMED, Pass, Product
from ..describe.assumptions import ChipTime, Stack
from ..describe.chip import Chip
from ..describe.kernels import GENERIC, Kernels, kernels
from ..num import Num, where
from . import attention, products

NARROW_BITS = {"fp8": "fp8", "int8": "fp8", "fp4": "fp4"}
"""Precision -> the field of `Kernels` that says what of its peak is reached."""
WEIGHTS_QUANTISED = 0.5
"""Of the bytes that an activation takes: weights need no second pass for their largest value in
every microbatch (estimate of this project).
"""


class ShapeRates(NamedTuple):
    """What turns shapes into seconds."""

    law: Kernels
    how: ChipTime
    matrix: float
    """FLOP/s of large products in the job's precision, under the clock that training holds."""
    backward: float
    """The same of products that make gradients."""
    wide: float
    """The same in 16 bits."""
    peak16: float
    """16-bit peak under that clock."""
    memory: float
    """Bytes per second."""
    quantise: float
    """Bytes moved for each element that is quantised; 0 in 16 bits."""
    turned: float
    """Bytes moved for each element that ranks gathered, to have it along columns; 0 in 16 bits."""


def rates(chip: Chip, precision: str, wide: str, how: ChipTime) -> ShapeRates:
    """Rates of a chip in a precision. wide: the 16-bit one beside it."""
    law = constants(chip, how)
    narrow = NARROW_BITS.get(precision, "")
    reached = getattr(law, narrow) if narrow else 1.0
    power = getattr(law, f"{narrow}_power") if narrow else 1.0
    busy = how.stack.efficiency
    peak16 = chip.peak(wide) * _clock(chip, law) * busy
    scaled = "nvfp4" if precision == "fp4" else how.stack.float8
    recipe = scaled if narrow else ""
    matrix = chip.peak(precision) * _clock(chip, law, power) * busy
    return ShapeRates(
        law,
        how,
        matrix=matrix * law.share * reached,
        backward=matrix
        * law.share
        * reached
        / (law.fp8_backward if narrow == "fp8" else 1.0),
        wide=peak16 * law.share,
        peak16=peak16,
        memory=chip.hbm_bandwidth * law.memory,
        quantise=quantised_at(law, how.stack, recipe),
        turned=law.turned.get(recipe, 0.0),
    )


def quantised_at(law: Kernels, stack: Stack, recipe: str) -> float:
    """Bytes moved for each element that is quantised: by the framework's own kernels, which write a
    copy along columns where one along rows does not serve all products, or as tables say."""
    if recipe in stack.quantise:
        return stack.quantise[recipe] + law.quantised_weight[recipe] - 1.0
    return law.quantise.get(recipe, 0.0)


def constants(chip: Chip, how: ChipTime) -> Kernels:
    """Constants of the chip's kind, with the clock that the chip itself states; where a set names a
    share of the peak, or nobody measured the kind, that share or the chip's own.
    """
    law: Kernels | None = how.kernels
    if law is None and how.matrix_efficiency is None and chip.kernel_law:
        law = kernels(chip.kernel_law)
    if law is None:
        return replace(
            kernels(GENERIC),
            share=how.matrix_efficiency or chip.sustained or how.sustained,
        )
    if chip.clock is None:
        return law
    # measured under the limit of this very machine: no other limit to scale from
    return replace(law, clock=chip.clock, power_w=0.0)


def _clock(chip: Chip, law: Kernels, power: float = 1.0) -> float:
    """Share of the kernels' rate that products hold in training under the part's power limit:

        min(1, held (limit / (power_w power))^exponent)

    `Kernels.held` is that of 16-bit products under the limit of the parts that were measured;
    power: what products take at full clock, over what 16-bit ones take. A part whose limit is not
    known has theirs.
    """
    known = chip.power_w and law.power_w
    ratio = chip.power_w / law.power_w if known else 1.0
    # a part whose limit is far above what products take runs at full clock, no faster
    return float(min(1.0, law.held * (ratio / power) ** law.power_exponent))


def kernel_seconds(work: Pass, r: ShapeRates) -> tuple[Num, Num]:
    """(arithmetic, memory traffic that outlasts it) of a pass, in seconds, kernel by kernel."""
    if work.parts:
        return sum_pairs([kernel_seconds(part, r) for part in work.parts])
    if work.kernel.startswith("attention"):
        return _attention(work, r)
    if work.products:
        each = work.memory / len(work.products)
        return sum_pairs([_product(work, p, each, r) for p in work.products])
    launch = r.law.launch_s
    traffic = work.memory / r.memory
    if isinstance(work.matrix, float) and work.matrix == 0.0:
        return launch, traffic * _passes(work, r)
    arithmetic = work.matrix / (r.wide if work.engine == "wide" else r.matrix)
    return arithmetic + launch, products.side_by_side(
        arithmetic, traffic, r.law
    ) - arithmetic


def sum_pairs(each: list[tuple[Num, Num]]) -> tuple[Num, Num]:
    """One after the other."""
    arithmetic, memory = each[0]
    for more, longer in each[1:]:
        arithmetic = arithmetic + more
        memory = memory + longer
    return arithmetic, memory


def _product(
    work: Pass, p: Product, bytes_: Num, r: ShapeRates
) -> tuple[Num, Num]:
    """One matrix product, or that of all experts."""
    m, n, k = (
        (p.out, p.inner, p.tokens / p.copies)
        if p.weight_gradient
        else (p.tokens / p.copies, p.out, p.inner)
    )
    wide = work.engine == "wide"
    rate = r.wide if wide else r.backward if p.backward else r.matrix
    shape = products.ProductShape(m, n, k, p.copies)
    arithmetic = products.arithmetic(shape, r.law, p.weight_gradient) / rate
    traffic = bytes_ / r.memory
    longer = products.side_by_side(arithmetic, traffic, r.law) - arithmetic
    if not isinstance(p.sums, float) or p.sums:
        longer = longer + products.beside_sums(
            arithmetic, p.sums / r.memory, r.law
        )
    if r.quantise and not wide:
        once = r.how.stack.weights_quantised == "step"
        moved = quantised_elements(work, p, once) * r.quantise
        longer = longer + (moved + turned_elements(p) * r.turned) / r.memory
    launch = products.launches_s(shape, r.law, p.weight_gradient)
    return arithmetic + launch, longer


def quantised_elements(work: Pass, p: Product, once: bool = False) -> Num:
    """Elements that one product has quantised: forward its input and its weights, backward the
    gradient of its output, unless the kernel that made it did. once: the weights are kept narrow
    (`step_quantises`).
    """
    if p.weight_gradient or p.ready:
        return 0.0
    here = work.kernel == "matmul forward" and not once
    weights = p.copies * p.inner * p.out if here else 0.0
    return p.tokens * p.inner / p.parts + WEIGHTS_QUANTISED * weights


def turned_elements(p: Product) -> Num:
    """Elements that were gathered along rows or in pieces and that one product reads along columns:
    the gradient of its output for that of its input, its input for that of its weights."""
    if not p.backward:
        return 0.0
    width = p.out if p.weight_gradient else p.inner
    return where(p.parts > 1, p.tokens * width, 0.0)


def step_quantises(weights: Num, r: ShapeRates) -> Num:
    """Seconds in which so many weights of a device are quantised once a step."""
    if r.how.stack.weights_quantised != "step":
        return 0.0
    return WEIGHTS_QUANTISED * weights * r.quantise / r.memory


def _attention(work: Pass, r: ShapeRates) -> tuple[Num, Num]:
    """The core of attention; its sizes are (heads, keys^2, queries / keys, width of a head)."""
    _, squared, _, head = work.sizes
    launch = r.law.launch_s
    if work.engine == "wide":
        kernel = (
            r.how.stack.kernel
            if r.how.stack.kernel in attention.SCORE_PASSES
            else "fused-softmax"
        )
        arithmetic = work.matrix / (
            r.peak16 * attention.unfused_rate(float(head), r.law)
        )
        traffic = work.memory * attention.SCORE_PASSES[kernel] / r.memory
        return arithmetic + attention.LAUNCHES["unfused"] * launch, traffic
    backward, kernel = work.engine == "attention backward", r.how.stack.kernel
    keys = attention.paid_keys(
        work.keys, squared**0.5, backward, kernel=kernel, law=r.law
    )
    share = attention.fused_rate(
        keys, head=float(head), backward=backward, kernel=kernel, law=r.law
    )
    paid = work.matrix * (keys / work.keys)
    return paid / (r.peak16 * share) + launch, 0.0


def _passes(work: Pass, r: ShapeRates) -> float:
    """Bytes that a pass without products moves over those that it needs."""
    if work.kernel == "optimizer":
        return r.how.optimizer
    if work.kernel == SUMMED:
        return 1.0
    if work.kernel == LOSS:
        return 1.0 / r.law.loss
    # what is counted operation by operation moves no more (`count.attention` counts rotations)
    if r.how.stack.norm == "torch" and work.kernel.startswith("norm "):
        return r.how.wide_norm
    if work.kernel.startswith("rotary "):
        return 1.0
    return r.how.stack.elementwise
