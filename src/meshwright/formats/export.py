"""A job as the file of another tool, without a file of its own."""

from __future__ import annotations

from ..describe.job import Job, demand_job
from . import torchrun
from .bridge import table, write
from .bridge.launch import Place
from .sbatch import Slurm
from .toml import dump_job


def export(job: Job, to: str, per_node: int | None = None) -> str:
    """The text of a job's file: to is a framework's format (megatron, megatron-bridge, torchtitan,
    deepspeed, ...) or toml, which every verb reads. BadInput for what that format cannot express.

    per_node: ranks per node; None: as many as a node of the network holds.

    >>> from meshwright import Job, export
    >>> job = Job("llama3-8b", "64xh100-sxm", batch=512).with_(tp=2, zero=1)
    >>> "--tensor-model-parallel-size 2" in export(job, "megatron")
    True
    """
    demand_job(job)
    if to == "toml":
        return dump_job(job.filled)
    table.get(to, "to")
    return write(job, to, launch_place(job.filled, to, per_node))[0]


def launch_place(
    job: Job,
    to: str,
    per_node: int | None,
    slurm: Slurm | None = None,
    batch: bool = False,
) -> Place:
    """Where another tool's program is started.  batch: by a script that a cluster's file holds."""
    starts_none = not table.get(to).gpus and slurm is None and not batch
    alone = starts_none and per_node is None and not job.cluster.network.node
    nodes, ranks = (
        (1, int(job.layout.chips)) if alone else torchrun.nodes(job, per_node)
    )
    return Place(nodes, ranks, slurm, job.model.name, batch=batch)
