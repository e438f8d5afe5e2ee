"""Arguments that a run writes into its log before its first step, read like a file of the tool.

    dump(text) -> Dump("megatron", FileKeys({"num_layers": "32", ...}, chips=256), ...)

Megatron-LM, Megatron-DeepSpeed   `name ..... value` down to "end of arguments"
torchtitan                        Running with args: {...}
MaxText                           Config param NAME: VALUE
Megatron-Bridge, NeMo             YAML below "Task Configuration", "Experiment configuration"

Of tools whose files no format here reads (nanotron, Hugging Face Trainer, OLMo-core) a table of
patterns finds what their logs begin with: `headed`. Sources: Megatron-LM, arguments.py
(_print_args); torchtitan, train.py; MaxText, pyconfig.py; Megatron-Bridge, training/pretrain.py;
NeMo, exp_manager; transformers, trainer.py (_inner_training_loop); nanotron, config/config.py;
OLMo-core, config.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ...errors import BadInput
from .nemo import Nemo
from .reading import FileKeys, ForeignFile
from .table import Format, get
from .tree import flat_keys, parse_yaml

LONGEST = 4 * 2**20
"""Characters of a log in which its arguments are looked for, from its beginning."""
LINE = 4000
"""Characters of a line of a dump."""
SIGNS = (
    "arguments ---",
    "Running with args",
    "Running with configs",
    "Config param ",
    "Task Configuration",
    "Experiment configuration",
)
"""One of these stands before arguments."""
ARGUMENT = re.compile(r"(?:^|\s|:)(\w+) \.{2,} ?(.*?)(?:\.{3,}\w*)?$")
PARAM = re.compile(r"Config param (\w+): (.*)$")
JSON = re.compile(r"Running with (?:args|configs):\s*(?=\{)")
BLOCK = re.compile(r"(?:Task|Experiment) [Cc]onfiguration\W*$")
PREFIX = re.compile(r"^(?:\[[^\]]*\]|\d+):\s?")
"""What a launcher writes before a line of a rank."""
TYPED = re.compile(r"torch\.\w+|<.*>")
"""Values that are objects of Python."""


class Dump(NamedTuple):
    """The arguments in a log."""

    format: str
    said: FileKeys
    names: frozenset[str] = frozenset()
    """All arguments that the version of the tool has, where the log lists them."""
    tables: Mapping[str, Mapping[str, Any]] = {}
    """Table -> field -> value, of what no key of the format says."""


def dump(text: str) -> Dump | None:
    """The arguments in a log's text; None where it has none."""
    text = text[:LONGEST]
    if not any(sign in text for sign in SIGNS):
        return None
    for name, reader in READERS.items():
        if keys := reader(text):
            if name == "megatron":
                return _parsed(keys)
            older = name == "megatron-bridge" and NEMO.mine_tree(keys)
            return Dump(NEMO.name if older else name, FileKeys(keys))
    return None


NEMO = Nemo("nemo")
"""Its configuration stands below the same line as that of its successor."""


def _parsed(keys: dict[str, Any]) -> Dump:
    """The dump of a parsed command line of Megatron-LM, or of Megatron-DeepSpeed."""
    names = frozenset(keys)
    world = str(keys.pop("world_size", ""))
    for old, new in RENAMED.items():
        if old in keys and new not in keys:
            keys[new] = keys.pop(old)
    tables: dict[str, dict[str, Any]] = {}
    stage = keys.get("zero_stage", "0").partition(".")[0]
    if keys.get("deepspeed") == "True" and stage.isdecimal():
        whole = stage == str(WEIGHTS)
        program = "deepspeed-zero3" if whole else "megatron-deepspeed"
        tables = {
            "job": {"framework": program},
            "layout": {"zero": int(stage)},
        }
    elif "use_distributed_optimizer" not in names:  # of 2022
        tables = {"job": {"framework": "megatron-2021"}}
    chips = int(world) if world.isdecimal() else None
    notes = () if "global_batch_size" in names else (NO_BATCH,)
    return Dump(
        "megatron", FileKeys(_flags(keys), chips, notes), names, tables
    )


RENAMED = {
    "model_parallel_size": "tensor_model_parallel_size",
    "pipe_parallel_size": "pipeline_model_parallel_size",
    "batch_size": "micro_batch_size",
}
"""Arguments of Megatron-LM before 2021 -> their names since."""
NO_BATCH = (
    "the log says no global batch: give it (--batch 512seq), or one microbatch of each replica is"
    " taken"
)
WEIGHTS = 3
"""ZeRO stage that shards weights."""


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield PREFIX.sub("", line[:LINE].rstrip())


def _megatron(text: str) -> dict[str, Any]:
    """`name ..... value` between the lines that say arguments and end of arguments."""
    keys: dict[str, Any] = {}
    inside = False
    for line in _lines(text):
        if "end of arguments" in line:
            break
        if "arguments ---" in line:
            inside = True
        elif inside and (match := ARGUMENT.search(line)):
            keys[match[1]] = match[2].strip()
    return keys


def _flags(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a parsed command line as a command says them: what is on a flag, what is off
    missing, or the flag that switches it off."""
    known = get("megatron").read_keys
    flags: dict[str, Any] = {}
    idle: tuple[str, ...] = ()
    if keys.get("num_experts", "None") == "None":
        idle += ("moe_*",)
    if keys.get("multi_latent_attention") != "True":
        idle += LATENT
    for name, value in keys.items():
        if value == "True":
            flags[name] = True
        elif value == "False":
            off = (f"no_{name}", f"disable_{name.removeprefix('add_')}")
            flags.update({flag: True for flag in off if flag in known})
        elif value in UNSET or TYPED.fullmatch(value):
            continue
        elif not any(fnmatchcase(name, pattern) for pattern in idle):
            flags[name] = value.strip("[]").replace("'", "").replace(",", " ")
    chunked = (
        keys.get("virtual_pipeline_model_parallel_size", "None") != "None"
    )
    if keys.get("overlap_p2p_comm") == "False" and chunked:
        flags["no_overlap_p2p_communication"] = True
    padded = ("padded_vocab_size",) if "vocab_size" in flags else ()
    for name in (*DERIVED, *padded):
        flags.pop(name, None)
    return flags


LATENT = ("*lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
"""Arguments that mean something with latent attention only."""
UNSET = ("None", "", "[]")
"""Values of arguments that nobody gave."""
DERIVED = (
    "data_parallel_size",
    "transformer_pipeline_model_parallel_size",
    "rank",
    "local_rank",
    "virtual_pipeline_model_parallel_size",
    "kv_channels",
)
"""Arguments that Megatron computes of the others."""


def _maxtext(text: str) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for line in _lines(text):
        if match := PARAM.search(line):
            keys[match[1]] = _plain(match[2])
    return keys


def _plain(text: str) -> Any:
    """A value as YAML would hold it."""
    words = {"True": True, "False": False, "None": None, "": None}
    return words.get(text, text)


def _torchtitan(text: str) -> dict[str, Any]:
    match = JSON.search(text)
    if not match:
        return {}
    try:
        data, _ = json.JSONDecoder().raw_decode(text, match.end())
    except (ValueError, RecursionError):
        return {}
    return flat_keys(data, "the log") if isinstance(data, dict) else {}


def _bridge(text: str) -> dict[str, Any]:
    """The YAML below a line that announces it, up to one that is no longer indented or a key."""
    block: list[str] = []
    inside = False
    for line in _lines(text):
        if not inside:
            inside = bool(BLOCK.search(line))
        elif not line.strip():
            continue
        elif re.match(r"\s*(?:- |[\w.\-]+:(?:\s|$))", line):
            block.append(line)
        elif block:
            break
    try:
        return flat_keys(parse_yaml("\n".join(block), "the log"), "the log")
    except BadInput:
        return {}


READERS = {
    "megatron": _megatron,
    "torchtitan-toml": _torchtitan,
    "maxtext": _maxtext,
    "megatron-bridge": _bridge,
}
"""Format -> what finds its keys in a log, in this order."""
N = r"\s*[=:]\s*(\d+)"
HEADED: dict[str, tuple[str, str, dict[str, str]]] = {
    "nanotron": (
        "nanotron",
        "megatron-core",
        {
            "layout.tp": rf"\btp{N}",
            "layout.pp": rf"\bpp{N}",
            "layout.dp": rf"\bdp{N}",
            "layout.microbatch": rf"\bmicro_batch_size{N}",
            "job.seq": rf"\bsequence_length{N}",
            "layout.zero": rf"\bzero_stage{N}",
            "model.layers": rf"\bnum_hidden_layers{N}",
            "model.hidden": rf"\bhidden_size{N}",
            "model.heads": rf"\bnum_attention_heads{N}",
            "model.kv_heads": rf"\bnum_key_value_heads{N}",
            "model.ffn": rf"\bintermediate_size{N}",
            "model.vocab": rf"\bvocab_size{N}",
            "accumulation": rf"\bbatch_accumulation_per_replica{N}",
        },
    ),
    "trainer": (
        "Hugging Face Trainer",
        "fsdp",
        {
            "job.batch": rf"Total train batch size[^=\n]*{N}",
            "layout.microbatch": rf"Instantaneous batch size per device{N}",
            "accumulation": rf"Gradient Accumulation steps{N}",
        },
    ),
    "olmo-core": (
        "OLMo-core",
        "torchtitan",
        {
            "global": rf"['\"]?\bglobal_batch_size['\"]?{N}",
            "job.seq": rf"['\"]?\b(?:max_)?sequence_length['\"]?{N}",
        },
    ),
}
"""Tool -> (its name, the profile of what it does, field -> the pattern of its number)."""
SHARDED = {"trainer": 3, "olmo-core": 3}
"""Tools that shard weights by themselves -> ZeRO stage."""


def headed(kind: str, text: str) -> ForeignFile | None:
    """What the head of a log of a tool that no format here reads says; None for other tools."""
    if kind not in HEADED:
        return None
    title, framework, patterns = HEADED[kind]
    head = text[:LONGEST]
    read = {
        path: int(m[1])
        for path, pattern in patterns.items()
        if (m := re.search(pattern, head))
    }
    tables: dict[str, Any] = {"job": {"framework": framework}}
    accumulation = read.pop("accumulation", None)
    tokens = read.pop("global", None)
    for path, value in read.items():
        table, _, name = path.partition(".")
        tables.setdefault(table, {})[name] = value
    layout = tables.setdefault("layout", {})
    chips = None
    if {"dp", "tp", "pp"} <= {*layout}:
        chips = layout["dp"] * layout["tp"] * layout["pp"]
        if accumulation and "microbatch" in layout:
            rows = layout["dp"] * layout["microbatch"] * accumulation
            tables["job"]["batch"] = f"{rows}seq"
    elif kind == "trainer" and accumulation and "batch" in tables["job"]:
        each = layout.get("microbatch", 0) * accumulation
        chips = tables["job"]["batch"] // each if each else None
    if "batch" in tables["job"]:
        tables["job"]["batch"] = (
            f"{tables['job']['batch']}".removesuffix("seq") + "seq"
        )
    if tokens and tables["job"].get("seq"):
        tables["job"]["batch"] = f"{tokens // tables['job']['seq']}seq"
    taken = {"zero": SHARDED[kind]} if kind in SHARDED else {}
    layout.update(taken)
    if not {"layers", "hidden"} <= {*tables.get("model", {})}:
        tables.pop("model", None)
    elif "seq" in tables["job"]:
        tables["model"]["seq"] = tables["job"]["seq"]
    used = tuple(sorted(read))
    return ForeignFile(
        Format(kind, title, (framework,)),
        tables,
        chips,
        on=None,
        used=used,
        taken=taken,
    )
