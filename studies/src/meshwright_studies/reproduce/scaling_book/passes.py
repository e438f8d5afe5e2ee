"""Bytes of a layer in both passes, beside the take-away table."""

from __future__ import annotations

from collections.abc import Iterator

from ..report import Check, judged
from .world import MI, book_setting

TOKENS = float(MI)
X = 512
Y = 8
"""A batch, and the degrees of FSDP and TP."""


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
