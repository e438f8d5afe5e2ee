"""One published row to the job it describes. What a row does not say has a default here, in `words` or `hardware`."""

from __future__ import annotations

import re
from typing import Any

from ..errors import BadInput
from ..spec.job import Job
from ..spec.layout import Layout
from ..spec.model import MLA, Model, MoE
from ..spec.ranges import check
from . import hardware, words
from .rows import Row, flag, needed, number, part, plain, text, whole

MOST_LAYERS = 5000
MEGATRON_ROWS = 128
"""Megatron-LM pads the vocabulary to a multiple of this."""
WINDOW = re.compile(r"sliding[- ]window[- ](\d+)")


def job(row: Row) -> Job:
    """The job of a row, layout included; BadInput says why there is none."""
    shape, software = model(row), text(row, "software")
    machine, parallel, sharding = hardware.cluster(row), part(row, "parallel"), text(row, "optimizer_sharding")
    notes = " ".join((software, text(part(row, "model"), "attention"), text(row, "notes")))
    return Job(
        shape, machine, needed(row, "global_batch"), layout(row, shape, machine.chips),
        precision=words.precision(text(row, "precision"), software, machine.chip),
        optimizer=words.optimizer(words.is_fsdp(sharding, text(parallel, "fsdp"), software)),
        attention_kernel=words.attention_kernel(text(row, "attention_kernel"), notes, number(row, "year")),
    )  # fmt: skip


def layout(row: Row, shape: Model, chips: int) -> Layout:
    """Degrees and choices of a row. Defaults: degrees 1, dp = what is left of the chips, microbatch 1, experts not cut.

    A mixture of experts with tp > 1 has sequence parallelism whatever the row says: each rank routes its own tokens.
    """
    p = part(row, "parallel")
    tp, cp, pp, ep = (whole(p, name, 1) for name in ("tp", "cp", "pp", "ep"))
    schedule, interleave = words.schedule(text(p, "schedule"), pp, whole(p, "vpp", 1))
    stage = p.get("zero_stage")
    return Layout(
        tp=tp, cp=cp, pp=pp, dp=whole(p, "dp", max(chips // (tp * cp * pp), 1)), ep=ep, etp=whole(p, "etp", 1),
        microbatch=whole(row, "micro_batch", 1), interleave=interleave, schedule=schedule,
        zero=words.zero(stage if isinstance(stage, int) else None, text(row, "optimizer_sharding"), text(p, "fsdp")),
        recompute=words.recompute(text(row, "recompute"), shape.layers / (pp * interleave)),
        sequence_parallel=tp > 1 and (bool(flag(p, "sp")) or shape.moe is not None),
    )  # fmt: skip


def model(row: Row) -> Model:
    """The shape of a row's model. Gated means Llama-like (RMS norm, rotary positions, no biases); otherwise GPT-like
    (layer norm, biases, learned positions unless ALiBi, embedding shared with the head). GPTs have dropout unless the
    row speaks of ALiBi or of no biases.
    """
    m = part(row, "model")
    if re.search(r"mamba|hybrid|ssm|rwkv", text(m, "arch")):
        raise BadInput("state-space layers are not described yet")
    layers, hidden, ffn, attention = (
        needed(m, "layers"),
        needed(m, "hidden"),
        needed(m, "ffn_hidden"),
        text(m, "attention"),
    )
    if layers > MOST_LAYERS:
        raise BadInput(f"layers must be at most {MOST_LAYERS}, not {layers}")
    stated, alibi = flag(m, "gated"), "alibi" in attention
    gated = stated if stated is not None else ffn != 4 * hidden
    biased = not gated and "no bias" not in text(row, "notes")
    tied, window = flag(m, "tied_embeddings"), WINDOW.search(attention)
    shape = Model(
        plain(m, "name")[:80] or "unnamed", layers, hidden, needed(m, "heads"), ffn, needed(m, "vocab"),
        needed(m, "seq_len"), kv_heads=whole(m, "kv_heads", 0) or None, head_dim=whole(m, "head_dim", 0) or None,
        gated=gated, window=int(window[1]) or None if window else None,
        full_every=1 if not window else 2 if "alternating" in attention else 0,
        norm="rmsnorm" if gated else "layernorm",
        positions="rope" if gated else "alibi" if alibi else "learned", qk_norm="qwen3" in text(m, "name"),
        qkv_bias=biased, bias=biased, dropout=biased and not alibi, attention_sinks="sink" in attention,
        tied_embeddings=tied if tied is not None else not gated,
        vocab_multiple=1 if "fsdp" in text(row, "software") else MEGATRON_ROWS,
        mla=latent(m), moe=experts(m, ffn), mtp_layers=whole(m, "mtp_layers", 0),
    )  # fmt: skip
    check(shape, "model")
    return shape


def latent(m: Row) -> MLA | None:
    """Latent attention, with DeepSeek-V3's widths where the row only says that there is some."""
    mla: Any = m.get("mla")
    if not mla and "mla" not in text(m, "arch"):
        return None
    w = mla if isinstance(mla, dict) else {}
    return MLA(
        kv_lora_rank=whole(w, "kv_lora_rank", 512),
        qk_nope_head_dim=whole(w, "qk_nope_head_dim", 128),
        qk_rope_head_dim=whole(w, "qk_rope_head_dim", 64),
        v_head_dim=whole(w, "v_head_dim", 128),
        q_lora_rank=whole(w, "q_lora_rank", 0 if w else 1536) or None,
    )


def experts(m: Row, ffn: int) -> MoE | None:
    """The mixture of experts, if the row has one."""
    count = whole(m, "experts", 0)
    if count <= 1:
        if "moe" in text(m, "arch"):
            raise BadInput("experts are not given")
        return None
    moe = MoE(
        count,
        needed(m, "top_k"),
        whole(m, "expert_ffn", ffn),
        whole(m, "shared_expert_ffn", 0),
        whole(m, "dense_layers", 0),
    )
    check(moe, "model.moe")
    return moe
