"""Even loads for experts, in two ways that may be used together.

A loss: for each layer and sequence `coefficient` times the sum over experts of f P, where f is the
share of the sequence's choices that fell on an expert times E (1 if loads are even) and P the mean
of its probabilities (DeepSeek-AI 2024, DeepSeek-V3, equations 17-20; Fedus et al. 2021). f is a
count and has no gradient, so ranks that share a sequence exchange f alone, and the gradient is that
of one process under every layout.

The router z-loss goes with them: `z` times the mean over tokens of the square of the log of the sum
of exponentials of a router's logits (Zoph et al. 2022, ST-MoE, equation 5).

A bias, which decides the choice and not the weights: after each step it rises by `rate` for experts
with less than the mean load of the whole batch and falls for those with more (equation 16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


class Router(Protocol):
    """What balancing reads and moves of a layer of experts."""

    balance: Balance | None
    load_E: Tensor
    """How often each expert was chosen in this step."""
    favour_E: Tensor | None
    """What is added to the probabilities where experts are chosen."""


@dataclass(frozen=True)
class Balance:
    """What the layers of a rank have in common."""

    coefficient: float
    rate: float
    weight: Callable[[], float]
    """What the loss of a microbatch is multiplied by before its backward pass."""
    sequence: tuple[ProcessGroup, ...] = ()
    """Of the ranks that share a sequence."""
    batch: tuple[ProcessGroup, ...] = ()
    """Of all ranks with the same layers, axis by axis."""
    parts: int = 1
    """tp ranks that share the sequences on which one loss is taken."""
    z: float = 0.0
    """Coefficient of the router z-loss."""

    def attach(
        self, layers: Iterable[Router], experts: int, device: torch.device
    ) -> None:
        """Balance these layers."""
        for moe in layers:
            moe.balance = self
            moe.load_E = torch.zeros(experts, dtype=torch.int64, device=device)
            if self.rate:
                moe.favour_E = torch.zeros(experts, device=device)

    def pressed(
        self, moe: Router, weight_Nk: Tensor, logit_NE: Tensor, choice: Tensor
    ) -> Tensor:
        """The weights as they are; their backward pass adds that of the loss, and the loads.

        choice: [B, T k] of this rank's sequences.
        """
        B, E = len(choice), logit_NE.shape[1]
        with torch.no_grad():
            load_BE = loads(choice, E)
            f_BE = load_BE.float()
            for group in self.sequence:
                dist.all_reduce(f_BE, group=group)
            f_BE *= E / f_BE.sum(1, keepdim=True)
        P_BE = logit_NE.softmax(-1).view(B, -1, E).mean(1) / self.parts
        loss = self.coefficient * (f_BE * P_BE).sum(1).mean()
        if self.z:
            squares_N = logit_NE.logsumexp(-1).square()
            loss = loss + self.z * squares_N.mean() / self.parts
        pressed: Tensor = Pressed.apply(weight_Nk, loss, load_BE.sum(0), moe)  # type: ignore[no-untyped-call]
        return pressed

    def begin(self, layers: Iterable[Router]) -> None:
        """Before a step: nothing is counted, also where the step before was skipped."""
        for moe in layers:
            moe.load_E.zero_()

    @torch.no_grad()
    def settle(
        self, layers: Sequence[Router], used: Tensor | None = None
    ) -> None:
        """After a step: move the biases. used: 0 on the device if the step is skipped."""
        if not layers or not self.rate:
            return
        load_LE = torch.stack([moe.load_E for moe in layers]).float()
        for group in self.batch:
            dist.all_reduce(load_LE, group=group)
        move_LE = self.rate * (load_LE.mean(1, keepdim=True) - load_LE).sign()
        move_LE = move_LE if used is None else move_LE * used
        for moe, move_E in zip(layers, move_LE, strict=True):
            assert moe.favour_E is not None
            moe.favour_E += move_E


def loads(choice: Tensor, experts: int) -> Tensor:
    """How often each expert was chosen in the last dim, [..., E] (`bincount`, which GPUs are waited
    for in).
    """
    none = torch.zeros(
        *choice.shape[:-1], experts, dtype=torch.int64, device=choice.device
    )
    return none.scatter_add_(-1, choice, torch.ones_like(choice))


class Pressed(torch.autograd.Function):
    """Weights whose backward pass is that of a loss, too. Loads are counted there, for a forward
    pass may be made twice.
    """

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, loss: Tensor, load_E: Tensor, moe: Router
    ) -> Tensor:
        """The weights."""
        ctx.save_for_backward(loss, load_E)
        ctx.moe = moe
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The loss begins with what that of the batch begins with."""
        loss, load_E = ctx.saved_tensors
        ctx.moe.load_E += load_E
        of_loss = torch.full_like(loss, ctx.moe.balance.weight())
        return grad, of_loss, None, None
