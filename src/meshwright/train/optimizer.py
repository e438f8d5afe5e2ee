"""AdamW over the stages of a rank: what decays, and the state it keeps, as PyTorch makes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .settings import Settings

NORMS = (nn.RMSNorm, nn.LayerNorm)


def decays(owner: nn.Module, name: str) -> bool:
    """Whether the parameter `name` of a module decays: by its role. Biases and norms never do.

    Its dims would not tell: the biases of experts are [E, out].
    """
    return name != "bias" and not isinstance(owner, NORMS)


def adamw(
    stages: Iterable[nn.Module], s: Settings, device: torch.device
) -> torch.optim.AdamW:
    """AdamW over all stages of a rank.

    Parameters of different meshes do not mix in one call of PyTorch, so each has its group.
    """
    groups = dict[Any, dict[str, Any]]()
    for stage in stages:
        for path, p in stage.named_parameters():
            owner, _, name = path.rpartition(".")
            decay = (
                s.weight_decay or 0.0
                if decays(stage.get_submodule(owner), name)
                else 0.0
            )
            key = decay, p.device_mesh if isinstance(p, DTensor) else None
            groups.setdefault(key, {"params": [], "weight_decay": decay})[
                "params"
            ].append(p)
    fused = device.type == "cuda" or None
    betas = s.beta1, s.beta2
    return torch.optim.AdamW(
        list(groups.values()), lr=s.lr, betas=betas, eps=s.epsilon, fused=fused
    )


def ready(optimizer: torch.optim.Optimizer) -> None:
    """Let PyTorch make the state of every parameter, as zeros, unless the optimizer has run.

    As torch.distributed.checkpoint does it: a step over gradients of zero, at a learning rate of
    zero, changes no weight. What device and dtype a state has (that of `step` depends on `fused`)
    is then never ours to know. Gradients that were there are zeroed.
    """
    if optimizer.state:
        return
    every = [p for group in optimizer.param_groups for p in group["params"]]
    missing = [p for p in every if p.grad is None]
    for p in every:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad.zero_()
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for p in missing:
        p.grad = None
    for p in every:
        optimizer.state[p]["step"].zero_()
