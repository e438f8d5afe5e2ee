"""Time of one operation on one chip."""

from __future__ import annotations

from typing import NamedTuple

from ..count.work import Pass
from ..num import Num, maximum
from ..spec.assumptions import ChipTime
from ..spec.chip import Chip


class Rates(NamedTuple):
    """What the chip reaches, in units per second; `launch_s` is paid by every operation."""

    matrix: float
    vector: float
    memory: float
    launch_s: float


def rates(chip: Chip, precision: str, how: ChipTime) -> Rates:
    """Sustained rates of the chip in that precision under an assumption set.

    The share of the matrix peak is the set's, else the one measured on the chip, else the set's default for unmeasured chips.
    """
    share = how.matrix_efficiency or chip.sustained or how.sustained
    memory = float("inf") if how.model == "peak" else chip.hbm_bandwidth * how.memory_efficiency
    vector = float("inf") if how.model == "peak" else chip.vector_flops * how.vector_efficiency
    return Rates(chip.peak(precision) * share, vector, memory, how.launch_s)


def compute_time(work: Pass, r: Rates) -> Num:
    """Seconds the arithmetic takes: launch + matrix FLOPs / matrix rate + vector FLOPs / vector rate.

    LBL, section 3.3: t = t_sf + F/F_peak; a fused kernel does its matrix and vector parts one after the other.
    """
    return r.launch_s + work.matrix / r.matrix + work.vector / r.vector


def exposed_memory(work: Pass, compute: Num, r: Rates) -> Num:
    """Seconds by which moving the operation's bytes through HBM outlasts its arithmetic (roofline: max of the two)."""
    return maximum(work.memory / r.memory - compute, 0.0)
