"""State-space layers: Mamba-2 as products of matrices over chunks, Mamba as a scan.

    S_t = exp(dt_t A) S_(t-1) + dt_t B_t x_t^T,    y_t = C_t S_t + D x_t

Inner channels (heads) are cut tp ways; over cp an all-to-all gives each rank whole sequences of
1/cp of the channels, and takes them back (Megatron Core, core/ssm/mamba_context_parallel.py).
Sources: Dao & Gu 2024 (arXiv 2405.21060) and the kernels of state-spaces/mamba
(ops/triton/ssd_combined.py); Gu & Dao 2023 (arXiv 2312.00752) for the scan.
"""

from __future__ import annotations

from ..describe.layers import Kind
from ..describe.mixers import StateSpace
from ..num import Num, ceil_div, maximum
from . import blocks
from .blocks import Matrix, Messages
from .context import with_all_to_all
from .linear import linear
from .local import Local
from .parallel import after, column_parallel, pre_norm, row_parallel
from .work import Message, Op, Pass

SCAN = 9.0
"""FLOPs of a channel and state of Mamba's scan: discretise, decay, add, read out (Gu & Dao 2023,
section 3.3 and appendix D count O(B L D N); the factor is that of the operations written out).
"""


def state_space(local: Local, kind: Kind) -> list[Op]:
    """Norm, projections, convolution, the state's way through the sequence, gate, output
    projection, residual.
    """
    m = local.model
    t = local.tokens
    of = m.ssm
    assert of is not None
    act = local.act
    wgt = local.wgt
    tp = local.tp
    inner = of.inner / local.tp
    wide = into(of, tp)
    ops = [
        pre_norm(local, "ssm/norm"),
        column_parallel(local, name="ssm/in", k=m.hidden, n=wide),
    ]
    if of.bias:
        ops.append(blocks.bias("ssm/in bias", t, wide, act=act, wgt=wgt))
    through = blocks.convolution(
        "ssm/conv",
        t,
        channels(of, tp),
        of.conv,
        act=act,
        wgt=wgt,
        biased=of.conv_bias,
    )
    ops.append(with_all_to_all(through, t * (wide - inner) * act))
    ops += selective(local, of) if of.kind == "mamba" else []
    scan = (
        mamba2(of, local, act, local.job.fused_attention)
        if of.kind == "mamba2"
        else mamba(of, local, act)
    )
    ops.append(with_all_to_all(scan, t * inner * act))
    gated = blocks.gate("ssm/gated", t * inner, t * inner, act=act)
    ops.append(gated._replace(source="ssm/scan"))
    if of.norm and of.kind == "mamba2":
        ops.append(
            blocks.norm(
                "ssm/inner norm", t, inner, parameters=1, act=act, wgt=wgt
            )
        )
    return [
        *ops,
        row_parallel(
            local,
            name="ssm/out",
            k=inner,
            matrix=Matrix(quantised=False),
        ),
        *after(local, "ssm", biased=of.bias),
    ]


def into(of: StateSpace, tp: Num) -> Num:
    """Columns of the first projection: x and its gate, and of Mamba-2 B, C and a step a head."""
    if of.kind == "mamba":
        return 2 * of.inner / tp
    return of.inner / tp + channels(of, tp) + of.heads / tp


def channels(of: StateSpace, tp: Num) -> Num:
    """Channels of the convolution on one rank: x, and of Mamba-2 B and C; fewer groups than tp are
    copied.
    """
    shared = (
        # fewer groups than tp are copied: each rank has one
        2 * maximum(of.groups / tp, 1.0) * of.state
        if of.kind == "mamba2"
        else 0.0
    )
    return of.inner / tp + shared


def mamba2(of: StateSpace, local: Local, act: float, fused: bool) -> Op:
    """Mamba-2 over n = T / Q chunks: H heads of P channels, G groups, N states.

    Matrix FLOPs of a chunk: C B^T of each group 2 Q^2 N; of each head scores with x 2 Q^2 P, the
    state written and read 4 Q N P. Elements moved: x, B and C twice, scores of each group, states
    four times in fp32, y. Backward: twice that, and kernels make scores and states again.
    """
    Q = float(of.chunk)
    N = of.state
    P = of.inner / of.heads
    H = of.heads / local.tp / local.cp
    # fewer groups than ranks are copied: each rank scans one
    G = maximum(of.groups / local.tp / local.cp, 1.0)
    tokens = local.b * ceil_div(local.T, Q) * Q
    matrix = tokens * (2 * Q * N * G + H * (2 * Q * P + 4 * N * P))
    vector = tokens * H * (Q + 4.0 * P)
    states = 4 * H * P * N / Q * blocks.FP32 / act
    bytes_ = tokens * (3 * H * P + 4 * G * N + 2 * G * Q + states) * act
    again = 1.0 if fused else 0.0
    kept = local.tokens * (
        (of.inner / local.tp + 2 * G * local.cp * N) * act
        + H * local.cp * blocks.FP32
    )
    vectors = 3.0 * of.heads / local.tp
    return Op(
        "ssm/scan",
        "scan",
        Pass(matrix, vector, bytes_, engine="wide"),
        Pass(
            (2 + again) * matrix,
            (2 + again) * vector,
            (2 + again) * bytes_,
            engine="wide",
        ),
        saved=kept,
        inputs=kept,
        weights=vectors,
    )


def mamba(of: StateSpace, local: Local, act: float) -> Op:
    """Mamba's scan of I channels with N states each: 9 FLOPs a channel and state forward, twice and
    once again backward; reads x, dt, B and C, writes y; the states stay on the chip.
    """
    channels_ = local.b * local.T * of.inner / local.tp / local.cp
    vector = SCAN * channels_ * of.state
    bytes_ = (3 * channels_ + 2 * local.b * local.T * of.state) * act
    kept = (2 * channels_ + 2 * local.tokens * of.state) * act
    weights = of.inner / local.tp * (of.state + 1.0)
    return Op(
        "ssm/scan",
        "scan",
        Pass(0.0, vector, bytes_),
        Pass(0.0, 3 * vector, 3 * bytes_),
        saved=kept,
        inputs=kept,
        weights=weights,
    )


def selective(local: Local, of: StateSpace) -> list[Op]:
    """Step sizes, B and C from x: I channels to R + 2 N numbers (summed over tp), R to I step sizes
    with a bias.
    """
    t = local.tokens
    act = local.act
    wgt = local.wgt
    inner = of.inner / local.tp
    narrow = of.dt_rank + 2.0 * of.state
    summed = (Message("all_reduce", "tp", t * narrow * act),)
    ops = [
        linear(
            local,
            name="ssm/x",
            T=t,
            k=inner,
            n=narrow,
            matrix=Matrix(quantised=False),
            sent=Messages(forward=summed),
        )
    ]
    if of.inner_norms:
        ops.append(
            blocks.norm(
                "ssm/x norm", t, narrow, parameters=1, act=act, wgt=wgt
            )
        )
    rank = of.dt_rank
    ops.append(
        linear(
            local,
            name="ssm/dt",
            T=t,
            k=rank,
            n=inner,
            matrix=Matrix(quantised=False),
            sent=Messages(backward=summed),
        )
    )
    ops.append(
        blocks.bias(
            "ssm/dt bias",
            t,
            inner,
            act=act,
            wgt=wgt,
        )
    )
    return ops
