"""Figure 5: the time of square products on an A100, from the floor of a call to arithmetic.

The paper's measurements are not public; tables of NVIDIA's of the same products are
(`published/square_products.csv`), and are fitted here as the paper fits its own, by a polynomial of
the side n. Between launch and arithmetic stand products of few tiles: they fill a part of the
multiprocessors, each of which runs along the inner width. Beside the tables are drawn two laws,
neither of which knows them: the default set's, and the paper's memory hierarchy.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from meshwright.catalog import chip
from meshwright.cost import shapes
from meshwright.count.blocks import Numbers, matmul
from meshwright.count.work import Product
from meshwright.describe.assumptions import ChipTime, Stack
from meshwright.describe.kernels import as_written

from ... import shipped
from ...validate.rows import lines_without_remarks
from ..report import Check, PaperTable, holds, judged, table_of
from .published import PRINTED
from .tables import on_hierarchy

FLOOR_US = float(PRINTED["floor_us"])
ABOUT = 0.25
"""The caption says "about": a floor within this counts as loose."""
SMALL = 0.1
"""Where arithmetic at the peak would take less than this share of a call, the floor is measured."""


class Call(NamedTuple):
    """One row of the tables."""

    table: str
    side: float
    seconds: float


@cache
def measured_calls() -> tuple[Call, ...]:
    """Every call of the tables."""
    text = shipped.shipped_text("published/square_products.csv")
    rows = csv.DictReader(lines_without_remarks(text))
    return tuple(
        Call(row["table"], float(row["side"]), float(row["seconds"]))
        for row in rows
    )


def by_shape(side: float) -> float:
    """The default set's law, at the clock of a single call, which does not heat a chip."""
    of = chip("a100-80")
    law = replace(as_written()[of.kernel_law], clock=1.0, power_w=0.0)
    how = ChipTime("by-shape", Stack(), kernels=law)
    product = matmul(
        "product", side, side, side, numbers=Numbers(one=0.0, act=2.0, wgt=2.0)
    )
    rates = shapes.rates(of, "bf16", wide="bf16", how=how)
    return float(sum(shapes.kernel_seconds(product.forward, rates)))


def by_hierarchy(side: float) -> float:
    """The paper's own model of a chip."""
    return on_hierarchy("epoch-a100", Product(side, side, side))


LAWS: dict[str, Callable[[float], float]] = {
    "default set": by_shape,
    "the paper's memory hierarchy": by_hierarchy,
}


class Fit(NamedTuple):
    """A polynomial of the side, in seconds."""

    powers: tuple[int, ...]
    terms: tuple[float, ...]
    error: float
    """Root mean square of relative errors over the tables."""

    def seconds(self, side: Any) -> Any:
        """At a side, or at each of a column."""
        each = zip(self.terms, self.powers, strict=True)
        return sum(term * side**power for term, power in each)


def least_squares(*powers: int) -> Fit:
    """The polynomial of these powers with the least squares of relative errors."""
    _, side, seconds = map(np.array, zip(*measured_calls(), strict=True))
    columns = np.stack([side**p / seconds for p in powers], axis=1)
    terms = np.linalg.lstsq(columns, np.ones(len(side)), rcond=None)[0]
    error = float(np.sqrt(np.mean((columns @ terms - 1) ** 2)))
    return Fit(powers, tuple(map(float, terms)), error)


def floor_us() -> float:
    """Median of the calls in which there is hardly anything to compute."""
    peak = chip("a100-80").peak("bf16")
    return 1e6 * median(
        c.seconds
        for c in measured_calls()
        if 2 * c.side**3 / peak < SMALL * c.seconds
    )


def error_of(law: Callable[[float], float]) -> tuple[float, float]:
    """Median and largest relative error of a law over the tables."""
    errors = [abs(law(c.side) / c.seconds - 1) for c in measured_calls()]
    return median(errors), max(errors)


def checks() -> Iterator[Check]:
    """What the caption says of the regimes: a floor, a linear one, a cubic one."""
    floor = floor_us()
    yield judged(
        "figure 5/floor, us",
        published=FLOOR_US,
        computed=floor,
        good=False,
        otherwise="loose"
        if abs(floor / FLOOR_US - 1) <= ABOUT
        else "mismatch",
        note="public tables of such products, since the paper's is not; the default set's law:"
        f" {1e6 * by_shape(64.0):.1f} at side 64, {1e6 * by_shape(256.0):.1f} at 256",
    )
    without, linear, squared = (
        least_squares(0, 3),
        least_squares(0, 1, 3),
        least_squares(0, 2, 3),
    )
    errors = "; ".join(
        f"{name} {middle:.0%} (median), {worst:.0%} (most)"
        for name, law in LAWS.items()
        for middle, worst in [error_of(law)]
    )
    yield holds(
        "figure 5/a regime between floor and arithmetic",
        min(linear.error, squared.error) < without.error,
        note=f"a + d n^3 misses the tables by {without.error:.0%}, with b n by {linear.error:.0%}."
        f" Laws that do not know the tables miss them by: {errors}",
    )
    yield holds(
        "figure 5/that regime is linear",
        linear.error < squared.error,
        note=f"with c n^2 in place of b n the fit misses by {squared.error:.0%} instead of"
        f" {linear.error:.0%}",
    )


def table() -> PaperTable:
    """The tables beside the laws."""
    return table_of(
        "epoch-figure-5",
        "Square products on an A100: public tables, the default set, the paper's model",
        (
            {
                "table": c.table,
                "side": int(c.side),
                "measured_us": 1e6 * c.seconds,
                **{
                    f"{name}, us": 1e6 * law(c.side)
                    for name, law in LAWS.items()
                },
            }
            for c in measured_calls()
        ),
    )
