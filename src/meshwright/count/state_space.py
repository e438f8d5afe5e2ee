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
from ..exchange.types import Message
from ..num import Num, ceil_div, maximum
from . import blocks
from .blocks import Matrix, Messages
from .context import with_all_to_all
from .linear import linear
from .microbatch import DeviceMicrobatch
from .parallel import after, column_parallel, pre_norm, row_parallel
from .work import Op, Pass

SCAN = 9.0
"""FLOPs of a channel and state of Mamba's scan: discretise, decay, add, read out (Gu & Dao 2023,
section 3.3 and appendix D count O(B L D N); the factor is that of the operations written out).
"""


def state_space(microbatch: DeviceMicrobatch, kind: Kind) -> list[Op]:
    """Norm, projections, convolution, the state's way through the sequence, gate, output
    projection, residual.
    """
    m = microbatch.model
    t = microbatch.tokens
    ssm = m.ssm
    assert ssm is not None
    act = microbatch.act
    wgt = microbatch.wgt
    tp = microbatch.tp
    inner = ssm.inner / microbatch.tp
    wide = into(ssm, tp)
    ops = [
        pre_norm(microbatch, "ssm/norm"),
        column_parallel(microbatch, name="ssm/in", k=m.hidden, n=wide),
    ]
    if ssm.bias:
        ops.append(blocks.bias("ssm/in bias", t, wide, act=act, wgt=wgt))
    through = blocks.convolution(
        "ssm/conv",
        t,
        channels(ssm, tp),
        ssm.conv,
        act=act,
        wgt=wgt,
        biased=ssm.conv_bias,
    )
    ops.append(with_all_to_all(through, t * (wide - inner) * act))
    ops += selective(microbatch, ssm) if ssm.kind == "mamba" else []
    scan = (
        mamba2(ssm, microbatch, act, microbatch.job.fused_attention)
        if ssm.kind == "mamba2"
        else mamba(ssm, microbatch, act)
    )
    ops.append(with_all_to_all(scan, t * inner * act))
    gated = blocks.gate("ssm/gated", t * inner, t * inner, act=act)
    ops.append(gated._replace(source="ssm/scan"))
    if ssm.norm and ssm.kind == "mamba2":
        ops.append(
            blocks.norm(
                "ssm/inner norm", t, inner, parameters=1, act=act, wgt=wgt
            )
        )
    return [
        *ops,
        row_parallel(
            microbatch,
            name="ssm/out",
            k=inner,
            matrix=Matrix(quantised=False),
        ),
        *after(microbatch, "ssm", biased=ssm.bias),
    ]


def into(ssm: StateSpace, tp: Num) -> Num:
    """Columns of the first projection: x and its gate, and of Mamba-2 B, C and a step a head."""
    if ssm.kind == "mamba":
        return 2 * ssm.inner / tp
    return ssm.inner / tp + channels(ssm, tp) + ssm.heads / tp


def channels(ssm: StateSpace, tp: Num) -> Num:
    """Channels of the convolution on one rank: x, and of Mamba-2 B and C; fewer groups than tp are
    copied.
    """
    shared = (
        # fewer groups than tp are copied: each rank has one
        2 * maximum(ssm.groups / tp, 1.0) * ssm.state
        if ssm.kind == "mamba2"
        else 0.0
    )
    return ssm.inner / tp + shared


def mamba2(
    ssm: StateSpace, microbatch: DeviceMicrobatch, act: float, fused: bool
) -> Op:
    """Mamba-2 over n = T / Q chunks: H heads of P channels, G groups, N states.

    Matrix FLOPs of a chunk: C B^T of each group 2 Q^2 N; of each head scores with x 2 Q^2 P, the
    state written and read 4 Q N P. Elements moved: x, B and C twice, scores of each group, states
    four times in fp32, y. Backward: twice that, and kernels make scores and states again.
    """
    Q = float(ssm.chunk)
    N = ssm.state
    P = ssm.inner / ssm.heads
    H = ssm.heads / microbatch.tp / microbatch.cp
    # fewer groups than ranks are copied: each rank scans one
    G = maximum(ssm.groups / microbatch.tp / microbatch.cp, 1.0)
    tokens = microbatch.b * ceil_div(microbatch.T, Q) * Q
    matrix = tokens * (2 * Q * N * G + H * (2 * Q * P + 4 * N * P))
    vector = tokens * H * (Q + 4.0 * P)
    states = 4 * H * P * N / Q * blocks.FP32 / act
    bytes_ = tokens * (3 * H * P + 4 * G * N + 2 * G * Q + states) * act
    again = 1.0 if fused else 0.0
    kept = microbatch.tokens * (
        (ssm.inner / microbatch.tp + 2 * G * microbatch.cp * N) * act
        + H * microbatch.cp * blocks.FP32
    )
    vectors = 3.0 * ssm.heads / microbatch.tp
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


def mamba(ssm: StateSpace, microbatch: DeviceMicrobatch, act: float) -> Op:
    """Mamba's scan of I channels with N states each: 9 FLOPs a channel and state forward, twice and
    once again backward; reads x, dt, B and C, writes y; the states stay on the chip.
    """
    channels_ = (
        microbatch.b * microbatch.T * ssm.inner / microbatch.tp / microbatch.cp
    )
    vector = SCAN * channels_ * ssm.state
    bytes_ = (
        3 * channels_ + 2 * microbatch.b * microbatch.T * ssm.state
    ) * act
    kept = (2 * channels_ + 2 * microbatch.tokens * ssm.state) * act
    weights = ssm.inner / microbatch.tp * (ssm.state + 1.0)
    return Op(
        "ssm/scan",
        "scan",
        Pass(0.0, vector, bytes_),
        Pass(0.0, 3 * vector, 3 * bytes_),
        saved=kept,
        inputs=kept,
        weights=weights,
    )


def selective(microbatch: DeviceMicrobatch, ssm: StateSpace) -> list[Op]:
    """Step sizes, B and C from x: I channels to R + 2 N numbers (summed over tp), R to I step sizes
    with a bias.
    """
    t = microbatch.tokens
    act = microbatch.act
    wgt = microbatch.wgt
    inner = ssm.inner / microbatch.tp
    narrow = ssm.dt_rank + 2.0 * ssm.state
    summed = (Message("all_reduce", "tp", t * narrow * act),)
    ops = [
        linear(
            microbatch,
            name="ssm/x",
            T=t,
            k=inner,
            n=narrow,
            matrix=Matrix(quantised=False),
            sent=Messages(forward=summed),
        )
    ]
    if ssm.inner_norms:
        ops.append(
            blocks.norm(
                "ssm/x norm", t, narrow, parameters=1, act=act, wgt=wgt
            )
        )
    rank = ssm.dt_rank
    ops.append(
        linear(
            microbatch,
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
