"""Sequence parallelism (Korthikanti et al. 2022): what tp leaves whole is cut by tokens.

Between the pairs of matrices each rank keeps s/t tokens of the stream, so norms and residuals take
1/t of the memory. An all-gather stands in the place of f (backward: a reduce-scatter; the paper's
g), a reduce-scatter in that of g (backward: an all-gather; the paper's g with a bar). An all-reduce
is the one after the other, so the layers send what they send under tp. The W weights that are whole
on every rank have seen a part of the tokens each: their gradients are added up.

Autograd keeps the gathered input of each pair whole here. The paper keeps 1/t of it and gathers it
once more in the backward pass, while a product runs.

    bytes a rank sends = l * 8 (t-1)/t * 4 b s h + 2 (t-1)/t * 4 W
"""

from __future__ import annotations

import torch
from torch import nn

from . import tp
from .model import Batch, Embedding, Shape, StudyStep, blocks, gradients, loss
from .ring import Operator, RankRing, conjugate

TOKENS = 1
"""The dimension of x [B, T, D] that is cut."""
part = tp.part


def gather(ring: RankRing, dim: int) -> Operator:
    """A rank's part to the whole."""
    return lambda x: torch.cat(ring.all_gather(x), dim)


def reduce_scatter(ring: RankRing, dim: int) -> Operator:
    """Summands of the whole to a rank's part of their sum."""
    return lambda x: ring.reduce_scatter(x.chunk(ring.size, dim))


def sp_step(
    model: nn.Sequential, data: Batch, m: Shape, ring: RankRing
) -> StudyStep:
    sizes = {name: w.numel() for name, w in model.named_parameters()}
    tp.cut(model, ring)
    whole, shard = gather(ring, TOKENS), reduce_scatter(ring, TOKENS)
    for block in blocks(model):
        block.enter = conjugate(whole, shard)  # in place of f
        block.leave = conjugate(shard, whole)  # in place of g
    mine = data.part(ring.rank, ring.size, TOKENS)
    begin(model, ring.rank * mine.tokens.shape[TOKENS])
    share = loss(model(mine.tokens), mine.targets, m)
    torch.autograd.backward(share)
    for name, weight in model.named_parameters():
        if weight.grad is not None and weight.numel() == sizes[name]:
            weight.grad = ring.all_reduce(weight.grad)
    return StudyStep(share, gradients(model))


def begin(model: nn.Sequential, first: int) -> None:
    """The position in the sequence at which this rank's tokens begin."""
    for layer in model:
        if isinstance(layer, Embedding):
            layer.first = first
