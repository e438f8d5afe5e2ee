"""A decoder as its training sees it: shapes only, no weights.

Letters: L layers, D hidden, H heads, K kv heads, h head_dim, F ffn, V vocab, T seq; E experts, k
top_k.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from ..errors import BadInput
from ..num import divisors
from .fields import (
    AnyShare,
    Checked,
    Count,
    Length,
    Name,
    OneOf,
    Prose,
    Range,
    Share,
    Sources,
    origins,
)
from .frozen import hashed_once, short_repr
from .mixers import Convolution, Indexer, Linear, SlidingHeads, StateSpace
from .pattern import NEEDS, pattern_words
from .traced import Traced


@dataclass(frozen=True)
class MLA(Checked):
    """Multi-head latent attention (DeepSeek-V2): keys and values are rebuilt from one compressed
    vector a token.

    >>> from meshwright import MLA, model
    >>> latent = model("deepseek-v3").mla
    >>> isinstance(latent, MLA), latent.kv_lora_rank
    (True, 512)
    """

    kv_lora_rank: int
    """Width of the compressed key/value vector."""
    qk_nope_head_dim: int
    """Part of a query/key head without rotary position."""
    qk_rope_head_dim: int
    """Part of a query/key head with rotary position; its key is shared by all heads."""
    v_head_dim: int
    """Width of a value head."""
    q_lora_rank: int | None = None
    """Width of the compressed query; None projects queries from the hidden state directly."""


@dataclass(frozen=True)
class MoE(Checked):
    """Mixture of experts in place of the feed-forward of most layers.

    >>> from meshwright import MoE, model
    >>> experts = model("deepseek-v3").moe
    >>> isinstance(experts, MoE), experts.experts, experts.top_k
    (True, 256, 8)
    """

    experts: int
    """E, routed experts in a layer."""
    top_k: int
    """k, experts a token is sent to."""
    expert_ffn: int
    """Feed-forward width of one routed expert."""
    shared_ffn: Count = 0
    """Total width of the experts every token passes through; 0 = none."""
    dense_layers: Annotated[int, Range(0, 1e5)] = 0
    """Leading layers that keep a dense feed-forward of width `Model.ffn`."""
    router_bias: bool = False
    """The router has a bias (one parameter an expert)."""
    shared_gate: bool = False
    """The shared experts are scaled by a learned gate of D parameters (Qwen2-MoE)."""
    expert_bias: bool = False
    """Expert matrices have biases, and gated ones clamp what they activate (gpt-oss)."""
    latent: Count = 0
    """Width in which routed experts work, between two matrices of the layer (Nemotron-3); 0 = D."""
    idle_experts: Count = 0
    """Further choices of the router that hand a token on as it is (LongCat-Flash)."""
    post_norm: bool = False
    """What the experts give is normalised."""
    groups: Annotated[int, Range(1, 1e5)] = 1
    """G, equal groups of neighbouring experts in which the router looks for its `top_groups`
    (DeepSeek's n_group, Megatron's moe_router_num_groups); 1 = no groups.
    """
    top_groups: Annotated[int, Range(1, 1e5)] = 1
    """M, groups that a token's experts lie in at most: node-limited routing (DeepSeek's topk_group,
    Megatron's moe_router_group_topk).
    """

    def conflict(self) -> str:
        """A token finds as many choices as it takes."""
        choices = self.experts + self.idle_experts
        if self.top_k > choices:
            return f"top_k {self.top_k} is more than the {choices} experts"
        if choices % self.groups:
            return f"groups {self.groups} do not divide the {choices} experts"
        if self.top_groups > self.groups:
            return f"top_groups {self.top_groups} is more than the {self.groups} groups"
        room = choices // self.groups * self.top_groups
        if self.top_k > room:
            return (
                f"top_k {self.top_k} is more than the {room} experts of {self.top_groups} of"
                f" {self.groups} groups"
            )
        if self.shared_gate and not self.shared_ffn:
            return "shared_gate scales shared experts, and there are none; give shared_ffn"
        return ""


@dataclass(frozen=True)
class RopeScaling(Checked):
    """Rotary frequencies changed for sequences longer than those a model was first trained on."""

    kind: Annotated[
        str, OneOf("linear", "llama3", "yarn", "dynamic", "longrope", "other")
    ]
    """linear: all frequencies over `factor`; llama3: only the slow ones (Llama 3.1); others are
    known by name, not computed.
    """
    factor: float = 1.0
    """How much slower."""
    low: float = 1.0
    """llama3: what turns less often than this within `original` tokens is slowed down wholly."""
    high: float = 4.0
    """llama3: what turns more often stays as it is; between them a line."""
    original: Length = 8192
    """Tokens of a sequence in the first training."""


@hashed_once
@dataclass(frozen=True)
class Model(Checked):
    """A decoder (or encoder): a list of layers, its embedding and its output head.

    Each layer names what mixes its tokens and what feeds forward (`pattern`, `describe.layers`).

    >>> from meshwright import Model, parameters
    >>> small = Model("small", layers=2, hidden=64, heads=4, ffn=192, vocab=256, seq=128)
    >>> parameters(small)
    139584.0
    """

    name: Name
    layers: Annotated[int, Range(1, 1e5)]
    """L, transformer blocks."""
    hidden: int
    """D, width of the residual stream."""
    heads: int
    """H, query heads."""
    ffn: Count
    """F, feed-forward width of a dense layer."""
    vocab: Count
    """V, rows of the embedding (before padding); 0 = no embedding and no output head."""
    seq: Length
    """T, sequence length in tokens that training uses."""
    kv_heads: int | None = None
    """K, key/value heads; None = H (multi-head attention)."""
    head_dim: int | None = None
    """h, width of a head; None = D / H."""
    gated: bool = True
    """The feed-forward has a gate matrix (SwiGLU, GeGLU): 3 matrices, not 2."""
    activation: (
        Annotated[str, OneOf("silu", "gelu", "gelu-tanh", "relu", "other")]
        | None
    ) = None
    """silu, gelu, gelu-tanh (its approximation in GPT-2) or relu; None = silu with a gate, gelu
    without.
    """
    attention: Annotated[str, OneOf("causal", "full")] = "causal"
    """causal: a token sees the ones before it; full: it sees all (encoders, vision)."""
    window: Length | None = None
    """Sliding attention window in tokens; None = unlimited."""
    full_every: Annotated[int, Range(0, 1e5)] = 1
    """With a window: one layer in `full_every` still attends to everything (0 = none does)."""
    pattern: tuple[Prose, ...] = ()
    """The layers in order, as `describe.layers` says: 3*linear+experts, full+experts, repeated;
    none = full attention, or windows as above.
    """
    sliding: SlidingHeads | None = None
    """Heads of sliding layers, where they are others; None = those below."""
    sparse: Indexer | None = None
    """The indexer of sparse layers; without a pattern all layers are sparse."""
    linear: Linear | None = None
    """Shape of linear layers."""
    ssm: StateSpace | None = None
    """Shape of state-space layers."""
    conv: Convolution | None = None
    """Shape of convolution layers."""
    norm: Annotated[
        str, OneOf("rmsnorm", "layernorm", "layernorm-scale", "nonparametric")
    ] = "rmsnorm"
    """rmsnorm (D parameters), layernorm (2D), layernorm-scale (D: no shift) or nonparametric (0,
    OLMo).
    """
    norm_epsilon: AnyShare = 1e-5
    """Added to the variance in norms."""
    norms_per_layer: int = 2
    """Norms over the hidden state in a block: 2, or 4 with post-norms (Gemma 2), 1 for parallel
    blocks (Falcon).
    """
    qk_norm: bool = False
    """Queries and keys are normalised per head (Qwen3, Gemma 3): 2h parameters."""
    qk_norm_whole: bool = False
    """With qk_norm: all heads are normalised together (OLMo 2): (H + K) h parameters."""
    qk_norm_shift: bool = False
    """With qk_norm: they have a shift beside the scale (Persimmon)."""
    v_head_dim: int | None = None
    """Width of a value head; None = that of a query."""
    key_is_value: bool = False
    """Layers that see everything read their keys as values too (Gemma 4): one projection less."""
    attention_gate: Annotated[str, OneOf("none", "head", "element")] = "none"
    """What scales the result of attention before its output projection: element (one number each,
    Qwen3-Next), head or none.
    """
    inner_norms: bool = False
    """The inputs of both output projections are normalised (BitNet)."""
    vectors: Count = 0
    """Learned numbers of each layer that are none of the above, such as slopes of activations."""
    positions: Annotated[str, OneOf("rope", "learned", "alibi", "none")] = (
        "rope"
    )
    """rope, learned (T x D parameters), alibi or none."""
    position_rows: int | None = None
    """Rows of learned positions; None = T."""
    rope_base: float = 10000.0
    """Longest wavelength of rotary positions over 2 pi (Su et al. 2021, arXiv 2104.09864)."""
    rotary_share: Share = 1.0
    """Leading share of a head that is rotated (0.25 in GPT-NeoX)."""
    rope_scaling: RopeScaling | None = None
    """Rotary positions stretched for long sequences; None = not."""
    qkv_bias: bool = False
    """The query, key and value projections have biases."""
    bias: bool = False
    """The output projection and the feed-forward have biases."""
    out_bias: bool | None = None
    """The output projection of attention has a bias; None = as `bias` says."""
    head_bias: bool = False
    """The output head has a bias (V parameters)."""
    final_norm: bool = True
    """There is a norm before the output head."""
    attention_sinks: bool = False
    """One learned logit a head (gpt-oss)."""
    tied_embeddings: bool = False
    """The output head reuses the embedding matrix."""
    embedding_norm: bool = False
    """The embedding is normalised before the first block (BLOOM)."""
    embedding_width: int | None = None
    """Width of the embedding's rows, where a matrix makes D of them (ELECTRA); None = D."""
    token_types: Count = 0
    """Rows of a further embedding, of what kind a token is (BERT)."""
    head_width: int | None = None
    """Between the last block and the output head stand a matrix of D x this, an activation and a
    norm (BERT); None = nothing.
    """
    dropout: bool = False
    """Dropout is active in training."""
    vocab_multiple: int | None = None
    """The vocabulary is padded up to a multiple of this (in Megatron-LM times tp:
    `Framework.vocabulary_rows`); None = to what its framework says, or not at all.
    """
    mla: MLA | None = None
    moe: MoE | None = None
    mtp_layers: Annotated[int, Range(0, 1e3)] = 0
    """Extra multi-token-prediction blocks after the last layer (DeepSeek-V3)."""
    traced: Traced | None = None
    """Layers as a trace of their code found them; then fields of layers above are for layouts and
    reports only.
    """
    notes: tuple[Prose, ...] = field(default=(), compare=False, repr=False)
    """What the file that described it says and this description leaves out; every prediction
    repeats it.
    """
    sources: Sources = origins()
    """field -> where its number comes from (source, date, note); "*" for the whole description."""

    __repr__ = short_repr

    def conflict(self) -> str:
        """Heads divide the width, and layers have the shapes that they name."""
        uneven = self.hidden % self.heads
        if self.head_dim is None and self.mla is None and uneven:
            return (
                f"hidden {self.hidden} cannot be split into {self.heads} heads; change heads, or"
                " give head_dim"
            )
        if self.heads % self.K:
            choices = ", ".join(map(str, divisors(self.heads)))
            return f"kv_heads {self.K} must divide heads {self.heads}: it may be {choices}"
        dense = self.moe.dense_layers if self.moe else 0
        if dense > self.layers:
            return f"moe.dense_layers {dense} are more than the {self.layers} layers"
        try:
            every = pattern_words(self.pattern)
        except BadInput as error:
            return str(error)
        if self.traced and len(self.traced.order) != self.layers:
            return f"traced.order must name a kind for each of the {self.layers} layers"
        for _, mixers, ffn in every:
            for word in mixers.split("&"):
                if word in NEEDS and getattr(self, NEEDS[word]) is None:
                    return f"pattern has {word} layers, but {NEEDS[word]} is not given"
            if ffn == "experts" and self.moe is None:
                return "pattern has layers with experts, but moe is not given"
        return ""

    @property
    def K(self) -> int:
        """Key/value heads."""
        return self.kv_heads or self.heads

    @property
    def h(self) -> int:
        """Width of a head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def v(self) -> int:
        """Width of a value head."""
        return self.v_head_dim or self.h

    @property
    def biased_out(self) -> bool:
        """The output projection of attention has a bias."""
        return self.bias if self.out_bias is None else self.out_bias

    @property
    def rotary(self) -> int:
        """The part of a head's width that rotary positions rotate."""
        return int(self.h * self.rotary_share)

    @property
    def act(self) -> str:
        """The activation by name."""
        return self.activation or ("silu" if self.gated else "gelu")

    @property
    def embedded(self) -> int:
        """Width of a row of the embedding: that of the hidden state, unless the model projects it
        (`embedding_width`).
        """
        return self.embedding_width or self.hidden

    @property
    def padded_vocab(self) -> int:
        """Vocabulary rounded up to `vocab_multiple`."""
        multiple = self.vocab_multiple or 1
        return -(-self.vocab // multiple) * multiple
