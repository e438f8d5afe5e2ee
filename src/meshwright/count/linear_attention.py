"""Linear attention: a state of key x value for each head, in place of all keys.

    S_t = decay_t S_(t-1) (I - b k k^T) + b k v^T,    o_t = q_t S_t          (gated delta rule)

Kernels work through chunks of C tokens: inside a chunk as attention does, between chunks by the
state. Heads are cut tp ways like those of attention; over cp an all-to-all gives each rank whole
sequences of some of them, and takes them back.
Sources: Yang et al. 2024 (Gated DeltaNet, arXiv 2412.06464) and the kernels of
fla-org/flash-linear-attention (fla/ops/gated_delta_rule/chunk.py); MiniMax 2025 (arXiv 2501.08313)
for lightning attention; Beck et al. 2024 (xLSTM, arXiv 2405.04517) for the gated state.
"""

from __future__ import annotations

from ..describe.layers import Kind
from ..describe.mixers import Linear
from ..num import Num, ceil_div
from . import blocks
from .blocks import Matrix
from .context import with_all_to_all
from .linear import linear
from .microbatch import DeviceMicrobatch
from .parallel import after, column_parallel, pre_norm, row_parallel
from .work import Op, Pass


def linear_attention(microbatch: DeviceMicrobatch, kind: Kind) -> list[Op]:
    """Norm, projections, convolution, the state's way through the chunks, gate, output projection,
    residual.
    """
    m = microbatch.model
    t = microbatch.tokens
    mixer = m.linear
    assert mixer is not None
    act = microbatch.act
    wgt = microbatch.wgt
    H = mixer.heads / microbatch.tp
    keys = mixer.keys * mixer.key_dim / microbatch.tp
    values = H * mixer.value_dim
    ops = [pre_norm(microbatch, "linear/norm")]
    ops += projections(microbatch, mixer)
    entering = t * (2 * keys + values + gates(mixer) * H) * act
    if mixer.conv:
        wide = 2 * keys + values
        mixed = blocks.convolution(
            "linear/conv", t, wide, mixer.conv, act=act, wgt=wgt
        )
        ops.append(with_all_to_all(mixed, entering))
    scan = chunks(
        mixer,
        b=microbatch.b,
        T=microbatch.T,
        H=H / microbatch.cp,
        act=act,
        fused=microbatch.job.fused_attention,
    )
    leaving = t * values * act + (0.0 if mixer.conv else entering)
    ops.append(
        with_all_to_all(
            scan._replace(weights=mixer.vectors / microbatch.tp), leaving
        )
    )
    if mixer.norm != "none":
        each, count = (
            (mixer.value_dim, H) if mixer.norm == "head" else (values, 1.0)
        )
        normed = blocks.norm(
            "linear/head norm", t * count, each, parameters=1, act=act, wgt=wgt
        )
        ops.append(normed)
    if mixer.output_gate != "none":
        width = values if mixer.output_gate == "element" else H
        ops.append(blocks.gate("linear/gated", t * values, t * width, act=act))
    plain = Matrix(quantised=False)
    return [
        *ops,
        row_parallel(microbatch, name="linear/out", k=values, matrix=plain),
        *after(microbatch, "linear", biased=False),
    ]


def projections(microbatch: DeviceMicrobatch, mixer: Linear) -> list[Op]:
    """One matrix from the hidden state to all that needs no narrow matrix of its own, cut tp ways,
    and the two matrices of what does.
    """
    D = microbatch.model.hidden
    tp = microbatch.tp
    H = mixer.heads / tp
    keys = mixer.keys * mixer.key_dim / tp
    values = mixer.heads * mixer.value_dim / tp
    decay = (gates(mixer) - mixer.write_gate) * H
    gate = {"element": values, "head": H, "none": 0.0}[mixer.output_gate]
    ranks = (
        ("decay", mixer.decay_rank, decay),
        ("gate", mixer.gate_rank, gate),
    )
    widths = [keys, keys, values, H if mixer.write_gate else 0.0]
    widths += [width for _, rank, width in ranks if not rank]
    columns = tuple(
        width for width in widths if not isinstance(width, float) or width
    )
    of_all = Matrix(columns=columns)
    name = "linear/in"
    ops = [
        column_parallel(microbatch, name, k=D, n=sum(widths), matrix=of_all)
    ]
    for name, rank, width in ranks:
        if rank:
            down = linear(
                microbatch,
                name=f"linear/{name} down",
                T=microbatch.shard,
                k=D,
                n=rank,
                matrix=Matrix(kept=0.0),
            )
            up = column_parallel(
                microbatch, name=f"linear/{name} up", k=rank, n=width
            )
            ops += [down._replace(source="linear/norm"), up]
    return ops


def gates(mixer: Linear) -> float:
    """Numbers of a token and head beside queries, keys and values: its decay, and how strongly it
    writes.
    """
    decay = {"head": 1.0, "channel": float(mixer.key_dim), "fixed": 0.0}[
        mixer.decay
    ]
    return decay + (1.0 if mixer.write_gate else 0.0)


def chunks(
    mixer: Linear, b: Num, T: Num, H: Num, act: float, fused: bool
) -> Op:
    """The state's way through n = T / C chunks of b sequences, H heads of a key of k and a value of
    v numbers.

    Matrix FLOPs of a chunk and head: delta 2 C^2 (2 k + v) + 6 C k v (keys with keys, queries with
    keys, scores with values; the state corrects the values, answers the queries, and is written);
    otherwise 2 C^2 (k + v) + 4 C k v, and of mLSTM 2 C k for what its sums are divided by. The
    delta rule besides solves two triangular systems, C^2 (k + v), on the vector units. Backward:
    twice that, and kernels make scores and states again. Elements moved: of the five kernels of the
    delta rule, k (4 k + q + 2 w), v (v + 2 u + 2 new + o), scores and states; of the others q, k,
    v, o and states. Kept: q, k, v, their gates in fp32, and for the delta rule the scores among
    keys.
    """
    n = ceil_div(T, float(mixer.chunk))
    C = float(mixer.chunk)
    k = mixer.key_dim
    v = mixer.value_dim
    tokens = b * n * C
    state = k * v / C
    delta = mixer.kind == "delta"
    scores, states = (2.0 * k + v, 6.0) if delta else (1.0 * k + v, 4.0)
    divisor = 2.0 * k if mixer.kind == "gated" else 0.0
    matrix = tokens * H * (2 * C * scores + states * k * v + divisor)
    vector = tokens * H * (C * (k + v) if delta else 2.0 * C)
    scored = C if delta else 0.0
    moved = (
        (7.0 * k + 6.0 * v if delta else 2.0 * k + 2.0 * v)
        + 2 * state
        + 4 * scored
    )
    kept = (
        b * T * H * ((2.0 * k + v + scored) * act + gates(mixer) * blocks.FP32)
    )
    again = 1.0 if fused else 0.0
    inputs = b * T * H * (2.0 * k + v) * act
    bytes_ = tokens * H * moved * act
    return Op(
        "linear/scan",
        "scan",
        Pass(matrix, vector, bytes_, engine="wide"),
        Pass(
            (2 + again) * matrix,
            (2 + again) * vector,
            (2 + again) * bytes_,
            engine="wide",
        ),
        saved=kept,
        inputs=inputs,
    )
