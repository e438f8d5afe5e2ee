"""The torchrun command that starts a job's ranks on each of its nodes, the same line everywhere (write only).

Ranks are numbered through the nodes one after the other, as the layout's placement numbers them. Restarts on several nodes need a
new store for each attempt: torch 2.13 counts attempts node by node (pytorch issue 135712), so the store is not shared with the rendezvous.

Source: `torchrun --help` and torch/distributed/launcher/api.py of PyTorch 2.13.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from ..errors import BadInput
from ..rules import may_be
from ..spec.job import Job

ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
PORT = 29500
"""Where the nodes meet, on the first of them."""
NODES_OF = ("switch", "mesh")
"""Kinds of a first network dimension that joins the GPUs of a node."""


@dataclass(frozen=True)
class Launch:
    """How a job is started."""

    job: Job
    path: str
    """Of the JOB.toml, on every node."""
    nodes: int
    ranks: int
    """Of one node."""
    device: str = "cpu"
    """cpu or cuda."""
    threads: int = 1
    """CPU threads of a rank."""
    restarts: int = 3
    """How often the ranks may be started again after one has failed."""
    grace_s: int = 240
    """How long ranks may take to save after SIGTERM."""


def nodes(job: Job, per_node: int | None = None) -> tuple[int, int]:
    """(nodes, ranks on each) of a job's layout; BadInput if torchrun cannot start it so.

    per_node: GPUs of one node; None: what the first dimension of the network joins.
    """
    first, world = job.cluster.network.dims[0], int(job.layout.chips)
    if per_node is None and first.kind not in NODES_OF:
        raise BadInput(
            f"network {job.cluster.network.name} has no nodes, its first dimension is a {first.kind}: give --per-node"
        )
    size = min(first.size or world if per_node is None else per_node, world)
    if size < 1 or world % size:
        raise BadInput(
            f"{world} ranks do not fill nodes of {size}, and torchrun starts the same number on each: "
            f"--per-node may be {may_be(world)}"
        )
    return world // size, size


def write(launch: Launch, host: str = "$HEAD", run: str = "$RUN") -> str:
    """The line, with its environment in front. host, run: words of the shell for the first node and the name of this start."""
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": str(launch.threads)}
    return " ".join([*(f"{name}={value}" for name, value in environment.items()), *words(launch, host, run)])


def words(launch: Launch, host: str, run: str) -> list[str]:
    """The command. It resumes whatever the run's folder holds, for a restarted node cannot know whether it is the first attempt."""
    return [
        "torchrun",
        f"--nnodes={launch.nodes}",
        f"--nproc-per-node={launch.ranks}",
        f"--max-restarts={launch.restarts}",
        f"--shutdown-timeout={launch.grace_s}",
        "--rdzv-backend=c10d",
        f'--rdzv-id="{run}"',
        f'--rdzv-endpoint="{host}:{PORT}"',
        *("-m", "meshwright", "train", shlex.quote(launch.path), "--resume"),
    ]
