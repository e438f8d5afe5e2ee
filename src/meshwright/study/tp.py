"""Tensor parallelism (Shoeybi et al. 2019): every matrix is cut over t ranks.

The first matrix of a pair is cut by columns, the second by rows, and what lies between needs no
word from the others, since GeLU and attention act on each column and each head alone:

    Y_i = GeLU(X A_i)        Z = sum over i of Y_i B_i

f stands before the pair: the identity forward, an all-reduce of the gradient backward. g stands
after it: an all-reduce forward, the identity backward. Two pairs a layer make four all-reduces of
the stream, b s h numbers of four bytes:

    bytes a rank sends = l * 4 * 2 (t-1)/t * 4 b s h

Norms, embedding and head are whole on every rank here (Megatron cuts the vocabulary too).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .model import Batch, Shape, StudyStep, blocks, gradients, loss
from .ring import RankRing, conjugate, identity

CUT = {"q": 0, "k": 0, "v": 0, "up": 0, "out": 1, "down": 1}
"""Matrix -> the dimension it is cut in. PyTorch stores A transposed: 0 are the paper's columns."""


def part(name: str, weight: Tensor, ring: RankRing) -> Tensor:
    """This rank's part of a weight of the whole model."""
    _, *module, matrix, _ = name.split(".")
    if module:  # attention or mlp
        return weight.chunk(ring.size, CUT[matrix])[ring.rank]
    return weight


def cut(model: nn.Sequential, ring: RankRing) -> None:
    """Keep this rank's parts only."""
    for name, weight in model.named_parameters():
        weight.data = part(name, weight.data, ring).clone()


def parallelize(model: nn.Sequential, ring: RankRing) -> None:
    """Cut the weights; f before each pair of matrices, g after it."""
    cut(model, ring)
    for block in blocks(model):
        block.enter = conjugate(identity, ring.all_reduce)  # f
        block.leave = conjugate(ring.all_reduce, identity)  # g


def tp_step(
    model: nn.Sequential, data: Batch, m: Shape, ring: RankRing
) -> StudyStep:
    parallelize(model, ring)
    whole = loss(model(data.tokens), data.targets, m)
    torch.autograd.backward(whole)
    return StudyStep(
        whole / ring.size, gradients(model)
    )  # all have the same loss
