"""MaxText's YAML: a mesh whose axes lie inside a slice (ici) and across slices (dcn).

dp = data x fsdp x expert: replicas, shards, and the ranks of experts, which take batch and shards
too. Whatever is sharded at all is sharded wholly (ZeRO-3); copies are the axis `data` (HSDP).
"""

from __future__ import annotations

import math

from ...describe.job import Job
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
