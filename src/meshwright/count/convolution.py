"""A gated convolution over a few tokens (LFM2): B, C, x = W h;  y = V (C conv(B x)).

Channels are cut tp ways. Source: Liquid AI 2025, LFM2 (arXiv 2511.23404), section 2.
"""

from __future__ import annotations

from ..describe.layers import Kind
from . import blocks
from .blocks import Matrix
from .local import Local
from .parallel import after, column_parallel, pre_norm, row_parallel
from .work import Op


def convolution(local: Local, kind: Kind) -> list[Op]:
    """Norm, projection to three times D, gate, convolution, gate, output projection, residual."""
    m = local.model
    t = local.tokens
    of = m.conv
    assert of is not None
    act = local.act
    wgt = local.wgt
    D = m.hidden / local.tp
    three = Matrix(columns=(D,) * 3)
    ops = [
        pre_norm(local, "conv/norm"),
        column_parallel(
            local, name="conv/in", k=m.hidden, n=3 * D, matrix=three
        ),
    ]
    if of.bias:
        ops.append(blocks.bias("conv/in bias", t, 3 * D, act=act, wgt=wgt))
    return [
        *ops,
        blocks.gate("conv/gate in", t * D, t * D, act=act),
        blocks.convolution(
            "conv/taps", t, D, of.taps, act=act, wgt=wgt, biased=of.bias
        ),
        blocks.gate("conv/gate out", t * D, t * D, act=act),
        row_parallel(
            local, name="conv/out", k=D, matrix=Matrix(quantised=False)
        ),
        *after(local, "conv", biased=of.bias),
    ]
