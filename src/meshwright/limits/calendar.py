"""When: years until a run, if the largest one grows by a constant factor a year."""

from __future__ import annotations

import math

from ..errors import BadInput

GROWTH = 4.2
"""Training compute of the largest runs, times a year (Epoch AI 2024; Erdil & Schneider-Joseph
2024)."""
LARGEST_FLOPS = 1e26
LARGEST_YEAR = 2024.9
"""The largest run when the paper was written, "two orders of magnitude" below 1e28 (November
2024)."""


def years_until(
    flops: float, largest: float = LARGEST_FLOPS, growth: float = GROWTH
) -> float:
    """Years from the largest run until one of so many FLOPs; negative if it was before."""
    if not (growth > 1 and largest > 0 and flops > 0):
        raise BadInput(
            f"growth must be above 1 a year and runs above 0 FLOP, not {growth:g} from {largest:g}"
        )
    return math.log(flops / largest) / math.log(growth)


def year_of(flops: float, growth: float) -> float:
    """The year, as a decimal number."""
    return LARGEST_YEAR + years_until(flops, growth=growth)
