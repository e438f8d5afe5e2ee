"""nanotron's YAML (2411b02): what its table cannot say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ...errors import BadInput
from .keys import Keys
from .table import get

M = "model.model_config."
E = M + "moe_config."


def layers(k: Keys) -> int | None:
    """Raises BadInput for a key of the model that Llama and Qwen2 do not have: nanotron, which
    takes no key that a model's configuration lacks (config/config.py), builds another one.
    """
    format = get("nanotron")
    for key in k.said:
        if key.startswith(M) and not format.knows(key):
            raise BadInput(
                f"nanotron: {key} is of another model than Llama or Qwen2, which is not read: give"
                " it as config.json"
            )
    return k.whole(M + "num_hidden_layers")


def moe(k: Keys) -> dict[str, Any] | None:
    """Experts in all layers, as wide as their own key or `MoEConfig` says (models/qwen.py)."""
    layers = [str(v) for v in k.items(E + "layers") if v != "-1"]
    experts = k.whole(E + "num_experts")
    if not experts:
        return None
    if layers and len(layers) != k.degree("model.layers"):
        raise BadInput(
            "nanotron: experts in some layers only are read from a config.json: --model config.json"
        )
    shared = k.whole(E + "shared_expert_intermediate_size", 5632)
    return {
        "experts": experts,
        "top_k": k.whole(E + "top_k", 2),
        "expert_ffn": k.whole(E + "moe_intermediate_size", 1408),
        "shared_ffn": shared if k.switch(E + "enable_shared_expert") else 0,
    }


def stages_by_cost(k: Keys) -> str | None:
    """Layers by cost: a stage takes blocks until it has more than its share of all multiplications,
    those of the output head among them (models/base.py, build_model).
    """
    pp, layers = k.degree("layout.pp"), k.degree("model.layers")
    if pp == 1:
        return None
    width = k.degree("model.hidden")
    layer = (4 * width + 3 * k.degree("model.ffn")) * width
    head = k.degree("model.vocab") * width
    share = (layers * layer + head) / pp
    ends, cost = [0], 0
    for index in range(1, layers + 1):
        cost += layer
        if cost > share * len(ends):
            ends.append(index)
    ends = [*ends[:pp], layers]
    return ",".join(str(b - a) for a, b in pairwise(ends))
