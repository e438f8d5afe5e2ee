"""A whole run in the book's arithmetic: 6 FLOPs a parameter and token, at a share of peak.

Source: How To Scale Your Model, parts 4 to 6 and 12.
"""

from __future__ import annotations

from meshwright.count.blocks import Numbers, matmul
from meshwright.num import Num
from meshwright.units import DAY_S


def flops_per_parameter() -> float:
    """FLOPs a token costs for each weight, forward and backward: 2 + 4."""
    one = matmul("", T=1.0, k=1.0, n=1.0, numbers=Numbers(0.0, 0.0, 0.0))
    return float(one.forward.matrix + one.backward.matrix)


def training_flops(parameters: Num, tokens: Num) -> Num:
    """FLOPs of a run: 6 N D."""
    return flops_per_parameter() * parameters * tokens


def seconds(flops: Num, chips: Num, peak: Num, utilisation: Num = 1.0) -> Num:
    """Seconds of a run, or of a step, on chips that reach a share of their peak FLOP/s."""
    return flops / (chips * peak * utilisation)


def days(flops: Num, chips: Num, peak: Num, utilisation: Num = 1.0) -> Num:
    """Days of a run of so many FLOPs."""
    return seconds(flops, chips, peak, utilisation) / DAY_S


def utilisation(flops: Num, chip_seconds: Num, peak: Num) -> Num:
    """Share of peak a run reached: its FLOPs over what its chips could have done."""
    return flops / (chip_seconds * peak)
