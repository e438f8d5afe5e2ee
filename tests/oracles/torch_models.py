"""Decoders in plain PyTorch, to compare counts with. Each module does the arithmetic of its paper
and nothing is counted by hand.

Modules are named as `meshwright.count` names operations ("attention.qkv" is attention/qkv, "q_down"
is "q down"), so FLOPs can be compared one by one. Identities ("rotary", "into", "out_of") mark
where the sharded twin of `sharded.py` exchanges something. Letters: D hidden, H heads, K kv heads,
h head width, F feed-forward, V vocabulary, E experts, k experts a token.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from meshwright import Model, MoE

Kernel = Callable[[Tensor, Tensor, Tensor, int | None], Tensor]
"""(q, k, v, window) of shapes [b, H, T, h], [b, H, T, h], [b, H, T, v] -> [b, H, T, v]."""


def unfused(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """softmax(Q K^T) V with the T x T matrix in memory."""
    T = q.shape[-2]
    scores = q @ k.mT / q.shape[-1] ** 0.5
    far = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
    if window:
        far = far & far.new_ones(T, T).triu(1 - window)
    return scores.masked_fill(~far, float("-inf")).softmax(-1) @ v


def flash(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """The same by a kernel that computes the scores again in backward (on meta tensors: its
    shapes).

    Flash where it can; heads whose values have another width (latent attention) by its
    memory-efficient sibling.
    """
    if q.shape[-1] == v.shape[-1]:
        result: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(
            q, k, v, 0.0, True
        )[0]
    else:
        result = torch.ops.aten._scaled_dot_product_efficient_attention(
            q, k, v, None, True, 0.0, True
        )[0]
    return result


class Core(nn.Module):
    """Attention between projected heads; K key/value heads serve H query heads. `sinks`: a learned
    logit a head.
    """

    def __init__(
        self, H: int, kernel: Kernel, window: int | None, sinks: bool
    ) -> None:
        super().__init__()
        self.kernel, self.window = kernel, window
        self.sinks = nn.Parameter(torch.zeros(H)) if sinks else None

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (
            x.repeat_interleave(q.shape[1] // x.shape[1], dim=1)
            for x in (k, v)
        )
        return self.kernel(q, k, v, self.window).transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Multi-head, grouped-query or multi-query attention."""

    def __init__(self, m: Model, kernel: Kernel, window: int | None) -> None:
        super().__init__()
        self.H, self.K, self.h = (
            m.heads,
            m.kv_heads or m.heads,
            m.head_dim or m.hidden // m.heads,
        )
        self.qkv = nn.Linear(
            m.hidden, (self.H + 2 * self.K) * self.h, bias=m.qkv_bias
        )
        self.out = nn.Linear(self.H * self.h, m.hidden, bias=m.bias)
        self.core = Core(self.H, kernel, window, m.attention_sinks)
        self.whole = m.qk_norm_whole
        if m.qk_norm:
            self.q_norm, self.k_norm = (
                nn.RMSNorm(heads * self.h if self.whole else self.h)
                for heads in (self.H, self.K)
            )
        self.normed = m.qk_norm

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).split(
            [self.H * self.h, self.K * self.h, self.K * self.h], dim=-1
        )
        if self.normed and self.whole:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (
            y.unflatten(-1, (-1, self.h)).transpose(1, 2) for y in (q, k, v)
        )
        if self.normed and not self.whole:
            q, k = self.q_norm(q), self.k_norm(k)
        result: Tensor = self.out(self.core(q, k, v))
        return result


class Latent(nn.Module):
    """Multi-head latent attention: keys and values are rebuilt from one compressed vector a token
    (DeepSeek-V2).
    """

    def __init__(self, m: Model, kernel: Kernel) -> None:
        super().__init__()
        mla = m.mla
        assert mla is not None
        self.H, self.nope, self.rope, self.value = (
            m.heads,
            mla.qk_nope_head_dim,
            mla.qk_rope_head_dim,
            mla.v_head_dim,
        )
        self.latent = mla.kv_lora_rank
        width = self.H * (self.nope + self.rope)
        if mla.q_lora_rank:
            self.q_down = nn.Linear(m.hidden, mla.q_lora_rank, bias=False)
            self.q_norm = nn.RMSNorm(mla.q_lora_rank)
            self.q_up = nn.Linear(mla.q_lora_rank, width, bias=False)
        else:
            self.q = nn.Linear(m.hidden, width, bias=False)
        self.compressed = bool(mla.q_lora_rank)
        self.kv_down = nn.Linear(m.hidden, self.latent + self.rope, bias=False)
        self.kv_norm = nn.RMSNorm(self.latent)
        self.kv_up = nn.Linear(
            self.latent, self.H * (self.nope + self.value), bias=False
        )
        self.rotary = nn.Identity()
        self.core = Core(self.H, kernel, None, False)
        self.out = nn.Linear(self.H * self.value, m.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q = (
            self.q_up(self.q_norm(self.q_down(x)))
            if self.compressed
            else self.q(x)
        )
        q = q.unflatten(-1, (self.H, -1)).transpose(1, 2)
        latent, rope = self.kv_down(x).split([self.latent, self.rope], dim=-1)
        kv = (
            self.kv_up(self.kv_norm(latent))
            .unflatten(-1, (self.H, -1))
            .transpose(1, 2)
        )
        k, v = kv.split([self.nope, self.value], dim=-1)
        k = torch.cat(
            [k, self.rotary(rope).unsqueeze(1).expand(-1, self.H, -1, -1)],
            dim=-1,
        )
        result: Tensor = self.out(self.core(q, k, v))
        return result


class FeedForward(nn.Module):
    """Two matrices and a GELU, or three and a SiLU gate."""

    def __init__(self, D: int, F: int, gated: bool, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(D, F * (2 if gated else 1), bias=bias)
        self.down = nn.Linear(F, D, bias=bias)
        self.gated = gated

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(activation(self.up(x), self.gated))
        return result


def activation(x: Tensor, gated: bool) -> Tensor:
    if not gated:
        return fn.gelu(x)
    gate, up = x.chunk(2, dim=-1)
    return fn.silu(gate) * up


class Grouped(nn.Module):
    """E matrices, each applied to its own tokens: [E, n, k] -> [E, n, N]."""

    def __init__(self, E: int, k: int, N: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(E, k, N))
        self.bias = nn.Parameter(torch.empty(E, 1, N)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = x.bmm(self.weight)
        return y if self.bias is None else y + self.bias


class Experts(nn.Module):
    """Top-k of E experts; every expert gets the same number of tokens (as a balanced router would
    have it).
    """

    def __init__(self, D: int, moe: MoE, gated: bool) -> None:
        super().__init__()
        self.E, self.k, self.gated = moe.experts, moe.top_k, gated
        self.router = nn.Linear(D, self.E, bias=moe.router_bias)
        self.up = Grouped(
            self.E, D, moe.expert_ffn * (2 if gated else 1), moe.expert_bias
        )
        self.down = Grouped(self.E, moe.expert_ffn, D, moe.expert_bias)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        share, chosen = self.router(tokens).softmax(-1).topk(self.k)
        order = chosen.flatten().argsort()
        sent = tokens[order // self.k].unflatten(0, (self.E, -1))
        got = self.down(activation(self.up(sent), self.gated)).flatten(
            0, 1
        ) * share.flatten()[order].unsqueeze(-1)
        return (
            torch.zeros_like(tokens)
            .index_add(0, order // self.k, got)
            .view_as(x)
        )


class Shared(FeedForward):
    """Experts every token passes through, as one feed-forward; with `gate`, scaled by a learned
    share (Qwen2-MoE).
    """

    def __init__(self, D: int, F: int, gated: bool, gate: bool) -> None:
        super().__init__(D, F, gated, bias=False)
        self.gate = nn.Linear(D, 1, bias=False) if gate else None

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y if self.gate is None else y * self.gate(x).sigmoid()


def norm_of(m: Model) -> nn.Module:
    if m.norm == "layernorm":
        return nn.LayerNorm(m.hidden)
    return nn.RMSNorm(m.hidden, elementwise_affine=m.norm != "nonparametric")


class Block(nn.Module):
    """One layer: attention and feed-forward, one after the other or (one norm) side by side; four
    norms also close each half.
    """

    def __init__(self, m: Model, layer: int, kernel: Kernel) -> None:
        super().__init__()
        attends_to_all = m.window is None or (
            m.full_every > 0 and (layer + 1) % m.full_every == 0
        )
        self.attention = (
            Latent(m, kernel)
            if m.mla
            else Attention(m, kernel, None if attends_to_all else m.window)
        )
        sparse = m.moe if m.moe and layer >= m.moe.dense_layers else None
        if sparse:
            self.experts = Experts(m.hidden, sparse, m.gated)
            if sparse.shared_ffn:
                self.shared = Shared(
                    m.hidden, sparse.shared_ffn, m.gated, sparse.shared_gate
                )
        else:
            self.ffn = FeedForward(m.hidden, m.ffn, m.gated, m.bias)
        self.norms = nn.ModuleList(
            norm_of(m) for _ in range(m.norms_per_layer)
        )
        self.into, self.out_of = nn.Identity(), nn.Identity()
        self.parts = (
            ("experts", "shared")
            if sparse and sparse.shared_ffn
            else ("experts",)
            if sparse
            else ("ffn",)
        )

    def feed_forward(self, x: Tensor) -> Tensor:
        return (
            torch.stack([getattr(self, part)(x) for part in self.parts]).sum(0)
            if len(self.parts) > 1
            else getattr(self, self.parts[0])(x)
        )

    def forward(self, x: Tensor) -> Tensor:
        if len(self.norms) == 1:
            y = self.into(self.norms[0](x))
            return x + self.out_of(self.attention(y) + self.feed_forward(y))
        if len(self.norms) == 4:
            x = x + self.norms[1](self.attention(self.norms[0](x)))
            return x + self.norms[3](self.feed_forward(self.norms[2](x)))
        x = x + self.attention(self.norms[0](x))
        return x + self.feed_forward(self.norms[1](x))


class Head(nn.Module):
    """Final norm and logits."""

    def __init__(self, m: Model) -> None:
        super().__init__()
        self.norm = norm_of(m)
        self.logits = nn.Linear(m.hidden, m.vocab, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.logits(self.norm(x))
        return result


class NextToken(nn.Module):
    """A multi-token-prediction block: hidden state and the next token's embedding, side by side,
    through one more layer (DeepSeek-V3).
    """

    def __init__(self, m: Model, kernel: Kernel) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm_of(m) for _ in range(2))
        self.project = nn.Linear(2 * m.hidden, m.hidden, bias=False)
        self.block = Block(m, m.layers, kernel)

    def forward(self, x: Tensor, token: Tensor) -> Tensor:
        result: Tensor = self.block(
            self.project(
                torch.cat([self.norms[0](x), self.norms[1](token)], dim=-1)
            )
        )
        return result


class Decoder(nn.Module):
    """Embedding, L blocks, head; multi-token-prediction blocks share embedding and head."""

    def __init__(self, m: Model, kernel: Kernel = unfused) -> None:
        super().__init__()
        self.embedding = nn.Embedding(m.vocab, m.hidden)
        self.positions = (
            nn.Embedding(m.seq, m.hidden) if m.positions == "learned" else None
        )
        self.embedding_norm = norm_of(m) if m.embedding_norm else None
        self.layers = nn.ModuleList(
            Block(m, i, kernel) for i in range(m.layers)
        )
        self.head = Head(m)
        if m.tied_embeddings:
            self.head.logits.weight = self.embedding.weight
        self.mtp = nn.ModuleList(
            NextToken(m, kernel) for _ in range(m.mtp_layers)
        )

    def forward(self, tokens: Tensor) -> list[Tensor]:
        embedded = self.embedding(tokens)
        x = (
            embedded
            if self.positions is None
            else embedded
            + self.positions(
                torch.arange(embedded.shape[1], device=tokens.device)
            )
        )
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        for block in self.layers:
            x = block(x)
        outputs = [self.head(x)]
        for block in self.mtp:
            x = block(x, embedded)
            outputs.append(self.head(x))
        return outputs
