"""A plan written into a file that is there: only those keys change that the plan determines.

    onto(job, "megatron", "train.sh", place) -> Onto

What is written anew is what `writing` writes; a key of the file that says the same stays as it is,
and so does every key that is not in the table of fields, or whose field the plan leaves open. The
edited text is read again: each key must have the value that it was given, and each other its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from ...describe.job import ONE_DEVICE, Job
from ...describe.layout import Layout
from ...describe.read import brief
from ...describe.software import Software
from ...errors import BadInput
from ..formulas import worked_out
from . import launch, megatron_args, megatron_bridge, shell, torchtitan
from .cells import plan_names
from .edit import (
    NONE,
    VALUE,
    Changes,
    edit_json,
    edit_toml,
    edit_yaml,
    replaced_parts,
)
from .reading import OFF, FileKeys, ForeignFile, understood
from .shared import bare_model, catalogued
from .table import Format
from .tool import Tool
from .writing import keys_of

Keys = dict[str, Any]
Edit = Callable[[str, Changes, Keys, str], str]
"""(text, changes, all keys as they shall be, name of the file) -> text."""
EDITS: dict[str, Edit] = {
    "megatron": megatron_args.SPELLING.edit,
    "deepspeed": edit_json,
    "accelerate": edit_yaml,
    "axolotl": edit_yaml,
    "maxtext": edit_yaml,
    "gpt-neox": edit_yaml,
    "torchtitan-toml": edit_toml,
}
"""Format -> what edits its files."""
CHANGED: dict[str, Edit] = {
    **EDITS,
    "torchtitan": torchtitan.edit_flags,
    "megatron-bridge": megatron_bridge.SPELLING.edit,
    "nanotron": edit_yaml,
}
"""The same for a change of the file's own run: commands over a recipe, too, which leave to it what
a plan of another job would have to say, and files whose tables of a model come and go with it."""
LAYOUT = "layout."
IDLE = (*OFF, 1, "1", -1, "no")
"""Values of keys of a layout that say no more than a key that is not there."""
ALWAYS_MEANT = ("software.dp_overlap",)
"""Settings that mean something else in a file that does not say them than in a plan."""
LABELS = ("job.framework",)
"""Fields that a reader derives from others."""
DEFAULTS = {
    f"layout.{f.name}": getattr(ONE_DEVICE, f.name)
    for f in fields(Layout)
    if f.default is not MISSING
}


@dataclass(frozen=True)
class Onto:
    """A file with a plan in it."""

    text: str
    changed: Changes
    """Key -> (what it was, what it is); NONE: it was, or is, not there."""
    against: dict[str, str]
    """Key that stays -> why it contradicts the plan, or what it does that no plan says."""
    kept: dict[str, Any]
    """Key -> value, of fields that the plan leaves open."""
    script: list[str]
    """What the training script must say."""

    def to_dict(self) -> dict[str, object]:
        """What became of the file, as `--json` says it."""
        return {
            "changed": {k: [*pair] for k, pair in self.changed.items()},
            "against": self.against,
            "kept": self.kept,
        }

    def sentences(self, base: str) -> list[str]:
        """Sentences on what became of the file."""
        lines = [
            f"{base}: {key}: {short_value(old)} -> {short_value(new)}"
            for key, (old, new) in self.changed.items()
        ]
        if not lines:
            lines = [f"{base} already matches this plan: nothing is changed"]
        lines += [
            f"{base}: {key} is not changed: {why}"
            for key, why in self.against.items()
        ]
        if self.kept:
            kept = ", ".join(
                f"{k} {short_value(v)}" for k, v in self.kept.items()
            )
            lines.append(
                f"{base} holds more than the plan; these stay: {kept}"
            )
        return lines


def short_value(value: Any) -> str:
    """A value in a sentence."""
    return value[:80] if isinstance(value, str) else brief(value)


@dataclass(frozen=True)
class Reading:
    """What keys of one format mean."""

    format: Format
    tool: Tool
    path: str
    chips: int

    def file(self, keys: Mapping[str, Any]) -> ForeignFile:
        said = self.tool.of_tree(keys, self.path)
        return understood(
            self.format,
            FileKeys(said.keys, self.chips, said.notes),
        )

    def fields(self, keys: Mapping[str, Any], but: set[str]) -> Keys:
        """Field -> what the keys say of it, without the fields in `but`."""
        return fields_of(self.file(keys), but)


def fields_of(file: ForeignFile, but: set[str]) -> Keys:
    """Field -> value, of all tables of a reading."""
    values: Keys = dict(DEFAULTS)
    for table, value in file.tables.items():
        if isinstance(value, Mapping):
            values |= {f"{table}.{name}": v for name, v in value.items()}
        else:
            values[table] = value
    return {path: v for path, v in values.items() if path not in but}


def left_open(job: Job) -> set[str]:
    """Fields that a plan need not say: what the file says of them stays."""
    said = {"job.tokens": job.tokens or None} | {
        f"software.{f.name}": getattr(job.software, f.name)
        for f in fields(Software)
    }
    paths = {path for path, value in said.items() if value is None}
    if job.attention_kernel == "framework":
        paths.add("job.attention_kernel")
    return (paths - {*ALWAYS_MEANT}) | {*LABELS}


@dataclass(frozen=True)
class Written:
    """A plan in the keys of a file, as it is written anew."""

    job: Job
    out: Keys
    """Its keys, and what the tool's launcher is told beside them."""
    open: set[str]
    """Fields that it leaves to the file."""
    script: list[str]
    """What the training script must say."""
    against: dict[str, str]
    """Key that stays, and may contradict it -> why."""


def with_fields(
    reading: Reading, base: Keys, plan: Written, paths: set[str]
) -> Keys:
    """The keys of a file with those fields as a plan says them."""
    format, out = reading.format, plan.out
    names, owners = plan_names(plan.job, format), _owners(format)
    now = dict(base)
    for key in {*owners, *out}:
        meant = key not in owners or owners[key] & paths
        if key in out:
            written = meant or key in format.ranks
            if written and differs(base, key, out[key]):
                now[key] = out[key]
        elif meant and not worked_out(format.wider.get(key, "0"), names):
            now.pop(key, None)
    for (key, value), needs in reading.tool.beside.items():
        if now.get(key) == value and not {*needs} & {*now}:
            del now[key]
    return {k: now[k] for k in (*base, *out) if k in now}


def fewest_changes(
    reading: Reading,
    base: Keys,
    plan: Written,
    run: Written | None = None,
) -> Keys:
    """Keys of the file with the plan in it: as few fields are written anew as make it say the plan.

    run: what the file runs, of which only fields change that the plan has otherwise.
    """
    but = plan.open & (run.open if run else plan.open)
    every = {*reading.format.cells} - but
    whole = with_fields(reading, base, plan, every)
    want, here = reading.fields(whole, but), reading.fields(base, but)
    notes = {
        *reading.file(whole).notes,
        *reading.file(base if run else whole).notes,
    }
    same: set[str] = set()
    if run:
        own = reading.fields(with_fields(reading, base, run, every), but)
        same = {p for p in {*own, *want} if own.get(p) == want.get(p)}

    def wrong(keys: Keys) -> set[str]:
        try:
            file = reading.file(keys)
        except BadInput:  # a key that another one needs was taken out
            return every
        values = fields_of(file, but)
        return ({*file.notes} - notes) | {
            path
            for path in {*values, *want}
            if values.get(path) != want.get(path)
            and not (path in same and values.get(path) == here.get(path))
        }

    laid = {path for path in every if path.startswith(LAYOUT)}
    said = {*reading.tool.of_tree(base, reading.path).keys}
    # what a file leaves open of a layout may be anything
    paths = {
        path
        for path in (set() if run else laid)
        for keys in [{*reading.format.cells[path].keys}]
        if keys & {*plan.out} and not keys & said
    }
    now = with_fields(reading, base, plan, paths)
    while paths != every and (others := wrong(now)):
        more = others | (set() if run or not others & laid else laid)
        # what no field says, such as a note, goes with all of them
        paths = paths | more & every if more & every - paths else every
        now = with_fields(reading, base, plan, paths)
    for key in changes(base, now):
        # in the order of the file
        both = dict.fromkeys((*base, *now))
        before = {k: base if k == key else now for k in both}
        undone = {k: before[k][k] for k in both if k in before[k]}
        if (run or may_stay(reading, base, now, key)) and not wrong(undone):
            now = undone
    return now


def may_stay(reading: Reading, base: Keys, now: Keys, key: str) -> bool:
    """A change of a key may be taken back where the keys still say the plan: words may differ
    ("adamw_torch" and "adamw"; "minimal_flash" of an older MaxText, which lacks the word of today),
    and what switches nothing on may stand there or not; numbers and layouts are set in any case.
    """
    if key in base and key in now:
        words = isinstance(base[key], str) and isinstance(now[key], str)
        return words and not str(now[key]).replace(".", "").isdecimal()
    owners = _owners(reading.format).get(key, (LAYOUT,))
    if key in now:
        return not any(path.startswith(LAYOUT) for path in owners)
    return base[key] is not True and base[key] in IDLE


def _owners(format: Format) -> dict[str, set[str]]:
    """Key -> fields of the table that it says."""
    owners: dict[str, set[str]] = {}
    for path, cell in format.cells.items():
        for key in cell.keys:
            owners.setdefault(key, set()).add(path)
    return owners


def differs(keys: Keys, key: str, value: Any) -> bool:
    """The key is not there with this value, however it is spelled (8, "8", True, "true")."""
    if key not in keys:
        return True
    old = keys[key]
    return bool(old != value and str(old).lower() != str(value).lower())


def changes(base: Keys, now: Keys) -> Changes:
    """Key -> (what it was, what it is)."""
    return {
        key: (base.get(key, NONE), now.get(key, NONE))
        for key in dict.fromkeys((*base, *now))
        if base.get(key, NONE) != now.get(key, NONE)
        or type(base.get(key)) is not type(now.get(key))
    }


def write_onto_file(
    reading: Reading,
    job: Job,
    text: str,
    base: Keys,
    head: Keys,
    run: Job | None = None,
) -> Onto:
    """The file with the plan in it.

    base: all keys of the file as it stands; head: what its launcher is told beside them; run: the
    job that the file runs, where each field that the plan has as this stays as the file says it.
    Raises BadInput.
    """
    plan = written_into(reading, job, base, head)
    before = written_into(reading, run, base, head) if run else None
    if before and (
        elsewhere := [w for w in plan.script if w not in before.script]
    ):
        raise BadInput(
            f"{reading.path[:80]} leaves this to the training script:"
            f" {', '.join(elsewhere)}"
        )
    now = fewest_changes(reading, base, plan, before)
    changed = changes(base, now)
    edited = CHANGED[reading.format.name](text, changed, now, reading.path)
    file = reading.file(now)
    left = {k: why for k, why in file.left.items() if k in base}
    owners = _owners(reading.format)
    kept = {
        k: v
        for k, v in base.items()
        if owners.get(k)
        and owners[k] <= plan.open - {"model"}
        and v not in OFF
    }
    return Onto(
        edited,
        changed,
        against=plan.against | left,
        kept=kept,
        script=plan.script,
    )


def written_into(
    reading: Reading, job: Job, base: Keys, head: Keys
) -> Written:
    """The plan in keys; a model that the file names already is not written."""
    format = reading.format
    but, apart = left_open(job), set[str]()
    against: dict[str, str] = {}
    if "model" in format.cells and not format.cells["model"].script:
        named = reading.file(base).tables.get("model")
        if not isinstance(named, str) or catalogued(named) == bare_model(
            job.model
        ):
            but.add("model")
            apart.add("model")
        if not isinstance(named, str):
            against |= _unknown_model(format, base, job)
    out, script = keys_of(format, job, apart)
    words = {**reading.tool.words(out), **head}
    return Written(job, words, but, script, against)


def _unknown_model(format: Format, base: Keys, job: Job) -> dict[str, str]:
    """The model's key of a file whose model is not in the catalogue."""
    key = format.cells["model"].keys[0]
    if key not in base:
        raise BadInput(
            f"the base says no {key}, and the plan's {job.model.name} may be another one"
        )
    return {
        key: f"{brief(base[key])} stays: the plan is for {job.model.name}, and whether they have"
        " the same sizes is not known here"
    }


CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
EXPORTED = rf"(?m)^([ \t]*(?:export[ \t]+)?{CONNECTIONS}=)(\S+)[ \t]*\n"


def environment_edited(
    made: Onto, keys: Keys, job: Job, run: Job | None = None
) -> Onto:
    """A script that sets the environment as Megatron demands it for this plan; run: of a job that
    the script starts, which may have it from elsewhere.
    """
    wanted = megatron_args.environment(keys, job).get(CONNECTIONS)
    if run and wanted == megatron_args.environment(keys, run).get(CONNECTIONS):
        return made
    live, _ = shell.live(made.text)
    exports = [*re.finditer(EXPORTED, live)]
    if wanted and not exports:
        head = re.match(r"(?:(?:#.*)?\n)*", made.text)
        at = head.end() if head else 0
        cuts = [(at, at, f"export {CONNECTIONS}={wanted}\n")]
    elif wanted:
        cuts = [
            (m.start(2), m.end(2), wanted) for m in exports if m[2] != wanted
        ]
    else:
        apart = "use_megatron_fsdp" in keys
        cuts = [(m.start(), m.end(), "") for m in exports if apart]
    if not cuts:
        return made
    pair = (exports[0][2] if exports else NONE, wanted or NONE)
    changed = {**made.changed, CONNECTIONS: pair}
    return replace(made, text=replaced_parts(made.text, cuts), changed=changed)


STARTED = {
    "nodes": r"(--nnodes(?:=|[ \t]+))",
    "ranks": r"(--nproc[-_]per[-_]node(?:=|[ \t]+))",
}
"""Number of `Place` -> the words in front of it on torchrun's command line."""
RESERVED = {
    "nodes": r"(?m)^(#SBATCH[ \t]+(?:--nodes[= ]|-N[ ]?))",
    "ranks": r"(?m)^(#SBATCH[ \t]+--gpus-per-node[= ])",
}
"""The same in what Slurm reads, which a shell takes for comments."""


def ranks_edited(made: Onto, at: launch.Place, where: str) -> Onto:
    """A script that starts as many ranks as the plan has; what cannot be changed is said."""
    wanted = at.nodes * at.ranks
    before = megatron_args.TOOL.said(made.text, where)
    if before.chips in (None, wanted):
        return made
    live, _ = shell.live(made.text)
    cuts = [
        (m.end(1), m.end(), str(getattr(at, name)))
        for among, words in ((live, STARTED), (made.text, RESERVED))
        for name, word in words.items()
        for m in re.finditer(f"{word}{VALUE}", among)
    ]
    text = replaced_parts(made.text, cuts)
    after = megatron_args.TOOL.said(text, where)
    if after.chips == wanted and after.keys == before.keys:
        ranks = {"ranks that are started": (before.chips, wanted)}
        return replace(made, text=text, changed={**made.changed, **ranks})
    why = f"the script starts {before.chips} ranks, and the plan has {wanted}"
    return replace(made, against={**made.against, "ranks": why})
