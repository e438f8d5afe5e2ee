"""Figures 6, 8, 12 to 16 as plots with the tables behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..report import Figure, Table
from . import formulas as f
from . import tables
from . import takeaways as t

Curves = Mapping[str, Sequence[tuple[float, float]]]
RATE = "TFLOP/s a GPU, predicted"


def every() -> tuple[Figure, ...]:
    """In the order of the paper; open markers are what it prints."""
    return (
        _lines(
            "6",
            "bubble against data parallelism, t = 1",
            bubbles,
            "d",
            "(p-1)/m",
            said=(
                None,
                "a formula, nothing measured; b' = batch / microbatch",
            ),
        ),
        _lines(
            "7",
            "1B (4 layers, h 4096) on one GPU",
            sizes,
            "microbatch",
            RATE,
            said=(None, "rises significantly with the microbatch"),
        ),
        _lines(
            "8",
            "1B, p 8: (b'/b + p - 1)(t_f + t_b), predicted",
            estimates,
            "microbatch",
            "of the best",
            said=(4, "best at 4 for both batches"),
        ),
        _lines(
            "10", "PTD-P and ZeRO-3, table 2", table_2, "GPUs", RATE, printed_2
        ),
        _lines(
            "11",
            "weak scaling of the pipeline, t 8",
            weak_scaling,
            "p",
            RATE,
            said=(None, "falls with p, less at the larger batch"),
        ),
        _lines(
            "12",
            "175B on 96 GPUs, t 8, p 12: interleaving",
            schedules,
            "batch",
            RATE,
            said=(None, "interleaving up to 10 % faster, the gap closes"),
        ),
        _lines(
            "13",
            "162.2B on 64 GPUs: tensor against pipeline",
            lambda: _of(t.tensor_or_pipeline, (32, 128)),
            "t (p = 64/t)",
            RATE,
            said=(8, "best at t 8, p 8"),
        ),
        _lines(
            "14",
            "5.9B on 64 GPUs: data against pipeline",
            lambda: _of(t.data_or_pipeline, (32, 128, 512)),
            "d (p = 64/d)",
            RATE,
            said=(None, "rises with d"),
        ),
        _lines(
            "15",
            "5.9B on 64 GPUs: tensor against data",
            lambda: _of(t.data_or_tensor, (32, 128, 512)),
            "t (d = 64/t)",
            RATE,
            said=(8, "collapses beyond t 8"),
        ),
        _lines(
            "16",
            "91B on 64 GPUs, t 8, p 8: microbatch",
            lambda: _of(t.microbatches, (128, 512)),
            "microbatch",
            RATE,
            said=(2, "best at 2 for both batches"),
        ),
        _lines(
            "17",
            "145B on 128 GPUs, t 8, p 16",
            recomputation,
            "batch",
            "sequences/s, predicted",
            said=(
                None,
                "33 % less at small batches, twice the best without at large ones",
            ),
        ),
        _lines(
            "18",
            "175B on 96 GPUs, interleaved",
            scatter_gather,
            "batch",
            RATE,
            said=(None, "up to 11 % more with scatter and gather"),
        ),
        _lines(
            "table-1",
            "weak scaling, table 1",
            table_1,
            "GPUs",
            RATE,
            printed_1,
        ),
    )


def sizes() -> Curves:
    """Figure 7."""
    return {"1B": [(b, t.tflops(t.single(b))) for b in (1, 2, 4, 8, 16)]}


def table_1() -> Curves:
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
    """Figure 10, predicted."""
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
    return _of(t.weak, (8, 128))


def recomputation() -> Curves:
    """Figure 17: what needs more than the memory is left out."""
    found = {
        batch: t.recomputed(batch)
        for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    }
    return {
        f"recomputation {how}": [
            (batch, batch / p[how].step_time_s)
            for batch, p in found.items()
            if p[how].risk_of_oom <= 0.5
        ]
        for how in ("none", "full")
    }


def scatter_gather() -> Curves:
    """Figure 18."""
    return {
        f"stage messages {how}": [
            (b, t.tflops(t.interleaving(b, how)[1][2])) for b in t.BATCHES
        ]
        for how in ("scattered", "whole")
    }


def bubbles() -> Curves:
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
    found = {
        batch: {b: t.estimate(batch, b) for b in (1, 2, 4, 8, 16)}
        for batch in (128, 512)
    }
    return {
        f"batch {batch}": [
            (b, x / max(rates.values())) for b, x in rates.items()
        ]
        for batch, rates in found.items()
    }


def schedules() -> Curves:
    """Figure 12."""
    found = {batch: t.interleaving(batch) for batch in (12, 24, 36, 48, 60)}
    return {
        name: [(batch, t.tflops(runs[i][2])) for batch, runs in found.items()]
        for i, name in enumerate(("1F1B", "interleaved, 2 chunks"))
    }


def _of(
    runs: Callable[[int], Sequence[t.Run]], batches: Sequence[int]
) -> Curves:
    return {
        f"batch {b}": [(value, t.tflops(p)) for _, value, p in runs(b)]
        for b in batches
    }


def _lines(
    number: str,
    what: str,
    curves: Callable[[], Curves],
    x: str,
    y: str,
    printed: Callable[[], Curves] = dict,
    said: tuple[float | None, str] = (None, ""),
) -> Figure:
    figure = number[0].isdigit()
    name = f"megatron-fig-{number}" if figure else f"megatron-{number}"
    title = f"{'Figure' if figure else 'Table'} {number.removeprefix('table-')}: {what}"

    def draw() -> Any:
        from ...report.figures_megatron import lines

        return lines(curves(), title, x, y, printed(), said)

    def table() -> Table:
        return Table(
            name,
            title,
            ("", x, y),
            tuple(
                (k, a, b)
                for found in (curves(), printed())
                for k, points in found.items()
                for a, b in points
            ),
        )

    return Figure(name, title, draw, table)
