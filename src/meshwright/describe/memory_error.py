"""How far the memory of a framework lies from what is predicted, and how wide that makes its risk
of running out.

    e^2   = mean over families of the mean of s^2 over their sources
    e_f^2 = (e^2 + sum of s^2 over the sources of family f) / (1 + their number)
    w     = e_f sqrt(3) / pi

s: root mean square of ln(measured / predicted) over the layouts of a source. What families err by
counts as one more source of each, so that one laboratory alone makes nobody sure, and a family
whose memory nobody measured errs by e. w: width of the logistic whose standard deviation is e_f.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import pi, sqrt
from statistics import fmean
from typing import NamedTuple

from . import shipped
from .families import framework_family

PRIOR = 1.0
"""Sources that what all families err by counts as in each."""


class SourceError(NamedTuple):
    """What the measured memory of a source is off by."""

    framework: str
    layouts: int
    error: float
    """s."""


@cache
def memory_errors() -> Mapping[str, SourceError]:
    """Source -> its error: catalog/memory.toml."""
    sources = shipped.shipped_table("memory.toml")["sources"]
    return {name: SourceError(**fields) for name, fields in sources.items()}


def family_error(
    family: str, errors: Mapping[str, SourceError] | None = None
) -> float:
    """e_f. errors: of sources; None = all that are known."""
    squares: dict[str, list[float]] = {}
    for source in (memory_errors() if errors is None else errors).values():
        family_squares = squares.setdefault(
            framework_family(source.framework), []
        )
        family_squares.append(source.error**2)
    prior = fmean(map(fmean, squares.values()))
    own = squares.get(family, [])
    return sqrt((PRIOR * prior + sum(own)) / (PRIOR + len(own)))


@cache
def risk_width(framework: str) -> float:
    """w of a framework."""
    return logistic_width(family_error(framework_family(framework)))


def logistic_width(deviation: float) -> float:
    """w of the logistic with a standard deviation."""
    return deviation * sqrt(3.0) / pi
