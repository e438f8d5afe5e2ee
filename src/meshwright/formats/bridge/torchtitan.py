"""torchtitan's flags, which change a named configuration of its registry (from 0.3 on).

    torchrun ... -m torchtitan.train --module llama3 --config llama3_8b --training.seq_len 8192

A configuration has a layout of its own, so every flag is written. `torchtitan_toml` is the file
that it read to 0.2, with the same names; flags of both are read. Shards over dp_shard x cp ranks:
no ZeRO with one of them, else ZeRO-3, or ZeRO-2 where weights stay after the forward pass
(`fsdp_reshard_after_forward = "never"`). A pipeline keeps weights (by default) and gradients of a
stage whole until the last microbatch: ZeRO-1.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...describe.job import Job
from ...errors import BadInput
from . import launch, shell
from .edit import (
    NONE,
    SPACE,
    VALUE,
    Changes,
    Spelling,
    refused,
)
from .keys import Keys
from .megatron import (
    has_even_stages,
    layers_by_stage,
    unusual_stages,
)
from .reading import BATCH, FileKeys, decided_elsewhere
from .shared import (
    Out,
    layers_of,
    name_of,
    sized_as,
)
from .table import get
from .tool import Tool

NAME = "torchtitan"
P = "parallelism."
STARTER = "run_train.sh"
"""torchtitan's own script, which takes the configuration from the environment."""
SETTINGS = "--job.config_file"
CHECKPOINT = "activation_checkpoint.mode"
OPTION = "activation_checkpoint.selective_ac_option"
POLICY = "activation-checkpoint:"
"""A subcommand of its command line, behind all flags: none, selective or full."""
GRAPHS = "training.disable_cuda_graphs"
"""CUDA graphs are on unless told, refuse pipelines and most experts (`_validate_cuda_graphs` of its
trainer.py), and are not predicted."""


def over_configuration(keys: dict[str, Any], chips: int | None) -> FileKeys:
    """Flags over a configuration of the registry, whose own settings stay where none is given
    (config/manager.py): those of the table, or nobody's.
    """
    if "config" not in keys:
        file = str(keys.get("job.config_file") or "")
        return FileKeys(keys, chips, base=file)
    config = keys["config"]
    if config in get(NAME).configs["config"]:
        note = f"flags that are not given are those of --config {config}"
        return FileKeys(keys, chips, (note,))
    theirs = decided_elsewhere(get(NAME), REGISTERED, keys, "config")
    return FileKeys(keys, chips, elsewhere=theirs)


REGISTERED = (
    *("layout.tp", "layout.pp", "layout.cp", "layout.ep", "layout.zero"),
    *("layout.microbatch", "layout.recompute", "job.seq", BATCH),
)
"""Fields that a configuration sets in a way of its own: nothing stands for them."""


def stage_list(k: Keys) -> list[int] | None:
    """Layers of each stage, where the file names its modules."""
    parts = k.get(P + "module_fqns_per_model_part")
    if isinstance(parts, str):  # a flag: stages apart by blanks
        parts = [part.split(",") for part in parts.split()]
    if not isinstance(parts, list) or not all(
        isinstance(part, list) for part in parts
    ):
        return None
    return [sum(str(m).startswith("layers.") for m in part) for part in parts]


def read_stages(k: Keys) -> str | None:
    """Layers of each stage where they are not dealt as we do."""
    stages = k.degree("layout.pp") * max(k["chunks"], 1)
    layers = layers_of(k)
    counts = stage_list(k)
    if k.degree("layout.pp") == 1 or not layers:
        return None
    if counts is None and layers % stages:
        counts = torchtitan_stages(layers, stages, k["first"], k["last"])
    if not counts or sum(counts) != layers:
        return None
    return unusual_stages(counts, stages)


def torchtitan_stages(
    layers: int, count: int, first: int, last: int
) -> list[int]:
    """torchtitan's own way: embedding and head weigh so many layers; spare ones go to the front."""
    least, spare = divmod(layers + first + last, count)
    counts = [least + (stage < spare) for stage in range(count)]
    counts[0] -= first
    counts[-1] -= last
    return counts


# ---------------------------------------------------------------- writing


def scaling_of(configuration: str) -> str | None:
    """How a configuration scales its FP8 numbers; None of one that trains in 16 bits."""
    configs = get(NAME).configs["config"]
    own = configs.get(configuration.partition("/")[2], {})
    scaling = own.get("float8.recipe_name", "mxfp8")
    return str(scaling) if "model.converters" in own else None


def write_configuration(job: Job, out: Out) -> None:
    """The configuration that trains the model in these numbers."""
    recipe = job.software.float8
    models = get(NAME).models
    eight = {name: s for name in models if (s := scaling_of(name))}
    if job.precision.compute != "fp8":
        config = name_of(job, NAME, but=eight)
    else:
        fitting = {
            models[name]: name
            for name, scaling in eight.items()
            if recipe in (None, scaling)
        }
        model = sized_as(job.model, fitting)
        if model is None:
            every = ", ".join(f"{models[n]} ({s})" for n, s in eight.items())
            raise BadInput(
                "torchtitan's flags do not say FP8, and it has a configuration only of"
                f" {every}: --to torchtitan-toml writes the file of 0.2"
            )
        config = fitting[model]
    out["module"], out["config"] = config.split("/")


def write_flavor(job: Job, out: Out) -> None:
    """The model as the file of 0.2 says it."""
    names = name_of(job, f"{NAME}-toml").split("/")
    out["model.name"], out["model.flavor"] = names


def write_chunks(job: Job, out: Out, head: str = "lm_head") -> None:
    """Even stages by their size, others by their modules.  head: the module of the head."""
    l = job.layout
    if l.pp == 1:
        return
    layers = layers_by_stage(job)
    if has_even_stages(job):
        out[P + "pipeline_parallel_layers_per_stage"] = layers[0]
        out[P + "pipeline_parallel_first_stage_less_layers"] = 0
        out[P + "pipeline_parallel_last_stage_less_layers"] = 0
    else:
        out[P + "module_fqns_per_model_part"] = modules(layers, head)


def modules(layers: list[int], head: str) -> list[list[str]]:
    """The modules of each stage, as torchtitan's models call them."""
    parts, at = [], 0
    for count in layers:
        parts.append([f"layers.{i}" for i in range(at, at + count)])
        at += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", head]
    return parts


def write_output_chunks(job: Job, out: Out) -> None:
    """The modules of the stages before 0.3, which called the head "output"."""
    write_chunks(job, out, "output")


def tyro_flag(key: str, value: Any) -> str:
    """A flag as tyro reads it: a switch has two names, lists are blanks and commas."""
    if isinstance(value, bool):
        section, dot, name = key.rpartition(".")
        return f"--{section}{dot}{'' if value else 'no-'}{name}"
    if isinstance(value, list):
        return " ".join([f"--{key}", *(",".join(part) for part in value)])
    return f"--{key} {shlex.quote(str(value))}"


def edit_flags(
    text: str, changes: Changes, keys: dict[str, Any], where: str
) -> str:
    """A script with other flags; the subcommand of recomputation only where it stands already."""
    changes = {k: v for k, v in changes.items() if k != OPTION}
    if changes.get(CHECKPOINT, ("",))[0] == NONE:
        raise refused(where, {CHECKPOINT: changes[CHECKPOINT]})
    spelling = Spelling(TOOL.said, stands, again)
    return spelling.edit(text, changes, keys, where)


def stands(key: str, value: Any) -> str:
    """A pattern of a flag and its value."""
    if key == CHECKPOINT:
        return rf"({POLICY}){re.escape(str(value))}(?!\S)"
    section, dot, name = key.rpartition(".")
    spelled = re.escape(f"--{section}{dot}") + "no-" * (value is False)
    spelled += re.escape(name).replace("_", "[-_]")
    rest = "" if isinstance(value, bool) else rf"(?:=|{SPACE}){VALUE}"
    return rf"(?<!\S)({spelled})(?![\w.-]){rest}"


def again(key: str, value: Any, spelling: str) -> str:
    """The flag with another value."""
    return f"{POLICY}{value}" if spelling == POLICY else tyro_flag(key, value)


def _gives(flag: str, words: Sequence[str]) -> bool:
    """One of the words starts so."""
    return any(word.startswith(flag) for word in words)


class Torchtitan(Tool):
    """torchtitan's command line."""

    trees = False

    def mine(self, text: str) -> bool:
        """Flags of torchtitan, or a configuration of its registry."""
        registered = "torchtitan" in text and "--module" in text
        flags = ("--parallelism.", "--training.seq_len", SETTINGS)
        return registered or any(flag in text for flag in flags)

    def said(self, text: str, where: str) -> FileKeys:
        """The flags of the command that starts it."""
        script = shell.read_script(text)
        wanted = ("--parallelism.", "--training.", "--module", SETTINGS)
        tried = (
            launch.command_with_most_flags(script, partial(_gives, flag))
            for flag in wanted
        )
        words = next((ws for ws in tried if ws is not None), None)
        if words is None:
            raise BadInput(f"{where} starts nothing with torchtitan's flags")
        policies = [w for w in words if w.startswith(POLICY)]
        flags = launch.arguments([w for w in words if w not in policies])
        keys: dict[str, Any] = {}
        for name, value in flags.items():
            section, no, switch = name.rpartition(".no_")
            keys |= {f"{section}.{switch}": False} if no else {name: value}
        for word in policies:  # they know no other option
            keys[CHECKPOINT] = word.removeprefix(POLICY)
            keys[OPTION] = "op"
        chips = launch.ranks_started(words, script)
        known = ("module", "config", "job.config_file")
        said = {k: v for k, v in keys.items() if "." in k or k in known}
        if any(word.endswith(STARTER) for word in words):
            for key in ("module", "config"):
                if text := script.text(key.upper()):
                    said.setdefault(key, text)
            if text := script.text("CONFIG_FILE"):
                said.setdefault("job.config_file", text)
            if not {"config", "job.config_file"} & {*said}:
                said["config"] = STARTER
        return over_configuration(said, chips)

    def render(self, out: Out, job: Job, at: launch.Place) -> str:
        """The command that starts torchtitan with these flags."""
        last = [f"{POLICY}{out.pop(CHECKPOINT)}"]
        out.pop(OPTION, None)  # op by op is what its subcommand does
        lines = [tyro_flag(k, v) for k, v in {**out, GRAPHS: True}.items()]
        return launch.script(
            at, get(NAME), get(NAME).program, [*lines, launch.REST, *last]
        )

    def words(self, out: Out) -> Out:
        """The flags as a script says them."""
        apart = {k: out[k] for k in (CHECKPOINT, OPTION) if k in out}
        flags = [tyro_flag(k, v) for k, v in out.items() if k not in apart]
        return {
            **self.said(" ".join([get(NAME).program, *flags]), "").keys,
            **apart,
        }


TOOL = Torchtitan("torchtitan")
