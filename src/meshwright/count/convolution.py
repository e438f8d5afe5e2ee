"""A gated convolution over a few tokens (LFM2): B, C, x = W h;  y = V (C conv(B x)).

Channels are cut tp ways. Source: Liquid AI 2025, LFM2 (arXiv 2511.23404), section 2.
"""

from __future__ import annotations

from ..describe.job import Job
from ..describe.layers import Kind
from ..describe.layout import Layout
from . import blocks, megatron
from .blocks import Matrix, Sent
from .linear import linear
from .work import Local, Op


def convolution(job: Job, layout: Layout, size: Local, kind: Kind) -> list[Op]:
    """Norm, projection to three times D, gate, convolution, gate, output projection, residual."""
    m = job.model
    c = job.how.count
    t = size.tokens
    of = m.conv
    assert of is not None
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    D = m.hidden / size.tp
    gather, reduce = megatron.collectives(layout, t * m.hidden * act)
    project = linear(
        job,
        layout,
        "conv/in",
        t,
        m.hidden,
        3 * D,
        of=Matrix(
            columns=(D,) * 3, kept=megatron.kept(c.gathered_inputs, size)
        ),
        sent=Sent(
            forward=gather,
            backward=megatron.column_backward(
                c.gathered_inputs, gather, reduce
            ),
        ),
    )
    ops = [megatron.norm(job, "conv/norm", size, backward=gather), project]
    if of.bias:
        ops.append(
            blocks.bias(
                "conv/in bias",
                t,
                3 * D,
                act=act,
                wgt=wgt,
            )
        )
    ops += [
        blocks.scaled("conv/gate in", t * D, t * D, act=act),
        blocks.convolution(
            "conv/taps", t, D, of.taps, act=act, wgt=wgt, biased=of.bias
        ),
        blocks.scaled("conv/gate out", t * D, t * D, act=act),
        linear(
            job,
            layout,
            "conv/out",
            t,
            D,
            m.hidden,
            of=Matrix(quantised=False),
            sent=Sent(forward=reduce),
        ),
    ]
    return [
        *ops,
        *megatron.after(
            job,
            layout,
            size,
            "conv",
            biased=of.bias,
        ),
    ]
