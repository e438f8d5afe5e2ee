"""Small decoders as people write them, each with its own ways, and PyTorch's counts of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from meshwright import Model, parameters
from meshwright.count.model import operations

V, D, H, L, T = 384, 128, 4, 3, 192
W = D // H


class Scale(nn.Module):
    """A norm by the root of the mean square, in 32 bits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return wide.type_as(x) * self.gain


def turned(x: Any) -> Any:
    """Rotary positions, with an angle table made on the way and no device named."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half) / half)
    angles = torch.outer(torch.arange(x.shape[-2]), rates)
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    """Queries, keys and values by matrices of their own; `kv` heads of them are kept."""

    def __init__(self, kv: int = H, way: str = "fused") -> None:
        super().__init__()
        self.q, self.o = nn.Linear(D, D, False), nn.Linear(D, D, False)
        self.k, self.v = (nn.Linear(D, kv * W, False) for _ in range(2))
        self.kv, self.way = kv, way
        if way == "window":
            self.sliding_window = 48
        if way == "normed":
            self.nq, self.nk = Scale(W), Scale(W)

    def heads(self, x: Any, count: int) -> Any:
        return x.view(x.shape[0], x.shape[1], count, W).transpose(1, 2)

    def forward(self, x: Any) -> Any:
        q, k, v = (
            self.heads(self.q(x), H),
            self.heads(self.k(x), self.kv),
            self.heads(self.v(x), self.kv),
        )
        if self.way == "normed":
            q, k = self.nq(q), self.nk(k)
        if self.way != "bias":
            q, k = turned(q), turned(k)
        k, v = (t.repeat_interleave(H // self.kv, dim=1) for t in (k, v))
        if self.way in ("fused", "normed"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = self.weights(q @ k.mT / math.sqrt(W)) @ v
        return self.o(y.transpose(1, 2).flatten(2))

    def weights(self, scores: Any) -> Any:
        """Scores -> weights over the keys that a query may see."""
        row = torch.arange(scores.shape[-1])
        behind = row[:, None] - row
        hidden = behind < 0
        if self.way == "window":
            hidden = hidden | (behind >= self.sliding_window)
        if self.way == "bias":  # distances, steeper from head to head
            slopes = 2.0 ** (-8 * torch.arange(1, H + 1) / H)
            scores = scores - (slopes[:, None, None] * behind).to(scores)
        if self.way == "capped":
            scores = 30 * torch.tanh(scores / 30)
        scores = scores.masked_fill(hidden.to(scores.device), -torch.inf)
        return scores.softmax(-1)


class Merged(nn.Module):
    """One matrix for queries, keys and values, as nanoGPT writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Any) -> Any:
        parts = self.qkv(x).split(D, dim=2)
        q, k, v = (t.unflatten(-1, (H, W)).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))


class Latent(nn.Module):
    """Keys and values of all heads from one narrow vector a token."""

    def __init__(self, narrow: int = 32) -> None:
        super().__init__()
        self.q, self.down = nn.Linear(D, D), nn.Linear(D, narrow)
        self.up, self.o = nn.Linear(narrow, 2 * D), nn.Linear(D, D)

    def forward(self, x: Any) -> Any:
        parts = (self.q(x), *self.up(self.down(x)).chunk(2, -1))
        q, k, v = (t.unflatten(-1, (H, W)).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))


class Decay(nn.Module):
    """No attention: a state that fades, as a sum over all tokens before."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(D, 2 * D), nn.Linear(D, D)
        self.rate = nn.Parameter(torch.zeros(D))

    def forward(self, x: Any) -> Any:
        value, gate = self.into(x).chunk(2, -1)
        steps = torch.arange(x.shape[1]).to(x)[:, None]
        fading = torch.exp(-F.softplus(self.rate) * steps / 64)
        state = torch.cumsum(value / fading.clamp_min(1e-4), 1) * fading
        return self.out(state * F.silu(gate))


class Plain(nn.Sequential):
    """Two matrices."""

    def __init__(self, act: nn.Module, bias: bool = True) -> None:
        super().__init__(
            nn.Linear(D, 4 * D, bias), act, nn.Linear(4 * D, D, bias)
        )


class Squared(nn.Module):
    def forward(self, x: Any) -> Any:
        return F.relu(x).square()


class Gated(nn.Module):
    """Three matrices."""

    def __init__(self, width: int = 320) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(D, width, False) for _ in range(2))
        self.down = nn.Linear(width, D, False)

    def forward(self, x: Any) -> Any:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Sorted(nn.Module):
    """Experts as stacks of matrices; tokens sorted by expert, as many to each as chose it."""

    def __init__(self, experts: int = 8, k: int = 2) -> None:
        super().__init__()
        self.E, self.k = experts, k
        self.router = nn.Linear(D, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, 2 * D, D) / 16)
        self.down = nn.Parameter(torch.randn(experts, D, 2 * D) / 16)

    def forward(self, x: Any) -> Any:
        flat = x.flatten(0, 1)
        share, chosen = self.router(flat).softmax(-1).topk(self.k)
        marks = torch.zeros(flat.shape[0], self.E, device=x.device)
        sizes = marks.scatter(1, chosen, 1).long().sum(0).tolist()
        order = chosen.flatten().argsort()
        token = order // self.k
        parts = flat[token].split(sizes)
        made = torch.cat(
            [
                F.linear(F.gelu(F.linear(part, self.up[e])), self.down[e])
                for e, part in enumerate(parts)
            ]
        )
        made = made * share.flatten()[order, None].to(made)
        return torch.zeros_like(flat).index_add(0, token, made).view_as(x)


class Block(nn.Module):
    """Attention and feed-forward on a residual stream, one after the other or side by side."""

    def __init__(
        self, mix: nn.Module, ffn: nn.Module, norm: Any, beside: bool = False
    ) -> None:
        super().__init__()
        self.n1, self.n2, self.mix, self.ffn = norm(D), norm(D), mix, ffn
        self.beside = beside

    def forward(self, x: Any) -> Any:
        if self.beside:
            one = self.n1(x)
            return x + self.mix(one) + self.ffn(one)
        x = x + self.mix(self.n1(x))
        return x + self.ffn(self.n2(x))


class Net(nn.Module):
    def __init__(
        self,
        blocks: list[nn.Module],
        tied: bool = False,
        learned: bool = False,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(V, D)
        self.places = nn.Embedding(T, D) if learned else None
        self.blocks = nn.ModuleList(blocks)
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: Any, targets: Any = None) -> Any:
        x = self.embed(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, V), targets.view(-1))


def net(kind: str = "gpt", code: type[Net] = Net) -> Net:
    """A decoder, small and with random numbers; its own code where it has some."""
    torch.manual_seed(0)
    gelu = nn.GELU()
    mixes = {
        "gpt": lambda i: Merged(),
        "llama": lambda i: Attention(kv=2),
        "alibi": lambda i: Attention(way="bias"),
        "parallel": lambda i: Attention(kv=1),
        "windows": lambda i: Attention(way="capped" if i % 2 else "window"),
        "normed": lambda i: Attention(way="normed"),
        "latent": lambda i: Latent(),
        "state": lambda i: Decay(),
        "experts": lambda i: Attention(),
        "hybrid": lambda i: Attention(kv=2) if i == 1 else Decay(),
    }
    plain = {"gpt", "alibi", "parallel", "latent"}

    def ffn(i: int) -> nn.Module:
        if kind == "experts" and i:
            return Sorted()
        if kind == "normed":
            return Plain(Squared(), bias=False)
        return Plain(gelu) if kind in plain else Gated()

    norm = nn.LayerNorm if kind in plain else Scale
    blocks = [
        Block(mixes[kind](i), ffn(i), norm, kind == "parallel")
        for i in range(L)
    ]
    return code(blocks, kind in ("gpt", "windows"), kind == "gpt")


def row(length: int) -> Any:
    """One sequence of tokens."""
    return torch.zeros(1, length, dtype=torch.long)


def demand_counted(
    model: Model, module: nn.Module, lengths: tuple[int, ...] = (64, 150, T)
) -> None:
    """Parameters are the module's own, products those that PyTorch counts on numbers."""
    assert parameters(model) == sum(p.numel() for p in module.parameters())
    for length in lengths:
        math_only = sdpa_kernel(SDPBackend.MATH)  # as products that count
        with math_only, FlopCounterMode(display=False) as counter:
            module(torch.randint(0, V, (1, length)))
        ours = sum(
            float(op.forward.matrix) * n for op, n in operations(model, length)
        )
        assert ours == pytest.approx(counter.get_total_flops(), rel=1e-6)
