"""The feed-forward of a layer."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as fn

from ..describe.model import Model

ACTIVATIONS = {
    "silu": fn.silu,
    "gelu": fn.gelu,
    "gelu-tanh": partial(fn.gelu, approximate="tanh"),
    "relu": fn.relu,
}


class FeedForward(nn.Module):
    """Three matrices with a gate, or two."""

    def __init__(self, m: Model, width: int) -> None:
        super().__init__()
        self.act: Any = ACTIVATIONS[m.act]
        self.gate = (
            nn.Linear(m.hidden, width, bias=m.bias) if m.gated else None
        )
        self.up = nn.Linear(m.hidden, width, bias=m.bias)
        self.down = nn.Linear(width, m.hidden, bias=m.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        up_BTF = self.up(x_BTD)
        y_BTD: Tensor = self.down(
            self.act(up_BTF)
            if self.gate is None
            else self.act(self.gate(x_BTD)) * up_BTF
        )
        return y_BTD
