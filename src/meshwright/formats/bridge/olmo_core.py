"""OLMo-core's configuration as a run saves it (config.json): what its table cannot say.

Its scripts are Python, which is not run here; each run writes its whole configuration beside its
checkpoints (train/callbacks/config_saver.py). Batches are in tokens.

Source: github.com/allenai/OLMo-core, nn/transformer/config.py, train/train_module/transformer/
config.py, distributed/parallel/data_parallel.py, fa6c501 (2026-06), Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import BadInput
from .keys import Keys
from .reading import Reader
from .shared import optimizer_named, runs_fsdp2

BLOCK = "model.block."
MIXERS = (BLOCK + "attention.", BLOCK + "sequence_mixer.")
"""Where attention stands, before and since mixers of other kinds."""
TRAIN = "train_module."
DP, AC = TRAIN + "dp_config.", TRAIN + "ac_config."
RMS = ("rms", "fused_rms", "qwen_rms", "cute_rms")
NORMS = {
    **dict.fromkeys(("default", "default_scaled", "reordered_norm"), 2),
    "peri_norm": 4,
}
"""Kind of block -> its norms."""
NUMBERS = ("float32", "bfloat16")
NODE = 8
"""Ranks of a node: local_world_size where it is theirs."""


def _part(k: Keys, name: str) -> str:
    """The key of a setting of attention."""
    return next((m + name for m in MIXERS if m + name in k.said), "")


def has_part(k: Keys, name: str) -> bool:
    """Attention has such a section."""
    starts = tuple(f"{m}{name}." for m in MIXERS)
    return any(key.startswith(starts) for key in k.said)


def flag(k: Keys, key: str, default: bool) -> bool:
    return k.switch(key, default) if key else default


def norms(k: Keys) -> int:
    """Of a block.  Raises BadInput for a kind that is not read."""
    kind = k.word(BLOCK + "name", "default")
    if kind not in NORMS:
        raise BadInput(
            f"OLMo-core: blocks of kind {kind[:40]} are not read: give the model as config.json"
        )
    return NORMS[kind]


def _norm(k: Keys) -> str:
    rms = (
        k.choice(BLOCK + "layer_norm.name", (*RMS, "default"), "default")
        in RMS
    )
    shift = k.switch(BLOCK + "layer_norm.bias", not rms)
    return "rmsnorm" if rms else "layernorm" if shift else "layernorm-scale"


def seq(k: Keys) -> int | None:
    return k.whole(TRAIN + "max_sequence_length")


def of_tokens(k: Keys, key: str) -> int | None:
    """Sequences of so many tokens; what is no multiple is left out, and said so."""
    tokens, length = k.whole(key), seq(k)
    if tokens and length and tokens % length:
        k.unreadable(key, f"is no multiple of sequences of {length}")
    return tokens // length if tokens and length else None


def _batch(k: Keys) -> str | None:
    count = of_tokens(k, "data_loader.global_batch_size")
    return f"{count}seq" if count else None


def _zero(k: Keys) -> int:
    name = k.choice(DP + "name", ("fsdp", "hsdp", "ddp"), "ddp")
    if name == "ddp":
        return 0
    runs_fsdp2(k)
    return 3


def _replicas(k: Keys) -> int | None:
    """Copies of HSDP: stated, what shards leave, or one a node."""
    if k.word(DP + "name") != "hsdp":
        return None
    copies, shards = k.whole(DP + "num_replicas"), k.whole(DP + "shard_degree")
    if copies or not k.chips:
        return copies
    parts = k.degree("layout.tp") * k.degree("layout.cp")
    if not shards:
        k.notes.append(f"copies of weights are one a node of {NODE}")
    return max(k.chips // parts // (shards or NODE), 1)


def recompute(k: Keys) -> str | None:
    """Whole blocks, or every so many-th."""
    if not any(key.startswith(AC) for key in k.said):
        return "none"
    mode = k.word(AC + "mode", "full")
    if mode == "full":
        return "full"
    interval = k.whole(AC + "block_interval")
    if mode == "selected_blocks" and interval:
        return f"full:{-(-k.degree('model.layers') // interval)}"
    k.unreadable(AC + "mode", f"{mode[:40]} is not predicted: say --recompute")
    return None


def precision(k: Keys) -> str:
    """Numbers of FSDP's copies, or of autocast; weights themselves are kept in fp32."""
    half = (DP + "param_dtype", TRAIN + "autocast_precision")
    words = [k.choice(key, NUMBERS, "float32") for key in half]
    return "bf16" if "bfloat16" in words else "fp32"


def _optimizer(k: Keys) -> str | None:
    """By the class of its configuration: SkipStepAdamWConfig."""
    key = TRAIN + "optim._CLASS_"
    named = str(k.get(key, "")).rpartition(".")[2].removesuffix("Config")
    word = named.removeprefix("SkipStep").lower()
    return optimizer_named(
        Keys({key: word}, k.title, used=k.used, left=k.left), key
    )


def tokens(k: Keys) -> float | None:
    """Of a duration in tokens or steps; epochs of data that nobody knows are left open."""
    value = k.number("trainer.max_duration.value")
    unit = k.word("trainer.max_duration.unit")
    each = k.whole("data_loader.global_batch_size")
    if value and unit == "steps":
        return value * each if each else None
    return value if unit == "tokens" else None


READ: Mapping[str, Reader] = {
    "model.gated": lambda k: True,
    "model.kv_heads": lambda k: k.whole(_part(k, "n_kv_heads")),
    "model.norm": _norm,
    "model.norms_per_layer": norms,
    "model.qk_norm": lambda k: has_part(k, "qk_norm"),
    "model.qk_norm_whole": lambda k: (
        has_part(k, "qk_norm")
        and not flag(k, _part(k, "use_head_qk_norm"), False)
    ),
    "model.positions": lambda k: "rope" if has_part(k, "rope") else "none",
    "model.bias": lambda k: k.switch(BLOCK + "feed_forward.bias", True),
    "model.qkv_bias": lambda k: flag(k, _part(k, "bias"), True),
    "model.out_bias": lambda k: flag(k, _part(k, "bias"), True),
    "layout.microbatch": lambda k: of_tokens(
        k, TRAIN + "rank_microbatch_size"
    ),
    "layout.zero": _zero,
    "layout.dp_replicate": _replicas,
    "layout.recompute": recompute,
    "job.seq": seq,
    "job.batch": _batch,
    "job.tokens": tokens,
    "job.precision": precision,
    "job.optimizer": _optimizer,
}
