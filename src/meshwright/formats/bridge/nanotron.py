"""nanotron's YAML (2411b02): what its table cannot say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ...describe.job import Job
from ...errors import BadInput
from .keys import Keys
from .shared import Out, optimizer_named
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


def _stages(k: Keys) -> str | None:
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


def _optimizer(k: Keys) -> str | None:
    """AdamW of fp32 copies only where gradients are added up in fp32 (helpers.py)."""
    name = optimizer_named(k, "optimizer.optimizer_factory.name")
    alone = k.switch("optimizer.accumulate_grad_in_fp32") is False
    return "adamw-no-master" if alone and name is None else name


READ = {
    "model.layers": layers,
    "model.moe": moe,
    "layout.stages": _stages,
    "job.optimizer": _optimizer,
}


def write_moe(job: Job, out: Out) -> None:
    e = job.model.moe
    if e is None:
        return
    if (
        e.dense_layers
        or e.router_bias
        or e.shared_gate
        or e.expert_bias
        or e.latent
        or e.idle_experts
        or e.post_norm
    ):
        raise BadInput(
            "nanotron's experts are plain ones in every layer: not those of "
            + job.model.name
        )
    out |= {
        E + "num_experts": e.experts,
        E + "top_k": e.top_k,
        E + "moe_intermediate_size": e.expert_ffn,
        E + "enable_shared_expert": bool(e.shared_ffn),
        E + "token_dispatcher_type": "alltoall",
    }
    if e.shared_ffn:
        out[E + "shared_expert_intermediate_size"] = e.shared_ffn


def write_tp(job: Job, out: Out) -> None:
    """Heads of keys are shared out, never copied (config.py, Config.__post_init__)."""
    if job.layout.tp > job.model.K:
        raise BadInput(
            f"nanotron cuts {job.model.K} heads of keys: tp at most {job.model.K}, not"
            f" {int(job.layout.tp)}"
        )
    own = job.framework.tp_overlap if job.framework else "off"
    overlap = job.software.tp_overlap or own
    whole = job.layout.tp > 1 and not job.layout.sequence_parallel
    if whole and overlap != "off":
        raise BadInput(
            "nanotron overlaps the collectives of tp where they scatter: sequence_parallel true, or"
            " tp_overlap off"
        )
    out["parallelism.tp"] = int(job.layout.tp)


def write_optimizer(job: Job, out: Out) -> None:
    """The precision says whether copies in fp32 are kept."""
    kept = job.precision.name != "bf16-pure"
    wanted = ("adamw", "adam") if kept else ("adamw-no-master",)
    if job.optimizer.name not in wanted:
        raise BadInput(
            f"nanotron runs {wanted[0]} with {job.precision.name}, not {job.optimizer.name}"
        )


WRITE = {
    "model.moe": write_moe,
    "layout.tp": write_tp,
    "job.optimizer": write_optimizer,
}
