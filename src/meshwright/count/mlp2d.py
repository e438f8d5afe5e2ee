"""A block of two linear layers, D -> F -> D, with its weights sliced in both dimensions: tp_model
ways along D, tp_ff along F.

Every device holds W1[D/tp_model, F/tp_ff] and W2[F/tp_ff, D/tp_model]. A product over a sliced
dimension leaves partial sums: those of width F/tp_ff are all-reduced over tp_model, those of width
D/tp_model over tp_ff, forward and backward. There is no attention, embedding, norm or activation;
an expert sees 1/E of the tokens. Six products a block: forward, input gradient and weight gradient
of both layers. Source: Erdil & Schneider-Joseph 2024, arXiv 2411.01137, sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..describe.layers import Kind
from ..exchange.types import Message
from ..num import Num
from . import blocks
from .blocks import Messages, Numbers
from .linear import linear
from .microbatch import DeviceMicrobatch
from .work import Op


def mlp2d_layer(microbatch: DeviceMicrobatch, kind: Kind) -> list[Op]:
    """Operations of one layer for one microbatch on one device: cp is tp_model, tp is tp_ff, and
    tokens are not cut. Between layers a device has all tokens of D/tp_model features, as every
    other of its tp_ff does.
    """
    return _products(
        microbatch.layout.microbatch * microbatch.job.T,
        microbatch.model.hidden / microbatch.cp,
        microbatch.model.ffn / microbatch.tp,
        act=microbatch.act,
        matrix=partial(linear, microbatch),
    )


def block(
    tokens: Num,
    D: Num,
    F: Num,
    tp_model: Num,
    tp_ff: Num,
    *,
    act: float,
    wgt: float,
) -> list[Op]:
    """Operations of one expert of one block for one microbatch on one device.

    tokens: that reach the expert, on average.  act, wgt: bytes of an activation and of a weight.
    """
    numbers = Numbers(one=0.0, act=act, wgt=wgt)
    matrix = partial(blocks.matmul, numbers=numbers)
    return _products(tokens, D / tp_model, F / tp_ff, act=act, matrix=matrix)


def _products(
    tokens: Num, d: Num, f: Num, *, act: float, matrix: Callable[..., Op]
) -> list[Op]:
    """The two products of a device that holds W1[d, f] and W2[f, d]. matrix: counts one."""
    inner, outer = ((m,) for m in partial_sums(tokens, d, f, act))
    up = Messages(forward=inner, backward=outer)
    down = Messages(forward=outer, backward=inner)
    return [
        matrix("ffn/up", tokens, d, f, sent=up),
        matrix("ffn/down", tokens, f, d, sent=down),
    ]


def partial_sums(
    tokens: Num, d: Num, f: Num, act: float
) -> tuple[Message, Message]:
    """The all-reduces of one pass: of width f over tp_model, of width d over tp_ff."""
    return (
        Message("all_reduce", "tp_model", tokens * f * act),
        Message("all_reduce", "tp_ff", tokens * d * act),
    )


def unit(D: Num = 1.0, F: Num = 1.0) -> list[Op]:
    """The block uncut, for one token."""
    return block(1.0, D=D, F=F, tp_model=1.0, tp_ff=1.0, act=0.0, wgt=0.0)


def mlp2d_parameters(L: Num, E: Num, D: Num, F: Num) -> Num:
    """2 L E D F: all experts of all blocks."""
    return L * E * sum(op.weights for op in unit(D, F))


def training_flops(L: Num, D: Num, F: Num) -> Num:
    """FLOPs of a token, forward and backward: 6 multiply-adds of two for each weight it meets, 12 L
    D F.
    """
    return L * sum(op.forward.matrix + op.backward.matrix for op in unit(D, F))
