"""From a foreign file to the tables of a job, with what was understood and what was not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...describe.framework import framework
from ...describe.job import PRECISIONS, with_gradients
from ...describe.layout import Layout
from ...describe.read import brief
from ...errors import BadInput
from . import cells, shell
from .keys import Keys
from .shared import MOMENTS, model_in_catalogue, unmastered
from .table import Format

ELSEWHERE = shell.ELSEWHERE.lstrip("-").replace("-", "_")
STRANGE = "unknown: it may change time or memory"
FIELDS = {f.name for f in fields(Layout)}
OFF: tuple[Any, ...] = (
    None,
    False,
    "",
    "none",
    "None",
    "null",
    "false",
    "False",
    [],
    {},
    (),
)
"""Values of keys that are not known, but switch nothing on."""


@dataclass(frozen=True)
class FileKeys:
    """What the syntax of a file holds."""

    keys: dict[str, Any]
    chips: int | None = None
    """Ranks that its launcher starts."""
    notes: tuple[str, ...] = ()
    doubtful: frozenset[str] = frozenset()
    """Keys that are set under a condition which the file alone does not decide."""
    base: str = ""
    """The file under these keys, whose others count; it is not read yet."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Field that another file decides, such as layout.tp -> the key that names that file."""
    known: Mapping[str, Mapping[str, Any] | str] = field(default_factory=dict)
    """Table -> field -> value, of what is known beside the keys, such as the model's layers; or the
    model's name."""
    names: frozenset[str] = frozenset()
    """All arguments that the tool's version has, where a log lists them; empty: not known."""


@dataclass(frozen=True)
class ForeignFile:
    """A foreign file, read."""

    format: Format
    tables: dict[str, Any]
    """As in a JOB.toml: model, layout, software, job; what the file does not say is missing."""
    chips: int | None
    on: str | None
    """A chip, where the file names one."""
    used: tuple[str, ...]
    """Keys that the job holds."""
    left: dict[str, str] = field(default_factory=dict)
    """Key -> why it is not in the job: what could change time or memory."""
    harmless: tuple[str, ...] = ()
    """Keys that change neither."""
    notes: tuple[str, ...] = ()
    """What was assumed."""
    missing: tuple[str, ...] = ()
    """What the model needs and the file leaves to something else, a predicate each."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Field, such as layout.tp -> the key that says it in a way that cannot be read."""
    taken: Mapping[str, Any] = field(default_factory=dict)
    """Field, such as tp -> what stands for what the file does not say."""
    names: frozenset[str] = frozenset()
    """All arguments that the tool's version has, as in `FileKeys`."""


def understood(format: Format, said: FileKeys) -> ForeignFile:
    """Every field of the table, read from the keys of a file."""
    named = {format.older.get(k, k): v for k, v in said.keys.items()}
    elsewhere = dict(said.elsewhere)
    if named.pop(ELSEWHERE, None):
        asked = [*FIRST, "layout.recompute", BATCH]
        elsewhere |= decided_elsewhere(format, asked, named, ELSEWHERE)
    usual: dict[str, Any] = {}
    for key, configurations in format.configs.items():
        usual |= configurations.get("*", {}) if key in named else {}
        named = {**configurations.get(str(named.get(key)), {}), **named}
    keys = Keys(
        {**format.defaults, **usual, **named},
        format,
        chips=said.chips,
        notes=[*said.notes, *format.notes],
    )
    # counted by who reads the file
    keys.used |= {*format.ranks} & {*keys.said}
    beside: dict[str, Any] = {
        name: table if isinstance(table, str) else dict(table)
        for name, table in said.known.items()
    }
    keys.tables.update(beside)
    for path, cell in format.cells.items():
        if path.startswith("model.") and isinstance(
            keys.tables.get("model"), str
        ):
            continue
        value = cells.read_cell(path, cell, keys)
        table, _, name = path.partition(".")
        if value is None:
            continue
        if table == "layout" and name not in FIELDS:
            keys.leave(
                cell.keys[0], f"a layout cannot express {name} = {value}"
            )
        elif name:
            keys.tables.setdefault(table, {})[name] = value
        else:
            keys.tables[table] = value
    needs = [*resized(keys), *keys.tables.pop("", {}).get("missing", ())]
    left, harmless = _sorted(format, keys)
    unread = {**unreadable(format, keys, said.doubtful), **elsewhere}
    if sizes := [path for path in unread if path.startswith("model.")]:
        words = ", ".join(path.partition(".")[2] for path in sizes[:4])
        needs.append(
            f"leaves sizes of its model ({words}) to how it is called: give the model, such as"
            " --model llama3-8b or --model config.json"
        )
    if not names_its_model(keys):
        keys.tables.pop("model", None)
    on = keys.tables.pop("on", None)
    for path in unread:  # no reader's default stands for it
        table, _, name = path.partition(".")
        if isinstance(keys.tables.get(table), dict):
            keys.tables[table].pop(name, None)
    tables: dict[str, Any] = {name: t for name, t in keys.tables.items() if t}
    tables.setdefault("job", {}).setdefault("framework", format.frameworks[0])
    train_as_loaded(format, keys, tables["job"])
    state_gradients(format, tables)
    return ForeignFile(
        format=format,
        tables=tables,
        chips=keys.chips,
        on=str(on) if on else None,
        used=tuple(sorted(keys.used - set(left))),
        left=left,
        harmless=tuple(sorted(harmless)),
        notes=tuple(keys.notes),
        missing=tuple(needs),
        unread=unread,
        taken=left_open(format, {*named, *said.doubtful}, tables, elsewhere),
        names=said.names,
    )


SIZES = (
    *("model.layers", "model.hidden", "model.heads", "model.ffn"),
    *("model.mla", "model.moe", "model.mtp_layers"),
)
"""Fields of a model that a file may change beside the model's name."""
SIZES_OF_EXPERTS = ("experts", "top_k", "expert_ffn")


def resized(keys: Keys) -> list[str]:
    """The sentence on sizes in a file that are not those of the model it names; none if they are.

    A size is compared where a key of it is there; what is off there, such as latent attention, is
    off in the model too.
    """
    theirs = model_in_catalogue(keys)
    other = {}
    for path in SIZES if theirs else ():
        cell = keys.format.cells.get(path)
        said = [key for key in cell.keys if key in keys.said] if cell else []
        if not (cell and said):
            continue
        alone = replace(keys, used=set(), left={}, notes=[], tables={})
        mine = cells.read_cell(path, cell, alone)
        its = getattr(theirs, path.partition(".")[2])
        keys.used |= alone.used
        if isinstance(mine, dict) and its:
            mine = {n: mine[n] for n in {*mine} & {*SIZES_OF_EXPERTS}}
            its = {n: getattr(its, n) for n in mine}
        # nothing is off unless a switch says so
        silent = mine is None and keys.said.get(cell.keys[0]) is None
        if mine != its and not silent:
            other[said[0]] = keys.said[said[0]]
    words = ", ".join(f"{key} {brief(value)}" for key, value in other.items())
    return [
        f"names {keys.tables.get('model')} with other sizes ({words}): give the model, such as"
        " --model config.json"
    ] * bool(other)


NO_MASTERS = (
    "weights are loaded in the numbers of the run: without FSDP and DeepSpeed there are no fp32"
    " masters, and memory is less than predicted"
)
AS_LOADED = (
    "no FSDP, no DeepSpeed: weights, gradients and states all stay in bf16"
)


def train_as_loaded(format: Format, keys: Keys, job: dict[str, Any]) -> None:
    """Weights that nobody shards are trained in the numbers in which they are loaded (the format's
    `loaded`): PyTorch's AdamW keeps its states in those of its parameters, and no masters.
    """
    stays = job.get("optimizer") in [unmastered(name) for name in MOMENTS]
    if stays or not keys.alone or "loaded" not in format.let:
        return
    loaded = keys["loaded"]
    optimizer = format.cells.get("job.optimizer")
    named = job.get("optimizer", "adamw")
    other = {*keys.left} & {*(optimizer.keys if optimizer else ())}
    if (
        loaded == job.get("precision") == "bf16"
        and named in MOMENTS
        and not other
    ):
        job["precision"] = "bf16-pure"
        job["optimizer"] = unmastered(named)
        keys.notes.append(AS_LOADED)
    elif loaded != "fp32":
        keys.notes.append(NO_MASTERS)


DEEPSPEED = "deepspeed"
"""The format of its own file, and the framework."""


def state_gradients(format: Format, tables: dict[str, Any]) -> None:
    """A file's own word for its numbers says their gradients, which a name leaves to the framework:
    those in fp32 are stated where the framework by itself has others. Trainers that hand their
    numbers to DeepSpeed say nothing of gradients (transformers, integrations/deepspeed.py sets
    bf16.enabled or fp16.enabled alone), which then are as wide as the model.
    """
    own = tables["job"]
    if own["framework"] == DEEPSPEED != format.name:
        return
    numbers = PRECISIONS.get(str(own.get("precision")))
    if (
        numbers
        and with_gradients(numbers, framework(own["framework"]).gradients)
        != with_gradients(numbers, "fp32")
        == numbers
    ):
        tables.setdefault("software", {}).setdefault("gradients", "fp32")


ASKED = (
    "layout.",
    "model.",
    "job.precision",
    "job.seq",
    "software.dp_overlap",
)
"""Fields for which nothing is taken where a key of theirs cannot be read."""
BATCH = "job.batch"
FIRST = {
    "layout.tp": 1,
    "layout.pp": 1,
    "layout.cp": 1,
    "layout.ep": 1,
    "layout.microbatch": 1,
    "layout.zero": 0,
    "job.precision": "as is usual on the chip",
    "job.seq": "as long as the model's",
}
"""Fields that a reader hears of where the file does not say them -> what is taken then, unless the
tool's own default is read."""
TAKEN = "assumed, because the file does not say: "


def left_open(
    format: Format,
    said: Collection[str],
    tables: Mapping[str, Any],
    elsewhere: Collection[str] = (),
) -> dict[str, Any]:
    """Field -> what stands for it, where no key of the file says it."""
    scripted = any(cell.script for cell in format.cells.values())
    model = tables.get("model")
    taken = {}
    for path, usual in FIRST.items():
        cell = format.cells.get(path)
        table, _, name = path.partition(".")
        if cell is None and not scripted:
            continue  # the tool has nothing of the kind
        if cell and (cell.script or {*cell.keys} & {*said}):
            continue
        if path in elsewhere:
            continue
        experts = not isinstance(model, Mapping) or model.get("moe")
        if name == "ep" and not experts:
            continue
        taken[name] = tables.get(table, {}).get(name, usual)
    batch = tables.get("job", {}).get("batch")
    if batch and not {*format.cells[BATCH].keys} & {*said}:
        taken["batch"] = batch
    return taken


def decided_elsewhere(
    format: Format, paths: Collection[str], said: Collection[str], key: str
) -> dict[str, str]:
    """`FileKeys.elsewhere` of those fields of which the file says no key."""
    return {
        path: key
        for path in paths
        if path in format.cells and not _deciding(format, path) & {*said}
    }


def _deciding(format: Format, path: str) -> set[str]:
    """Keys of which one decides a field; of the batch, the one that does."""
    cell = format.cells[path]
    return {cell.keys[0]} if path == BATCH else {*cell.keys}


def unreadable(
    format: Format, keys: Keys, doubtful: Collection[str]
) -> dict[str, str]:
    """Field of the model, the layout or the numbers -> a key that says it and cannot be read."""
    bad = keys.unread | {*doubtful}
    return {
        path: next(key for key in cell.keys if key in bad)
        for path, cell in format.cells.items()
        if path.startswith(ASKED) and bad & {*cell.keys}
    }


def names_its_model(keys: Keys) -> bool:
    """The file says which model it trains, by name or by its layers."""
    model = keys.tables.get("model")
    if isinstance(model, str) or not model:
        return bool(model)
    return "config" in model or ("layers" in model and "hidden" in model)


def _sorted(format: Format, keys: Keys) -> tuple[dict[str, str], list[str]]:
    """(key -> why it is not in the job, keys that change nothing)."""
    left = dict(keys.left)
    harmless = []
    for key, value in keys.said.items():
        if key in keys.used:
            continue
        short = key.rpartition(".")[2]
        reason = format.why(key) or format.why(short)
        off = value in OFF if not isinstance(value, Mapping) else not value
        for name in {key, short} & {*format.usual}:
            off = str(value).lower() in format.usual[name]
        refusal = format.refusal(key) or format.refusal(short)
        if refusal and not off:
            raise BadInput(f"{format.title}: {key}: {refusal}")
        if off or (
            not reason
            and (format.is_harmless(key) or format.is_harmless(short))
        ):
            harmless.append(key)
        else:
            left[key] = reason or STRANGE
    return left, harmless
