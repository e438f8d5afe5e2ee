"""The update of a rank: an optimizer over its stages, AdamW or one of the user's (what decays, and
the state it keeps, as PyTorch makes it), and which gradients it may use.

A step whose gradients or loss are not finite is skipped, under every precision. Dynamic loss
scaling for fp16 is part of that: small gradients are lifted into its range, and where they leave it
the scale halves. It is the algorithm of torch.amp.GradScaler (Micikevicius et al. 2018, arXiv
1710.03740), which sees one rank's gradients only: here the decision is made from the norm over all
ranks, so it is the same everywhere under any layout, and the scale is a power of two, so scaling is
exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ..describe.training import Settings
from ..errors import BadInput
from . import registry

NORMS = (nn.RMSNorm, nn.LayerNorm)


def decays(owner: nn.Module, name: str) -> bool:
    """Whether the parameter `name` of a module decays: by its role. Biases and norms never do.

    Its dims would not tell: the biases of experts are [E, out].
    """
    return name != "bias" and not isinstance(owner, NORMS)


def optimizer(
    stages: Iterable[nn.Module], s: Settings, device: torch.device
) -> torch.optim.Optimizer:
    """One over all stages of a rank.

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
    if s.own_optimizer:
        own: torch.optim.Optimizer = registry.imported_part(
            "own_optimizer", s.own_optimizer
        )(params=list(groups.values()), lr=s.lr)
        demand_kept(own)
        return own
    fused = device.type == "cuda" or None
    betas = s.beta1, s.beta2
    return torch.optim.AdamW(
        list(groups.values()), lr=s.lr, betas=betas, eps=s.epsilon, fused=fused
    )


def ready(optimizer: torch.optim.Optimizer) -> None:
    """Let PyTorch make the state of every parameter, as zeros, unless the optimizer has run.

    A step over gradients of zero, at a learning rate of zero, changes no weight. What device and
    dtype a state has (that of `step` depends on `fused`) is then never ours to know. Gradients that
    were there are given up. PyTorch's `_init_optim_state` does the same, but calls
    `step(closure=None)`, which an optimizer of one's own need not take.
    """
    if optimizer.state:
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0 * group["lr"]
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    optimizer.step()
    optimizer.zero_grad()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
        for p in group["params"]:
            count(optimizer.state[p], 0)


def kept(p: Tensor, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """What a checkpoint keeps of the state of a parameter: what is of each of its elements, and
    single numbers, but for the count of steps.
    """
    return {
        name: x
        for name, x in state.items()
        if isinstance(x, Tensor)
        and (x.shape == p.shape or (name != "step" and not x.shape))
    }


def demand_kept(optimizer: torch.optim.Optimizer) -> None:
    """After the first step of an optimizer of the user's: BadInput if it holds what no checkpoint
    keeps, for whoever resumed from one would train otherwise without a word.
    """
    before = constants(optimizer)

    def look(optimizer: torch.optim.Optimizer, *given: Any) -> None:
        once.remove()
        now = constants(optimizer)
        lost = [name for name in now if before.get(name) != now[name]]
        for p, state in optimizer.state.items():
            fine = {"step", *kept(p, state)}
            lost += [
                name
                for name, x in state.items()
                if x is not None and name not in fine
            ]
        if lost:
            raise BadInput(
                f"train.own_optimizer keeps {lost[0]}, which no checkpoint does: numbers of each"
                " element of a weight, or one tensor without dims for a weight, are kept"
            )

    once = optimizer.register_step_post_hook(look)


def constants(optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """Settings of the groups, which a step leaves as they are, in words."""
    return {
        f"{name} of group {i}": repr(value)
        for i, group in enumerate(optimizer.param_groups)
        for name, value in group.items()
        if name not in ("params", "lr")
    }


def count(state: dict[str, Any], steps: int) -> None:
    """A parameter has been through so many steps, where its optimizer counts them."""
    if "step" in state:
        state["step"] = state["step"] * 0 + steps


Criterion = Callable[[Tensor, Tensor], Tensor]
LEAST = 2.0**-16
MOST = 2.0**40
"""Bounds of the scale; below the least a run is beyond help, above the most a loss of one would
leave fp32 when squared.
"""


class Scaler:
    """The scale of the loss, and the count of skipped updates; the same on every rank. Settings
    that say nothing have GradScaler's defaults.
    """

    def __init__(self, on: bool, s: Settings) -> None:
        """on: fp16 is trained; else the scale is 1 and stays so."""
        self.on, self.growth_steps = on, s.scale_growth
        self.scale, self.good = s.loss_scale if on else 1.0, 0
        self.skipped = 0
        self.in_a_row = 0
        """Updates skipped since the last good one that a smaller scale would not have saved."""

    def scaled(self, of: Criterion) -> Criterion:
        """The loss that backward passes start from."""
        return (
            (lambda output, target: of(output, target) * self.scale)
            if self.on
            else of
        )

    def update(self, norm: float, loss: float = 0.0) -> bool:
        """Whether the gradients may be used; the scale of the next step.

        norm: of the scaled gradients of all ranks;  loss: of the whole batch, not scaled.
        """
        if not (math.isfinite(norm) and math.isfinite(loss)):
            too_large = self.on and self.scale > 1 and math.isfinite(loss)
            self.in_a_row += not too_large
            self.good, self.skipped = 0, self.skipped + 1
            self.scale = max(self.scale / 2, LEAST) if self.on else self.scale
            return False
        self.in_a_row = 0
        self.good += self.on
        if self.on and self.good >= self.growth_steps:
            self.scale, self.good = min(self.scale * 2, MOST), 0
        return True

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps; a scale of 0 says that there was none."""
        return {
            "scale": self.scale if self.on else 0.0,
            "good": self.good,
            "skipped": self.skipped,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; from one without a scale (of a run in fp32), with the first one.
        BadInput if it is damaged.
        """
        try:
            scale = float(state["scale"])
            good = int(state["good"])
            skipped = int(state["skipped"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise BadInput(
                "the checkpoint is damaged: it has no right scaler"
            ) from None
        self.skipped = skipped
        if self.on and scale > 0:
            self.scale, self.good = scale, good
