"""MaxText's YAML: a mesh whose axes lie inside a slice (ici) and across slices (dcn).

dp = data x fsdp x expert: replicas, shards, and the ranks of experts, which take batch and shards
too. Whatever is sharded at all is sharded wholly (ZeRO-3); copies are the axis `data` (HSDP).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from ...describe.job import Job
from ...describe.offload import offload
from ...describe.recompute import (
    part_of_word,
    parts_of,
    recompute,
)
from ...errors import BadInput
from ...layout.schemes import hidden_cut
from ..torchrun import PORT
from . import launch
from .keys import Keys
from .shared import Out, inside, model_in_catalogue
from .tool import Tool


def scheme(k: Keys) -> str | None:
    """What lies between matrices is cut along the hidden size where the axis is `tensor`."""
    if k.product("ici_tensor_parallelism", "dcn_tensor_parallelism") == 1:
        return None
    model = model_in_catalogue(k)
    if model and hidden_cut(model):
        return "gspmd"
    k.notes.append(
        "the axis tensor cuts hidden states along the hidden size, here counted along the sequence:"
        " as many bytes; --scheme gspmd counts it as it is, for dense models"
    )
    return None


def write_mesh(job: Job, out: Out) -> None:
    """Experts nearest, then shards, then copies."""
    l = job.layout
    shards = (
        max(int(l.dp) // int(l.dp_replicate * l.ep), 1) if l.zero == 3 else 1
    )
    whole = int(l.dp) // (shards * int(l.ep))
    if shards * whole * int(l.ep) != int(l.dp) or (
        l.zero == 3 and whole != l.dp_replicate
    ):
        raise BadInput(
            f"MaxText takes ep from dp: {int(l.ep)} x dp_replicate must divide {int(l.dp)}"
        )
    if l.dp_replicate > 1 and l.zero == 3 and shards * l.ep * l.cp == 1:
        raise BadInput("MaxText shards over more than one rank: fewer copies")
    room = inside(job, "dp")
    for name, degree in (
        ("expert", int(l.ep)),
        ("fsdp", shards),
        ("data", whole),
    ):
        here = math.gcd(degree, room)
        room //= here
        out[f"ici_{name}_parallelism"] = here
        out[f"dcn_{name}_parallelism"] = degree // here


ENTRY = "decoder_layer_input"
"""What each layer begins with, which no policy makes again."""
TENSORS = {
    "save_qkv_proj": ("query_proj", "key_proj", "value_proj", "qkv_proj"),
    "save_out_proj": ("out_proj",),
    "save_context": ("context",),
    "save_mlpwi": (
        "mlpwi_0",
        "mlpwi_1",
        "moe_mlpwi_0",
        "moe_mlpwi_1",
        "mlpwi",
    ),
    "save_mlpwo": ("mlpwo", "moe_mlpwo"),
}
"""Word of `describe.recompute` -> the tensors by which a custom policy names what it keeps."""
TOGETHER = ("qkv_proj", "mlpwi")
"""Of them those that are the others of their word in one matrix."""
DEVICE, OFFLOAD, AGAIN = "device", "offload", "remat"
"""Where a custom policy has a tensor, or that it is made again."""
NAMED = (
    *("full", "minimal", "minimal_with_context"),
    *("save_dot_with_context_except_mlp", "save_dot_except_mlpwi"),
    *("save_dot_except_mlp", "save_qkv_proj", "save_out_proj"),
)
"""Policies that have a name, which is ours too."""
OFFLOADED = ("qkv_proj_offloaded", "minimal_offloaded")
"""Policies whose results all go to host memory."""


def kept_words(recomputed: str) -> list[str]:
    """The words of `TENSORS` that keep what the words of a layout do."""
    kept = {name for part in parts_of(recomputed) for name in part.keeps}
    return [
        word for word in TENSORS if kept.issuperset(part_of_word(word).keeps)
    ]


def custom(k: Keys) -> dict[str, str]:
    """Tensor -> where a custom policy keeps it; nothing in a policy that has a name."""
    if k.word("remat_policy") != "custom":
        return {}
    names = [name for named in TENSORS.values() for name in named]
    said = {name: k.word(name, AGAIN) for name in names}
    said[ENTRY] = k.word(ENTRY, DEVICE)
    return {name: place for name, place in said.items() if place != AGAIN}


def keeps(word: str, kept: Collection[str]) -> bool:
    """A custom policy keeps all of a word's tensors: those of dense layers, of experts, or what is
    both in one matrix.
    """
    kinds: dict[str, list[bool]] = {}
    for name in TENSORS[word]:
        kind = name if name in TOGETHER else name.partition("moe_")[1]
        kinds.setdefault(kind, []).append(name in kept)
    return any(map(all, kinds.values()))


def read_remat(k: Keys) -> str | None:
    """What a custom policy makes again, by what it keeps; None: the policy has a name."""
    kept = custom(k)
    if not kept:
        return None
    words = [word for word in TENSORS if keeps(word, kept)]
    whole = {ENTRY, *(name for word in words for name in TENSORS[word])}
    for name in sorted(kept.keys() - whole):
        k.leave(
            name,
            "kept without the tensors beside it: the prediction makes it again",
        )
    named = (name for name in NAMED if kept_words(name) == words)
    return next(named, "+".join(words))


def write_remat(job: Job, out: Out) -> None:
    """The policy of a name, or a custom one where none keeps as much, or something leaves."""
    layout = job.layout
    again, away = recompute(layout.recompute), offload(layout.offload)
    policy = {"selective": "minimal"}.get(again.parts, again.parts)
    if again.layers:
        raise BadInput(
            f"MaxText recomputes the same of all layers, not {layout.recompute}"
        )
    words = kept_words(policy)
    if policy != "full" and not words:
        raise BadInput(
            f"MaxText cannot express layout.recompute = {layout.recompute}, only"
            f" {', '.join(NAMED)}, or what {', '.join(TENSORS)} keep together; plan --framework"
            " maxtext finds such a layout"
        )
    out["remat_policy"] = policy
    if policy in NAMED and not away.activations:
        return
    out["remat_policy"] = "custom"
    out[ENTRY] = OFFLOAD if away.inputs else DEVICE
    for word in words:
        for name in TENSORS[word]:
            if job.model.moe or not name.startswith("moe_"):
                out[name] = OFFLOAD if away.results else DEVICE


def read_away(k: Keys) -> str | None:
    """What waits in host memory."""
    kept = custom(k)
    entry = kept.pop(ENTRY, DEVICE)
    inputs = entry == OFFLOAD
    results = OFFLOAD in kept.values() or k.word("remat_policy") in OFFLOADED
    for name in (
        n for n, place in kept.items() if results and place == DEVICE
    ):
        k.leave(
            name,
            "it stays on the device beside others that leave: the prediction moves all",
        )
    words = {
        "activations": inputs and (results or not kept),
        "inputs": inputs and kept and not results,
        "results": results and not inputs,
        "optimizer": k.flag("optimizer_memory_host_offload"),
        "weights": k.flag("parameter_memory_host_offload"),
    }
    return "+".join(word for word, leaves in words.items() if leaves) or None


class MaxText(Tool):
    """MaxText's YAML."""

    def starter(self, at: launch.Place) -> str:
        """The words in front of the one program of a node, by which JAX finds the others on GPUs
        (max_utils.py, initialize_jax_for_gpu).
        """
        if at.nodes == 1:
            return ""
        meets = (
            f'env NNODES={at.nodes} JAX_COORDINATOR_IP="{at.head}"'
            f" JAX_COORDINATOR_PORT={PORT}"
        )
        if at.slurm:  # each node says its own number
            return (
                f"bash -c 'NODE_RANK=$SLURM_NODEID exec \"$@\"' node {meets}"
            )
        return f'{meets} NODE_RANK="${{NODE_RANK:?number of this node}}"'

    def render(self, out: Out, job: Job, at: launch.Place) -> str:
        """The YAML over base.yml."""
        chip = job.cluster.chip.vendor.lower()
        device = "gpu" if chip in ("nvidia", "amd") else "tpu"
        first = {"base_config": "base.yml", "hardware": device}
        return super().render({**first, **out}, job, at)
