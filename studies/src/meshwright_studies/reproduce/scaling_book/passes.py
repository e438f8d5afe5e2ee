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
from .tables import static_times
from .world import MI, book_setting

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
    from ...report.figures_book import zoom_plot

    batch = np.geomspace(*ZOOM, 96)
    lines = {
        split: t.comm(edition) / t.compute + 0 * batch
        for split, t in static_times(batch).items()
    }
    curves = {}
    for (x, y), over in lines.items():
        above = " (above the frame)" if over.min() > HIGHEST else ""
        curves[f"FSDP {x} x TP {y}{above}"] = [*zip(batch, over, strict=True)]
    spans = [
        (list(lines).index(split), "the book: {} x {}".format(*split), ends)
        for split, ends in SAID.items()
    ]
    return zoom_plot(
        curves,
        spans,
        [crossing_point(batch, lines[X, Y], lines[o]) for o in BESIDE],
        highest=HIGHEST,
        title=f"Zoomed: TPU v5p 16x16x16, edition {edition}; rings: where {X} x {Y} crosses"
        " 256 x 16 and 4096 x 1",
    )


def crossing_point(x: Any, a: Any, b: Any) -> tuple[float, float]:
    """Where two lines over x cross first, on logarithmic axes."""
    gap = np.log(a / b)
    i = int(np.flatnonzero(np.diff(np.sign(gap)))[0])
    at = x[i] * (x[i + 1] / x[i]) ** (gap[i] / (gap[i] - gap[i + 1]))
    return at, float(np.interp(np.log(at), np.log(x), a))


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
