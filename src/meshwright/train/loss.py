"""Cross entropy of logits whose columns tp ranks may share, some rows at a time: no copy of all
logits in fp32 is ever made, and the gradient is as wide as the logits.

N tokens, V columns of this rank. l = log of the sum over all V of exp(logit); the loss of a token
is l less its target's logit, the gradient of a logit is exp(logit - l), less 1 at the target. Three
numbers a token cross ranks: the largest logit, the sum of exponentials, the target's logit
(Shoeybi et al. 2019, Megatron-LM, section 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from ..program.tensors import LOGITS_AT_ONCE


class Columns(NamedTuple):
    """Which of the vocabulary's columns are here."""

    first: int
    real: int
    """So many; those after them only pad the vocabulary and get no probability."""
    group: ProcessGroup | None = None
    """The tp ranks with the others."""
    z: float = 0.0
    """So many times the mean square of l is in the gradient too, and not in the loss that is shown:
    it keeps l near 0 (Chowdhery et al. 2022, PaLM, section 5).
    """


def loss(
    logits_BTV: Tensor, target_BT: Tensor, columns: Columns | None = None
) -> Tensor:
    """Mean cross entropy in fp32. columns: None where the whole vocabulary is here."""
    flat = logits_BTV.flatten(0, -2)
    columns = columns or Columns(0, flat.shape[-1])
    mean: Tensor = CrossEntropy.apply(flat, target_BT.flatten(), columns)  # type: ignore[no-untyped-call]
    return mean


class CrossEntropy(torch.autograd.Function):
    """The mean over tokens; keeps the logits as they are, and l."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, columns: Columns
    ) -> Tensor:
        """[N, V], [N] -> []."""
        largest = logits.new_full(
            target.shape, -torch.inf, dtype=torch.float32
        )
        total = torch.zeros_like(largest)
        wanted = torch.zeros_like(largest)
        place, here = places(target, columns)
        if columns.real:
            for rows in pieces(logits):
                largest[rows] = logits[rows, : columns.real].amax(-1).float()
        combine(largest, columns, dist.ReduceOp.MAX)
        if columns.real:
            for rows in pieces(logits):
                x = in_fp32(logits[rows, : columns.real])
                wanted[rows] = (
                    x.gather(1, place[rows, None])[:, 0] * here[rows]
                )
                total[rows] = x.sub_(largest[rows, None]).exp_().sum(-1)
                del x  # else it lives while the next is copied
        combine(total, columns)
        combine(wanted, columns)
        whole = total.log_().add_(largest)
        # an alias: it may be a view
        ctx.save_for_backward(logits.detach(), target, whole)
        ctx.columns = columns
        return (whole - wanted).mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of the logits, in their own numbers."""
        logits, target, whole = ctx.saved_tensors
        columns = ctx.columns
        place, here = places(target, columns)
        grad_logits = torch.empty_like(logits)
        scale = grad / len(target)
        grad_logits[:, columns.real :] = 0
        for rows in pieces(logits) if columns.real else ():
            x = (
                in_fp32(logits[rows, : columns.real])
                .sub_(whole[rows, None])
                .exp_()
            )
            if columns.z:
                x.mul_(1 + 2 * columns.z * whole[rows, None])
            x.scatter_add_(1, place[rows, None], -here[rows, None])
            grad_logits[rows, : columns.real] = x.mul_(scale)
            del x
        return grad_logits, None, None


def places(target: Tensor, columns: Columns) -> tuple[Tensor, Tensor]:
    """(column of each target on this rank, 1.0 if it is here, else 0.0)."""
    at = target - columns.first
    here = (at >= 0) & (at < columns.real)
    return at.clamp(0, max(columns.real - 1, 0)), here.float()


def pieces(logits: Tensor) -> Iterator[slice]:
    """So many rows at a time that `LOGITS_AT_ONCE` is not passed."""
    step = max(1, LOGITS_AT_ONCE // max(logits.shape[1], 1))
    return (slice(at, at + step) for at in range(0, len(logits), step))


def in_fp32(x: Tensor) -> Tensor:
    """A copy to be worked on."""
    return x.to(torch.float32, copy=True)


def combine(x: Tensor, columns: Columns, op: Any = dist.ReduceOp.SUM) -> None:
    """Combine with the other ranks, in place."""
    if columns.group is not None:
        dist.all_reduce(x, op, columns.group)
