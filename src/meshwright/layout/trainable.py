"""What the trainer of this project cannot run, beside what no layout may be and the values that its
choices leave out: the rules of the framework `meshwright`, by name.

They need no torch, so that a plan and a prediction know them too. Settings of a run, ranks and
memory stand in `train.rules`.
"""

from __future__ import annotations

from typing import Any

from ..describe.choices import first_few
from ..describe.fields import ASK
from ..describe.framework import framework
from ..describe.job import Job
from ..describe.layers import kinds
from ..describe.layout import Layout
from ..describe.model import Model
from ..describe.recompute import RECOMPUTE
from ..schedule import get as schedule_named
from .placement import launched
from .rule import LayoutRule, divides, may_be
from .sequence import token_parts
from .stages import microbatches


def model_refusals(m: Model) -> list[str]:
    """What the trainer's decoder does not have."""
    missing = {
        "model.mla: latent attention is not trained yet": m.mla,
        "model.bias with shared experts is not trained: the output bias would be one too many": (
            m.moe and m.moe.shared_ffn and m.bias
        ),
        "model.pattern: only full and sliding attention with a feed-forward are trained": any(
            not kind.ffn or kind.mixer not in ("full", "sliding")
            for kind in kinds(m)
        ),
        "model.sliding: other heads in sliding layers are not trained": m.sliding,
        "model.attention_gate: gated attention is not trained": m.attention_gate
        != "none",
        "model.v_head_dim: only values as wide as keys are trained": m.v != m.h
        and not m.mla,
        "model.out_bias must equal bias, or be left out, to train": m.biased_out
        != m.bias,
        "model.key_is_value is not trained": m.key_is_value,
        "model.head_bias is not trained": m.head_bias,
        "model.final_norm must be true to train": not m.final_norm,
        "model.position_rows must equal seq to train": (
            m.positions == "learned" and m.position_rows not in (None, m.seq)
        ),
        "model.inner_norms are not trained": m.inner_norms,
        "model.vectors are not trained": m.vectors,
        "model.norm layernorm-scale is not trained": m.norm
        == "layernorm-scale",
        "model.qk_norm_shift is not trained": m.qk_norm and m.qk_norm_shift,
        "model.moe.latent, idle_experts and post_norm are not trained": (
            m.moe and (m.moe.latent or m.moe.idle_experts or m.moe.post_norm)
        ),
        "model.moe.groups: a router limited to top_groups of them is not trained": (
            m.moe and m.moe.top_groups < m.moe.groups
        ),
        "model.mtp_layers: multi-token prediction is not trained": m.mtp_layers,
        "model.attention_sinks are not trained": m.attention_sinks,
        "model.embedding_norm is not trained": m.embedding_norm,
        "model.embedding_width, token_types and head_width are not trained": (
            m.embedding_width or m.token_types or m.head_width
        ),
        "model.qk_norm_whole: a norm over all heads is not trained": m.qk_norm
        and m.qk_norm_whole,
        "model.dropout: set it to false, the trainer has no dropout": m.dropout,
        f"model.norms_per_layer must be 2 to train, not {m.norms_per_layer}": (
            m.norms_per_layer != 2
        ),
        "model.positions alibi are not trained: rope, learned or none": m.positions
        == "alibi",
        "model.vocab must be at least 2 to train": m.vocab < 2,
        f"model.head_dim {m.h}, or the share of it that is rotated, must be even for rotary"
        " positions": (m.positions == "rope" and m.rotary % 2),
        "model.activation other is not trained: silu, gelu, gelu-tanh or relu": m.act
        == "other",
        "model.window without attention causal is not trained": (
            m.window is not None and m.attention != "causal"
        ),
        "model.rope_scaling: high must be more than low": (
            m.rope_scaling and m.rope_scaling.high <= m.rope_scaling.low
        ),
        "model.rope_scaling: only linear and llama3 are supported": (
            m.rope_scaling and m.rope_scaling.kind not in ("linear", "llama3")
        ),
    }
    return [sentence for sentence, holds in missing.items() if holds]


def number_refusals(job: Job) -> list[str]:
    """Numbers and optimizers that are not trained."""
    why = []
    compute = job.precision.compute
    if compute not in ("fp32", "bf16", "fp16"):
        why.append(
            f"precision {compute} is not trained: take fp32, bf16 or fp16"
        )
    elif compute != "fp32" and job.precision.gradient_bytes != 4:
        why.append(
            f"precision {compute}-pure is not trained: take {compute}, which keeps gradients and"
            " weights in fp32"
        )
    if job.optimizer.name not in ("adamw", "adamw-no-master"):
        why.append(
            f"optimizer {job.optimizer.name} is not trained: take adamw"
        )
    return why


def _software(job: Job) -> list[str]:
    """Settings of the software that the trainer would not run: all but those it has by itself."""
    own = framework("meshwright")
    why = [
        f"software.{name} {first_few([value])} is not what meshwright train does:"
        f" take {first_few([getattr(own, name)])}, or leave it out"
        for name, value in job.software.given.items()
        if value != getattr(own, name)
    ]
    if job.attention_kernel not in (ASK, "flash", own.attention, own.flash):
        why.append(
            f"attention_kernel {job.attention_kernel} is not what meshwright train runs: flash"
            " (PyTorch's scaled_dot_product_attention)"
        )
    return why


def splits_backward(l: Layout) -> bool:
    """The schedule cuts backward passes in two."""
    return schedule_named(l.schedule).split_backward


def whole_numbers(shares: tuple[Any, ...]) -> Any:
    """Every share is a whole number."""
    fine: Any = True
    for share in shares:
        fine = fine & (share % 1 == 0)
    return fine


MODEL = LayoutRule(
    "trained model",
    lambda j, l: not model_refusals(j.model),
    lambda j, l: "; ".join(model_refusals(j.model)),
)
NUMBERS = LayoutRule(
    "trained numbers",
    lambda j, l: not number_refusals(j),
    lambda j, l: "; ".join(number_refusals(j)),
)
SOFTWARE = LayoutRule(
    "trained software",
    lambda j, l: not _software(j),
    lambda j, l: "; ".join(_software(j)),
)
STARVED = LayoutRule(
    "a microbatch for every stage",
    lambda j, l: (
        (l.pp == 1) | (microbatches(j, l) >= l.pp)
        if l.schedule == "1f1b"
        else True
    ),
    lambda j, l: (
        "schedule 1f1b runs in PyTorch only with at least as many microbatches as stages, not"
        f" {int(microbatches(j, l))} for pp {l.pp}: take gpipe, or a smaller microbatch"
    ),
    reads=("pp", "microbatches", "schedule"),
)
CHUNKS = LayoutRule(
    "chunks need a pipeline",
    lambda j, l: (l.interleave == 1) | (l.pp > 1),
    lambda j, l: f"layout.interleave {l.interleave} needs pp > 1",
    reads=("pp", "schedule"),
)
OFFLOADED = LayoutRule(
    "nothing in host memory",
    lambda j, l: l.offload == "none",
    lambda j, l: f"layout.offload {l.offload} is not run: take none",
)
RECOMPUTED = LayoutRule(
    "trained recomputation",
    lambda j, l: l.recompute in (*RECOMPUTE, "op"),
    lambda j, l: (
        f"layout.recompute {l.recompute} is not trained: take {', '.join(RECOMPUTE)}"
    ),
    reads=("recompute",),
)
COPIES = LayoutRule(
    "trained groups of dp",
    lambda j, l: l.dp_replicate == 1,
    lambda j, l: (
        f"layout.dp_replicate {l.dp_replicate} is run as [train] shards"
        f" {int(l.dp / l.dp_replicate)}: set that"
    ),
    reads=("zero",),
)
HALVES = LayoutRule(
    "halves of whole layers",
    lambda j, l: (
        l.pp == 1 if splits_backward(l) and l.recompute != "none" else True
    ),
    lambda j, l: (
        f"layout.schedule {l.schedule} with recompute {l.recompute} computes every layer twice"
        " more, once for each half of the backward pass: take recompute none"
    ),
    reads=("pp", "schedule", "recompute"),
)
SHARDED_HALVES = LayoutRule(
    "halves of sharded weights",
    lambda j, l: l.pp == 1 if splits_backward(l) and l.zero == 3 else True,
    lambda j, l: (
        f"layout.zero 3 with schedule {l.schedule} is not executed correctly by PyTorch 2.13"
        " (weights are freed before their half of the backward pass): take zero 2"
    ),
    reads=("pp", "schedule", "zero"),
)
SHARED = LayoutRule(
    "shared experts over tp",
    lambda j, l: j.model.moe.shared_ffn % l.tp == 0 if j.model.moe else True,
    lambda j, l: (
        f"model.moe.shared_ffn {j.model.moe.shared_ffn if j.model.moe else 0} cannot be split over"
        f" tp {l.tp}"
    ),
)
KV_HEADS = LayoutRule(
    "whole kv heads",
    lambda j, l: divides(l.tp, j.model.K),
    lambda j, l: (
        f"layout.tp {l.tp} must divide the {j.model.K} kv heads: tp may be {may_be(j.model.K)}"
    ),
)
VOCABULARY = LayoutRule(
    "vocabulary over tp",
    lambda j, l: divides(l.tp, j.model.padded_vocab),
    lambda j, l: (
        f"layout.tp {l.tp} must divide the vocabulary of {j.model.padded_vocab} rows: set"
        f" model.vocab_multiple to {l.tp}"
    ),
)
SEQUENCES = LayoutRule(
    "whole sequences",
    lambda j, l: (
        divides(token_parts(l.scheme, l.sequence_parallel, l.tp, l.cp), j.T)
        & ((l.cp == 1) | divides(2 * l.cp, j.T))
    ),
    lambda j, l: (
        f"a sequence of {j.T} tokens cannot be cut over cp {l.cp}"
        + (f" in {2 * int(l.cp)} chunks" if l.cp > 1 else "")
        + (
            f" and tp {l.tp} (sequence_parallel)"
            if l.sequence_parallel and l.tp > 1
            else ""
        )
    ),
    reads=("sequence_parallel",),
)
POSITIONS = LayoutRule(
    "learned positions",
    lambda j, l: j.model.positions != "learned" or j.model.seq >= j.T,
    lambda j, l: (
        f"a sequence of {j.T} tokens is longer than the model's {j.model.seq} learned positions"
    ),
)
EXPERT_SHARES = LayoutRule(
    "whole expert ranks",
    lambda j, l: (
        True if j.model.moe is None else (l.ep == 1) | _expert_shares(j, l)
    ),
    lambda j, l: (
        f"layout.ep {l.ep} does not divide the ranks of tp x cp x dp in every network dimension,"
        f" whose sizes are {j.cluster.sizes}"
    ),
    reads=("pp", "dp", "placement"),
)


def _expert_shares(job: Job, l: Layout) -> Any:
    """ep takes whole ranks of every network dimension."""
    at = l if l.placement else launched(job, l)
    return whole_numbers((*at.group("ep"), *at.group("edp")))


ROUNDS = LayoutRule(
    "a microbatch for every rank",
    lambda j, l: (
        (microbatches(j, l) >= l.pp)
        if schedule_named(l.schedule).grouped
        else True
    ),
    lambda j, l: (
        f"schedule {l.schedule} runs in Megatron with at least as many microbatches as stages of a"
        f" chunk, not {int(microbatches(j, l))} for pp {l.pp}: raise the batch, or lower dp,"
        " microbatch or pp"
    ),
    reads=("pp", "microbatches", "schedule"),
)
"""Of the groups of Megatron-LM."""

TRAINER = (
    MODEL,
    STARVED,
    CHUNKS,
    OFFLOADED,
    RECOMPUTED,
    COPIES,
    HALVES,
    SHARDED_HALVES,
    SHARED,
    KV_HEADS,
    VOCABULARY,
    SEQUENCES,
    POSITIONS,
    NUMBERS,
    SOFTWARE,
    EXPERT_SHARES,
)
"""All of them, in the order in which they are said."""
