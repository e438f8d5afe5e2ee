"""Context parallelism: the whole model on s/c tokens of every sequence, keys and values gathered.

Only attention looks at other tokens. Each rank asks with its own queries and gathers the keys and
values of all (as Llama 3 does, Grattafiori et al. 2024; ring attention, Liu et al. 2023, passes
the same parts round and uses each as it comes by). Going back, their gradients are reduce-
scattered. Then all W weights have seen a part of the tokens each, and their gradients are added
up.

    bytes a rank sends = l * 4 (c-1)/c * 4 b s h + 2 (c-1)/c * 4 W

The last rank sees most of the past and works longest; real systems give every rank an early and a
late part.
"""

from __future__ import annotations

import torch
from torch import nn

from .model import Batch, Shape, StudyStep, blocks, gradients, loss
from .ring import RankRing, conjugate
from .sp import TOKENS, begin, gather, reduce_scatter


def cp_step(
    model: nn.Sequential, data: Batch, m: Shape, ring: RankRing
) -> StudyStep:
    mine = data.part(ring.rank, ring.size, TOKENS)
    first = ring.rank * mine.tokens.shape[TOKENS]
    begin(model, first)
    for block in blocks(model):
        block.attention.first = first
        block.attention.keys = conjugate(
            gather(ring, TOKENS), reduce_scatter(ring, TOKENS)
        )
    share = loss(model(mine.tokens), mine.targets, m)
    torch.autograd.backward(share)
    added = {n: ring.all_reduce(g) for n, g in gradients(model).items()}
    return StudyStep(share, added)
