"""What mixes the tokens of a layer beside plain attention: shapes only.

A layer names its mixer (`pattern.MIXERS`); a model has one shape for each kind that layers name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .fields import Checked, Count, OneOf, Range


@dataclass(frozen=True)
class SlidingHeads(Checked):
    """Attention of sliding layers, where it differs from that of the others."""

    heads: int
    """Query heads."""
    kv_heads: int
    """Key/value heads."""
    head_dim: int
    """Width of a query or key head."""
    v_head_dim: int | None = None
    """Width of a value head; None = `head_dim`."""
    sinks: bool = False
    """One learned logit a head."""


@dataclass(frozen=True)
class Indexer(Checked):
    """Sparse attention (DeepSeek-V3.2): a small attention picks the keys that the large one
    reads.
    """

    heads: int
    """Query heads of the indexer; its key is one for all of them."""
    head_dim: int
    """Width of one of them."""
    top_k: int
    """Keys that a query keeps."""


@dataclass(frozen=True)
class Linear(Checked):
    """Linear attention: for each head a state of key x value numbers in place of all keys."""

    heads: int
    """Heads, each with a state of its own (value heads)."""
    key_dim: int
    """Width of a query or key head."""
    value_dim: int
    """Width of a value head."""
    kind: Annotated[str, OneOf("delta", "lightning", "gated")] = "delta"
    """What updates the state: delta (gated delta rule: Qwen3-Next, Kimi), lightning (a fixed decay
    a head: MiniMax) or gated (a decay from the token: mLSTM).
    """
    key_heads: int | None = None
    """Query/key heads, each shared by several value heads; None = `heads`."""
    chunk: int = 64
    """Tokens that are worked through at once."""
    conv: Annotated[int, Range(0, 1e5)] = 0
    """Taps of the convolution over time in front of queries, keys and values; 0 = none."""
    decay: Annotated[str, OneOf("head", "channel", "fixed")] = "head"
    """What the decay is made of: head (one number a head), channel (one a channel of the key) or
    fixed.
    """
    decay_rank: Count = 0
    """Width between the two matrices that make the decay; 0 = one matrix."""
    write_gate: bool = True
    """How strongly a token writes is one more number a head (beta)."""
    output_gate: Annotated[str, OneOf("none", "head", "element")] = "element"
    """What scales the result: element (one number each), head or none."""
    gate_rank: Count = 0
    """Width between the two matrices that make the output gate; 0 = one matrix."""
    norm: Annotated[str, OneOf("head", "whole", "none")] = "head"
    """The result is normalised head by head with the same scale (head), with a scale of each
    (whole), or not (none).
    """
    vectors: Count = 0
    """Learned numbers beside matrices, convolution and norm: decay rates, biases of gates."""

    def conflict(self) -> str:
        """Each query/key head serves as many value heads."""
        return (
            f"key_heads {self.keys} must divide heads {self.heads}"
            if self.heads % self.keys
            else ""
        )

    @property
    def keys(self) -> int:
        """Query/key heads."""
        return self.key_heads or self.heads


@dataclass(frozen=True)
class StateSpace(Checked):
    """A state-space layer (Mamba): each channel keeps `state` numbers in place of all keys."""

    inner: int
    """Channels: heads x width of a head (Mamba-2)."""
    state: int
    """N, numbers that a channel keeps."""
    kind: Annotated[str, OneOf("mamba2", "mamba")] = "mamba2"
    """mamba2 (one decay a head, worked through as matrix products) or mamba (one a channel and
    state, a scan).
    """
    heads: int = 1
    """H, heads of Mamba-2."""
    groups: int = 1
    """Groups of heads that share what enters and leaves the state."""
    chunk: int = 256
    """Tokens that are worked through at once (Mamba-2)."""
    conv: Annotated[int, Range(0, 1e5)] = 4
    """Taps of the convolution over time."""
    conv_bias: bool = True
    """The convolution has a bias."""
    bias: bool = False
    """The projections have biases."""
    dt_rank: Count = 0
    """Width in front of the step sizes (Mamba)."""
    norm: bool = True
    """The gated result is normalised (Mamba-2)."""
    inner_norms: bool = False
    """Step sizes and what enters and leaves the state are normalised (Jamba)."""

    def conflict(self) -> str:
        """Channels divide among heads, and heads among groups."""
        if self.inner % self.heads:
            return f"heads {self.heads} must divide inner {self.inner}"
        return (
            f"groups {self.groups} must divide heads {self.heads}"
            if self.heads % self.groups
            else ""
        )


@dataclass(frozen=True)
class Convolution(Checked):
    """A gated convolution over a few tokens (LFM2): B, C, x = in(h);  y = out(C conv(B x))."""

    taps: int
    """Tokens that it sees."""
    bias: bool = False
    """Projections and convolution have biases."""
