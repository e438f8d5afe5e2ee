"""Figures 6, 8, 12 to 16 as plots with the tables behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..report import Figure, Table
from . import formulas as f
from . import takeaways as t

Curves = Mapping[str, Sequence[tuple[float, float]]]
RATE = "TFLOP/s a GPU, predicted"


def every() -> tuple[Figure, ...]:
    """In the order of the paper."""
    return (
        _lines("6", "bubble against data parallelism, t = 1", bubbles, "d", "(p-1)/m"),
        _lines(
            "8",
            "1B, p 8: (b'/b + p - 1)(t_f + t_b), predicted",
            estimates,
            "microbatch",
            "of the best",
        ),
        _lines("12", "175B on 96 GPUs, t 8, p 12: interleaving", schedules, "batch", RATE),
        _lines(
            "13",
            "162.2B on 64 GPUs: tensor against pipeline",
            lambda: _of(t.tensor_or_pipeline, (32, 128)),
            "t (p = 64/t)",
            RATE,
        ),
        _lines(
            "14",
            "5.9B on 64 GPUs: data against pipeline",
            lambda: _of(t.data_or_pipeline, (32, 128, 512)),
            "d (p = 64/d)",
            RATE,
        ),
        _lines(
            "15",
            "5.9B on 64 GPUs: tensor against data",
            lambda: _of(t.data_or_tensor, (32, 128, 512)),
            "t (d = 64/t)",
            RATE,
        ),
        _lines(
            "16",
            "91B on 64 GPUs, t 8, p 8: microbatch",
            lambda: _of(t.microbatches, (128, 512)),
            "microbatch",
            RATE,
        ),
    )


def bubbles() -> Curves:
    """Figure 6: (n - d)/b'."""
    cases = ((32, 32), (32, 128), (128, 128), (128, 512))
    return {
        f"n {n}, b' {ratio}": [
            (d, f.bubble_share(n, d, ratio)) for d in (1, 2, 4, 8, 16, 32, 64) if d <= n
        ]
        for n, ratio in cases
    }


def estimates() -> Curves:
    """Figure 8, relative to the best microbatch."""
    found = {batch: {b: t.estimate(batch, b) for b in (1, 2, 4, 8, 16)} for batch in (128, 512)}
    return {
        f"batch {batch}": [(b, x / max(rates.values())) for b, x in rates.items()]
        for batch, rates in found.items()
    }


def schedules() -> Curves:
    """Figure 12."""
    found = {batch: t.interleaving(batch) for batch in (12, 24, 36, 48, 60)}
    return {
        name: [(batch, t.tflops(runs[i][2])) for batch, runs in found.items()]
        for i, name in enumerate(("1F1B", "interleaved, 2 chunks"))
    }


def _of(runs: Callable[[int], Sequence[t.Run]], batches: Sequence[int]) -> Curves:
    return {f"batch {b}": [(value, t.tflops(p)) for _, value, p in runs(b)] for b in batches}


def _lines(number: str, what: str, curves: Callable[[], Curves], x: str, y: str) -> Figure:
    name, title = f"megatron-fig-{number}", f"Figure {number}: {what}"

    def draw() -> Any:
        from ...report.figures_megatron import lines

        return lines(curves(), title, x, y)

    def table() -> Table:
        return Table(
            name,
            title,
            ("", x, y),
            tuple((k, a, b) for k, points in curves().items() for a, b in points),
        )

    return Figure(name, title, draw, table)
