"""The decoder that is trained: GPT and Llama families, or any stretch of layers of one as a
pipeline stage.

Tensors carry their shape as a suffix: B sequences, T tokens of this rank, S tokens attended to, D
hidden, H heads, K kv heads, h head width, V vocabulary. Under tensor parallelism H, K and V are
this rank's share, and T of the residual stream too if sequences are sharded. Parameters have the
same (global) name on every stage: layers.3.attention.wq.weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend

from ..count.model import kinds
from ..describe.layers import Kind
from ..describe.model import Model
from ..program.tiles import Documents, seen_window, tiles
from .attention import FLASH_FIRST, Rows, attend, kernel_order
from .moe import Experts, FeedForward, MixtureOfExperts
from .recompute import WAYS

Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of each position's angles, [T, 1, r/2], r the rotated features of a head."""


def _norm(m: Model, width: int = 0) -> nn.Module:
    """The model's norm over its hidden state, or over `width` features (heads: always RMSNorm)."""
    if m.norm == "rmsnorm" or width:
        return nn.RMSNorm(width or m.hidden, m.norm_epsilon)
    return nn.LayerNorm(
        m.hidden, m.norm_epsilon, elementwise_affine=m.norm != "nonparametric"
    )


def frequencies(m: Model, device: torch.device) -> Tensor:
    """Radians a token of each pair: base^(-2i/r), i = 0 .. r/2 - 1, of the r rotated features of a
    head, scaled as the model says.

    llama3: a frequency that turns t times within the original length is divided by `factor` if t <
    low, kept if t > high, and in between mixed linearly in t (transformers, modeling_rope_utils.py,
    _compute_llama3_parameters).
    """
    f = 1.0 / m.rope_base ** (
        torch.arange(0, m.rotary, 2, dtype=torch.float32, device=device)
        / m.rotary
    )
    if (s := m.rope_scaling) is None:
        return f
    if s.kind == "linear":
        return f / s.factor
    kept = ((s.original * f / (2 * math.pi) - s.low) / (s.high - s.low)).clamp(
        0, 1
    )
    return f * kept + f / s.factor * (1 - kept)


def positions(at: tuple[range, ...], device: torch.device) -> Tensor:
    """The positions of a rank's tokens, one after the other."""
    return torch.cat(
        [torch.arange(part.start, part.stop, device=device) for part in at]
    )


def rotation(
    m: Model, at: tuple[range, ...], device: torch.device, dtype: torch.dtype
) -> Rotation:
    """Angles of these positions: position * frequency; in the numbers of the hidden states, else
    FSDP copies them for every layer.
    """
    angle_Th = torch.outer(
        positions(at, device).float(), frequencies(m, device)
    )[:, None]
    return angle_Th.cos().to(dtype), angle_Th.sin().to(dtype)


def rotate(x_BTHh: Tensor, by: Rotation) -> Tensor:
    """Turn the pairs (i, i + r/2) of the first r features of each head by its position's angles."""
    cos, sin = by
    half = cos.shape[-1]
    a = x_BTHh[..., :half]
    b = x_BTHh[..., half : 2 * half]
    rest = x_BTHh[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)


class AttentionContext(NamedTuple):
    """What attention has to know of the tokens of a microbatch."""

    by: Rotation | None
    scores: Mapping[int | None, Rows]
    """Window of a layer -> what its queries see."""
    kernels: Sequence[SDPBackend] = FLASH_FIRST


class Attention(nn.Module):
    """Multi-head, grouped-query or multi-query attention."""

    def __init__(self, m: Model, window: int | None) -> None:
        super().__init__()
        self.h = m.h
        self.wq = nn.Linear(m.hidden, m.heads * m.h, bias=m.qkv_bias)
        self.wk = nn.Linear(m.hidden, m.K * m.h, bias=m.qkv_bias)
        self.wv = nn.Linear(m.hidden, m.K * m.h, bias=m.qkv_bias)
        self.wo = nn.Linear(m.heads * m.h, m.hidden, bias=m.bias)
        self.q_norm, self.k_norm = (
            _norm(m, m.h) if m.qk_norm else None for _ in "qk"
        )
        self.window = window
        self.core: Any = attend

    def forward(self, x_BTD: Tensor, context: AttentionContext) -> Tensor:
        q_BTHh, k_BTKh, v_BTKh = (
            w(x_BTD).unflatten(-1, (-1, self.h))
            for w in (self.wq, self.wk, self.wv)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q_BTHh = self.q_norm(q_BTHh)
            k_BTKh = self.k_norm(k_BTKh)
        if context.by is not None:
            q_BTHh = rotate(q_BTHh, context.by)
            k_BTKh = rotate(k_BTKh, context.by)
        o_BTD: Tensor = self.wo(
            self.core(
                q_BTHh,
                k_BTKh,
                v_BTKh,
                context.scores[self.window],
                context.kernels,
            ).flatten(2)
        )
        return o_BTD


class Block(nn.Module):
    """One layer: attention, then feed-forward, each on the normalised residual stream and added to
    it.
    """

    def __init__(self, m: Model, kind: Kind, recompute: str) -> None:
        super().__init__()
        self.way = WAYS[recompute]
        self.attention_norm, self.attention = (
            _norm(m),
            Attention(m, kind.window),
        )
        self.ffn_norm, self.ffn = (
            _norm(m),
            MixtureOfExperts(m) if kind.moe else FeedForward(m, m.ffn),
        )

    def forward(self, x_BTD: Tensor, context: AttentionContext) -> Tensor:
        return self.run(x_BTD, context)

    def run(self, x_BTD: Tensor, context: AttentionContext) -> Tensor:
        """The layer, recomputed as it should be: what `compile_blocks` compiles."""
        return self.way(self.compute, x_BTD, context)

    def compute(self, x_BTD: Tensor, context: AttentionContext) -> Tensor:
        x_BTD, z_BTD = self.attend(x_BTD, context)
        y_BTD: Tensor = x_BTD + self.ffn(z_BTD)
        return y_BTD

    def attend(
        self, x_BTD: Tensor, context: AttentionContext
    ) -> tuple[Tensor, Tensor]:
        """The first half of a layer, and its norm for the second."""
        y_BTD: Tensor = x_BTD + self.attention(
            self.attention_norm(x_BTD), context
        )
        return y_BTD, self.ffn_norm(y_BTD)


class Decoder(nn.Module):
    """Some layers of a model, with the embedding if they are the first and the output head if they
    are the last.
    """

    def __init__(
        self, m: Model, layers: range, seq: int, recompute: str = "none"
    ) -> None:
        super().__init__()
        self.m, self.part, self.parts = m, 0, 1
        self.seq = seq
        self.at: tuple[range, ...] = (range(seq),)
        """Positions of this rank's tokens; under context parallelism attention sees all of them."""
        self.packed: tuple[Documents, ...] = ((0,),)
        """Where the documents of each sequence of a step begin; one entry: the same for all."""
        self.documents: tuple[Documents, ...] = self.packed
        """Of the microbatch that comes next."""
        self.dtype = torch.float32  # of hidden states between stages
        first = layers.start == 0
        last = layers.stop == m.layers
        self.embedding = (
            nn.Embedding(m.padded_vocab, m.hidden) if first else None
        )
        self.positions = (
            nn.Embedding(m.seq, m.hidden)
            if first and m.positions == "learned"
            else None
        )
        every = kinds(m)
        self.layers = nn.ModuleDict(
            {str(i): Block(m, every[i], recompute) for i in layers}
        )
        self.norm = _norm(m) if last else None
        self.head = (
            nn.Linear(m.hidden, m.padded_vocab, bias=False) if last else None
        )
        self.tie()

    @property
    def blocks(self) -> list[Block]:
        """The layers in order."""
        return list(self.layers.values())  # type: ignore[arg-type]

    @property
    def mixtures(self) -> dict[str, MixtureOfExperts]:
        """Number of a layer -> its mixture of experts, where it has one."""
        return {
            number: block.ffn
            for number, block in self.layers.items()
            if isinstance(block.ffn, MixtureOfExperts)
        }

    @property
    def experts(self) -> list[Experts]:
        """The routed experts of the layers that have them."""
        return [mixture.experts for mixture in self.mixtures.values()]

    def compile_blocks(self) -> None:
        """Compile what each layer computes and recomputes; what is hooked to a layer from outside
        (FSDP's gathers) stays outside. A layer with experts is compiled in three parts, around its
        experts' products, whose rows the host has to know, and FSDP's gathers of them.
        """
        for block in self.blocks:
            ffn = block.ffn
            if not isinstance(ffn, MixtureOfExperts):
                block.run = torch.compile(block.run)  # type: ignore[method-assign]
                continue
            block.attend = torch.compile(block.attend)  # type: ignore[method-assign]
            # one graph for any number of rows: it differs from step to step
            ffn.experts.activate = torch.compile(  # type: ignore[method-assign]
                ffn.experts.activate, dynamic=True
            )
            ffn.join = torch.compile(ffn.join)  # type: ignore[method-assign]

    def tie(self) -> None:
        """The head uses the embedding's matrix, where the model says so and both are here."""
        if (
            self.m.tied_embeddings
            and self.embedding is not None
            and self.head is not None
        ):
            self.head.weight = self.embedding.weight

    @property
    def length(self) -> int:
        """Tokens of a sequence that are this rank's."""
        return sum(map(len, self.at))

    def begin(self, first: int, count: int) -> None:
        """Sequences [first, first + count) of the step are the microbatch that comes next."""
        one = len(self.packed) == 1
        self.documents = (
            self.packed if one else self.packed[first : first + count]
        )

    def scores(self) -> dict[int | None, Rows]:
        """Window of a layer -> the tiles of each sequence that comes next."""
        causal = self.m.attention == "causal"
        return {
            window: tuple(
                tiles(
                    self.at,
                    T=self.seq,
                    causal=causal,
                    window=seen_window(window, self.seq),
                    documents=begins,
                )
                for begins in self.documents
            )
            for window in {block.attention.window for block in self.blocks}
        }

    def embed(self, tokens_BT: Tensor) -> Tensor:
        """Look up tokens and learned positions. `part` of `parts`: the shard of the sequence a tp
        rank goes on with.
        """
        assert self.embedding is not None
        x_BTD: Tensor = self.embedding(tokens_BT)
        if self.positions is not None:
            every_T = positions(self.at, tokens_BT.device)
            x_BTD = x_BTD + self.positions(
                every_T.chunk(self.parts)[self.part]
            )
        return x_BTD

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [B, T] or hidden states [B, T, D] in, hidden states or logits [B, T, V] out."""
        x = x if self.embedding is None else self.embed(x)
        by = (
            rotation(self.m, self.at, x.device, self.dtype)
            if self.m.positions == "rope"
            else None
        )
        context = AttentionContext(by, self.scores(), kernel_order(x.device))
        for block in self.blocks:
            x = block(x, context)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x
