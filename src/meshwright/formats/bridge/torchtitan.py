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
from dataclasses import replace
from functools import partial
from typing import Any

from ...describe.job import PRECISIONS, Job
from ...errors import BadInput
from ...layout.stages import stage_layers
from ...schedule import get as schedule_named
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
    stage_counts_text,
)
from .reading import BATCH, FileKeys, decided_elsewhere
from .shared import (
    Out,
    layers_of,
    model_named,
    name_of,
    sized_as,
)
from .table import get
from .tool import Tool

NAME = "torchtitan"
P = "parallelism."
SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "interleaved-zb": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}
"""Ours -> classes of torch.distributed.pipelining."""
SELECTIVE = "2"
"""activation_checkpoint.selective_ac_option where it is not given: every second layer."""
FP8 = ("quantize.linear.float8", "float8")
MX = ("quantize.linear.mx", "mx")
WIDE_BYTES = PRECISIONS["bf16"].gather_bytes
WIDE = {"name": "fp8", "gather_bytes": WIDE_BYTES}
"""FP8 products of weights that are gathered in 16 bits."""
STARTER = "run_train.sh"
"""torchtitan's own script, which takes the configuration from the environment."""
SETTINGS = "--job.config_file"
HEAD = "lm_head"
"""The module of the head."""
CHECKPOINT = "activation_checkpoint.mode"
OPTION = "activation_checkpoint.selective_ac_option"
POLICY = "activation-checkpoint:"
"""A subcommand of its command line, behind all flags: none, selective or full."""
GRAPHS = "training.disable_cuda_graphs"
"""CUDA graphs are on unless told, refuse pipelines and most experts (`_validate_cuda_graphs` of its
trainer.py), and are not predicted."""
EIGHT_BITS = {
    ("llama3-8b", "mxfp8"): "llama3/llama3_8b_mxfp8",
    ("llama3-405b", "rowwise"): "llama3/llama3_405b",
    ("deepseek-v3", "rowwise"): "deepseek_v3/deepseek_v3_671b_float8",
}
"""(Model, scaling) -> configuration that trains in FP8: no flag says it (config_registry.py of its
models, 0.3.0)."""


def over_configuration(keys: dict[str, Any], chips: int | None) -> FileKeys:
    """Flags over a configuration of the registry, whose own settings stay where none is given
    (config/manager.py): those of the table, or nobody's.
    """
    if "config" not in keys:
        file = str(keys.get("job.config_file") or "")
        return FileKeys(keys, chips, base=file)
    named = f"{keys.get('module')}/{keys['config']}"
    own = get(NAME).configs.get(named)
    if own is not None:
        note = (
            f"flags that are not given are those of --config {keys['config']}"
        )
        return FileKeys({**own, **keys}, chips, (note,))
    theirs = decided_elsewhere(get(NAME), REGISTERED, keys, "config")
    return FileKeys(keys, chips, elsewhere=theirs)


REGISTERED = (
    *("layout.tp", "layout.pp", "layout.cp", "layout.ep", "layout.zero"),
    *("layout.microbatch", "layout.recompute", "job.seq", BATCH),
)
"""Fields that a configuration sets in a way of its own: nothing stands for them."""


def configuration_name(k: Keys) -> str:
    """module/config of 0.3, or name/flavor."""
    parts = [k.get("module"), k.get("config")]
    if not all(parts):
        parts = [k.get("model.name"), k.get("model.flavor")]
    return "/".join(map(str, parts)) if all(parts) else ""


def eight_bits(k: Keys) -> tuple[str, str] | None:
    """(Model, scaling) of a configuration that trains in FP8."""
    name = configuration_name(k)
    return next((key for key, own in EIGHT_BITS.items() if own == name), None)


def configured_model(k: Keys) -> str | None:
    """By the name of its configuration, or of its flavor."""
    name = configuration_name(k)
    if config := eight_bits(k):
        return config[0]
    version = NAME if k.get("config") else f"{NAME}-toml"
    return model_named(k, name, version) if name else None


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


def chunks_of_rank(k: Keys) -> int | None:
    """Stages of a rank."""
    pp = k.degree("layout.pp")
    layers = layers_of(k)
    each = k.whole(P + "pipeline_parallel_layers_per_stage")
    first = k.whole(P + "pipeline_parallel_first_stage_less_layers", 1)
    last = k.whole(P + "pipeline_parallel_last_stage_less_layers", 1)
    if pp == 1:
        return None
    if listed := stage_list(k):
        count = len(listed) // pp
    elif each and layers:
        count = -(-(layers + (first or 0) + (last or 0)) // each) // pp
    else:
        single = k.word(P + "pipeline_parallel_schedule", "1f1b") in (
            "1f1b",
            "gpipe",
        )
        count = 1 if single else 2
    return count if count > 1 else None


def read_stages(k: Keys) -> str | None:
    """Layers of each stage where they are not dealt as we do."""
    pp = k.degree("layout.pp")
    v = k.degree("layout.interleave")
    layers = layers_of(k)
    counts = stage_list(k)
    if pp == 1 or not layers:
        return None
    if counts is None and layers % (pp * v):
        first = (
            k.whole(P + "pipeline_parallel_first_stage_less_layers", 1) or 0
        )
        last = k.whole(P + "pipeline_parallel_last_stage_less_layers", 1) or 0
        counts = torchtitan_stages(layers, pp * v, first, last)
    if not counts or sum(counts) != layers:
        return None
    return (
        None
        if counts == [len(s) for s in stage_layers(layers, pp * v)]
        else stage_counts_text(counts)
    )


def torchtitan_stages(
    layers: int, count: int, first: int, last: int
) -> list[int]:
    """torchtitan's own way: embedding and head weigh so many layers; spare ones go to the front."""
    least, spare = divmod(layers + first + last, count)
    counts = [least + (stage < spare) for stage in range(count)]
    counts[0] -= first
    counts[-1] -= last
    return counts


def schedule(k: Keys) -> str | None:
    """By PyTorch's name."""
    word = k.word(P + "pipeline_parallel_schedule", "1f1b")
    if k.get(P + "pipeline_parallel_schedule_csv"):
        k.leave(
            P + "pipeline_parallel_schedule_csv",
            "its own order, which a layout cannot express",
        )
    if k.degree("layout.pp") == 1:
        return None
    ours = next(
        (mine for mine, theirs in SCHEDULES.items() if theirs.lower() == word),
        None,
    )
    if ours is None:
        k.leave(
            P + "pipeline_parallel_schedule",
            f"not known: {', '.join(SCHEDULES.values())}",
        )
    if (
        k.degree("layout.interleave") > 1
        and ours
        and schedule_named(ours).chunks(1) == 2
    ):
        # zbv and dualpipev always have two
        k.tables["layout"].pop("interleave", None)
    return ours


def op_recompute(k: Keys) -> str | None:
    """None, op by op, every n-th layer, or all."""
    mode = k.word(CHECKPOINT, "selective")
    option = k.word(OPTION, SELECTIVE)
    if mode in ("none", "full"):
        return mode
    if mode != "selective":
        k.leave(
            CHECKPOINT,
            f"{mode} is not known: nothing is recomputed",
        )
        return "none"
    if option == "op":
        return "op"
    layers = layers_of(k)
    if not option.isdecimal() or not int(option) or not layers:
        return "full" if option == "1" else "op"
    of_chunk = layers // (
        k.degree("layout.pp") * k.degree("layout.interleave")
    )
    return (
        "full" if option == "1" else f"full:{max(of_chunk // int(option), 1)}"
    )


def read_precision(k: Keys) -> object:
    """bf16 under FSDP unless said; FP8 by a converter."""
    converters = k.items("model.converters")
    k.get("training.mixed_precision_reduce")
    if eight_bits(k):
        return WIDE
    gathered = k.flag("quantize.linear.float8.enable_fsdp_float8_all_gather")
    gathered |= k.flag("float8.enable_fsdp_float8_all_gather")
    if any(c in (*FP8, *MX) for c in converters):
        return "fp8" if gathered else WIDE
    if strange := [c for c in converters if "grouped" not in c]:
        k.leave("model.converters", f"{', '.join(strange)} is not known")
    if k.word("training.dtype") == "bfloat16":
        k.leave(
            "training.dtype",
            "weights and states are kept in 16 bits: give --precision",
        )
    word = k.word("training.mixed_precision_param", "bfloat16")
    return "fp32" if word == "float32" else "bf16"


def float8(k: Keys) -> str | None:
    """Scaling of FP8."""
    if config := eight_bits(k):
        return config[1]
    converters = k.items("model.converters")
    if any(c in MX for c in converters):
        return "mxfp8"
    word = k.word("quantize.linear.float8.recipe_name") or k.word(
        "float8.recipe_name"
    )
    if not any(c in FP8 for c in converters):
        return None
    return "rowwise" if word.startswith("rowwise") else "tensorwise"


# ---------------------------------------------------------------- writing


def write_configuration(job: Job, out: Out) -> None:
    """The configuration that trains the model in these numbers."""
    told = job.software.float8
    eight = {
        name: config
        for (name, scaling), config in EIGHT_BITS.items()
        if told in (None, scaling)
    }
    if job.precision.compute != "fp8":
        config = name_of(job, NAME)
    elif name := sized_as(job.model, eight):
        config = eight[name]
    else:
        raise BadInput(
            "torchtitan's flags do not say FP8, and it has a configuration only of"
            f" {', '.join(f'{m} ({scaling})' for m, scaling in EIGHT_BITS)}:"
            " --to torchtitan-toml writes the file of 0.2"
        )
    out["module"], out["config"] = config.split("/")


def write_shards_and_copies(job: Job, out: Out) -> None:
    """Replicas are shards where anything is sharded, else copies."""
    l = job.layout
    shards = int(l.dp) // int(l.dp_replicate) if l.zero else 1
    out[P + "data_parallel_replicate_degree"] = int(l.dp) // shards
    out[P + "data_parallel_shard_degree"] = shards
    if bool(l.zero) != (shards * l.cp > 1):
        raise BadInput(
            f"torchtitan shards over dp x cp, or not at all: zero {l.zero} cannot be expressed"
        )
    room, parts = shards * int(l.cp * l.tp), int(l.ep * l.etp)
    if l.ep > 1 and room % parts:
        raise BadInput(
            f"torchtitan shares experts out over dp_shard x cp x tp = {room} ranks, which {parts}"
            " do not divide: shard with zero 2 or 3, or 1 in a pipeline"
        )


def write_chunks(job: Job, out: Out, head: str = HEAD) -> None:
    """Even stages by their size, others by their modules."""
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


def write_schedule(job: Job, out: Out) -> None:
    l = job.layout
    if l.pp == 1:
        return
    if l.schedule not in SCHEDULES:
        raise BadInput(
            f"torchtitan has no schedule {l.schedule}: {', '.join(SCHEDULES)}"
        )
    if (l.schedule in ("1f1b", "gpipe")) != (
        schedule_named(l.schedule).chunks(l.interleave) == 1
    ):
        raise BadInput(
            f"torchtitan's {SCHEDULES[l.schedule]} does not run interleave {l.interleave}"
        )
    out[P + "pipeline_parallel_schedule"] = SCHEDULES[l.schedule]


def write_precision(job: Job, out: Out) -> None:
    """bf16 or fp32; the configuration says FP8."""
    numbers = job.precision
    if numbers == PRECISIONS["fp32"]:
        out["training.mixed_precision_param"] = "float32"
    elif numbers.compute == "fp8":
        if numbers != replace(PRECISIONS["fp8"], gather_bytes=WIDE_BYTES):
            raise BadInput(
                "torchtitan's configurations in FP8 gather weights in 16 bits and add gradients"
                f" up in 32: --precision fp8 with gather_bytes {WIDE_BYTES}"
            )
    elif numbers != PRECISIONS["bf16"]:
        raise BadInput(
            "torchtitan trains in bf16, fp8 or fp32 with fp32 gradients, not"
            f" {numbers.name or numbers.compute}"
        )


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


def again(key: str, value: Any, told: str) -> str:
    """The flag with another value."""
    return f"{POLICY}{value}" if told == POLICY else tyro_flag(key, value)


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
        keys: dict[str, Any] = {}
        name = ""
        for word in words:
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                name = name.replace("-", "_")
                section, no, switch = name.rpartition(".no_")
                if no:
                    keys[f"{section}.{switch}"], name = False, ""
                else:
                    keys[name] = value if equals else True
            elif word.startswith(POLICY):
                keys[CHECKPOINT], name = word.removeprefix(POLICY), ""
                keys[OPTION] = "op"  # its policies know no other
            elif name:
                keys[name] = (
                    word if keys[name] is True else f"{keys[name]} {word}"
                )
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
