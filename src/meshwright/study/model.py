"""The model that every axis cuts: a decoder of four layers, a sequence of embedding, blocks, head.

A block reads the residual stream x, [B, T, D]: B sequences, T tokens, D features, and adds to it
twice:

    x = x + leave(attention(enter(norm(x))))        4 D^2 weights
    x = x + leave(mlp(enter(norm(x))))              8 D^2 weights

so a model of l layers has about 12 l D^2 (Narayanan et al. 2021, equation 2). `enter`, `leave` and
`keys` do nothing here; they are the joints at which tp, sp and cp put their collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .ring import Operator, identity


class Shape(NamedTuple):
    """Sizes of the model and of its batch."""

    layers: int = 4
    hidden: int = 32
    heads: int = 4
    vocabulary: int = 64
    batch: int = 8
    seq: int = 16

    @property
    def stream(self) -> int:
        """Bytes of the residual stream of the whole batch: b s h numbers of four bytes."""
        return 4 * self.batch * self.seq * self.hidden

    @property
    def matrices(self) -> int:
        """Weights of attention and MLP of all layers."""
        return 12 * self.layers * self.hidden**2

    @property
    def rest(self) -> int:
        """Weights of norms, embedding and head."""
        rows = 2 * self.layers + 1 + 2 * self.vocabulary + self.seq
        return rows * self.hidden


class Embedding(nn.Module):
    """Tokens [B, T] to x [B, T, D]; a rank's tokens begin at position `first`."""

    def __init__(self, m: Shape) -> None:
        super().__init__()
        self.token = nn.Embedding(m.vocabulary, m.hidden)
        self.position = nn.Embedding(m.seq, m.hidden)
        self.first = 0

    def forward(self, tokens_BT: Tensor) -> Tensor:
        at_T = torch.arange(tokens_BT.shape[1]) + self.first
        x_BTD: Tensor = self.token(tokens_BT) + self.position(at_T)
        return x_BTD


class MLP(nn.Module):
    """GeLU(x A) B, four times as wide inside."""

    def __init__(self, m: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(m.hidden, 4 * m.hidden, bias=False)
        self.down = nn.Linear(4 * m.hidden, m.hidden, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        y_BTD: Tensor = self.down(fn.gelu(self.up(x_BTD)))
        return y_BTD


class StudyAttention(nn.Module):
    """Causal attention of H heads of width h: T queries of this rank, S keys."""

    def __init__(self, m: Shape) -> None:
        super().__init__()
        self.width = m.hidden // m.heads
        self.q, self.k, self.v, self.out = (
            nn.Linear(m.hidden, m.hidden, bias=False) for _ in range(4)
        )
        self.keys: Operator = identity
        self.first = 0

    def forward(self, x_BTD: Tensor) -> Tensor:
        q_BHTh, k_BHSh, v_BHSh = (
            y.unflatten(-1, (-1, self.width)).transpose(1, 2)
            for y in (
                self.q(x_BTD),
                self.keys(self.k(x_BTD)),
                self.keys(self.v(x_BTD)),
            )
        )
        scores_BHTS = q_BHTh @ k_BHSh.mT / self.width**0.5
        past_TS = torch.ones(scores_BHTS.shape[2:]).tril(self.first) > 0
        p_BHTS = scores_BHTS.where(past_TS, -torch.inf).softmax(-1)
        y_BTD: Tensor = self.out((p_BHTS @ v_BHSh).transpose(1, 2).flatten(2))
        return y_BTD


class StudyBlock(nn.Module):
    """One layer."""

    def __init__(self, m: Shape, mlp: Callable[[Shape], nn.Module]) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(m.hidden), nn.RMSNorm(m.hidden)
        self.attention, self.mlp = StudyAttention(m), mlp(m)
        self.enter: Operator = identity
        self.leave: Operator = identity

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.leave(
            self.attention(self.enter(self.norm1(x_BTD)))
        )
        return x_BTD + self.leave(self.mlp(self.enter(self.norm2(x_BTD))))


class Head(nn.Module):
    """x [B, T, D] to logits [B, T, V]."""

    def __init__(self, m: Shape) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(m.hidden)
        self.out = nn.Linear(m.hidden, m.vocabulary, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        logits_BTV: Tensor = self.out(self.norm(x_BTD))
        return logits_BTV


def decoder(
    m: Shape, mlp: Callable[[Shape], nn.Module] = MLP
) -> nn.Sequential:
    """The whole model, with the same weights on every rank and at every call."""
    torch.manual_seed(0)
    blocks = [StudyBlock(m, mlp) for _ in range(m.layers)]
    return nn.Sequential(Embedding(m), *blocks, Head(m))


def blocks(model: nn.Sequential) -> list[StudyBlock]:
    return [layer for layer in model if isinstance(layer, StudyBlock)]


class StudyStep(NamedTuple):
    """What a rank has after a step."""

    loss: Tensor
    """Its share: those of all ranks add up to the loss of the batch."""
    gradients: dict[str, Tensor]
    """Of the weights, or parts of weights, that it holds."""
    weights: dict[str, Tensor] = {}
    """After an update by Adam, where the axis is about that."""
    held: int = 0
    """Bytes of weights, gradients and moments."""


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: weight.grad
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


def adam(weights: Iterable[Tensor]) -> torch.optim.Adam:
    """One update. Epsilon is large on purpose: at 1e-8 the rounding of a gradient near zero would
    turn a whole step round.
    """
    optimizer = torch.optim.Adam(weights, lr=1e-3, eps=1e-4)
    optimizer.step()
    return optimizer


class Batch(NamedTuple):
    """Tokens and those that follow them, [B, T] each."""

    tokens: Tensor
    targets: Tensor

    def part(self, index: int, parts: int, dim: int = 0) -> Batch:
        """One of equal parts: of the sequences (0), or of every sequence (1)."""
        return Batch(*(x.chunk(parts, dim)[index] for x in self))


def batch(m: Shape) -> Batch:
    torch.manual_seed(1)
    text = torch.randint(m.vocabulary, (m.batch, m.seq + 1))
    return Batch(text[:, :-1], text[:, 1:])


def loss(logits_BTV: Tensor, targets_BT: Tensor, m: Shape) -> Tensor:
    """What these tokens add to the mean over the whole batch: the shares of its parts add up to its
    loss, their gradients to its gradient.
    """
    total = fn.cross_entropy(
        logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="sum"
    )
    return total / (m.batch * m.seq)
