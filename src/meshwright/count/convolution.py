"""A gated convolution over a few tokens (LFM2): B, C, x = W h;  y = V (C conv(B x)).

Channels are cut tp ways. Source: Liquid AI 2025, LFM2 (arXiv 2511.23404), section 2.
"""

from __future__ import annotations

from ..describe.layers import Kind
from . import blocks
from .blocks import Matrix
from .microbatch import DeviceMicrobatch
from .parallel import after, column_parallel, pre_norm, row_parallel
from .work import Op


def convolution(microbatch: DeviceMicrobatch, kind: Kind) -> list[Op]:
    """Norm, projection to three times D, gate, convolution, gate, output projection, residual."""
    m = microbatch.model
    t = microbatch.tokens
    conv = m.conv
    assert conv is not None
    act = microbatch.act
    wgt = microbatch.wgt
    D = m.hidden / microbatch.tp
    three = Matrix(columns=(D,) * 3)
    ops = [
        pre_norm(microbatch, "conv/norm"),
        column_parallel(
            microbatch, name="conv/in", k=m.hidden, n=3 * D, matrix=three
        ),
    ]
    if conv.bias:
        ops.append(blocks.bias("conv/in bias", t, 3 * D, act=act, wgt=wgt))
    return [
        *ops,
        blocks.gate("conv/gate in", t * D, t * D, act=act),
        blocks.convolution(
            "conv/taps", t, D, conv.taps, act=act, wgt=wgt, biased=conv.bias
        ),
        blocks.gate("conv/gate out", t * D, t * D, act=act),
        row_parallel(
            microbatch, name="conv/out", k=D, matrix=Matrix(quantised=False)
        ),
        *after(microbatch, "conv", biased=conv.bias),
    ]
