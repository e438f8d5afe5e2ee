"""A Slurm script that starts a job's ranks with torchrun, one task a node (write only).

Before the time limit Slurm tells the script, which passes SIGTERM on: the ranks finish their step,
save and end, and the job goes back into the queue. A node that fails or a preemption puts it back
too; each start goes on from the newest checkpoint.

srun is told the CPUs and GPUs of its tasks: since Slurm 22.05 it does not take --cpus-per-task from
sbatch, and a task would get one CPU.

Source: man pages of sbatch, srun and scontrol, Slurm 24.05: --signal, --requeue,
SLURM_JOB_NODELIST, SLURM_CPUS_ON_NODE; signals sent to srun reach its tasks.
Containers are those of the pyxis plugin (github.com/NVIDIA/pyxis, --container-image).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..describe.frozendict import EMPTY
from ..describe.layout import AXES
from ..errors import BadInput
from . import torchrun
from .torchrun import Launch

PLAIN = re.compile(r"[\w.,:@/+=#~%-]+", re.ASCII)
TIME = re.compile(r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}")
LEAD_S = 60
"""Between the end of what ranks may take to save and the time limit."""


@dataclass(frozen=True)
class Slurm:
    """What the site wants to know; None leaves it to Slurm."""

    partition: str | None = None
    account: str | None = None
    time: str | None = None
    """Limit of one start, such as 24:00:00."""
    container: str | None = None
    """Image for pyxis."""

    def __post_init__(self) -> None:
        """BadInput for what cannot stand in a line of the script."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not PLAIN.fullmatch(value):
                raise BadInput(
                    f"--{field.name} {value[:60]!r} may only hold letters, digits and . , : @ / + ="
                    " # ~ % - _"
                )
        if self.time is not None and not TIME.fullmatch(self.time):
            raise BadInput(
                f"--time {self.time!r} must look like 30 (minutes), 24:00:00 or 2-12:00:00"
            )


def write_sbatch(launch: Launch, slurm: Slurm) -> str:
    """The script."""
    return "\n".join(
        [
            "#!/bin/bash",
            *about(launch),
            *directives(
                slurm,
                launch.job.model.name,
                launch.nodes,
                ranks_need(launch),
                more={
                    "signal": f"B:USR1@{launch.grace_s + LEAD_S}",
                    "open-mode": "append",
                },
            ),
            "#SBATCH --requeue",
            "",
            *body(launch, slurm),
            "",
        ]
    )


def about(launch: Launch) -> list[str]:
    """What it starts, for the reader."""
    layout = launch.job.layout
    axes = ", ".join(f"{axis} {int(getattr(layout, axis))}" for axis in AXES)
    path = "".join(c if c.isprintable() else "?" for c in launch.path)
    return [
        (
            f"# {launch.nodes * launch.ranks} ranks on {launch.nodes} nodes: {axes}. Written by"
            f" meshwright export from {path};"
        ),
        (
            "# submit it where that path is right, on a file system that all nodes share. It goes"
            " on with what the run's folder holds."
        ),
    ]


HEAD = 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
"""The line that finds the first node."""
Needs = Mapping[str, object]
"""Option of Slurm's -> its value."""


def directives(
    slurm: Slurm, name: str, nodes: int, needs: Needs, more: Needs = EMPTY
) -> list[str]:
    """The lines that Slurm reads.  needs: of a node; more: of the job."""
    values = {
        "job-name": re.sub(r"[^\w.-]", "-", name, flags=re.ASCII)
        or "meshwright",
        "nodes": nodes,
        "ntasks-per-node": 1,
        **needs,
        "partition": slurm.partition,
        "account": slurm.account,
        "time": slurm.time,
        **more,
    }
    lines = [
        f"#SBATCH --{option}={value}"
        for option, value in values.items()
        if value is not None
    ]
    return [*lines, "#SBATCH --exclusive"]


def srun(slurm: Slurm, needs: Needs) -> list[str]:
    """The words that start a task a node, with all cores of it unless it needs so many."""
    needs = {"cpus-per-task": '"$SLURM_CPUS_ON_NODE"', **needs}
    words = ["srun", "--kill-on-bad-exit=1"]
    words += [f"--{option}={value}" for option, value in needs.items()]
    if slurm.container:
        words.append(f"--container-image={slurm.container}")
    return words


def ranks_need(launch: Launch) -> dict[str, int]:
    """What the ranks of a node need of it: a GPU each, or cores."""
    if launch.device == "cuda":
        return {"gpus-per-node": launch.ranks}
    return {"cpus-per-task": launch.ranks * launch.threads}


def body(launch: Launch, slurm: Slurm) -> list[str]:
    """The commands."""
    start = srun(slurm, ranks_need(launch))
    if slurm.container:
        start += [
            '--container-mounts="$PWD:$PWD"',
            '--container-workdir="$PWD"',
        ]
    environment = {**torchrun.ENVIRONMENT, "OMP_NUM_THREADS": launch.threads}
    return [
        *(f"export {name}={value}" for name, value in environment.items()),
        HEAD,
        "ranks='' again=''",
        "trap 'again=yes; kill -TERM $ranks' USR1  # the time limit is near: save and end",
        "",
        " ".join(start) + " \\",
        "    "
        + " \\\n        ".join(
            wrapped_command(
                torchrun.launch_words(
                    launch, "$head", "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"
                )
            )
        )
        + " &",
        "ranks=$!",
        "wait $ranks; code=$?",
        "while kill -0 $ranks 2>/dev/null; do wait $ranks; code=$?; done  # a trap cuts wait short",
        'if [ "$again" ]; then scontrol requeue "$SLURM_JOB_ID"; fi',
        "exit $code",
    ]


def wrapped_command(words: list[str]) -> list[str]:
    """The words of a command in a few lines."""
    cut = words.index("-m")
    return [
        " ".join(words[: cut - 3]),
        " ".join(words[cut - 3 : cut]),
        " ".join(words[cut:]),
    ]
