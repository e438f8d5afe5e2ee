"""The description of a job on a command line: a flag for each field of cluster, job and layout, as
in the TOML file.

    predict llama3-70b --on 1024xh100-sxm --batch 4M --tp 8 --pp 4      the model by name
    predict job.toml --batch 8M                                         a file, with other fields
    plan llama3-70b --on 1024xh100-sxm --batch 4M --tp 4,8 --pp 1..16   layout fields constrain

Every value is a text, read by `formats.toml` and `describe.read`: all three faces answer mistakes
with the same sentence.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from .. import catalog
from ..describe.choices import FIELDS, Choices
from ..describe.fields import fields_of
from ..describe.job import TRAIN, Job
from ..describe.layout import AXES, DEGREES, Layout
from ..describe.read import read
from ..describe.software import Software
from ..errors import BadInput, command
from ..layout.placement import launched
from . import LARGEST, STDIN, bridge, parse_toml, read_text
from .bridge import foreign
from .bridge.reading import TAKEN, ForeignFile
from .options import NUMBERS, flags
from .resolve import TRACE
from .resolve import model as known_model
from .toml import laid_by_set, load_job, said_fields
from .words import words as command_words

if TYPE_CHECKING:
    from ..prediction.prediction import Prediction
    from ..search import Space

ROWS = "vocab_size"
"""The flag of the vocabulary that a file leaves to its tokenizer."""


def read_flags(
    model: str,
    given: Mapping[str, str],
    notes: list[str] | None = None,
    stdin: TextIO | None = None,
    fill: bool = True,
) -> Job:
    """The job of a model (name, config.json, JOB.toml, a file of another tool, or "-" for a TOML
    text on `stdin`) and flags (name -> text).

    notes: receives a sentence on what was rounded or filled in;  fill: the layout counts, and takes
    all chips as replicas if dp is not given. Raises BadInput.
    """
    demand_one_layout(given)
    notes = [] if notes is None else notes
    source = describe(model, given, stdin, notes)
    if known := catalog.aliases("models").get(model):
        notes.append(f"{model} is {known} of the catalogue")
    order = axis_order(source)
    if fill:
        source.setdefault("layout", {})
    job = load_job(source, notes=notes, bare=False)
    if not fill:
        return job
    filled = _filled(job, notes)
    if "tp" in given and "etp" not in source["layout"]:
        notes += expert_default(filled)
    if (
        (is_file(model) or foreign(model))
        and "on" in given
        and "dp" not in given
        and filled.layout.chips > job.cluster.chips
    ):
        refilled = filled.layout.refilling(job.cluster.chips)
        needs = (
            f"the layout of the file takes {filled.layout.chips} chips, but {given['on'][:40]} has"
            f" {job.cluster.chips}"
        )
        if refilled.chips > job.cluster.chips:
            raise BadInput(
                f"{needs}: tp x cp x pp is {refilled.chips} by itself, give that many chips or"
                " smaller --tp, --cp or --pp"
            )
        raise BadInput(
            f"{needs}: drop dp and placement there to let them follow, or give --dp {refilled.dp}"
        )
    if order:
        return replace(filled, layout=launched(job, filled.layout, order))
    return filled


def axis_order(tables: dict[str, Any]) -> tuple[str, ...]:
    """The order of axes, nearest first, where a placement is one; it is taken out of the tables."""
    layout = tables.get("layout")
    text = layout.get("placement") if isinstance(layout, Mapping) else None
    if not isinstance(layout, Mapping) or not isinstance(text, str):
        return ()
    order = tuple(text.split("-"))
    if sorted(order) != sorted(AXES):
        raise BadInput(
            f"placement {text[:60]!r} must hold each of {', '.join(AXES)} once, such as tp-cp-pp-dp"
        )
    tables["layout"] = {k: v for k, v in layout.items() if k != "placement"}
    return order


def demand_one_layout(given: Mapping[str, str]) -> None:
    """BadInput for a degree that is not one number; a search has taken its lists and ranges
    before.
    """
    for name in DEGREES:
        text = given.get(name, "1")
        if ".." in text or "," in text or not any(c.isdecimal() for c in text):
            raise BadInput(
                f"--{name} takes one whole number here, not {text[:40]!r}; lists and ranges are for"
                " plan"
            )


def is_file(model: str) -> bool:
    """The first argument is a job of ours, not a model."""
    return model == STDIN or model.endswith(".toml") and not foreign(model)


def describe(
    model: str,
    given: Mapping[str, str],
    stdin: TextIO | None = None,
    notes: list[str] | None = None,
) -> dict[str, Any]:
    """The tables of `load_job`: those of the file, if there is one, with the flags laid over
    them; notes: receives what a file of another tool says and a job does not hold.
    """
    ours = is_file(model)
    theirs = foreign(model)
    if theirs:
        tables, given = foreign_tables(
            model, given, [] if notes is None else notes
        )
    else:
        for name in {"as_", "arguments", ROWS} & {*given}:
            raise BadInput(
                f"--{name.strip('_').replace('_', '-')} is for files of other tools, which"
                f" {model[:60]} is not"
            )
        tables = _file(model, stdin) if ours else {"model": model}
        if other := given.get("model_"):
            if not ours:
                if Path(model).suffix:
                    read_text(model)  # says that there is none
                raise BadInput(
                    f"--model {other[:60]}: the model is {model[:60]} already"
                )
            tables["model"] = other
    for flag in flags():
        if flag.name in given and flag.table != "model":
            value: Any = (
                placement(given[flag.name])
                if flag.name == "placement"
                else given[flag.name]
            )
            table = tables.setdefault(flag.table, {})
            if isinstance(table, str):  # cluster = "1024xh100-sxm"
                table = {"on": table}
            if not isinstance(table, Mapping):
                raise BadInput(f"{flag.table} must be a table")
            tables[flag.table] = (
                {flag.name: value}
                if flag.name == "on"
                else {**table, flag.field or flag.name: value}
            )
    if not ours and not theirs:
        demand_chips_and_batch(model, given)
    if not ours and "layout" in tables:
        tables["layout"] = with_schedule(tables["layout"])
    return tables


def demand_chips_and_batch(model: str, given: Mapping[str, str]) -> None:
    """BadInput for a model without chips or a batch, and for a file that holds no model.

    The first word is asked first: no flag helps where there is no such model.
    """
    if bridge.suffix(model) in (*bridge.LOGS, ".py"):
        raise bridge.no_run(model)
    demand_kind(model)
    if {*WANTED} - {*given} and not is_there(model):
        known_model(model)  # says that there is none
    examples = {"on": "1024xh100-sxm", "batch": usual_batch(given)}
    for name, example in examples.items():
        if name not in given:
            what = WANTED[name]
            raise BadInput(
                f"--{name} is missing: give {what}, such as --{name} {example}, or a JOB.toml"
                " instead of the model"
            )


def demand_kind(model: str) -> None:
    """BadInput for a file whose kind no suffix says: it is neither a model's nor a tool's."""
    try:
        there = not bridge.suffix(model) and Path(model).is_file()
    except (OSError, ValueError):  # too long a name, or none that a file has
        return
    if there and not (
        catalog.has("models", model) or read_text(model).lstrip()[:1] == "{"
    ):
        raise BadInput(
            f"{model[:80]} is not recognised, as its name has no suffix: call a script"
            f" {model[:80]}.sh, a configuration .yaml or .json, a job .toml"
        )


WANTED = {"on": "the chips", "batch": "the batch of a step"}
"""What a missing flag says."""
FEW_CHIPS = 64
"""Chips from which on batches are told in tokens."""
A_CHIP = 8
"""Sequences for each of fewer chips, in the example of a batch."""


def is_there(model: str) -> bool:
    """A file, or a folder with a config.json, which are read when all else is said: that may take
    a trace of the model's code.
    """
    path = Path(model.removeprefix(TRACE)[:4096])
    try:
        return path.is_file() or (path / "config.json").is_file()
    except (OSError, ValueError):
        return False


def usual_batch(given: Mapping[str, str]) -> str:
    """A batch that the chips of a command line can share, as an example."""
    chips = chips_of(given) or FEW_CHIPS
    if chips >= FEW_CHIPS:
        return "4M (tokens) or 512seq"
    return f"{A_CHIP * chips}seq (sequences)"


def with_schedule(layout: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a layout whose schedule follows interleave where it names none."""
    chunked = str(layout.get("interleave", "1")).strip() != "1"
    return {"schedule": "interleaved", **layout} if chunked else {**layout}


def unsaid(given: Mapping[str, str]) -> tuple[str, ...]:
    """Choices of a layout that may be other than their defaults, as no flag says them; numbers that
    nobody states are 1, as some number would explain anything.
    """
    said = {
        flag.field or flag.name
        for flag in flags()
        if flag.table == "layout" and flag.name in given
    }
    return tuple(n for n in fields_of(Layout) if n not in {*said, *DEGREES})


def read_foreign(file: str, given: Mapping[str, str]) -> ForeignFile:
    """A file of another tool, with what the flags say of it."""
    text = given.get("arguments")
    try:
        words = None if text is None else command_words(text)
    except ValueError as error:
        raise BadInput(f"--arguments {(text or '')[:60]!r}: {error}") from None
    foreign = bridge.read_file(
        file,
        chips=chips_of(given),
        named=given.get("as_", ""),
        arguments=words,
    )
    rows = given.get(ROWS)
    return foreign if rows is None else with_vocabulary(foreign, file, rows)


def with_vocabulary(foreign: ForeignFile, file: str, rows: str) -> ForeignFile:
    """A file that leaves the vocabulary to its tokenizer, with so many rows of the embedding."""
    asked = [why for why in foreign.missing if "vocabulary" in why]
    model = foreign.tables.get("model")
    if not asked or not isinstance(model, Mapping):
        raise BadInput(
            f"--vocab-size {rows[:40]}: {file[:80]} says its vocabulary or its model already"
        )
    if not (rows.isascii() and rows.isdecimal() and 0 < int(rows[:40]) < 1e9):
        raise BadInput(
            f"--vocab-size takes a whole number of rows, such as 128256, not {rows[:40]!r}"
        )
    return replace(
        foreign,
        tables={**foreign.tables, "model": {**model, "vocab": int(rows)}},
        missing=tuple(why for why in foreign.missing if why not in asked),
    )


def foreign_tables(
    file: str, given: Mapping[str, str], notes: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """(tables of a file of another tool, flags with what they leave to it filled in).

    Raises BadInput for what neither says.
    """
    foreign = read_foreign(file, given)
    tables = {
        name: dict(t) if isinstance(t, Mapping) else t
        for name, t in foreign.tables.items()
    }
    given = dict(given)
    if other := given.get("model_"):
        tables["model"] = other
    if isinstance(described := tables.get("model"), dict):
        described.setdefault("name", Path(file).stem)
    if "on" in given or foreign.on:
        on = given.get("on", foreign.on or "").strip()
        given["on"] = (
            f"{foreign.chips}x{on}"
            if foreign.chips and catalog.has("chips", on)
            else on
        )
    if key := adapters_alone(foreign.left):
        raise BadInput(
            f"{file[:80]} trains adapters alone ({key}): LoRA and QLoRA are not counted; training"
            " of all weights is predicted"
        )
    for need in missing(foreign, given):
        raise BadInput(f"{file[:80]} {need}")
    notes += notes_on(foreign, given)
    notes += lower_memory(foreign.left)
    if foreign.left:
        keys = ", ".join([*foreign.left][:NAMED]) + (
            ", ..." if len(foreign.left) > NAMED else ""
        )
        them = "it" if len(foreign.left) == 1 else "them"
        notes.append(
            f"not in the prediction: {keys} ({command('read')} {file} says why of {them})"
        )
    return tables, given


def lower_memory(left: Mapping[str, str]) -> list[str]:
    """Sentences on keys of a file that are not in the prediction and need less memory than it, a
    sentence for all of one reason, what saves little last.
    """
    keys: dict[str, list[str]] = {}
    for key, why in left.items():
        if LESS.search(why):
            keys.setdefault(why, []).append(key)
    return [
        f"{LOWER} {', '.join(keys[why])}, not in the prediction ({why.split(': ')[0]})"
        for why in sorted(keys, key=lambda why: "a little" in why)
    ]


def adapters_alone(left: Mapping[str, str]) -> str:
    """The key of a file by which only adapters are trained; "" for none."""
    return next((key for key, why in left.items() if ADAPTERS in why), "")


def notes_on(
    file: bridge.ForeignFile, given: Mapping[str, str]
) -> tuple[str, ...]:
    """Notes on a file of another tool, with what it leaves to the training script."""
    left = [
        f"{cell.script} ({flag.spelled})"
        for flag in flags()
        if (cell := file.format.cells.get(f"{flag.table}.{flag.name}"))
        and cell.script
        and flag.name not in {*given, "batch"}  # without one there is no job
    ]
    words = [f"{n} {v}" for n, v in file.taken.items() if n not in given]
    first = (f"{TAKEN}{', '.join(words)}",) if words else ()
    if not left:
        return (*first, *file.notes)
    return (
        *first,
        *file.notes,
        f"left to the training script: {', '.join(left)}",
    )


def chips_of(given: Mapping[str, str]) -> int | None:
    """How many chips --on says there are."""
    try:
        return (
            int(catalog.split_count(given["on"])[0]) if "on" in given else None
        )
    except BadInput:
        return None


def missing(file: bridge.ForeignFile, given: Mapping[str, str]) -> list[str]:
    """What a job needs that neither a file of another tool nor the flags say."""
    needs = [] if "model_" in given else [f"{why}" for why in file.missing]
    if "model" not in file.tables and "model_" not in given and not needs:
        needs.append(
            "names no model: give it, such as --model llama3-8b or --model config.json"
        )
    needs += unreadable_fields(file, given)
    if "on" not in given:
        layout = file.tables.get("layout", {})
        least = math.prod(int(layout.get(d) or 1) for d in ("tp", "cp", "pp"))
        started = f" (it starts {file.chips} ranks)" if file.chips else ""
        count = "" if file.chips else f"{max(64, least)}x"
        if 0 < (file.chips or 0) < least:
            started = (
                f" (it starts {file.chips} ranks, tp x cp x pp is {least})"
            )
            count = f"{least}x"
        needs.append(
            f"does not say which chips{started}: give them, such as --on {count}h100-sxm"
        )
    if "batch" not in given and "batch" not in file.tables.get("job", {}):
        needs.append(
            "says no global batch: give it, such as --batch 512seq or --batch 4Mi"
        )
    return needs


def unreadable_fields(
    file: bridge.ForeignFile, given: Mapping[str, str]
) -> list[str]:
    """What a file gives in a way that cannot be read and no flag says: a sentence, or none."""
    keys = {
        name: key
        for path, key in file.unread.items()
        for table, _, name in [path.partition(".")]
        if table != "model" and name not in given
    }
    if not keys:
        return []
    such = " ".join(
        f"--{name.replace('_', '-')} {EXAMPLES.get(name, '1')}"
        for name in keys
    )
    them = ", ".join(dict.fromkeys(keys.values()))
    return [
        f"leaves {', '.join(keys)} to how it is called ({them} cannot be read): give what it runs"
        f" with, such as {such}"
    ]


EXAMPLES = {
    "precision": "bf16",
    "seq": "4096",
    "recompute": "full",
    "dp_overlap": "all",
    "sequence_parallel": "true",
    "offload": "none",
    "stages": "even",
    "cp_exchange": "ring",
    "schedule": "1f1b",
    "placement": "tp-cp-dp-pp",
}
"""Values in the sentence on what a file leaves to its caller, where 1 is none."""


def _file(model: str, stdin: TextIO | None) -> dict[str, Any]:
    """The tables of a JOB.toml, a path in it relative to its folder."""
    if model == STDIN:
        text = stdin.read(LARGEST + 1) if stdin else ""
        folder = Path()
    else:
        text = read_text(model)
        folder = Path(model).parent
    tables = parse_toml(text, "standard input" if model == STDIN else model)
    described = tables.get("model")
    if isinstance(described, dict) and isinstance(
        described.get("config"), str
    ):
        described["config"] = str(folder / described["config"])
    return tables


def _filled(job: Job, notes: list[str]) -> Job:
    """The job with as many replicas as fill its chips, where dp is not stated."""
    said, filled = job.layout, job.filled
    if said.dp is None and filled.layout.dp > 1:
        degrees = f"tp {said.tp} x cp {said.cp} x pp {said.pp}"
        notes.append(
            f"dp not given: {job.cluster.chips} / ({degrees}) = {filled.layout.dp}"
        )
    return filled


def expert_default(job: Job) -> list[str]:
    """The sentence on experts that tp does not cut, where Megatron cuts them unless told not to
    (megatron/core/parallel_state.py: expert_tensor_parallel_size None is that of tensors).
    """
    said, by = job.layout, job.profile
    if not (job.model.moe and by and by.name in CUT_EXPERTS):
        return []
    if said.tp == 1 or said.etp == said.tp:
        return []
    return [
        f"etp {said.etp} is assumed; Megatron's own default is etp = tp: --etp {said.tp}"
    ]


CUT_EXPERTS = ("megatron-core", "megatron-bridge")
"""Frameworks whose experts are cut as their other layers, unless etp says otherwise."""


def placement(text: str) -> dict[str, list[str]] | str:
    """{axis: ranks in each network dimension} of "tp=8x1,cp=1x1,dp=1x32,pp=1x4"; an order of
    axes, which has no "=", stays text.
    """
    if "=" not in text:
        return text.strip()
    pairs = [part.partition("=") for part in text.split(",")]
    if any(not sep or not shares.strip() for _, sep, shares in pairs):
        raise BadInput(
            f"--placement {text[:60]!r} must look like tp=8x1,cp=1x1,dp=1x32,pp=1x4"
        )
    return {axis.strip(): shares.split("x") for axis, _, shares in pairs}


ADAPTERS = "only adapters are trained"
"""What catalog/bridges.toml says of keys that leave the base as it is."""
LESS = re.compile(
    r"memory (?:is|are) (?:a little )?less|(?:go to|are in) host memory"
)
"""What it says of keys that lower memory."""
LOWER = "less memory than predicted with"
"""How a note on such keys begins."""
NAMED = 4
"""Keys of a file that one sentence names."""
LONGEST_RANGE = 2**20
RANGE = re.compile(r"(\d{1,40})\.\.(\d{1,40})")


def job_and_space(
    given: Mapping[str, str], relaxed: bool | None = None
) -> tuple[dict[str, str], Space]:
    """(flags of the job, space that the layout flags leave to a search): "8", "1,2,4" or "1..16".
    Raises BadInput.
    """
    from ..search import Space

    rest = dict(given)
    allowed = {}
    for name in FIELDS:
        if name in rest:
            text = rest.pop(name)
            allowed[name] = (
                whole_numbers(name, text)
                if name in NUMBERS
                else [t.strip() for t in text.split(",")]
            )
    if "placement" in rest:
        raise BadInput(
            "--placement is what a search chooses: it can only be given to predict"
        )
    return rest, Space(
        Choices(allowed), relaxed=relaxed, software=several_values(rest)
    )


def several_values(rest: dict[str, str]) -> dict[str, list[str]]:
    """Settings of the software of which a search may take several values; they are taken from the
    flags.
    """
    named = [name for name in fields_of(Software) if "," in rest.get(name, "")]
    return {
        name: [text.strip() for text in rest.pop(name).split(",")]
        for name in named
    }


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """The numbers of "8", "1,2,4" or "1..16", ascending."""
    numbers: set[int] = set()
    for part in text.split(","):
        values = range_of(name, part.strip())
        if not values and not any(c.isdecimal() for c in part):
            raise no_numbers(name, text)
        least = str(values[0]) if values else part.strip()
        numbers.update(
            values or (),
            {getattr(read(Layout, {name: least}, "layout"), name)},
        )
    return tuple(sorted(numbers))


def range_of(name: str, part: str) -> range | None:
    """The whole numbers of "1..16"; None of what is no range."""
    if ".." not in part:
        return None
    match = RANGE.fullmatch(part)
    if not match:
        raise no_numbers(name, part)
    low = int(match[1])
    high = int(match[2])
    if not 0 < high - low + 1 <= LONGEST_RANGE:
        raise BadInput(
            f"--{name} {part} must rise, by at most {LONGEST_RANGE:,} values"
        )
    return range(low, high + 1)


def no_numbers(name: str, text: str) -> BadInput:
    """The sentence for what is neither a number nor a list nor a range."""
    return BadInput(
        f"--{name} takes whole numbers: one, a list 1,2,4 or a range 1..16, not {text[:40]!r}"
    )


def write_flags(
    layout: Layout, job: Job, named: Collection[str] = ()
) -> list[str]:
    """The words that give this layout to `predict`; fields with their default value only if
    `named`, as a file below says something of them, or where the job's set would take another.
    """
    words = []
    said = said_fields(layout, job, named)
    for field in fields(layout):
        value = getattr(layout, field.name)
        if field.name == "placement":
            bare = replace(layout, placement={})
            if value and launched(job, bare).placement != value:
                words += [
                    "--placement",
                    ",".join(
                        f"{axis}={'x'.join(str(int(n)) for n in shares)}"
                        for axis, shares in value.items()
                    ),
                ]
        elif value is not None and field.name in said:
            text = (
                str(value).lower()
                if isinstance(value, (bool, str))
                else str(int(value))
            )
            words += ["--" + field.name.replace("_", "-"), text]
    return words


def command_line(
    model: str, given: Mapping[str, str], prediction: Prediction
) -> str:
    """The command that predicts this layout again, for copying; `model` and `given` as the user
    wrote them.
    """
    table_of = {flag.name: flag for flag in flags()}
    words = ["predict", "-" if model == STDIN else model]
    for name, text in given.items():
        if name in table_of and table_of[name].table not in ("layout", TRAIN):
            words += [table_of[name].spelled, text]
    below = (
        [f.name for f in fields(Layout)]  # a text that was read already
        if model == STDIN
        else read_foreign(model, given).tables.get("layout", ())
        if foreign(model)
        else _file(model, None).get("layout", ())
        if is_file(model)
        else ()
    )
    return command(
        shlex.join(
            [
                *words,
                *write_flags(prediction.layout, prediction.job, named=below),
            ]
        )
    )


COUNTED = re.compile(r"\s*(\d+)(\s*x.*)", re.DOTALL)
"""A cluster by number and name: 512xh100-sxm."""


STUCK = re.compile(r"([a-z_]+?)[-_]?(\d+)", re.I)
"""A degree as people write it: tp8, zero-1."""
SHORT = {"vpp": "interleave", "mbs": "microbatch"}
"""Megatron's letters for fields of a layout."""


def _layout_words(text: str) -> dict[str, str] | None:
    """A layout in words: "tp=8 pp=4", "tp 8, pp 4", "tp8 zero-1"; None for what names a file."""
    fields: dict[str, str] = {}
    words = re.split(r"[\s,;=]+", text.replace("--", " ").strip())
    at = iter(word for word in words if word)
    for word in at:
        stuck = STUCK.fullmatch(word)
        name = (stuck[1] if stuck else word).lower().replace("-", "_")
        fields[SHORT.get(name, name)] = stuck[2] if stuck else next(at, "")
    named = "=" in text or any(name in FIELDS for name in fields)
    return fields if named else None


PIPELINED = ("schedule", "interleave", "stages", "microbatch_group")
"""Fields that mean something on several stages only."""


def layout_beside(own: Layout, words: Mapping[str, str]) -> dict[str, Any]:
    """What of a job's layout stays where words change some of it; replicas and places follow."""
    one = str(words.get("pp", "")).strip() == "1"
    unset = ("dp", "placement", *(PIPELINED if one else ()))
    return {
        f.name: value
        for f in fields(own)
        if f.name not in unset and (value := getattr(own, f.name)) != f.default
    }


def on_all(own: Layout, job: Job) -> Layout:
    """The layout of a file with as many replicas as the chips of the job have room for."""
    chips = job.cluster.chips
    own = own.filling(chips)
    return own if own.chips == chips else own.refilling(chips)


def layout_of(text: str, job: Job, own: Layout | None = None) -> Layout:
    """A layout as a user names it: a JOB.toml or plan.toml, or words such as "tp=8 pp=4 zero=1",
    what they do not name as in the job's `own`; replicas that are not named fill the chips.
    """
    words = _layout_words(text)
    if words is None:
        table = _file(text, None).get("layout")
        if not isinstance(table, dict):
            raise BadInput(
                f"{text[:80]} has no table [layout]; or write 'tp=8 pp=4 zero=1'"
            )
    else:
        table = {**layout_beside(own or Layout(), words), **words}
    layout = read(Layout, table, "layout")
    return laid_by_set(job, layout, table, None).filling(job.cluster.chips)
