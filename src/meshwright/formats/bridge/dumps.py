"""Arguments that a run writes into its log before its first step, read like a file of the tool.

    dump(text) -> Dump("megatron", FileKeys({"num_layers": "32", ...}, chips=256), ...)

Megatron-LM, Megatron-DeepSpeed   `name ..... value` down to "end of arguments"
torchtitan                        Running with args: {...}
MaxText                           Config param NAME: VALUE
Megatron-Bridge, NeMo             YAML below "Task Configuration", "Experiment configuration"

Of tools that write no arguments of theirs (nanotron, Hugging Face Trainer, OLMo-core) a table says
which words stand before numbers: `headed` (sources in catalog/logs.toml). Sources:
Megatron-LM, arguments.py (_print_args); torchtitan, train.py; MaxText, pyconfig.py;
Megatron-Bridge, training/pretrain.py; NeMo, exp_manager.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ...errors import BadInput
from ..logs import TOOLS
from .nemo import Nemo
from .reading import FileKeys, ForeignFile
from .table import Format, get
from .tree import flat_keys, nested, parse_yaml

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
    if "use_distributed_optimizer" not in names:  # of 2022
        tables = {"job": {"framework": "megatron-2021"}}
    chips = int(world) if world.isdecimal() else None
    notes = () if "global_batch_size" in names else (NO_BATCH,)
    said = FileKeys(_flags(keys), chips, notes, known=tables, names=names)
    return Dump("megatron", said)


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
NUMBER = r"\s*[=:]\s*(\d+)"
"""Behind the words of a head."""


def headed(kind: str, text: str) -> ForeignFile | None:
    """What the head of a log of a tool that no format here reads says; None for other tools."""
    tool = TOOLS[kind]
    if "head" not in tool:
        return None
    numbers = {
        path: int(match[1])
        for path, words in tool["head"].items()
        if (match := re.search(words + NUMBER, text[:LONGEST]))
    }
    tables: dict[str, Any] = {"layout": {}, "job": {}, "run": {}}
    tables |= nested(numbers)
    layout, job, run = (tables[name] for name in ("layout", "job", "run"))
    del tables["run"]
    job["framework"] = tool["framework"]
    # sequences of a replica
    each = layout.get("microbatch", 0) * run.get("accumulation", 0)
    chips = None
    if {"dp", "tp", "pp"} <= {*layout}:
        chips = layout["dp"] * layout["tp"] * layout["pp"]
        if each:
            job["batch"] = layout["dp"] * each
    elif each and "batch" in job:
        chips = job["batch"] // each
    if run.get("tokens") and job.get("seq"):
        job["batch"] = run["tokens"] // job["seq"]
    if "batch" in job:
        job["batch"] = f"{job['batch']}seq"
    taken = {"zero": tool["zero"]} if "zero" in tool else {}
    layout |= taken
    model = tables.get("model", {})
    if not {"layers", "hidden"} <= {*model}:
        tables.pop("model", None)
    elif "seq" in job:
        model["seq"] = job["seq"]
    return ForeignFile(
        Format(kind, tool["title"], (tool["framework"],)),
        tables,
        chips,
        on=None,
        used=tuple(sorted(p for p in numbers if not p.startswith("run."))),
        taken=taken,
    )
