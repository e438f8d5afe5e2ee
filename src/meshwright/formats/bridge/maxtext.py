"""MaxText's YAML: a mesh whose axes lie inside a slice (ici) and across slices (dcn).

dp = data x fsdp x expert: replicas, shards, and the ranks of experts, which take batch and shards
too. Whatever is sharded at all is sharded wholly (ZeRO-3); copies are the axis `data` (HSDP).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from ... import catalog
from ...describe.choices import first_few
from ...describe.job import PRECISIONS, Job
from ...describe.recompute import recompute, resolve
from ...errors import BadInput
from ...layout.placement import placed
from ...layout.schemes import hidden_cut
from ..torchrun import PORT
from . import launch
from .keys import Keys
from .reading import Reader
from .shared import (
    Out,
    accumulated,
    model_named,
    name_of,
    replicas_left,
)
from .tool import Tool

NAME = "maxtext"
AXES = {"cp": "context", "pp": "pipeline", "ep": "expert"}
"""Ours -> mesh axis."""
TENSOR = {"gspmd": "tensor", "megatron": "tensor_sequence"}
"""What tp is under our schemes: base.yml cuts norms and the hidden state along the hidden size over
`tensor` (activation_embed), and along the sequence over `tensor_sequence` (activation_norm_length).
"""
KNOWN = (
    "full",
    "minimal",
    "minimal_with_context",
    "save_dot_with_context_except_mlp",
    "save_dot_except_mlpwi",
    "save_dot_except_mlp",
    "save_qkv_proj",
    "save_out_proj",
)
PER_DEVICE = 12.0
"""per_device_batch_size of base.yml."""
TORUS = "torus"


def axis(k: Keys, name: str, default: int = 1) -> int:
    """Ranks of a mesh axis, inside and across slices; -1: what is left."""
    inside = k.whole(f"ici_{name}_parallelism", default) or 1
    across = k.whole(f"dcn_{name}_parallelism", 1) or 1
    return -1 if min(inside, across) < 0 else inside * across


def said_degree(k: Keys, name: str) -> int:
    """An axis whose degree must be said: what the others leave of the chips is asked for."""
    found = axis(k, name)
    if found < 0:
        for key in (f"ici_{name}_parallelism", f"dcn_{name}_parallelism"):
            if (k.whole(key, 1) or 1) < 0:
                k.unreadable(key, "takes what the other axes leave: give it")
    return max(found, 1)


def _model(k: Keys) -> str | None:
    name = k.word("model_name", "default")
    return None if name == "default" else model_named(k, name, NAME)


def tp(k: Keys) -> int:
    """Tensor parallel degree: the product of the two axes that cut matrices."""
    degrees = [said_degree(k, name) for name in TENSOR.values()]
    if min(degrees) > 1:
        k.leave(
            "ici_tensor_sequence_parallelism",
            "splits tokens as well as the hidden size: counted as one group that splits the"
            " hidden size",
        )
    return math.prod(degrees)


def etp(k: Keys) -> int | None:
    """Those axes cut the width of an expert too (base.yml: mlp_moe)."""
    named = k.so_far("model")
    known = isinstance(named, str) and catalog.has("models", named)
    return (
        k.degree("layout.tp") if known and catalog.model(named).moe else None
    )


def scheme(k: Keys) -> str | None:
    """What lies between matrices is cut along the hidden size where the axis is `tensor`."""
    if axis(k, TENSOR["gspmd"]) == 1:
        return None
    named = k.so_far("model")
    if (
        isinstance(named, str)
        and catalog.has("models", named)
        and hidden_cut(catalog.model(named))
    ):
        return "gspmd"
    k.notes.append(
        "the axis tensor cuts hidden states along the hidden size, here counted along the sequence:"
        " as many bytes; --scheme gspmd counts it as it is, for dense models"
    )
    return None


def _dp(k: Keys) -> int | None:
    """data x fsdp x expert; None if one of them takes what is left."""
    parts = [axis(k, "data"), axis(k, "fsdp", -1), axis(k, "expert")]
    return None if min(parts) < 0 else math.prod(parts)


def _copies(k: Keys) -> int | None:
    """The axis data, where something is sharded."""
    data = axis(k, "data")
    return data if data > 1 and shards_weights(k) else None


def shards_weights(k: Keys) -> bool:
    """Weights are sharded over fsdp, context and expert."""
    return (
        axis(k, "fsdp", -1) != 1 or axis(k, "context") * axis(k, "expert") != 1
    )


def _microbatch(k: Keys) -> int | None:
    """Sequences of a replica at a time."""
    each = k.number("per_device_batch_size", PER_DEVICE)
    ranks = replicas_left(k)
    if not each or not ranks or not k.chips:
        return None
    of_replica = each * k.chips / ranks
    pieces = k.whole("num_pipeline_microbatches", -1) or -1
    if k.degree("layout.pp") > 1:
        of_replica /= pieces if pieces > 0 else k.degree("layout.pp")
    if of_replica < 1 or of_replica != int(of_replica):
        k.leave(
            "per_device_batch_size",
            f"a replica has {of_replica:g} sequences at a time: one",
        )
        return 1
    return int(of_replica)


def _zero(k: Keys) -> int:
    if shards_weights(k):
        return 3
    return 1 if k.flag("shard_optimizer_over_data") else 0


READ: Mapping[str, Reader] = {
    "model": _model,
    **{
        f"layout.{a}": partial(said_degree, name=name)
        for a, name in AXES.items()
    },
    "layout.tp": tp,
    "layout.etp": etp,
    "layout.scheme": scheme,
    "layout.dp": _dp,
    "layout.dp_replicate": _copies,
    "layout.microbatch": _microbatch,
    "layout.zero": _zero,
}


# ---------------------------------------------------------------- writing


def inside(job: Job, name: str) -> int:
    """Ranks of an axis inside a slice: those on the torus, else on the first dimension."""
    dims = job.cluster.network.dims
    fast = [d.kind == TORUS or d.kind == "ring" for d in dims]
    fast = fast if any(fast) else [i == 0 for i in range(len(dims))]
    places = placed(job.layout, job.cluster.sizes).placement[name]
    return math.prod(
        int(n) for n, is_fast in zip(places, fast, strict=True) if is_fast
    )


def write_axis(ours: str) -> Any:
    """Writes the ranks of one mesh axis."""

    def write(job: Job, out: Out) -> None:
        total = int(getattr(job.layout, ours))
        put_axis(out, AXES[ours], inside(job, ours), total)

    return write


def write_tp(job: Job, out: Out) -> None:
    """The axis that cuts what lies between matrices as the layout does."""
    if job.layout.scheme not in TENSOR:
        raise BadInput(
            f"MaxText has the schemes {first_few(TENSOR)}, not {job.layout.scheme}"
        )
    put_axis(
        out,
        TENSOR[job.layout.scheme],
        inside(job, "tp"),
        int(job.layout.tp),
    )


def put_axis(out: Out, name: str, here: int, total: int) -> None:
    """The parts of an axis inside a slice and across slices."""
    out[f"ici_{name}_parallelism"] = here
    out[f"dcn_{name}_parallelism"] = total // here


def _write_dp(job: Job, out: Out) -> None:
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
        put_axis(out, name, here, degree)


def _write_recompute(job: Job, out: Out) -> None:
    if recompute(job.layout.recompute).layers:
        raise BadInput(
            f"MaxText recomputes the same of all layers, not {job.layout.recompute}"
        )
    how = resolve(
        job.layout.recompute,
        job.profile.selective if job.profile else "minimal",
    )
    if (
        how not in KNOWN
    ):  # it takes "none" for no policy, and recomputes all (nnx_decoders.py)
        raise BadInput(
            f"MaxText cannot recompute {job.layout.recompute}: {', '.join(KNOWN)}"
        )
    out["remat_policy"] = how


def _demand(job: Job, out: Out) -> None:
    """BadInput for microbatches whose gradients it does not add up."""
    eight = job.precision == PRECISIONS["fp8"]
    if eight and job.layout.pp == 1 and accumulated(job) > 1:
        raise BadInput(
            "MaxText does not accumulate gradients of several microbatches in fp8: one microbatch,"
            f" not {accumulated(job)}, or --precision bf16"
        )


WRITE = {
    "": _demand,
    "model": lambda job, out: out.update(model_name=name_of(job, NAME)),
    **{f"layout.{a}": write_axis(a) for a in AXES if a != "ep"},
    "layout.tp": write_tp,
    "layout.dp": _write_dp,
    "layout.recompute": _write_recompute,
}


class MaxText(Tool):
    """MaxText's YAML."""

    def mine_tree(self, keys: Mapping[str, Any]) -> bool:
        """A mesh, a batch of a device, or base.yml under it."""
        own = (
            "per_device_batch_size",
            "max_target_length",
            "base_emb_dim",
            "remat_policy",
        )
        return any(key.startswith(("ici_", "dcn_")) for key in keys) or any(
            k in keys for k in own
        )

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


TOOL = MaxText("maxtext", READ, WRITE)
