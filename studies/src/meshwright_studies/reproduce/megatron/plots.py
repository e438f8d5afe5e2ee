"""Figures 6 to 18 and table 1 as plots with the tables behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..report import PaperFigure, PaperTable
from . import formulas as f
from . import tables, zero3
from . import takeaways as t

Curves = Mapping[str, Sequence[tuple[float, float]]]
RATE = "TFLOP/s a GPU, predicted"


def figure_7() -> Curves:
    """Figure 7."""
    return {"1B": [(b, t.tflops(t.one_gpu_run(b))) for b in (1, 2, 4, 8, 16)]}


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
    models = list(dict.fromkeys(row[0] for row in zero3.rows()))
    return {k: v for k, v in _table_2(3, 6).items() if k[:3] == "PTD"} | {
        f"ZeRO-3, {m.removeprefix('GPT ')}": [
            (gpus, ours)
            for name, gpus, _, ours, _ in zero3.rows()
            if name == m
        ]
        for m in models
    }


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
    return _of(t.weak, (8, 128))


def recomputation() -> Curves:
    """Figure 17: what needs more than the memory is left out."""
    runs = {
        batch: t.figure_17(batch)
        for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    }
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
            (b, t.tflops(t.interleaving(b, how)[1][2])) for b in t.BATCHES
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
        batch: {b: t.estimate(batch, b) for b in (1, 2, 4, 8, 16)}
        for batch in (128, 512)
    }
    return {
        f"batch {batch}": [
            (b, x / max(rates.values())) for b, x in rates.items()
        ]
        for batch, rates in by_batch.items()
    }


def schedule_figure() -> Curves:
    """Figure 12."""
    by_batch = {batch: t.interleaving(batch) for batch in (12, 24, 36, 48, 60)}
    return {
        name: [
            (batch, t.tflops(runs[i][2])) for batch, runs in by_batch.items()
        ]
        for i, name in enumerate(("1F1B", "interleaved, 2 chunks"))
    }


def _of(
    runs: Callable[[int], Sequence[t.Run]], batches: Sequence[int]
) -> Curves:
    return {
        f"batch {b}": [(value, t.tflops(p)) for _, value, p in runs(b)]
        for b in batches
    }


def against(good: bool, words: str) -> str:
    """A verdict on what the paper says of a figure."""
    return f"ours: {words}: {'' if good else 'NOT '}reproduced"


def best_of_each(curves: Curves, printed: int) -> str:
    """Of figures 8, 13 and 16: the best x of each line."""
    best = {
        name: max(points, key=lambda point: point[1])[0]
        for name, points in curves.items()
    }
    words = ", ".join(f"{b:g} at {name}" for name, b in best.items())
    return against(set(best.values()) == {printed}, f"best {words}")


def rising_verdict() -> str:
    """Of table 1: pairs of neighbours in which the larger model is as fast at least."""
    ours, theirs = (
        sum(a[1] <= b[1] for a, b in zip(line, line[1:], strict=False))
        for curves in (table_1_figure(), printed_1())
        for line in curves.values()
    )
    return against(
        ours == theirs,
        f"rises from one model to the next in {ours} of 9, as printed in {theirs}",
    )


def pairs_verdict() -> str:
    """Of figure 10."""
    six = zero3.rows()
    ahead = sum(ptd > ours for *_, ours, ptd in six)
    apart = max(abs(ours / printed - 1) for _, _, printed, ours, _ in six)
    return against(
        ahead == len(six),
        f"PTD-P ahead in {ahead} of {len(six)}, ZeRO-3 within {apart:.0%}",
    )


def trend_verdict(curves: Curves, falls: bool, words: str) -> str:
    """Of figures 7, 11, 14: every line falls, or rises, all along."""
    lines = [[y for _, y in points] for points in curves.values()]
    return against(
        all(line == sorted(line, reverse=falls) for line in lines), words
    )


def collapse_verdict(curves: Curves) -> str:
    """Of figure 15: the last factor of 4 in t costs more than the first."""
    rates = [dict(points) for points in curves.values()]
    lost = [(r[8] / r[2] - 1, r[32] / r[8] - 1) for r in rates]
    early, late = zip(*lost, strict=True)
    return against(
        all(b < a for a, b in lost),
        f"{max(early):.0%} to {min(early):.0%} from t 2 to 8,"
        f" {max(late):.0%} to {min(late):.0%} from 8 to 32",
    )


def interleaving_verdict() -> str:
    """Of figure 12."""
    plain, chunked = schedule_figure().values()
    gains = [b[1] / a[1] - 1 for a, b in zip(plain, chunked, strict=True)]
    bubbles = [f.bubble_share(12, 1, 12, v) for v in (1, 2)]
    theirs = (1 + bubbles[0]) / (1 + bubbles[1]) - 1
    default, chunks = (
        t.tflops(run) for _, _, run in t.interleaving(t.BATCHES[-1], "whole")
    )
    ahead = default > chunks
    return against(
        ahead and gains[0] >= 0.1 and gains == sorted(gains, reverse=True),
        f"{gains[0]:+.0%} to {gains[-1]:+.0%} (its bubbles: {theirs:+.0%} at 12);"
        f" 1F1B ahead without scatter/gather: {'yes' if ahead else 'no'}",
    )


def recomputation_verdict() -> str:
    """Of figure 17."""
    without, full = recomputation().values()
    lost = full[0][1] / without[0][1] - 1
    gain = max(y for _, y in full) / max(y for _, y in without)
    return against(
        gain > 1,
        f"{lost:+.0%} of sequences; all batches fit without, best with / without {gain:.2f}",
    )


def scattered_verdict() -> str:
    """Of figure 18."""
    most = max(t.scattered(batch) for batch in t.BATCHES) - 1
    return against(abs(most - 0.11) < 0.0275, f"up to {most:.1%}")


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
    verdict: Callable[[], str] = str
    """What we get in its place, and whether that reproduces it; empty: not asked."""

    @property
    def title(self) -> str:
        """Figure or table, and the set of assumptions that ours are predicted under."""
        kind = "Figure" if self.number[0].isdigit() else "Table"
        number = self.number.removeprefix("table-")
        by = f" ({self.under})" if self.under else ""
        return f"{kind} {number}: {self.what}{by}"

    @property
    def figure(self) -> PaperFigure:
        """To be drawn."""
        of = "fig-" if self.number[0].isdigit() else ""
        name = f"megatron-{of}{self.number}"
        return PaperFigure(
            name, self.title, self.draw, lambda: self.table(name)
        )

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
            verdict=self.verdict(),
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
        x="d",
        y="(p-1)/m",
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
        verdict=lambda: trend_verdict(
            figure_7(),
            falls=False,
            words=f"{(y := [b for _, b in figure_7()['1B']])[-1] / y[0]:.2f} times",
        ),
    ),
    Shown(
        "8",
        what="1B, p 8, t 8: (b'/b + p - 1)(t_f + t_b), predicted",
        curves=estimates,
        x="microbatch",
        y="of the best",
        under="realistic",
        said=(4, "best at 4 for both batches"),
        verdict=lambda: best_of_each(estimates(), printed=4),
    ),
    Shown(
        "10",
        what="PTD-P; ZeRO-3 by the share of the links that its software left a BERT",
        curves=table_2,
        x="GPUs",
        y=RATE,
        under="realistic",
        printed=printed_2,
        said=(None, "PTD-P ahead, the more the more GPUs"),
        verdict=pairs_verdict,
    ),
    Shown(
        "11",
        what="weak scaling of the pipeline, t 8",
        curves=weak_scaling,
        x="p",
        y=RATE,
        under="realistic",
        said=(None, "falls with p, less at the larger batch"),
        verdict=lambda: trend_verdict(
            weak_scaling(), falls=True, words="the same"
        ),
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
        verdict=interleaving_verdict,
    ),
    Shown(
        "13",
        what="162.2B on 64 GPUs: tensor against pipeline",
        curves=lambda: _of(t.tensor_or_pipeline, (32, 128)),
        x="t (p = 64/t)",
        y=RATE,
        under="realistic",
        said=(8, "best at t 8, p 8"),
        verdict=lambda: best_of_each(
            _of(t.tensor_or_pipeline, (32, 128)), printed=8
        ),
    ),
    Shown(
        "14",
        what="5.9B on 64 GPUs: data against pipeline",
        curves=lambda: _of(t.data_or_pipeline, (32, 128, 512)),
        x="d (p = 64/d)",
        y=RATE,
        under="realistic",
        said=(
            None,
            "rises with d; it begins at a model-parallel size of 2, too",
        ),
        verdict=lambda: trend_verdict(
            _of(t.data_or_pipeline, (32, 128, 512)),
            falls=False,
            words="the same",
        ),
    ),
    Shown(
        "15",
        what="5.9B on 64 GPUs: tensor against data",
        curves=lambda: _of(t.data_or_tensor, (32, 128, 512)),
        x="t (d = 64/t)",
        y=RATE,
        under="realistic",
        said=(8, "collapses beyond t 8, a server"),
        verdict=lambda: collapse_verdict(
            _of(t.data_or_tensor, (32, 128, 512))
        ),
    ),
    Shown(
        "16",
        what="91B on 64 GPUs, t 8, p 8: microbatch",
        curves=lambda: _of(t.microbatch_takeaway, (128, 512)),
        x="microbatch",
        y=RATE,
        under="realistic",
        said=(2, "best at 2 for both batches"),
        verdict=lambda: best_of_each(
            _of(t.microbatch_takeaway, (128, 512)), printed=2
        ),
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
        verdict=recomputation_verdict,
    ),
    Shown(
        "18",
        what="175B on 96 GPUs, interleaved",
        curves=scatter_gather,
        x="batch",
        y=RATE,
        under="realistic",
        said=(None, "up to 11 % more with scatter and gather"),
        verdict=scattered_verdict,
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
        verdict=rising_verdict,
    ),
)
"""In the order of the paper."""


def measuring_figures() -> tuple[PaperFigure, ...]:
    """The figures of the paper that measure."""
    return tuple(shown.figure for shown in EVERY)
