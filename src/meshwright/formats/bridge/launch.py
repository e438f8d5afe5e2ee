"""What starts ranks: torchrun, srun and Slurm's directives, read and written."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ...describe.job import Job
from ...describe.layout import AXES
from ...errors import BadInput
from .. import sbatch
from ..torchrun import DEVICES, PORT
from ..words import words as command_words
from .shell import Shell, number_of, read_script
from .table import Format

RANKS = (
    "nproc_per_node",
    "nproc-per-node",
    "num_gpus",
    "gpus-per-node",
    "ntasks-per-node",
)
NODES = ("nnodes", "num_nodes", "nodes", "N")
ALL = ("num_processes",)
GPUS = ("gres", "gpus-per-node", "gpus-per-task")


REST = '"$@"'
"""What the script itself is called with goes to the program."""


@dataclass(frozen=True)
class Place:
    """Where a job is started."""

    nodes: int
    ranks: int
    """Of one node."""
    slurm: sbatch.Slurm | None = None
    """A batch script of Slurm; None: the line of each node."""
    name: str = "meshwright"
    path: str = ""
    """The plan's."""
    notes: tuple[str, ...] = ()
    """For the reader of the file."""
    batch: bool = False
    """The lines of each node are a script that a cluster's file holds."""

    @property
    def scripted(self) -> bool:
        """A script is asked for, whatever the program's own file is."""
        return self.batch or self.slurm is not None

    @property
    def head(self) -> str:
        """The first node, as a shell says it."""
        return "$head" if self.slurm else "${HEAD:?first node}"


def torchrun(at: Place) -> str:
    """The words that start the ranks of a node, and let them meet those of the others."""
    start = f"torchrun --nnodes={at.nodes} --nproc-per-node={at.ranks}"
    if at.nodes == 1 and not at.slurm:
        return start
    run = '"$SLURM_JOB_ID"' if at.slurm else at.name
    meets = f'--rdzv-endpoint="{at.head}:{PORT}"'
    return f"{start} --rdzv-backend=c10d --rdzv-id={run} {meets}"


def made_of(job: Job, path: str = "") -> str:
    """The model, chips and layout of a file, and where they are from; one line, whatever a name
    holds.
    """
    layout = job.layout
    axes = ", ".join(f"{axis} {int(getattr(layout, axis))}" for axis in AXES)
    words = (
        f"{job.model.name} on {job.cluster.machine}, {job.batch:,}"
        f" sequences of {job.T:,} a step: {axes}, zero {layout.zero}"
        + (f", from {path}" if path else "")
    )
    return "".join(c if c.isprintable() else "?" for c in words)


def command_pieces(words: Sequence[str]) -> list[str]:
    """The words, with texts that hold a whole command taken apart."""
    commands: list[str] = []
    for word in words:
        if " --" in word or word.startswith("--") and " " in word:
            try:
                commands += command_words(word)
            except ValueError:
                commands += word.split()
        else:
            commands.append(word)
    return commands


def program_at(words: Sequence[str], otherwise: int) -> int:
    """Where a program of Python's stands among the words of a command."""
    return next(
        (i for i, w in enumerate(words) if w.endswith(".py")), otherwise
    )


def arguments(words: Sequence[str]) -> dict[str, Any]:
    """name -> value of what follows the program; flags without a value are true."""
    values: dict[str, list[str]] = {}
    name = ""
    for word in words[program_at(words, -1) + 1 :]:
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            values[name] = [value] if equals else []
        elif name:
            values[name].append(word)
    return {name: " ".join(v) if v else True for name, v in values.items()}


def settings(words: Sequence[str], flag: str) -> dict[str, Any]:
    """name -> value of name=value; recipe: the program before the flag that names its file."""
    split = [word.partition("=") for word in words]
    before = split[: [*words].index(flag)]
    programs = [word for word, equals, _ in before if not equals]
    named = {
        name: value
        for name, equals, value in split
        if equals and re.fullmatch(r"[A-Za-z_][\w.]*", name)
    }
    return {"recipe": programs[-1], **named}


def command_with_most_flags(
    script: Shell, wanted: Callable[[Sequence[str]], bool]
) -> list[str] | None:
    """The command of a script with the most flags among those that are wanted; of several, one that
    is not only printed (`echo $CMD` before `eval $CMD`, which strips its quotes).
    """
    commands = [command_pieces(words) for words in script.commands]
    fitting = [words for words in commands if wanted(words)]
    return max(
        fitting,
        key=lambda words: (
            sum(w.startswith("--") for w in words),
            words[0] not in ("echo", "printf"),
        ),
        default=None,
    )


def spelled(key: object) -> str:
    """A key with underscores, however the tool lets one write it."""
    return str(key).replace("-", "_")


def flags_of(words: Sequence[str]) -> list[str]:
    """Names of a command's flags."""
    flags = (word for word in words if word.startswith("--"))
    return [spelled(word[2:].partition("=")[0]) for word in flags]


def flags_of_script(text: str) -> list[str]:
    """Names of the flags that a script gives to anything."""
    commands = map(command_pieces, read_script(text).commands)
    return [*dict.fromkeys(f for words in commands for f in flags_of(words))]


SHARDS = (
    *("config_file", "use_deepspeed", "use_fsdp", "zero_stage"),
    *("deepspeed_config_file", "use_parallelism_config"),
)
"""Flags of `accelerate launch` with which weights are sharded (commands/launch.py)."""


def _told_accelerate(words: Sequence[str]) -> dict[str, Any]:
    """Flags of accelerate before a program, with their values; none where it starts none."""
    head = words[: program_at(words, 0)]
    named = "launch" in head and any("accelerate" in word for word in head)
    if named or "accelerate.commands.launch" in head:
        return arguments(["launch.py", *head])
    return {}


def sharded_by(words: Sequence[str]) -> str:
    """The flag of accelerate before a program that says how its weights are sharded, or ""."""
    options = _told_accelerate(words)
    return next((flag for flag in SHARDS if flag in options), "")


def through_accelerate(
    words: Sequence[str], said: Collection[str]
) -> dict[str, Any]:
    """What accelerate is told of numbers and DeepSpeed, as flags of the Trainer that it starts,
    whose own (`said`) come first (training_args.py, ACCELERATE_MIXED_PRECISION).
    """
    options = _told_accelerate(words)
    flags: dict[str, Any] = {}
    if "mixed_precision" in options and not {"bf16", "fp16"} & {*said}:
        flags = {n: n == options["mixed_precision"] for n in ("bf16", "fp16")}
    if file := options.get("deepspeed_config_file"):
        flags["deepspeed"] = file
    elif stage := options.get("zero_stage"):
        flags["deepspeed"] = f"zero{stage}"
    return flags


def ranks_started(words: Sequence[str], script: Shell) -> int | None:
    """How many ranks a command starts: of torchrun, of Slurm, or of the names a script sets."""
    head = [*words[: program_at(words, len(words))], *script.directives]
    if every := number_of(head, ALL):
        return every
    here = number_of(head, RANKS)
    nodes = number_of(head, NODES)
    if here == 1 and (number_of(head, GPUS) or 1) > 1:
        return None  # one task with several GPUs, whose ranks something else starts
    if here is None and (world := script.text("WORLD_SIZE")).isdecimal():
        return int(world)
    return here * (nodes or 1) if here else None


def ranks_named(script: Shell, names: Sequence[str]) -> int | None:
    """The ranks that names of the environment state: a node's, and how many nodes there are."""
    texts = [script.text(name) for name in names]
    if not texts or not texts[0].isdecimal():
        return None
    return prod(int(text) for text in texts if text.isdecimal()) or None


def script(
    at: Place,
    format: Format,
    program: str,
    lines: Sequence[str],
    file: tuple[str, str] | None = None,
    starter: Callable[[Place], str] = torchrun,
    settings: Mapping[str, str] | None = None,
) -> str:
    """A script that starts `program` with an argument a line, on every rank.

    file: (name, text) of a configuration that the script writes first;  starter: the words that
    start the ranks of a node; settings: of the environment.
    """
    comments = [
        f"# {at.nodes * at.ranks} ranks on {at.nodes} node{'s' * (at.nodes > 1)}; {format.title} "
        f"({format.version}). Written by meshwright export.",
        *(f"# {note}" for note in at.notes),
    ]
    head = ["#!/bin/bash", *comments, "set -euo pipefail"]
    start = starter(at)
    if at.slurm:
        needs = {"gpus-per-node": at.ranks}
        head[1:1] = sbatch.directives(at.slurm, at.name, at.nodes, needs)
        head.append(sbatch.HEAD)
        start = " ".join([*sbatch.srun(at.slurm, needs), start]).rstrip()
    body = [*([start] if start else []), program, *lines]
    made = (
        [
            f"cat > {file[0]} <<'END_OF_FILE'",
            file[1].rstrip("\n"),
            "END_OF_FILE",
        ]
        if file
        else []
    )
    head += [f"export {k}={v}" for k, v in (settings or {}).items()]
    return "\n".join([*head, *made, "", " \\\n    ".join(body), ""])


def configured(
    at: Place,
    format: Format,
    program: str,
    lines: Sequence[str],
    file: tuple[str, str],
    heading: Sequence[str] = (),
    starter: Callable[[Place], str] = torchrun,
) -> str:
    """A configuration, or a batch script that holds it and starts `program` with it.

    heading: of its comments, in front of the notes; none where the file can have none.
    """
    name, text = file
    if heading:
        comments = [*heading, *at.notes]
        text = "".join(f"# {line}\n" for line in comments) + text
    if not at.scripted:
        return text
    return script(
        at, format, program, lines=lines, file=(name, text), starter=starter
    )


def demand_gpus(vendor: str, chip: str, title: str) -> None:
    """BadInput where the chips are none that the software runs on."""
    if vendor and vendor.lower() not in DEVICES:
        raise BadInput(f"{title} runs on GPUs, and {chip} of {vendor} is none")
