"""What mixes the tokens of a layer beside plain attention: shapes only.

A layer names its mixer (`layers.MIXERS`); a model has one shape for each kind that its layers name.
"""

from __future__ import annotations

from dataclasses import dataclass

from .fields import Checked


@dataclass(frozen=True)
class Heads(Checked):
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
    kind: str = "delta"
    """What updates the state: delta (gated delta rule: Qwen3-Next, Kimi), lightning (a fixed decay
    a head: MiniMax) or gated (a decay from the token: mLSTM).
    """
    key_heads: int | None = None
    """Query/key heads, each shared by several value heads; None = `heads`."""
    chunk: int = 64
    """Tokens that are worked through at once."""
    conv: int = 0
    """Taps of the convolution over time in front of queries, keys and values; 0 = none."""
    decay: str = "head"
    """What the decay is made of: head (one number a head), channel (one a channel of the key) or
    fixed.
    """
    decay_rank: int = 0
    """Width between the two matrices that make the decay; 0 = one matrix."""
    write_gate: bool = True
    """How strongly a token writes is one more number a head (beta)."""
    output_gate: str = "element"
    """What scales the result: element (one number each), head or none."""
    gate_rank: int = 0
    """Width between the two matrices that make the output gate; 0 = one matrix."""
    norm: str = "head"
    """The result is normalised head by head with the same scale (head), with a scale of each
    (whole), or not (none).
    """
    vectors: int = 0
    """Learned numbers beside matrices, convolution and norm: decay rates, biases of gates."""

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
    kind: str = "mamba2"
    """mamba2 (one decay a head, worked through as matrix products) or mamba (one a channel and
    state, a scan).
    """
    heads: int = 1
    """H, heads of Mamba-2."""
    groups: int = 1
    """Groups of heads that share what enters and leaves the state."""
    chunk: int = 256
    """Tokens that are worked through at once (Mamba-2)."""
    conv: int = 4
    """Taps of the convolution over time."""
    conv_bias: bool = True
    """The convolution has a bias."""
    bias: bool = False
    """The projections have biases."""
    dt_rank: int = 0
    """Width in front of the step sizes (Mamba)."""
    norm: bool = True
    """The gated result is normalised (Mamba-2)."""
    inner_norms: bool = False
    """Step sizes and what enters and leaves the state are normalised (Jamba)."""


@dataclass(frozen=True)
class Convolution(Checked):
    """A gated convolution over a few tokens (LFM2): B, C, x = in(h);  y = out(C conv(B x))."""

    taps: int
    """Tokens that it sees."""
    bias: bool = False
    """Projections and convolution have biases."""
