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
from .local import Local
from .parallel import after, column_parallel, pre_norm, row_parallel
from .work import Op, Pass


def linear_attention(local: Local, kind: Kind) -> list[Op]:
    """Norm, projections, convolution, the state's way through the chunks, gate, output projection,
    residual.
    """
    m = local.model
    t = local.tokens
    of = m.linear
    assert of is not None
    act = local.act
    wgt = local.wgt
    H = of.heads / local.tp
    keys = of.keys * of.key_dim / local.tp
    values = H * of.value_dim
    ops = [pre_norm(local, "linear/norm")]
    ops += projections(local, of)
    entering = t * (2 * keys + values + gates(of) * H) * act
    if of.conv:
        wide = 2 * keys + values
        mixed = blocks.convolution(
            "linear/conv", t, wide, of.conv, act=act, wgt=wgt
        )
        ops.append(with_all_to_all(mixed, entering))
    scan = chunks(
        of,
        b=local.b,
        T=local.T,
        H=H / local.cp,
        act=act,
        fused=local.job.fused_attention,
    )
    leaving = t * values * act + (0.0 if of.conv else entering)
    ops.append(
        with_all_to_all(scan._replace(weights=of.vectors / local.tp), leaving)
    )
    if of.norm != "none":
        each, count = (of.value_dim, H) if of.norm == "head" else (values, 1.0)
        normed = blocks.norm(
            "linear/head norm", t * count, each, parameters=1, act=act, wgt=wgt
        )
        ops.append(normed)
    if of.output_gate != "none":
        width = values if of.output_gate == "element" else H
        ops.append(blocks.gate("linear/gated", t * values, t * width, act=act))
    plain = Matrix(quantised=False)
    return [
        *ops,
        row_parallel(local, name="linear/out", k=values, matrix=plain),
        *after(local, "linear", biased=False),
    ]


def projections(local: Local, of: Linear) -> list[Op]:
    """One matrix from the hidden state to all that needs no narrow matrix of its own, cut tp ways,
    and the two matrices of what does.
    """
    D = local.model.hidden
    tp = local.tp
    H = of.heads / tp
    keys = of.keys * of.key_dim / tp
    values = of.heads * of.value_dim / tp
    decay = (gates(of) - of.write_gate) * H
    gate = {"element": values, "head": H, "none": 0.0}[of.output_gate]
    ranks = (("decay", of.decay_rank, decay), ("gate", of.gate_rank, gate))
    widths = [keys, keys, values, H if of.write_gate else 0.0]
    widths += [width for _, rank, width in ranks if not rank]
    columns = tuple(
        width for width in widths if not isinstance(width, float) or width
    )
    of_all = Matrix(columns=columns)
    name = "linear/in"
    ops = [column_parallel(local, name, k=D, n=sum(widths), matrix=of_all)]
    for name, rank, width in ranks:
        if rank:
            down = linear(
                local,
                name=f"linear/{name} down",
                T=local.shard,
                k=D,
                n=rank,
                matrix=Matrix(kept=0.0),
            )
            up = column_parallel(
                local, name=f"linear/{name} up", k=rank, n=width
            )
            ops += [down._replace(source="linear/norm"), up]
    return ops


def gates(of: Linear) -> float:
    """Numbers of a token and head beside queries, keys and values: its decay, and how strongly it
    writes.
    """
    decay = {"head": 1.0, "channel": float(of.key_dim), "fixed": 0.0}[of.decay]
    return decay + (1.0 if of.write_gate else 0.0)


def chunks(of: Linear, b: Num, T: Num, H: Num, act: float, fused: bool) -> Op:
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
    n = ceil_div(T, float(of.chunk))
    C = float(of.chunk)
    k = of.key_dim
    v = of.value_dim
    tokens = b * n * C
    state = k * v / C
    delta = of.kind == "delta"
    scores, states = (2.0 * k + v, 6.0) if delta else (1.0 * k + v, 4.0)
    divisor = 2.0 * k if of.kind == "gated" else 0.0
    matrix = tokens * H * (2 * C * scores + states * k * v + divisor)
    vector = tokens * H * (C * (k + v) if delta else 2.0 * C)
    scored = C if delta else 0.0
    moved = (
        (7.0 * k + 6.0 * v if delta else 2.0 * k + 2.0 * v)
        + 2 * state
        + 4 * scored
    )
    kept = b * T * H * ((2.0 * k + v + scored) * act + gates(of) * blocks.FP32)
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
