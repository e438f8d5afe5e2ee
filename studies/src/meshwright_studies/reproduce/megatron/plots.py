"""Figures 6 to 18 and table 1 as plots with the tables behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from ..report import Check, PaperFigure, PaperTable
from . import analysis, tables, traffic, zero3
from . import formulas as f
from . import takeaways as t
from .figures import MegatronFigure, paper_figures, runs, throughputs

Curves = Mapping[str, Sequence[tuple[Any, float]]]


def bubbles() -> Curves:
    """Figure 6: (n - d)/b'."""
    of = paper_figures()["6"]
    return {
        f"n {n}, b' {ratio}": [
            (d, f.bubble_share(n, d, ratio)) for d in of.values if d <= n
        ]
        for n, ratio in of.cases
    }


def by_value(number: str) -> Curves:
    """Throughput over what varies, a line for each batch."""
    of = paper_figures()[number]
    if not of.batches:
        return {of.model["name"]: [*throughputs(number).items()]}
    return {
        f"batch {b}": [*throughputs(number, b).items()] for b in of.batches
    }


def estimates() -> Curves:
    """Figure 8, relative to the best microbatch."""
    return {
        f"batch {batch}": [
            (b, x / max(rate.values())) for b, x in rate.items()
        ]
        for batch in paper_figures()["8"].batches
        for rate in (t.estimates(batch),)
    }


def schedules() -> Curves:
    """Figure 12."""
    of = paper_figures()["12"]
    return {
        f"interleaved, {v} chunks" if v > 1 else "1F1B": [
            (batch, throughputs("12", batch)[v]) for batch in of.batches
        ]
        for v in of.values
    }


def recomputation() -> Curves:
    """Figure 17: what needs more than the memory is left out."""
    of = paper_figures()["17"]
    names = ("without recomputation", "full recomputation")
    return {
        name: [
            (batch, batch / p.step_time_s)
            for batch in of.batches
            for p in (runs("17", batch)[how],)
            if p.risk_of_oom <= 0.5
        ]
        for name, how in zip(names, of.values, strict=True)
    }


def scatter_gather() -> Curves:
    """Figure 18."""
    of = paper_figures()["18"]
    return {
        f"stage messages {how}": [
            (b, throughputs("18", b, how)[of.values[-1]]) for b in of.batches
        ]
        for how in ("scattered", "whole")
    }


def table_1(column: str) -> Curves:
    """Table 1 as predicted or printed."""
    rows = tables.table_1_rows()
    return {column: [(row.gpus, getattr(row, column)) for row in rows]}


def table_2(column: str) -> Curves:
    """Figure 10, predicted or printed; ZeRO-3 by the share of the links that its software left a
    BERT.
    """
    rows = tables.table_2_pairs()
    models = dict.fromkeys(row.model for row in rows)
    more = ", printed" if column == "printed" else ""
    return {
        f"{scheme}, {model.removeprefix('GPT ')}{more}": [
            (getattr(r, f"{of}gpus"), getattr(r, f"{of}{column}"))
            for r in rows
            if r.model == model
        ]
        for scheme, of in (("PTD-P", ""), ("ZeRO-3", "zero3_"))
        for model in models
    }


def fused(ours: bool) -> Curves:
    """Section 5.8: gains of fused operators in per cent, printed or predicted."""
    return {
        f"{name}, {'predicted' if ours else 'printed'}": [
            (float(name.rstrip("B")), 100 * gains[ours])
        ]
        for name, gains in t.fused_gains().items()
    }


def _crossing(ours: bool) -> Curves:
    """Section 5.9: bandwidth across the bisection, measured or predicted."""
    return {
        f"{what}, {'predicted' if ours else 'measured'}": [(i, rate / 1e12)]
        for i, (what, rate) in enumerate(
            (traffic.bisection() if ours else traffic.MEASURED).items(), 1
        )
    }


@cache
def claims() -> tuple[Check, ...]:
    """What the paper says of its figures, beside ours."""
    return (
        *tables.table_rates(),
        zero3.whole_links(),
        *zero3.lead_checks(),
        *analysis.exact(analysis.bubbles()),
        *t.takeaway_checks(),
        *traffic.bisection_checks(),
    )


@dataclass(frozen=True)
class Shown:
    """A figure of the paper with its lines."""

    paper: MegatronFigure
    curves: Callable[[], Curves]
    printed: Callable[[], Curves] = dict
    """Points of the paper."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """What the paper says of it, judged."""
        about = self.paper.about or (f"fig-{self.paper.number}/",)
        return tuple(c for c in claims() if any(a in c.id for a in about))

    @property
    def figure(self) -> PaperFigure:
        """To be drawn."""
        of = "fig-" if self.paper.number[0].isdigit() else ""
        name = f"megatron-{of}{self.paper.number}"
        return PaperFigure(name, self.draw, lambda: self.table(name))

    def draw(self) -> Any:
        """Ours, and open markers for what is printed."""
        from .pictures import lines_over_x  # matplotlib: only here

        return lines_over_x(self)

    def table(self, name: str) -> PaperTable:
        """The points of the figure as a table."""
        rows = tuple(
            (k, a, b)
            for curves in (self.curves(), self.printed())
            for k, points in curves.items()
            for a, b in points
        )
        return PaperTable(
            name, self.paper.title, ("", self.paper.x, self.paper.y), rows
        )


LINES: dict[str, tuple[Callable[[], Any], ...]] = {
    "6": (bubbles,),
    "8": (estimates,),
    "10": (
        partial(table_2, "predicted"),
        partial(table_2, "printed"),
    ),
    "12": (schedules,),
    "17": (recomputation,),
    "18": (scatter_gather,),
    "table-1": (
        partial(table_1, "predicted"),
        partial(table_1, "printed"),
    ),
    "section-5.8": (partial(fused, True), partial(fused, False)),
    "section-5.9": (partial(_crossing, True), partial(_crossing, False)),
}
"""Figure -> its lines and its printed points; the others go over what varies."""
EVERY = tuple(
    Shown(of, *LINES.get(number, (partial(by_value, number),)))
    for number, of in paper_figures().items()
)
"""In the order of the paper, tables and sections after the figures."""


def measuring_figures() -> tuple[PaperFigure, ...]:
    """The figures of the paper that measure."""
    return tuple(shown.figure for shown in EVERY)
