"""The torchrun command that starts a job's ranks on each of its nodes, the same line everywhere
(write only).

Ranks are numbered through the nodes one after the other, as the layout's placement numbers them.
Restarts on several nodes need a new store for each attempt: torch 2.13 counts attempts node by node
(pytorch issue 135712), so the store is not shared with the rendezvous.

Source: `torchrun --help` and torch/distributed/launcher/api.py of PyTorch 2.13.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass

from ..describe.job import Job
from ..describe.network import Network
from ..errors import BadInput
from ..layout.placement import launched
from ..layout.rules import may_be

ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
PORT = 29500
"""Where the nodes meet, on the first of them."""
DEVICES = {"nvidia": "cuda", "amd": "cuda"}
"""vendor of a chip -> what PyTorch calls its GPUs (ROCm's too are "cuda")."""
RUNS_ON = ("cpu", "cuda")
"""Devices of the trainer."""
NODES_OF = ("switch", "mesh")
"""Kinds of a first network dimension that joins the GPUs of a node."""
LARGEST_NODE = 16
"""GPUs of the largest server (NVIDIA DGX-2); a dimension that joins more lies across servers."""


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

    per_node: GPUs of one node; None: those of a server of the network.
    """
    world = int(job.layout.chips)
    network = job.cluster.network
    size = min(server(network, world) if per_node is None else per_node, world)
    if per_node is None and not network.node and world % size:
        size = near_ranks(job)  # 12 as 6 of the 8 of each of two nodes
    if size < 1 or world % size:
        raise BadInput(
            f"{world} ranks do not fill nodes of {size}, and torchrun starts the same number on"
            f" each: --per-node may be {may_be(world)}"
        )
    return world // size, size


def near_ranks(job: Job) -> int:
    """Ranks that the job's layout has in one unit of the nearest dimension."""
    shares = launched(job, job.layout).placement.values()
    return math.prod(int(share[0]) for share in shares)


def server(network: Network, world: int) -> int:
    """GPUs of one server: those the network names, else what its first dimension joins; BadInput if
    that is no server.
    """
    first = network.dims[0]
    if network.node:
        return network.node
    if first.kind not in NODES_OF:
        raise BadInput(
            f"network {network.name} has no nodes, its first dimension is a {first.kind}: give"
            " --per-node"
        )
    size = min(first.size or world, world)
    if size > LARGEST_NODE:
        raise BadInput(
            f"network {network.name} joins {size} chips over several servers: give --per-node"
        )
    return size


def of_vendor(job: Job) -> str | None:
    """The device that a job's chips are to PyTorch; None if its vendor makes no GPUs, or is not
    known.
    """
    return DEVICES.get(job.cluster.chip.vendor.lower())


def launch_device(job: Job, given: str | None, asked: str | None) -> str:
    """cpu or cuda: what the chips of the plan are. BadInput where ranks would silently run on
    something else.

    given: [train] device of the file, None if it says nothing;  asked: what the user asks for all
    the same.
    """
    if asked is not None:
        if asked not in RUNS_ON:
            raise BadInput(
                f"--device must be {' or '.join(RUNS_ON)}, not {asked[:40]!r}"
            )
        return asked
    chip = job.cluster.chip
    own = of_vendor(job)
    if own is None and chip.vendor:
        made = (
            f"this plan is for {chip.name} of {chip.vendor}, and meshwright train runs on CPUs and"
            " GPUs"
        )
        raise BadInput(f"{made}: --device cpu starts it on CPUs all the same")
    if own and given and given != own:
        refused = (
            f"this plan is for {chip.name}, but [train] device is {given!r}"
        )
        raise BadInput(
            f"{refused}: set device = {own!r} there, or ask for CPUs with --device cpu"
        )
    return own or given or RUNS_ON[0]


def write_torchrun(launch: Launch) -> str:
    """The line, with its environment in front; the shell's $HEAD is the first node, $RUN the name
    of this start.
    """
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": str(launch.threads)}
    return " ".join(
        [
            *(f"{name}={value}" for name, value in environment.items()),
            *launch_words(launch, "$HEAD", "$RUN"),
        ]
    )


def launch_words(launch: Launch, host: str, run: str) -> list[str]:
    """The command. host, run: words of the shell for the first node and the name of this start.

    It resumes whatever the run's folder holds, for a restarted node cannot know
    whether it is the first attempt.
    """
    return [
        "torchrun",
        f"--nnodes={launch.nodes}",
        f"--nproc-per-node={launch.ranks}",
        f"--max-restarts={launch.restarts}",
        f"--shutdown-timeout={launch.grace_s}",
        "--rdzv-backend=c10d",
        f'--rdzv-id="{run}"',
        f'--rdzv-endpoint="{host}:{PORT}"',
        *(
            "-m",
            "meshwright",
            "train",
            shlex.quote(launch.path),
            "--device",
            launch.device,
            "--resume",
        ),
    ]
