"""nanotron's YAML (2411b02): what its table cannot say."""

from __future__ import annotations

from itertools import pairwise

from ...errors import BadInput
from .keys import Keys
from .table import get

M = "model.model_config."


def layers(k: Keys) -> int | None:
    """Raises BadInput for a key of the model that Llama and Qwen2 do not have: nanotron, which
    takes no key that a model's configuration lacks (config/config.py), builds another one.
    """
    format = get("nanotron")
    for key in k.said:
        on = k.said[key] is not None
        if on and key.startswith(M) and not format.knows(key):
            raise BadInput(
                f"nanotron: {key} is of another model than Llama or Qwen2, which is not read: give"
                " it as config.json"
            )
    return k.whole(M + "num_hidden_layers")


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
