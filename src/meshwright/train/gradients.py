"""Between backward pass and update: gradients made whole, tied matrices summed, the norm over all
ranks, clipping.
"""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.utils import get_total_norm

from ..describe.layout import Layout
from .initial import local
from .model import Decoder


def settle(stages: dict[int, Decoder], layout: Layout) -> None:
    """Give gradients the placement of their parameters: tp ranks hold parts of the sum for norms on
    sequence shards.

    Those of experts are means over edp ranks of what came from all tokens; the loss is a mean over
    dp x cp replicas.
    """
    of_experts = float(layout.expert_replicas / layout.replicas)
    for stage in stages.values():
        if of_experts != 1:
            for p in (
                p for experts in stage.experts for p in experts.parameters()
            ):
                local(grad(p)).mul_(of_experts)
        for p in stage.parameters():
            if (
                isinstance(p, DTensor)
                and isinstance(p.grad, DTensor)
                and p.grad.placements != p.placements
            ):
                p.grad = p.grad.redistribute(placements=p.placements)


class Tied:
    """An embedding and an output head that share a matrix but stand on different stages: their
    gradients are summed. Their ranks exchange them in the group of the pp axis, as stages do, so
    that no pair needs a group of its own.
    """

    def __init__(
        self,
        stages: dict[int, Decoder],
        last_rank: int,
        stages_group: ProcessGroup,
    ) -> None:
        """last_rank: place on the pp axis of the last stage;  stages_group: the ranks of that
        axis.
        """
        self.embedding = next(
            (
                s.embedding.weight
                for s in stages.values()
                if s.embedding is not None
            ),
            None,
        )
        self.head = next(
            (s.head.weight for s in stages.values() if s.head is not None),
            None,
        )
        self.group = stages_group
        self.other = (
            None
            if not last_rank
            else last_rank
            if self.embedding is not None
            else 0
        )
        """Place of the rank that holds the other one; None if this one does."""

    def sum(self) -> None:
        """Add up the two gradients, in place, on both stages."""
        mine = [p for p in (self.embedding, self.head) if p is not None]
        if self.other is not None:
            for p in mine:
                local(grad(p)).add_(self.exchanged(local(grad(p))))
        elif len(mine) == 2 and mine[0] is not mine[1]:
            both = local(grad(mine[0])) + local(grad(mine[1]))
            for p in mine:
                local(grad(p)).copy_(both)

    def exchanged(self, x: Tensor) -> Tensor:
        """What the other rank holds; it gets what this one does."""
        there = dist.get_global_rank(self.group, self.other or 0)
        received = torch.empty_like(x)
        both = (
            dist.P2POp(dist.isend, x.contiguous(), there, self.group),
            dist.P2POp(dist.irecv, received, there, self.group),
        )
        for work in dist.batch_isend_irecv([*both]):
            work.wait()
        return received


def grad(p: Tensor) -> Tensor:
    """The gradient of a parameter that has one."""
    assert p.grad is not None
    return p.grad


def squares(stages: dict[int, Decoder], layout: Layout) -> Tensor:
    """Sum of the squares of this rank's gradients, such that the sum over all ranks counts every
    element once; fp64.

    An element that c ranks of the stage hold counts 1/c on each; the second copy of a tied matrix
    does not count.
    """
    by_share: dict[float, list[Tensor]] = {}
    holders = float(layout.tp * layout.cp * layout.dp)
    for stage in stages.values():
        for name, p in stage.named_parameters():
            if name != "head.weight" or not stage.m.tied_embeddings:
                by_share.setdefault(shards(p) / holders, []).append(
                    local(grad(p))
                )
    parts = [share * square(grads) for share, grads in by_share.items()]
    return (
        torch.stack(parts).sum()
        if parts
        else torch.zeros((), dtype=torch.float64)
    )


def square(grads: list[Tensor]) -> Tensor:
    """Sum of the squares of all elements; fp64, made from the norm of each tensor, so without
    copies.
    """
    return get_total_norm(grads).double().square()


def shards(p: Tensor) -> int:
    """Into how many different parts the ranks of its mesh cut a parameter."""
    if not isinstance(p, DTensor):
        return 1
    sizes = zip(p.device_mesh.shape, p.placements, strict=True)
    return math.prod(
        size for size, how in sizes if not isinstance(how, Replicate)
    )


@torch.no_grad()
def scale_gradients(
    stages: dict[int, Decoder], factor: float | Tensor
) -> None:
    """Multiply all gradients, in place. A factor on the device is not waited for."""
    torch._foreach_mul_(
        [
            local(grad(p))
            for stage in stages.values()
            for p in stage.parameters()
        ],
        factor,
    )
