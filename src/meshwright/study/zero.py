"""ZeRO (Rajbhandari et al. 2020): data parallelism that does not keep everything n times.

Each of n ranks trains on its part of the batch. A weight costs 16 bytes: itself 4, its gradient 4,
Adam's two moments 8. (The paper's mixed precision costs 16 too, but 2 and 2, and 12 for moments and
a copy of the weight in 32 bits: its stages 1 and 2 hold 4 + 12/n and 2 + 14/n bytes, and messages
are of 2 P instead of 4 P.) P weights, over n ranks:

    stage                               bytes held a weight     bytes a rank sends
    0  all is everywhere                16                      2 (n-1)/n * 4 P
    1  the moments are cut              8 + 8/n                 2 (n-1)/n * 4 P
    2  and the gradients                4 + 12/n                2 (n-1)/n * 4 P
    3  and the weights                  16/n                    3 (n-1)/n * 4 P

All-reduced gradients are reduce-scattered instead, each rank updates its part, and the new weights
are all-gathered: the same bytes, in another order. Stage 3 gathers a layer's weights when the
layer runs, drops them, and gathers them once more for its backward pass: a third pass of all
weights. (Here recomputation gathers them again; FSDP does so without computing the layer twice.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from .model import Batch, Shape, StudyStep, adam, loss
from .ring import RankRing, conjugate
from .sp import gather, reduce_scatter

ROWS = 0
"""The dimension in which every weight is cut."""


def zero_part(name: str, weight: Tensor, ring: RankRing) -> Tensor:
    """This rank's rows of a weight, a view of it."""
    return weight.chunk(ring.size, ROWS)[ring.rank]


class Zero:
    """The weights of a model, whole or cut as the stage says."""

    def __init__(
        self, model: nn.Sequential, ring: RankRing, stage: int
    ) -> None:
        self.model, self.ring, self.stage = model, ring, stage
        self.gather, self.reduce = (
            gather(ring, ROWS),
            reduce_scatter(ring, ROWS),
        )
        self.whole = dict(model.named_parameters())
        self.shard = {
            name: nn.Parameter(zero_part(name, w.data, ring)) if stage else w
            for name, w in self.whole.items()
        }
        if stage == 3:
            self.shard = {
                name: nn.Parameter(w.data.clone())
                for name, w in self.shard.items()
            }
            self.whole = {}
            model.to("meta")  # keeps the shapes, frees the memory

    def weight(self, name: str) -> Tensor:
        """A whole weight, for a layer about to run."""
        if self.stage < 2:
            return self.whole[name]
        if self.stage == 2:
            # forward ignores the shard; it is the argument so that the reduced gradient lands on it
            held = self.whole[name].detach()
            return conjugate(lambda _: held, self.reduce)(self.shard[name])
        return conjugate(self.gather, self.reduce)(self.shard[name])

    def layer(self, i: int, x: Tensor) -> Tensor:
        names = [name for name, _ in self.model[i].named_parameters()]
        weights = {name: self.weight(f"{i}.{name}") for name in names}
        y: Tensor = functional_call(self.model[i], weights, (x,))
        return y

    def forward(self, x: Tensor) -> Tensor:
        for i in range(len(self.model)):
            if self.stage == 3:
                # autograd would keep the gathered weights until the backward pass; checkpoint
                # forgets them and calls `layer`, and so the gather, once more there
                x = checkpoint(self.layer, i, x, use_reentrant=False)
            else:
                x = self.layer(i, x)
        return x

    def update(self) -> list[Tensor]:
        """Adam on this rank's part. Returns all that the rank held: weights, gradients, moments."""
        weights = (
            self.whole or self.shard
        ).values()  # stage 3 has no whole ones
        with_gradient = (self.whole if self.stage < 2 else self.shard).values()
        had = [*weights, *map(grad, with_gradient)]
        for name, shard in self.shard.items():
            if self.stage == 0:
                shard.grad = self.ring.all_reduce(grad(shard))
            elif self.stage == 1:
                shard.grad = self.reduce(grad(self.whole[name]))
        for state in adam(self.shard.values()).state.values():
            had += [state["exp_avg"], state["exp_avg_sq"]]
        if self.stage in (1, 2):
            # a shard is a view of its rows of the whole weight: Adam has written those
            for name, whole in self.whole.items():
                whole.data.copy_(self.gather(self.shard[name].data))
        return had


def grad(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad


def zero_step(
    model: nn.Sequential, data: Batch, m: Shape, ring: RankRing, stage: int
) -> StudyStep:
    zero = Zero(model, ring, stage)
    mine = data.part(ring.rank, ring.size)
    share = loss(zero.forward(mine.tokens), mine.targets, m)
    torch.autograd.backward(share)
    held = sum(x.nbytes for x in zero.update())
    weights = {n: w.detach() for n, w in (zero.whole or zero.shard).items()}
    gradients = {n: grad(w) for n, w in zero.shard.items()}
    return StudyStep(share, gradients, weights, held)
