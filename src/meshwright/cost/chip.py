"""Time of one operation on one chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..count.work import Pass
from ..describe.assumptions import ChipTime
from ..describe.chip import Chip
from ..describe.frozen import FrozenDict
from ..describe.kernels import kernels
from ..describe.measured import MeasuredTable
from ..num import Num, maximum
from . import hierarchy, measured, shapes


class ChipRates(NamedTuple):
    """What the chip reaches, in units per second; `launch_s` is paid by every operation."""

    matrix: float
    """Matrix products in the job's precision."""
    vector: float
    memory: float
    launch_s: float
    wide: float
    """Matrix products in 16 bits, where the job's precision is narrower (logits)."""
    attention: tuple[float, float]
    """Fused attention, forward and backward."""
    levels: hierarchy.MemoryLevels | None = None
    """The memories below HBM, if matrix products are timed with them."""
    kernels: Mapping[str, MeasuredTable] = FrozenDict()
    """kernel -> measured seconds; what is in it is not computed from rates."""
    shapes: shapes.ShapeRates | None = None
    """What kernels reach by their shapes, where they are timed so."""

    def engine(self, name: str) -> float:
        """FLOP/s of what a pass runs on (`Pass.engine`)."""
        forward, backward = self.attention
        return {
            "matrix": self.matrix,
            "wide": self.wide,
            "attention forward": forward,
            "attention backward": backward,
        }[name]


def rates(
    chip: Chip, precision: str, how: ChipTime, element_bytes: float = 2.0
) -> ChipRates:
    """Sustained rates of the chip in that precision under an assumption set.

    The share of the matrix peak is `matrix_share`. element_bytes: of a number in a matrix product,
    for the memory hierarchy.
    """
    if how.model == "by-shape":
        by = shapes.rates(chip, precision, wider(chip, precision), how)
        vector = chip.vector_flops * how.vector_efficiency
        return ChipRates(
            by.matrix,
            vector=vector,
            memory=by.memory,
            launch_s=by.law.launch_s,
            wide=by.wide,
            attention=(by.wide, by.wide),
            shapes=by,
        )
    share = matrix_share(chip, how)
    memory = (
        float("inf")
        if how.model == "peak"
        else chip.hbm_bandwidth * how.memory_efficiency
    )
    vector = (
        float("inf")
        if how.model == "peak"
        else chip.vector_flops * how.vector_efficiency
    )
    peak16 = chip.peak(wider(chip, precision))
    attention = tuple(
        peak16 * min(share, kernel or share)
        for kernel in (how.attention_forward, how.attention_backward)
    )
    below = (
        hierarchy.levels(
            chip,
            precision,
            share,
            launch_s=how.launch_s,
            element_bytes=element_bytes,
        )
        if how.model == "hierarchy"
        else None
    )
    matrix = below.matrix if below else chip.peak(precision) * share
    kernels: Mapping[str, MeasuredTable] = FrozenDict()
    if how.model == "calibrated":
        prefix = precision + "/"
        kernels = FrozenDict(
            {
                name.removeprefix(prefix): table
                for name, table in chip.kernels.items()
                if name.startswith(prefix)
            }
        )
    return ChipRates(
        matrix,
        vector,
        memory,
        launch_s=how.launch_s,
        wide=peak16 * share,
        attention=(attention[0], attention[1]),
        levels=below,
        kernels=kernels,
    )


def matrix_share(chip: Chip, how: ChipTime) -> float:
    """Share of the matrix peak that large products hold: the set's, else the one measured on the
    chip, else that of its kind's kernels (in 16 bits, for hours), else the set's default for chips
    that nobody measured.
    """
    law = kernels(chip.kernel_law) if chip.kernel_law else None
    of_kernels = law.share * law.held if law and not law.estimated else None
    return (
        how.matrix_efficiency or chip.sustained or of_kernels or how.sustained
    )


def wider(chip: Chip, precision: str) -> str:
    """The 16-bit precision that accompanies a narrower one; a precision of 16 bits or more
    itself.
    """
    if precision not in ("fp8", "fp4", "int8"):
        return precision
    return next(
        (p for p in ("bf16", "fp16") if p in chip.matrix_flops), precision
    )


def compute_time(work: Pass, r: ChipRates) -> Num:
    """Seconds the arithmetic takes: launch + matrix FLOPs / rate of their engine + vector FLOPs /
    vector rate.

    LBL, section 3.3: t = t_sf + F/F_peak; a fused kernel does its matrix and vector parts one after
    the other. With a memory hierarchy every matrix product is a launch of its own (Epoch 2024,
    section 4.1). A measured kernel takes what was measured.
    """
    if r.kernels and work.kernel:
        return kernel_time(work, r)
    return (
        launches(work, r) * r.launch_s
        + work.matrix / r.engine(work.engine)
        + work.vector / r.vector
    )


def launches(work: Pass, r: ChipRates) -> int:
    """Launches of a pass: with a memory hierarchy one a matrix product; none that are not in what
    was measured.
    """
    if r.kernels and (work.kernel == "fused" or work.kernel in r.kernels):
        return 0
    return len(work.products) if r.levels and work.products else 1


def kernel_time(work: Pass, r: ChipRates) -> Num:
    """Measured seconds of all calls of a kernel; 0 for one that runs inside its neighbour
    ("fused").
    """
    if work.kernel == "fused":
        return 0.0
    if work.kernel not in r.kernels:
        return compute_time(work._replace(kernel=""), r)
    return work.calls * measured.table_seconds(
        r.kernels[work.kernel], work.sizes
    )


def exposed_memory(work: Pass, compute: Num, r: ChipRates) -> Num:
    """Seconds by which moving the operation's bytes outlasts its arithmetic (roofline: max of the
    two).

    Bytes move through HBM; those of matrix products through every level of the hierarchy, if the
    chip is timed with one (what padding adds to the arithmetic counts here too).
    """
    if work.kernel in r.kernels or (r.kernels and work.kernel == "fused"):
        return 0.0  # its bytes were moved while it was measured
    if r.levels and work.products:
        # compute hides the bytes as far as it lasts: what is left is never negative
        return maximum(hierarchy.time(r.levels, work.products) - compute, 0.0)
    # the other side of the roofline: nothing where arithmetic takes longer
    return maximum(work.memory / r.memory - compute, 0.0)


def pass_seconds(work: Pass, r: ChipRates) -> tuple[Num, Num]:
    """(arithmetic, memory traffic that outlasts it) of a pass, in seconds, kernel by kernel."""
    if work.parts:
        return shapes.sum_pairs([pass_seconds(one, r) for one in work.parts])
    if r.shapes:
        return shapes.kernel_seconds(work, r.shapes)
    compute = compute_time(work, r)
    return compute, exposed_memory(work, compute, r)


def pass_time(works: Sequence[Pass], r: ChipRates) -> Num:
    """Seconds of several passes one after the other: of each the slower of its arithmetic and its
    memory traffic.
    """
    # the same, without counting what the products do not need
    if r.levels and all(work.products for work in works):
        return hierarchy.time(
            r.levels, [p for work in works for p in work.products]
        )
    total: Num = 0.0
    for work in works:
        compute, memory = pass_seconds(work, r)
        total = total + compute + memory
    return total


ROOFLINE = "launch {launch_s:.3g} s + matrix FLOPs / {matrix:.4g} + vector FLOPs / {vector:.4g}"
OUTLASTS = "max(bytes / {memory:.4g} B/s - compute, 0)"
MODELS = {
    "peak": (
        "launch {launch_s:.3g} s + matrix FLOPs / {matrix:.4g}",
        "0: memory takes no time",
        (
            "a share of the peak: Narayanan et al. 2021, arXiv 2104.04473, section 5.1; How To"
            " Scale Your Model, part 5"
        ),
    ),
    "roofline": (
        ROOFLINE,
        OUTLASTS,
        "roofline: Subramanian et al. 2024, arXiv 2410.00273, section 3.3",
    ),
    "hierarchy": (
        (
            "{launch_s:.3g} s a matrix product + matrix FLOPs / {matrix:.4g} + vector FLOPs /"
            " {vector:.4g}"
        ),
        (
            "max(tile traffic / (HBM {levels.hbm:.4g}, L2 {levels.l2:.4g}, shared memory"
            " {levels.shared:.4g} B/s), padded arithmetic) - compute"
        ),
        "memory hierarchy: Erdil & Schneider-Joseph 2024, arXiv 2411.01137, section 4.1",
    ),
    "by-shape": (
        (
            "2 m n k Q (1 + k0 / k) / {matrix:.4g} + {launch_s:.3g} s a product, Q what tiles and"
            " waves make it pay for; fused attention F (1 + l0 / T) / (a peak)"
        ),
        (
            "bytes / {memory:.4g} B/s: what of it does not hide behind a product, all of it in"
            " other passes"
        ),
        (
            "laws of kernels by shape, constants of catalog/kernels:"
            " ai-dynamo/aiconfigurator@095f58a51 (Apache-2.0)"
        ),
    ),
    "calibrated": (
        "measured seconds of each kernel, else " + ROOFLINE,
        "in the measured seconds, else " + OUTLASTS,
        "measured by `meshwright calibrate`; else roofline",
    ),
}
"""Option `ChipTime.model` -> (formula of compute, formula of memory, source), as `--explain` prints
them.
"""


def laws_and_source(how: ChipTime, r: ChipRates) -> tuple[str, str, str]:
    """How the chip model that runs computes the arithmetic and the memory of an operation, and
    where that is from.
    """
    compute, memory, source = MODELS[how.model]
    return compute.format(**r._asdict()), memory.format(**r._asdict()), source
