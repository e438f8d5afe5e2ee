"""What lives while an operation goes backward: 128 tokens, width 64, inner width 256, 2 bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import MODEL, by_hand
from meshwright.count.model import kinds
from meshwright.describe.layout import Layout
from meshwright.program.messages import carried_out, operations
from meshwright.program.tensors import moving

WIDE = 2 * 128 * 256
"""Bytes of a tensor of the inner width."""


@pytest.mark.parametrize(
    ("gated", "name", "bytes_"),
    [
        # gradients of the input and of queries, keys and values
        (False, "attention/qkv", 2 * 128 * (64 + 3 * 64)),
        # one tensor in, one out; what is gated keeps three
        (False, "ffn/activation", 2 * WIDE),
        (True, "ffn/activation", 3 * WIDE),
        (False, "ffn/down", WIDE + 2 * 128 * 64),
    ],
)
def test_gradients_beside_that_of_the_residual_stream(
    gated: bool, name: str, bytes_: int
) -> None:
    model = replace(MODEL, gated=gated)
    job = carried_out(by_hand(Layout(dp=1), model=model).job)
    (kind,) = {*kinds(job.model)}
    (op,) = (op for op in operations(job, kind) if op.name == name)
    assert moving(job, 1000.0, op) == 1000 + bytes_
