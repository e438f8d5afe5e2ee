"""Building blocks: FLOPs, memory traffic and saved bytes of one operation, forward and backward.

Shapes are local to a device; T tokens, k inner and n outer width, x elements. `act` and `wgt` are
bytes per activation and per weight element. Source of the counts: Subramanian et al. 2024 (LBL),
Appendix A; `one` = 1 counts a dot product of length k as 2k-1 FLOPs as they do, `one` = 0 as 2k.
"""

from __future__ import annotations

from typing import NamedTuple

from ..exchange.types import Message
from ..num import Num
from .work import SUMMED, Op, Pass, Product


class Numbers(NamedTuple):
    """How a product counts, and the bytes of its numbers."""

    one: float
    """1: a dot product of length k is 2k-1 FLOPs; 0: it is 2k."""
    act: float
    """Bytes of a number of X, Y and their gradients."""
    wgt: float
    """Bytes of a weight."""
    gradient: Num | None = None
    """Bytes that one weight of dW moves. None: both products of the backward pass are one, and dW
    is written as wide as W (the papers). Else they are two kernels, each against its own roofline.
    """
    summed: Num | None = None
    """Bytes that a pass of its own moves for each weight, to add dW to what earlier microbatches
    left; None: the product itself adds it up."""
    stored: float | None = None
    """Of an element of X while it is kept (default act)."""
    sums: Num = 0.0
    """Of `gradient`, those of fp32 sums that the product itself adds to."""


class Matrix(NamedTuple):
    """What a weight matrix is besides its shape."""

    quantised: bool = True
    """In FP8 and FP4, X is kept in that precision, with its scales; not where 16 bits are kept
    anyway (the output of attention, which its own backward pass reads)."""
    kept: Num | None = None
    """Tokens of X that are kept (default T)."""
    copies: Num = 1.0
    """Weight matrices that share the T tokens (experts)."""
    expert: bool = False
    engine: str = "matrix"
    calls: float = 1.0
    """Matrices that PyTorch keeps apart and Megatron-LM side by side in one W."""
    columns: tuple[Num, ...] = ()
    """Their widths."""
    input_parts: Num = 1.0
    """Ranks of which each quantises its part of X, before they gather it."""
    gradient_parts: Num = 1.0
    """The same of dY."""


class Messages(NamedTuple):
    """Messages beside an operation."""

    forward: tuple[Message, ...] = ()
    backward: tuple[Message, ...] = ()


class AttentionShape(NamedTuple):
    """The shape of attention."""

    b: Num
    """Sequences."""
    H: Num
    """Query heads."""
    K: Num
    """Key and value heads."""
    lq: Num
    """Queries."""
    l: Num
    """Keys."""
    q: Num
    """Width of a query and a key."""
    v: Num
    """Width of a value."""
    seen: Num
    """Share of the l keys that a query attends to (1 = all; causal about 1/2)."""


class AttentionCore(NamedTuple):
    """The kernel of attention."""

    dropout: bool
    fused: bool
    """Flash attention: no scores in memory."""
    output_twice: Num
    """1 where its output is kept by itself too, beside what follows; else 0."""
    softmax: str = ""
    """Unfused: a word of `SCORES`, for what makes the softmax."""
    autograd: bool = False
    """Keys and values are kept whole (l of them), and statistics of rows in fp32; what runs it
    again keeps the plain queries, keys and values."""
    tiled: Num = 0.0
    """1 where several kernels add up the gradients of Q, K and V, in fp32."""


class SummaGrid(NamedTuple):
    """Devices of a SUMMA product, and its panels."""

    n1: Num
    n2: Num
    panels: Num


SILENT = Messages()
PLAIN = Matrix()


def matmul(
    name: str,
    T: Num,
    k: Num,
    n: Num,
    numbers: Numbers,
    matrix: Matrix = PLAIN,
    sent: Messages = SILENT,
) -> Op:
    """Y[T,n] = X[T,k] W[k,n];  dX = dY W^T;  dW = X^T dY.

    FLOPs: forward T n (2k-1); backward T k (2n-1) + k n (2T-1).
    Memory: forward X, Y, W; input gradient dY, W, dX; weight gradient X, dY and dW.
    """
    one, act, wgt, gradient, summed, stored, sums = numbers
    copies = matrix.copies
    engine = matrix.engine
    calls = matrix.calls
    weights = copies * k * n
    tokens = (T * k + T * n) * act
    saved = (
        (T if matrix.kept is None else matrix.kept)
        * k
        * (act if stored is None else stored)
    )
    d_input = Pass(
        T * k * (2 * n - one),
        memory=tokens + weights * wgt,
        products=(
            Product(
                k,
                n,
                T,
                copies=copies,
                backward=True,
                parts=matrix.gradient_parts,
            ),
        ),
        engine=engine,
    )
    d_weight = Pass(
        k * n * (2 * T - one * copies),
        memory=tokens + weights * (wgt if gradient is None else gradient),
        products=(
            Product(
                k,
                inner=n,
                tokens=T,
                weight_gradient=True,
                copies=copies,
                backward=True,
                sums=0.0 if matrix.expert else weights * sums,
                parts=matrix.input_parts,
            ),
        ),
        engine=engine,
    )
    if summed is not None:
        d_weight = then_summed(d_weight, weights * summed)
    sizes = (T / copies, k, n / calls)
    return Op(
        name,
        "matmul",
        Pass(
            T * n * (2 * k - one),
            memory=tokens + weights * wgt,
            comm=sent.forward,
            products=(
                Product(n, k, T, copies=copies, parts=matrix.input_parts),
            ),
            engine=engine,
            kernel="matmul forward",
            sizes=sizes,
            calls=calls * copies,
        ),
        Pass(
            d_input.matrix + d_weight.matrix,
            memory=d_input.memory + d_weight.memory,
            comm=sent.backward,
            products=d_input.products + d_weight.products,
            engine=engine,
            kernel="matmul backward",
            sizes=sizes,
            calls=calls * copies,
            parts=() if gradient is None else (d_input, d_weight),
        ),
        saved=saved,
        weights=weights,
        expert=matrix.expert,
        inputs=saved,
        columns=matrix.columns,
    )


def then_summed(d_weight: Pass, moved: Num) -> Pass:
    """A weight gradient, and the pass that adds it up."""
    return d_weight._replace(
        memory=d_weight.memory + moved,
        parts=(d_weight, Pass(memory=moved, kernel=SUMMED)),
    )


def bias(
    name: str,
    T: Num,
    n: Num,
    *,
    act: float,
    wgt: float,
    expert: bool = False,
    copies: Num = 1.0,
    chained: bool = False,
) -> Op:
    """Y = X + b over T tokens of width n: T n FLOPs each way, fused with its neighbours (one read
    of X, one of b). chained: what comes next reads X itself; backward dY is summed all the same.
    """
    step = Pass(0.0, T * n, T * n * act + copies * n * wgt, kernel="fused")
    return Op(
        name,
        "vector",
        step._replace(memory=copies * n * wgt) if chained else step,
        step._replace(kernel="bias backward", sizes=(T * n,)),
        weights=copies * n,
        expert=expert,
        needs=T * n * act,
    )


def weighed_bias(plain: Op, x: Num, *, act: float) -> Op:
    """Y = X + p b of x elements, p the probability of each token in 32 bits: operations of their
    own. Bytes of an element:

        forward:  p b written (4), X and p b read and the sum written (act + 8), copied (8), cast
                  (4 + act)
        backward: the gradient cast up and down (2 (act + 4)), copied (2 act), times p and summed
                  over tokens (12), times b and summed over features (12)

    Source: Megatron-LM, core/transformer/moe/experts.py, TEGroupedMLP._apply_bias (bytes: count of
    this project).
    """
    forward = Pass(0.0, 2 * x, x * (2 * act + 24), kernel="fused")
    backward = Pass(
        0.0, 6 * x, x * (4 * act + 32), kernel="bias backward", sizes=(x,)
    )
    return plain._replace(forward=forward, backward=backward)


def gelu(name: str, x: Num, *, act: float) -> Op:
    """GELU of x elements: 8 FLOPs forward, 13 backward; keeps its input."""
    return Op(
        name,
        "vector",
        Pass(
            0.0,
            8 * x,
            2 * x * act,
            kernel="gelu forward",
            sizes=(x,),
        ),
        Pass(
            0.0,
            13 * x,
            3 * x * act,
            kernel="gelu backward",
            sizes=(x,),
        ),
        saved=x * act,
        inputs=x * act,
    )


def gated_activation(
    name: str,
    x: Num,
    *,
    act: float,
    autograd: bool = False,
    passes: tuple[float, float] = (3.0, 5.0),
) -> Op:
    """SiLU(gate) * up on x elements: keeps both; autograd keeps SiLU(gate) too.

    passes: times that x elements are read or written, forward (one kernel reads both and writes the
    result) and back (it reads both and the gradient, and writes two).
    """
    kept = (3 if autograd else 2) * x * act
    return Op(
        name,
        "vector",
        Pass(
            0.0,
            9 * x,
            passes[0] * x * act,
            kernel="gate forward",
            sizes=(x,),
        ),
        Pass(
            0.0,
            15 * x,
            passes[1] * x * act,
            kernel="gate backward",
            sizes=(x,),
        ),
        saved=kept,
        inputs=2 * x * act,
    )


def clamped(activation: Op, x: Num, *, act: float) -> Op:
    """A gated activation of x elements whose gate and input are clamped in passes of their own.
    Bytes of the 2 x numbers: forward, clamped (2) and put side by side again (2); backward, both
    gradients cut out by what was clamped (3) and put side by side (2); they are kept twice.

    Source: Megatron-LM, core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl (bytes:
    count of this project).
    """
    both = 2 * x * act
    forward, backward = activation.forward, activation.backward
    return activation._replace(
        forward=forward._replace(memory=forward.memory + 4 * both),
        backward=backward._replace(memory=backward.memory + 5 * both),
        saved=activation.saved + both,
    )


def gate(name: str, x: Num, g: Num, *, act: float) -> Op:
    """sigmoid(g) x, x elements by g numbers: reads both, keeps both."""
    kept = (x + g) * act
    return Op(
        name,
        "vector",
        Pass(
            0.0,
            x + 4 * g,
            (2 * x + g) * act,
            kernel="gate forward",
            sizes=(x,),
        ),
        Pass(
            0.0,
            2 * x + 4 * g,
            (3 * x + 2 * g) * act,
            kernel="gate backward",
            sizes=(x,),
        ),
        saved=kept,
        inputs=kept,
    )


def convolution(
    name: str,
    T: Num,
    n: Num,
    taps: int,
    *,
    act: float,
    wgt: float,
    biased: bool = False,
) -> Op:
    """Each of n channels over the last few of T tokens, and SiLU: 2 taps + 4 FLOPs an element, on
    the vector units; keeps its input.
    """
    x = T * n
    weights = n * (taps + (1.0 if biased else 0.0))
    flops = (2.0 * taps + 4.0) * x
    return Op(
        name,
        "vector",
        Pass(0.0, flops, 2 * x * act + weights * wgt),
        Pass(0.0, 2 * flops, 3 * x * act + weights * wgt),
        saved=x * act,
        weights=weights,
        inputs=x * act,
    )


def dropout(name: str, x: Num, *, act: float, chained: bool = False) -> Op:
    """Dropout of x elements: reads and writes them and a mask of one byte each, which it keeps.
    chained: forward the mask alone, for the residual sum of the same kernel reads its input and
    writes the result.
    """
    step = Pass(0.0, x, x * (2 * act + 1))
    return Op(
        name,
        "vector",
        step._replace(memory=x) if chained else step,
        step,
        saved=x,
        needs=x * act,
    )


FP32 = 4.0
NORM_PARAMETERS = {
    "layernorm": 2,
    "layernorm-scale": 1,
    "rmsnorm": 1,
    "nonparametric": 0,
}
"""Parameters of a norm for each feature."""
NORM_STATISTICS = {
    "layernorm": 2,
    "layernorm-scale": 2,
    "rmsnorm": 1,
    "nonparametric": 2,
}
"""Sums over features that it takes of each token (of x and x^2, or x^2 alone); its backward pass
takes as many (of dy and dy x, or dy x alone)."""


def norm(
    name: str,
    T: Num,
    w: Num,
    *,
    parameters: int,
    act: float,
    wgt: float,
    sent: Messages = SILENT,
    autograd: bool = False,
) -> Op:
    """Layer norm (parameters = 2, or 0 without scale and shift) or RMS norm (1) of T tokens of
    width w; keeps its input.

    autograd: PyTorch's RMS norm on CPUs is made of several operations and keeps its input and the
    normalised input, both in fp32.

    FLOPs: forward 9 T w; backward 8 T w + 4 T (w-1). Memory: forward X, Y, two statistics a token;
    backward five passes.
    """
    kind = "layernorm" if parameters == 2 else "norm"
    return Op(
        name,
        "vector",
        Pass(
            0.0,
            9 * T * w,
            (2 * T * w + 2 * T) * act + parameters * w * wgt,
            sent.forward,
            kernel=f"{kind} forward",
            sizes=(T, w),
        ),
        Pass(
            0.0,
            8 * T * w + 4 * T * (w - 1),
            5 * T * w * act + parameters * w * wgt,
            sent.backward,
            kernel=f"{kind} backward",
            sizes=(T, w),
        ),
        saved=T * w * (2 * FP32 if autograd and parameters == 1 else act),
        weights=parameters * w,
        inputs=T * w * act,
    )


def residual(name: str, x: Num, *, act: float) -> Op:
    """X + Y over x elements; its backward pass adds two gradients."""
    step = Pass(
        0.0,
        x,
        3 * x * act,
        kernel="add forward",
        sizes=(x,),
    )
    return Op(
        name,
        "vector",
        step,
        step._replace(kernel="add backward"),
        needs=x * act,
    )


def attention(
    name: str,
    heads: AttentionShape,
    kernel: AttentionCore,
    one: float,
    act: float,
    sent: Messages = SILENT,
) -> Op:
    """softmax(Q K^T) V for b sequences: H query and K key/value heads, lq queries and l keys, head
    widths q (query, key) and v (value).

    P = b H lq l seen scores;  R = b H lq rows. FLOPs: forward 2 P q + 2 P v; backward dQ, dK, dA,
    dV and, when fused (flash), Q K^T again. Softmax: vector units. Unfused kernels write the P
    scores to memory and keep them (2 bytes; with dropout 5: mask and result too).
    """
    b, H, K, lq, l, q, v, seen = heads
    dropout, fused, output_twice, made, autograd, tiled = kernel
    R = b * H * lq
    P = R * l * seen
    qo = b * H * lq * (q + v)
    kv = b * K * l * (q + v)
    kv_here = b * K * lq * (q + v)
    softmax = 2 * P + R * (l * seen - 1)
    drop = P if dropout else 0.0
    # flash attention computes the scores a second time in backward
    again = 1 if fused else 0
    matrix_back = 2 * P * (2 * q + 2 * v + again * q) - one * (
        b * H * lq * q + b * H * l * q + P + b * H * l * v + again * P
    )
    vector_back = 3 * P + R * (l * seen - 1) + drop + again * (softmax + drop)
    score_bytes = 0.0 if fused else P * act
    reads = score_passes(dropout, made)
    kept = qo + kv_here + 2 * R
    sizes = (b * H, l * l, lq / l, q)
    plain = b * H * lq * q + kv_here
    inputs = plain
    if autograd:
        inputs = b * H * lq * q + kv
        kept = qo + kv + R * FP32 / act
    engines = (
        ("attention forward", "attention backward")
        if fused
        else ("wide", "wide")
    )
    return Op(
        name,
        "attention",
        Pass(
            P * (2 * q - one) + 2 * P * v - one * b * H * lq * v,
            softmax + drop,
            (qo + kv + R) * act + reads[0] * score_bytes,
            sent.forward,
            engine=engines[0],
            kernel="attention forward",
            sizes=sizes,
            keys=l * seen,
        ),
        Pass(
            matrix_back,
            vector_back,
            (kv + qo + kept) * act + reads[1] * score_bytes,
            sent.backward,
            engine=engines[1],
            kernel="attention backward",
            sizes=sizes,
            keys=l * seen,
        ),
        saved=(kept - (1.0 - output_twice) * (b * H * lq * v)) * act
        + (0.0 if fused else P * (2 * act + 1 if dropout else act)),
        selective=autograd or not fused,
        inputs=inputs * act,
        needs=plain * act,
        scratch=tiled * inputs * FP32,
    )


SCORES = {
    "": (5.0, 8.0),
    "causal": (3.5, 6.0),
    "fp32": (1 + 36 / 2 + 1, 2 + 48 / 2 + 2),
}
"""Times that unfused attention reads or writes the P scores of 2 bytes, forward and backward, by
what makes the softmax: LBL's count (Table A1); a kernel for causal masks; passes of torch."""


def score_passes(dropout: bool, softmax: str) -> tuple[float, float]:
    """`SCORES`, and what dropout adds to Megatron-LM's: it reads 1 and writes 1 and a mask of one
    byte (0.5), both ways.

    Forward a product writes the scores and one reads them; backward dV and dP, then dQ and dK. In
    between, "causal" reads the half that the mask leaves and writes all: 1.5, and backward 2.
    "fp32" casts (2 + 4 bytes), scales, masks in place and takes the softmax (4 + 4 each), casts
    back (4 + 2): 36 bytes; backward it casts, undoes the softmax (4 + 4 + 4), clones and masks
    (4 + 4 twice), scales and casts: 48. Source: Megatron-LM@ec202742,
    megatron/fused_kernels/scaled_upper_triang_masked_softmax.h, megatron/model/fused_softmax.py
    (the branch without that kernel).
    """
    forward, backward = SCORES[softmax]
    drop = 2.5 if dropout and softmax else 0.0
    return forward + drop, backward + drop


def summa_matmul(
    name: str, T: Num, k: Num, n: Num, grid: SummaGrid, numbers: Numbers
) -> Op:
    """Y[T,n/n1] = X[T,k] W[k,n/n1] on an n1 x n2 grid by SUMMA in `panels` panels; T tokens local,
    k the whole inner width.

    Each device keeps X[T,k/n1] and W[k/n2,n/n1]. Forward broadcasts X over n1 and W over n2;
    backward broadcasts W (n2) and X (n1) and reduces dX (n1) and dW (n2). The output is written
    once a panel. FLOPs: forward 2 T N k; backward T k (2N-1) + k N (2T-1), N = n/n1. The panels of
    both products stay one pass.
    """
    n1, n2, panels = grid
    one, act, wgt, gradient, _, stored, _ = numbers
    N = n / n1
    x_bytes = T * k * act
    w_bytes = k * N * wgt
    memory = x_bytes + w_bytes + panels * T * N * act
    weights = (k / n2) * N
    summed = 0.0 if gradient is None else weights * (gradient - wgt)
    b1 = Message("broadcast", "tp", x_bytes)
    b2 = Message("broadcast", "cp", w_bytes)
    r1 = Message("reduce", "tp", x_bytes)
    r2 = Message("reduce", "cp", w_bytes)
    return Op(
        name,
        "matmul",
        Pass(2 * T * N * k, 0.0, memory, (b1, b2)),
        Pass(
            T * k * (2 * N - one) + k * N * (2 * T - one),
            0.0,
            2 * memory + summed,
            (b2, r1, b1, r2),
        ),
        saved=T * (k / n1) * (act if stored is None else stored),
        weights=weights,
        panels=panels,
        inputs=T * (k / n1) * (act if stored is None else stored),
    )
