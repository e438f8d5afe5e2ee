"""Pipeline parallelism (Narayanan et al. 2021): each of p ranks has some layers, m microbatches
pass.

A schedule is an order of actions on each rank: F or B, of which chunk of layers, of which
microbatch. In 1F1B a rank warms up with as many forward passes as there are ranks after it, then
goes one forward, one backward, so it keeps the activations of at most p microbatches. Interleaved,
it has v chunks of layers, every p-th, and takes p microbatches through one chunk before the next;
the first rank then keeps v p + p - 1 passes through a chunk, as Megatron warms up: up to half as
much again.
Ranks idle while the pipeline fills and drains, the bubble, over the time they compute:

    bubble = (p-1) / m        interleaved: (p-1) / (v m)

Each of the p v - 1 boundaries passes a microbatch's stream forward and its gradient back:

    bytes a rank sends = 2 (p v - 1) / p * 4 b s h        (mean over the ranks)

The pipeline is flushed at the end of a step: all gradients are of the same weights (strict
semantics).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .model import Batch, Shape, StudyStep, gradients, loss
from .ring import Operator, RankRing, identity


class StudyAction(NamedTuple):
    """A pass of a microbatch through a chunk of this rank."""

    kind: str  # F or B
    chunk: int
    microbatch: int


def order(rank: int, p: int, m: int, v: int) -> list[StudyAction]:
    """1F1B (v = 1) or interleaved; m is a multiple of p if v > 1."""

    def action(kind: str, k: int) -> StudyAction:
        """The k-th forward or backward pass of the rank."""
        # p microbatches pass one chunk, the same p the next chunk, and so on
        group, place = divmod(k, p)
        chunk = group % v
        chunk = chunk if kind == "F" else v - 1 - chunk
        return StudyAction(kind, chunk, group // v * p + place)

    # microbatch 0 passes the `after` ranks below this one before it comes back, and p microbatches
    # pass each chunk before the last: so many forward passes give the bubble already. With chunks
    # Megatron warms up `after` longer, so that a message is under way while its rank runs a pass
    after = p - 1 - rank
    warm_up = min(after if v == 1 else 2 * after + (v - 1) * p, m * v)
    actions = [action("F", k) for k in range(warm_up)]
    for k in range(m * v):
        if k + warm_up < m * v:
            actions.append(action("F", k + warm_up))
        actions.append(action("B", k))
    return actions


def stages(model: nn.Sequential, count: int) -> list[nn.Module]:
    """The model in equal stretches, the embedding with the first, the head with the last."""
    each = (len(model) - 2) // count
    edges = [0, *(1 + each * k for k in range(1, count)), len(model)]
    return [model[a:b] for a, b in zip(edges, edges[1:], strict=False)]


class StudyPipeline:
    """A rank of a pipeline: its chunks, and what crosses its boundaries.

    cut, join: what becomes of a tensor before it is sent, and after it has come.
    """

    def __init__(
        self,
        chunks: Sequence[nn.Module],
        data: Sequence[Batch],
        m: Shape,
        ring: RankRing,
        cut: Operator = identity,
        join: Operator = identity,
    ) -> None:
        self.chunks, self.data, self.m, self.ring = chunks, data, m, ring
        self.cut, self.join = cut, join
        self.last = ring.size * len(chunks) - 1
        # (chunk, microbatch) in flight -> input and output, kept from its F to its B
        self.kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.loss = torch.zeros(())

    def tag(self, kind: str, stage: int, i: int) -> int:
        """A number for the message that an action waits for; 0 is that of collectives."""
        return 1 + (2 * stage + (kind == "B")) * len(self.data) + i

    def send(self, x: Tensor, kind: str, stage: int, i: int) -> None:
        self.ring.calls["P2P"] += 1
        # stages lie round the ring, so that stage p is on rank 0 again: `send` counts modulo p
        self.ring.send(self.cut(x), stage, self.tag(kind, stage, i))

    def receive(self, source: int, kind: str, stage: int, i: int) -> Tensor:
        x = torch.empty(*self.data[i].tokens.shape, self.m.hidden)
        tag = self.tag(kind, stage, i)
        return self.join(self.ring.receive(self.cut(x), source, tag))

    def forward(self, chunk: int, i: int) -> None:
        stage = chunk * self.ring.size + self.ring.rank
        if stage == 0:
            x = self.data[i].tokens
        else:
            x = self.receive(stage - 1, "F", stage, i).requires_grad_()
        y = self.chunks[chunk](x)
        if stage == self.last:
            y = loss(y, self.data[i].targets, self.m)
            self.loss += y.detach()
        else:
            self.send(y.detach(), "F", stage + 1, i)
        self.kept[chunk, i] = x, y

    def backward(self, chunk: int, i: int) -> None:
        stage = chunk * self.ring.size + self.ring.rank
        x, y = self.kept.pop((chunk, i))
        if stage == self.last:
            torch.autograd.backward(y)
        else:
            dy = self.receive(stage + 1, "B", stage, i)
            torch.autograd.backward(y, dy)
        if stage > 0:
            assert x.grad is not None
            self.send(x.grad, "B", stage - 1, i)

    def run(self, actions: Sequence[StudyAction]) -> StudyStep:
        for kind, chunk, i in actions:
            (self.forward if kind == "F" else self.backward)(chunk, i)
        self.ring.wait()
        each = [gradients(chunk) for chunk in self.chunks]
        return StudyStep(
            self.loss, {n: g for own in each for n, g in own.items()}
        )


def pp_step(
    model: nn.Sequential, data: Batch, m: Shape, ring: RankRing, v: int
) -> StudyStep:
    """One sequence a microbatch."""
    p, r = ring.size, ring.rank
    chunks = stages(model, p * v)[r::p]
    microbatches = [data.part(i, m.batch) for i in range(m.batch)]
    return StudyPipeline(chunks, microbatches, m, ring).run(
        order(r, p, m.batch, v)
    )
