"""Figures 6 to 18 and table 1 as plots with the tables behind them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from meshwright.report.text import percent

from ..report import Check, PaperFigure, PaperTable
from . import analysis, tables, traffic, zero3
from . import formulas as f
from . import takeaways as t
from .figures import runs_of

Curves = Mapping[str, Sequence[tuple[float, float]]]
RATE = "TFLOP/s a GPU, predicted"


def figure_7() -> Curves:
    """Figure 7."""
    return {"1B": [(b, t.tflops(t.one_gpu_run(b))) for b in runs_of(7).varied]}


def table_1_figure() -> Curves:
    """Table 1 as predicted."""
    return {
        "predicted": [
            (row[3], row[-2]) for row in tables.predicted_table_1().rows
        ]
    }


def printed_1() -> Curves:
    """Table 1 as printed."""
    return {
        "printed": [
            (row[3], row[-3]) for row in tables.predicted_table_1().rows
        ]
    }


def table_2() -> Curves:
    """Figure 10, predicted; ZeRO-3 by the share of the links that its software left a BERT."""
    return _table_2(3, 6)


def printed_2() -> Curves:
    """Figure 10, as table 2 prints it."""
    return {f"{k}, printed": points for k, points in _table_2(2, 5).items()}


def _table_2(ptd: int, zero3: int) -> Curves:
    """Columns of the predicted table 2 by scheme and model."""
    rows = tables.predicted_table_2().rows
    models = list(dict.fromkeys(row[0] for row in rows))
    return {
        f"{scheme}, {str(m).removeprefix('GPT ')}": [
            (r[x], r[y]) for r in rows if r[0] == m
        ]
        for scheme, x, y in (("PTD-P", 1, ptd), ("ZeRO-3", 4, zero3))
        for m in models
    }


def weak_scaling() -> Curves:
    """Figure 11."""
    return _of(t.weak, runs_of(11).batches)


def recomputation() -> Curves:
    """Figure 17: what needs more than the memory is left out."""
    runs = {batch: t.figure_17(batch) for batch in runs_of(17).batches}
    return {
        name: [
            (batch, batch / p[how].step_time_s)
            for batch, p in runs.items()
            if p[how].risk_of_oom <= 0.5
        ]
        for name, how in (
            ("without recomputation", "none"),
            ("full recomputation", "full"),
        )
    }


def scatter_gather() -> Curves:
    """Figure 18."""
    return {
        f"stage messages {how}": [
            (b, t.tflops(t.interleaving(b, how)[1][2]))
            for b in runs_of(18).batches
        ]
        for how in ("scattered", "whole")
    }


def figure_6() -> Curves:
    """Figure 6: (n - d)/b'."""
    cases = ((32, 32), (32, 128), (128, 128), (128, 512))
    return {
        f"n {n}, b' {ratio}": [
            (d, f.bubble_share(n, d, ratio))
            for d in (1, 2, 4, 8, 16, 32, 64)
            if d <= n
        ]
        for n, ratio in cases
    }


def estimates() -> Curves:
    """Figure 8, relative to the best microbatch."""
    by_batch = {
        batch: {b: t.estimate(batch, b) for b in runs_of(8).varied}
        for batch in runs_of(8).batches
    }
    return {
        f"batch {batch}": [
            (b, x / max(rates.values())) for b, x in rates.items()
        ]
        for batch, rates in by_batch.items()
    }


def schedule_figure() -> Curves:
    """Figure 12."""
    of = runs_of(12)
    by_batch = {batch: t.interleaving(batch) for batch in of.batches}
    return {
        name: [
            (batch, t.tflops(runs[i][2])) for batch, runs in by_batch.items()
        ]
        for i, name in enumerate(("1F1B", f"interleaved, {of.chunks} chunks"))
    }


def fused(ours: bool) -> Curves:
    """Section 5.8: gains of fused operators in per cent, printed or predicted."""
    return {
        f"{shape[0]}, {'predicted' if ours else 'printed'}": [
            (
                float(shape[0].rstrip("B")),
                100 * (t.unfused(*shape) - 1 if ours else gain),
            )
        ]
        for shape, gain in t.FUSED
    }


def _crossing(ours: bool) -> Curves:
    """Section 5.9: bandwidth across the bisection, measured or predicted."""
    return {
        f"{what}, {'predicted' if ours else 'measured'}": [(i, rate / 1e12)]
        for i, (what, rate) in enumerate(
            (traffic.bisection() if ours else traffic.MEASURED).items(), 1
        )
    }


def varied(figure: int) -> Curves:
    """Figures 13 to 16."""
    return _of(partial(t.varied, figure), runs_of(figure).batches)


def _of(
    runs: Callable[[int], Sequence[t.Run]], batches: Sequence[int]
) -> Curves:
    return {
        f"batch {b}": [(value, t.tflops(p)) for _, value, p in runs(b)]
        for b in batches
    }


@cache
def claims() -> tuple[Check, ...]:
    """What the paper says of its figures, beside ours."""
    both = tables.predicted_table_1(), tables.predicted_table_2()
    return (
        *tables.table_rates(*both),
        zero3.whole_links(),
        *zero3.lead_checks(),
        *analysis.bubbles(),
        *t.takeaway_checks(),
        *traffic.bisection_checks(),
    )


def statement(check: Check) -> str:
    """What is said, without figure, model and size."""
    parts = [p for p in check.id.split("/") if not p.endswith("GPUs")]
    words = parts[-1].removesuffix(BYTES)
    return MODEL.sub("", words).replace("_per_", "/")


MODEL = re.compile(r"^\d+B, ")
BATCH = re.compile(r"batch \d+")


def told(words: str, checks: Sequence[Check]) -> str:
    """One statement about one or several batches or sizes, in words."""
    printed, n = {c.published for c in checks}, len(checks)
    good = sum(c.status != "mismatch" for c in checks)
    if printed == {1.0}:
        return (
            f"{words}: {('no', 'yes')[good] if n == 1 else f'{good} of {n}'}"
        )
    if len(printed) > 1:
        return f"{words}: {good} of {n} agree"
    at = [(said(c, c.computed), *BATCH.findall(c.id)) for c in checks]
    ours = ", ".join(" at ".join(each if n > 1 else each[:1]) for each in at)
    return f"{words}: {ours} ({said(checks[0], checks[0].published)} in the paper)"


def said(check: Check, value: float | None) -> str:
    """A side of a check with the unit of the figure's axis: shares, which are below 1, as per
    cent.
    """
    assert value is not None and check.published is not None
    if check.id.endswith(BYTES):
        return f"{value / 1e12:.3g} TB/s"
    return percent(value, 0) if abs(check.published) < 1 else f"{value:.3g}"


BYTES = ", B_per_s"


def table_1_sentence() -> str:
    """How near the ten rows are, and in how many pairs the larger model is the faster one, as
    printed.
    """
    (rises,) = (c for c in claims() if c.id == "table-1/rises with size")
    rows = tables.predicted_table_1().rows
    most = max(abs(row[-1]) for row in rows)
    return (
        f"within {percent(most, 0)} in all {len(rows)} rows; but of the {rises.published:g} pairs"
        " of neighbours in which the larger model is faster in the paper (one more is a tie),"
        f" {rises.computed:g} are so here"
    )


class Shown(NamedTuple):
    """A figure of the paper, or its table 1."""

    number: str
    what: str
    curves: Callable[[], Curves]
    x: str
    y: str
    under: str
    """The set of assumptions; empty where a formula is drawn."""
    printed: Callable[[], Curves] = dict
    """Points of the paper."""
    said: tuple[float | None, str] = (None, "")
    """What its text says where it prints no points, and the x that it is about."""
    about: tuple[str, ...] = ()
    """Parts of the ids of the checks that are about it; empty: those named after it."""
    sentence: Callable[[], str] | None = None
    """What we get, in words; None: from the checks."""
    names: Mapping[float, str] = {}
    """Names of values of x that are no numbers."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """What the paper says of it, judged."""
        about = self.about or (f"fig-{self.number}/",)
        return tuple(c for c in claims() if any(a in c.id for a in about))

    @property
    def verdict(self) -> str:
        """What we get for what the paper says, and whether that reproduces it: its checks."""
        by = dict.fromkeys(map(statement, self.checks))
        words = (
            self.sentence()
            if self.sentence
            else "; ".join(
                told(w, [c for c in self.checks if statement(c) == w])
                for w in by
            )
        )
        off = any(c.status == "mismatch" for c in self.checks)
        return f"ours: {words}: {'NOT ' if off else ''}reproduced"

    @property
    def title(self) -> str:
        """Where in the paper, and the set of assumptions that ours are predicted under."""
        figure = "figure " if self.number[0].isdigit() else ""
        where = (figure + self.number.replace("-", " ")).capitalize()
        by = f" ({self.under})" if self.under else ""
        return f"{where}: {self.what}{by}"

    @property
    def figure(self) -> PaperFigure:
        """To be drawn."""
        of = "fig-" if self.number[0].isdigit() else ""
        name = f"megatron-{of}{self.number}"
        return PaperFigure(name, self.draw, lambda: self.table(name))

    def draw(self) -> Any:
        """Ours, and open markers for what is printed."""
        from ...report.figures_megatron import line_figure

        return line_figure(
            self.curves(),
            self.title,
            self.x,
            y=self.y,
            printed=self.printed(),
            said=self.said,
            verdict=self.verdict,
            names=self.names,
        )

    def table(self, name: str) -> PaperTable:
        """The points of the figure as a table."""
        rows = tuple(
            (k, a, b)
            for curves in (self.curves(), self.printed())
            for k, points in curves.items()
            for a, b in points
        )
        return PaperTable(name, self.title, ("", self.x, self.y), rows)


EVERY = (
    Shown(
        "6",
        what="bubble against data parallelism, t = 1",
        curves=figure_6,
        x="d (data-parallel size)",
        y="bubble over ideal time, (p-1)/m",
        under="",
        said=(
            None,
            "a formula, nothing measured; b' = batch / microbatch",
        ),
    ),
    Shown(
        "7",
        what="1B (4 layers, h 4096) on one GPU",
        curves=figure_7,
        x="microbatch",
        y=RATE,
        under="realistic",
        said=(None, "rises with the microbatch, up to 1.3 times"),
    ),
    Shown(
        "8",
        what="1B, p 8, t 8: (b'/b + p - 1)(t_f + t_b), predicted",
        curves=estimates,
        x="microbatch",
        y="throughput over the best of its batch",
        under="realistic",
        said=(4, "best at 4 for both batches"),
    ),
    Shown(
        "10",
        what="PTD-P; ZeRO-3 by the share of the links that its software left a BERT",
        curves=table_2,
        x="GPUs",
        y=RATE,
        under="realistic",
        printed=printed_2,
        said=(
            None,
            "PTD-P ahead by 6 % and 24 %, by 70 % with twice the GPUs",
        ),
        about=("with whole links", "fig-10/", "table-2/"),
        sentence=zero3.sentence,
    ),
    Shown(
        "11",
        what="weak scaling of the pipeline, t 8",
        curves=weak_scaling,
        x="p (pipeline stages)",
        y=RATE,
        under="realistic",
        said=(None, "falls with p, less at the larger batch"),
    ),
    Shown(
        "12",
        what="175B on 96 GPUs, t 8, p 12: interleaving",
        curves=schedule_figure,
        x="batch",
        y=RATE,
        under="realistic",
        said=(
            None,
            "10+ % (abstract), as much as 10 % (introduction), and closing",
        ),
    ),
    Shown(
        "13",
        what="162.2B on 64 GPUs: tensor against pipeline",
        curves=partial(varied, 13),
        x="t (p = 64/t)",
        y=RATE,
        under="realistic",
        said=(8, "best at t 8, p 8"),
    ),
    Shown(
        "14",
        what="5.9B on 64 GPUs: data against pipeline",
        curves=partial(varied, 14),
        x="d (p = 64/d)",
        y=RATE,
        under="realistic",
        said=(
            None,
            "rises with d; it begins at a model-parallel size of 2, too",
        ),
    ),
    Shown(
        "15",
        what="5.9B on 64 GPUs: tensor against data",
        curves=partial(varied, 15),
        x="t (d = 64/t)",
        y=RATE,
        under="realistic",
        said=(8, "collapses beyond t 8, a server"),
    ),
    Shown(
        "16",
        what="91B on 64 GPUs, t 8, p 8: microbatch",
        curves=partial(varied, 16),
        x="microbatch",
        y=RATE,
        under="realistic",
        said=(2, "best at 2 for both batches"),
    ),
    Shown(
        "17",
        what="145B on 128 GPUs, t 8, p 16",
        curves=recomputation,
        x="batch",
        y="sequences/s, predicted",
        under="realistic",
        said=(
            None,
            "33 % less at small batches, twice the best without at large ones",
        ),
    ),
    Shown(
        "18",
        what="175B on 96 GPUs, interleaved, 4 chunks",
        curves=scatter_gather,
        x="batch",
        y=RATE,
        under="realistic",
        said=(None, "up to 11 % more with scatter and gather"),
    ),
    Shown(
        "table-1",
        what="weak scaling of ten models",
        curves=table_1_figure,
        x="GPUs",
        y=RATE,
        under="realistic",
        printed=printed_1,
        said=(None, "larger models are faster"),
        about=("TFLOP_per_s a GPU", "rises with size"),
        sentence=table_1_sentence,
    ),
    Shown(
        "section-5.8",
        what="fused operators over each operation in a pass of its own",
        curves=lambda: fused(ours=True),
        x="parameters [1e9]",
        y="gain in throughput [%]",
        under="realistic",
        printed=lambda: fused(ours=False),
        said=(None, "19 % for 175B, 11 % for 530B"),
        about=("fused operators/",),
    ),
    Shown(
        "section-5.9",
        what="bandwidth across the bisection, 1T on 3,072 GPUs",
        curves=lambda: _crossing(ours=True),
        x="what crosses it",
        y="TB/s one way",
        under="realistic",
        printed=lambda: _crossing(ours=False),
        said=(None, "0.892 and 12.9 TB/s"),
        about=("bisection/",),
        names={1: "stage sends", 2: "all-reduces of gradients"},
    ),
)
"""In the order of the paper, tables and sections after the figures."""


def measuring_figures() -> tuple[PaperFigure, ...]:
    """The figures of the paper that measure."""
    return tuple(shown.figure for shown in EVERY)
