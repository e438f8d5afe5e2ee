"""Bytes of a layer in both passes, beside the take-away table; the zoomed times, and what each ZeRO
stage leaves on a chip.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from meshwright import catalog
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.prediction.prediction import predict

from ..report import Check, PaperFigure, judged
from .ideal import Ideal
from .tables import STATIC
from .world import MI, book_setting, pod

TOKENS = float(MI)
X = 512
Y = 8
"""A batch, and the degrees of FSDP and TP."""
ZOOM = (0.25e6, 2e8)
"""Tokens of the zoomed figure."""
HIGHEST = 6.5
"""Communication over compute at its upper edge."""
SAID = {(X, Y): (1e6, 6e6), (4096, 1): (6e6, 1e8)}
"""(FSDP, TP) -> tokens between which the book has that split send least of those it names."""
BESIDE = ((256, 16), (4096, 1))
"""The splits that FSDP 512 x TP 8 hands over from and to."""
ZERO = "llama2-13b"
ZERO_CHIPS = 16


def tensor_bytes() -> tuple[float, float]:
    """Bytes that the tensor axis of a layer carries forward and backward, of B / X tokens; gathered
    inputs are kept.
    """
    s = book_setting()
    ops = s.ops(s.on(TOKENS / X, tp=Y))
    forward, backward = (
        sum(
            float(m.bytes)
            for op in ops
            for m in getattr(op, way).comm
            if m.axis == "tp"
        )
        for way in ("forward", "backward")
    )
    return forward, backward


def pass_checks() -> Iterator[Check]:
    """The row FSDP+TP of the take-aways against the algorithm above it."""
    forward, backward = tensor_bytes()
    one = TOKENS * book_setting().model.hidden / X
    yield judged(
        "P5-takeaways/FSDP+TP forward, tensor bytes over BD/X",
        4.0,
        forward / one,
        forward == 4 * one,
    )
    yield Check(
        "P5-takeaways/FSDP+TP backward, tensor bytes over BD/X",
        published=8.0,
        computed=backward / one,
        status="erratum" if backward == 4 * one else "mismatch",
        note="the algorithm lists two collectives of 2BD/X on the critical path of the backward"
        " pass, and the row of TP alone prints 4BD; 6BD/X if the input is gathered again",
    )


def zoomed(edition: str) -> Any:
    """Communication times between 0.25M and 200M tokens, over the compute time, with what the book
    reads off its figure.
    """
    from matplotlib.figure import Figure as Drawn

    from ...report.figures_lbl import COLOURS, LINES, MARKERS

    s, m = book_setting(), pod(4096)
    batch = np.geomspace(*ZOOM, 96)
    figure = Drawn(figsize=(7.5, 4.8), layout="constrained")
    axes = figure.subplots()
    lines: dict[tuple[int, int], Any] = {}
    colours: dict[tuple[int, int], str] = {}
    for i, (x, y, m_x, m_y) in enumerate(STATIC):
        t = Ideal(x, y, m_x, m_y).times(s, m, batch)
        lines[x, y] = over = t.comm(edition) / t.compute + 0 * batch
        colours[x, y] = COLOURS[i % len(COLOURS)]
        above = " (above the frame)" if over.min() > HIGHEST else ""
        axes.plot(
            batch,
            over,
            LINES[i % len(LINES)],
            color=colours[x, y],
            marker=MARKERS[i % len(MARKERS)],
            markevery=12,
            markersize=5,
            label=f"FSDP {x} x TP {y}{above}",
        )
    axes.axhline(1.0, color="black", linewidth=1.2, label="compute")
    for (x, y), ends in SAID.items():
        axes.hlines(HIGHEST / 1.5, *ends, color=colours[x, y], linewidth=5)
        middle = (ends[0] * ends[1]) ** 0.5
        axes.annotate(
            f"the book: {x} x {y}\n{ends[0] / 1e6:g}M to {ends[1] / 1e6:g}M",
            (middle, HIGHEST / 1.7), ha="center", va="top", fontsize=8,
        )  # fmt: skip
    for other in BESIDE:
        gap = np.log(lines[X, Y] / lines[other])
        i = int(np.flatnonzero(np.diff(np.sign(gap)))[0])
        at = batch[i] * (batch[i + 1] / batch[i]) ** (
            gap[i] / (gap[i] - gap[i + 1])
        )
        level = np.interp(np.log(at), np.log(batch), lines[X, Y])
        axes.plot(at, level, "o", ms=14, mfc="none", mec="#cc3311", mew=2)
        axes.annotate(
            f"{at / 1e6:.2g}M", (at, level), (10, 8), color="#cc3311",
            textcoords="offset points", fontsize=9, fontweight="bold",
        )  # fmt: skip
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="batch [tokens]",
        ylabel="communication over compute",
        ylim=(0.03, HIGHEST),
    )
    axes.set_title(
        f"Zoomed: TPU v5p 16x16x16, edition {edition}; rings: where {X} x {Y} crosses"
        " 256 x 16 and 4096 x 1",
        fontsize=10,
    )
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    return figure


def zero_stage_checks() -> Any:
    """Appendix A: weights, gradients and optimizer state on a chip under ZeRO-0 to 3."""
    from meshwright.report.plots import layouts

    bars = [
        predict(zero_job(), Layout(dp=ZERO_CHIPS, zero=z)) for z in range(4)
    ]
    return layouts(
        bars,
        [f"ZeRO-{z}" for z in range(4)],
        f"Appendix A: {ZERO} on {ZERO_CHIPS} TPU v5p, one sequence a chip (realistic)",
    )


def zero_job() -> Job:
    """A 13B model on a few chips."""
    cluster = catalog.cluster(f"{ZERO_CHIPS}xtpu-v5p")
    return Job(catalog.model(ZERO), cluster, ZERO_CHIPS)


def pass_figures() -> tuple[PaperFigure, ...]:
    """The figures of passes, drawn when written."""
    return (
        *(
            PaperFigure(f"scaling-book-zoom-{e}", partial(zoomed, e))
            for e in ("sum", "max")
        ),
        PaperFigure("scaling-book-zero", zero_stage_checks),
    )
