"""Where Hugging Face keeps each parameter: our global name -> the name in model.safetensors, and
what the file does to the matrix.

`{}` is the number of the layer. A model has those rows whose parameters it has (biases, norms of
heads, a head of its own). Rotary pairs are (i, i + r/2) in both. Source: modeling files of
transformers 5.23 and the published checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class TensorPlace:
    """One tensor of a file, or a part of one."""

    name: str
    transposed: bool = False
    """The file has [in, out] (GPT-2's Conv1D), we have [out, in]."""
    part: int = 0
    """Which of `parts` equal parts along our first dimension (q, k, v of a fused matrix)."""
    parts: int = 1
    each: bool = False
    """One tensor for each of our first dimension (experts); `{e}` of the name is its number."""

    def named(self, number: int) -> str:
        """The tensor of one expert."""
        return self.name.replace("{e}", str(number))


Table = Mapping[str, TensorPlace]


def _fused(name: str, part: int, transposed: bool) -> TensorPlace:
    return TensorPlace(name, transposed, part, 3)


LLAMA: Table = {
    "embedding.weight": TensorPlace("model.embed_tokens.weight"),
    "norm.weight": TensorPlace("model.norm.weight"),
    "head.weight": TensorPlace("lm_head.weight"),
    "layers.{}.attention_norm.weight": TensorPlace(
        "model.layers.{}.input_layernorm.weight"
    ),
    "layers.{}.attention.wq.weight": TensorPlace(
        "model.layers.{}.self_attn.q_proj.weight"
    ),
    "layers.{}.attention.wk.weight": TensorPlace(
        "model.layers.{}.self_attn.k_proj.weight"
    ),
    "layers.{}.attention.wv.weight": TensorPlace(
        "model.layers.{}.self_attn.v_proj.weight"
    ),
    "layers.{}.attention.wo.weight": TensorPlace(
        "model.layers.{}.self_attn.o_proj.weight"
    ),
    "layers.{}.attention.wq.bias": TensorPlace(
        "model.layers.{}.self_attn.q_proj.bias"
    ),
    "layers.{}.attention.wk.bias": TensorPlace(
        "model.layers.{}.self_attn.k_proj.bias"
    ),
    "layers.{}.attention.wv.bias": TensorPlace(
        "model.layers.{}.self_attn.v_proj.bias"
    ),
    "layers.{}.attention.wo.bias": TensorPlace(
        "model.layers.{}.self_attn.o_proj.bias"
    ),
    "layers.{}.attention.q_norm.weight": TensorPlace(
        "model.layers.{}.self_attn.q_norm.weight"
    ),
    "layers.{}.attention.k_norm.weight": TensorPlace(
        "model.layers.{}.self_attn.k_norm.weight"
    ),
    "layers.{}.ffn_norm.weight": TensorPlace(
        "model.layers.{}.post_attention_layernorm.weight"
    ),
    "layers.{}.ffn.gate.weight": TensorPlace(
        "model.layers.{}.mlp.gate_proj.weight"
    ),
    "layers.{}.ffn.up.weight": TensorPlace(
        "model.layers.{}.mlp.up_proj.weight"
    ),
    "layers.{}.ffn.down.weight": TensorPlace(
        "model.layers.{}.mlp.down_proj.weight"
    ),
    "layers.{}.ffn.gate.bias": TensorPlace(
        "model.layers.{}.mlp.gate_proj.bias"
    ),
    "layers.{}.ffn.up.bias": TensorPlace("model.layers.{}.mlp.up_proj.bias"),
    "layers.{}.ffn.down.bias": TensorPlace(
        "model.layers.{}.mlp.down_proj.bias"
    ),
}
GPT2: Table = {
    "embedding.weight": TensorPlace("transformer.wte.weight"),
    "positions.weight": TensorPlace("transformer.wpe.weight"),
    "norm.weight": TensorPlace("transformer.ln_f.weight"),
    "norm.bias": TensorPlace("transformer.ln_f.bias"),
    "head.weight": TensorPlace("lm_head.weight"),
    "layers.{}.attention_norm.weight": TensorPlace(
        "transformer.h.{}.ln_1.weight"
    ),
    "layers.{}.attention_norm.bias": TensorPlace("transformer.h.{}.ln_1.bias"),
    "layers.{}.attention.wq.weight": _fused(
        "transformer.h.{}.attn.c_attn.weight", 0, True
    ),
    "layers.{}.attention.wk.weight": _fused(
        "transformer.h.{}.attn.c_attn.weight", 1, True
    ),
    "layers.{}.attention.wv.weight": _fused(
        "transformer.h.{}.attn.c_attn.weight", 2, True
    ),
    "layers.{}.attention.wq.bias": _fused(
        "transformer.h.{}.attn.c_attn.bias", 0, False
    ),
    "layers.{}.attention.wk.bias": _fused(
        "transformer.h.{}.attn.c_attn.bias", 1, False
    ),
    "layers.{}.attention.wv.bias": _fused(
        "transformer.h.{}.attn.c_attn.bias", 2, False
    ),
    "layers.{}.attention.wo.weight": TensorPlace(
        "transformer.h.{}.attn.c_proj.weight", True
    ),
    "layers.{}.attention.wo.bias": TensorPlace(
        "transformer.h.{}.attn.c_proj.bias"
    ),
    "layers.{}.ffn_norm.weight": TensorPlace("transformer.h.{}.ln_2.weight"),
    "layers.{}.ffn_norm.bias": TensorPlace("transformer.h.{}.ln_2.bias"),
    "layers.{}.ffn.up.weight": TensorPlace(
        "transformer.h.{}.mlp.c_fc.weight", True
    ),
    "layers.{}.ffn.up.bias": TensorPlace("transformer.h.{}.mlp.c_fc.bias"),
    "layers.{}.ffn.down.weight": TensorPlace(
        "transformer.h.{}.mlp.c_proj.weight", True
    ),
    "layers.{}.ffn.down.bias": TensorPlace("transformer.h.{}.mlp.c_proj.bias"),
}


def _experts(name: str) -> TensorPlace:
    return TensorPlace(f"model.layers.{{}}.{name}.weight", each=True)


def _routed(
    inside: str, gate: str, up: str, down: str
) -> dict[str, TensorPlace]:
    """Router and routed experts of a layer, under the names of a family."""
    ours = "layers.{}.ffn"
    every = {"gate": gate, "up": up, "down": down}
    return {
        f"{ours}.router.weight": TensorPlace(
            f"model.layers.{{}}.{inside}.gate.weight"
        ),
        **{
            f"{ours}.experts.{mine}.weight": _experts(
                f"{inside}.experts.{{e}}.{theirs}"
            )
            for mine, theirs in every.items()
        },
    }


MIXTRAL: Table = {
    **LLAMA,
    **_routed("block_sparse_moe", "w1", "w3", "w2"),
}
QWEN_MOE: Table = {
    **LLAMA,
    **_routed("mlp", "gate_proj", "up_proj", "down_proj"),
    **{
        f"layers.{{}}.ffn.shared.{ours}.weight": TensorPlace(
            f"model.layers.{{}}.mlp.shared_expert.{ours}_proj.weight"
        )
        for ours in ("gate", "up", "down")
    },
    "layers.{}.ffn.shared_gate.weight": TensorPlace(
        "model.layers.{}.mlp.shared_expert_gate.weight"
    ),
}
TABLES: Mapping[str, Table] = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "gpt2": GPT2,
    "mixtral": MIXTRAL,
    "qwen2_moe": QWEN_MOE,
    "qwen3_moe": QWEN_MOE,
    "olmo": LLAMA,
}
"""By `model_type` of config.json."""
BODY = re.compile(r"(?:model|transformer)\.")
"""What files of a model without its head (and the first GPT-2 files) leave out of the names."""
BUFFERS = re.compile(r".*(?:rotary_emb\.inv_freq|\.attn\.(?:masked_)?bias)")
"""Constants that older files hold beside the weights."""


def weight_place(table: Table, ours: str) -> TensorPlace | None:
    """Where a parameter of ours stands; None if files of this family have no such thing."""
    layer = re.search(r"\.(\d+)\.", ours)
    row = table.get(re.sub(r"\.\d+\.", ".{}.", ours, count=1))
    if row is None or layer is None:
        return row
    return replace(row, name=row.name.replace("{}", layer[1]))
