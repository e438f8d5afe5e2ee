"""Files of other tools: recognised, read and written.

    read("train.sh") -> ForeignFile        write(job, "megatron", place) -> (text, notes)

One tool a file; the words for each field stand in one table (`table`, catalog/bridges.toml).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...describe.job import Job
from ...errors import BadInput, command
from .. import parse_json, parse_toml, read_text
from ..formulas import filled_in
from ..logs import TITLES, read_log, steps_of
from . import (
    accelerate,
    axolotl,
    cells,
    deepspeed,
    hf_trainer,
    launch,
    maxtext,
    megatron,
    megatron_args,
    megatron_bridge,
    nemo,
    onto,
    primus,
    shell,
    table,
    torchtitan,
)
from .dumps import dump, headed
from .edit import LARGEST_BASE
from .keys import FUNCTIONS
from .reading import (
    ASKED,
    BATCH,
    FileKeys,
    ForeignFile,
    decided_elsewhere,
    understood,
)
from .recognise import explains_more, no_tools_file, recognised
from .table import Format, formats, get
from .tool import Tool
from .tree import flat_keys, parse_yaml
from .writing import keys_of

FUNCTIONS.update(
    fsdp_zero=hf_trainer.fsdp_zero,
    stage_list=torchtitan.stage_list,
    stage_named=axolotl.deepspeed_stage,
    stages_dealt=megatron.stages_dealt,
)
OWN = {
    tool.name: tool
    for tool in (
        megatron_args.TOOL,
        megatron_bridge.TOOL,
        torchtitan.TOOL,
        deepspeed.DeepSpeed("deepspeed"),
        accelerate.Accelerate("accelerate"),
        maxtext.MaxText("maxtext"),
        nemo.Nemo("nemo"),
    )
}
"""Tools of which no table says all."""


def tool_named(name: str) -> Tool:
    """What knows the files of a format."""
    return OWN.get(name, Tool(name))


LOGS = (".log", ".out", ".txt", ".err")
"""Ends of files that may be the log of a run, which begins with its arguments."""
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".args")
CHAKRA = ".et"
"""End of a Chakra trace, `NAME.0.et` of rank 0."""
TREES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}


def suffix(path: str) -> str:
    """The end of a path that says what it holds."""
    return Path(path).suffix.lower()


def foreign(path: str) -> bool:
    """Is it a file of another tool? A JSON or TOML file is opened to see.  Raises BadInput for a
    trace, which describes no job.
    """
    end = suffix(path)
    if end == CHAKRA:
        raise BadInput(
            f"{path[:200]} is a Chakra trace: it holds the operations of one rank without the"
            " model, the batch and the layout that they came from, so there is nothing to"
            f" predict; such traces are written here ({command('export')} PLAN --to chakra), not"
            " read"
        )
    if end in (*SCRIPTS, ".yaml", ".yml"):
        return True
    if end in LOGS:
        return logged(path)
    if end not in TREES:
        return False
    try:
        keys = _tree(read_text(path), TREES[end], path)
    except BadInput:
        return False
    return any(tool_named(name).mine_tree(keys) for name in formats())


def logged(path: str) -> bool:
    """Is it the log of a run?"""
    if suffix(path) not in LOGS:
        return False
    try:
        text = read_log(path)
        return bool(dump(text)) or bool(steps_of(text))
    except BadInput:
        return False


def no_run(path: str, text: str | None = None) -> BadInput:
    """The sentence for Python, and for a text that is not the log of a run.  Raises BadInput for a
    file that cannot be read; text: what it holds, where that is known.
    """
    if text is None:
        read_text(path)
    if suffix(path) == ".py":
        return BadInput(
            f"{path[:80]} is Python, which is not run here: give the script that starts it"
            " (torchtitan's --module NAME --config NAME and what its flags change), what its run"
            " saves (config.json of OLMo-core, run_config.yaml of Megatron-Bridge), or its log"
        )
    return no_tools_file(path)


def arguments_of_log(text: str, chips: int | None) -> ForeignFile:
    """What the arguments in a log say.  Raises BadInput where there are none."""
    if log := dump(text):
        reading = tool_named(log.format).of_tree(log.said.keys, "the log")
        reading = replace(
            reading,
            chips=chips or log.said.chips or reading.chips,
            notes=(*reading.notes, *log.said.notes),
            known=log.said.known,
            names=log.said.names,
        )
        return understood_as(log.format, reading)
    kind = steps_of(text).kind
    if beginning := headed(kind, text):
        known = beginning.chips if chips is None else chips
        return replace(beginning, chips=known)
    raise BadInput(
        f"the log of {TITLES[kind]} says no arguments: give its script with --steps LOG"
    )


def _tree(text: str, kind: str, where: str) -> dict[str, Any]:
    if kind == "yaml":
        return flat_keys(parse_yaml(text, where), where)
    return flat_keys(
        (parse_toml if kind == "toml" else parse_json)(text, where), where
    )


def read_file(
    path: str,
    text: str | None = None,
    chips: int | None = None,
    named: str = "",
    arguments: Sequence[str] | None = None,
) -> ForeignFile:
    """What a file says.  Raises BadInput for a file that no tool here knows.

    chips: how many there are, where it is known; a batch may be so many sequences for each.
    named: its format, where the user says so; "": by its keys.  arguments: what a script is called
    with; None: that is not known.
    """
    if text is None and suffix(path) in LOGS and not named:
        if not logged(path):
            raise no_run(path)
        return arguments_of_log(read_log(path), chips)
    if suffix(path) == ".py":
        raise no_run(path, text)
    ours = text is None
    text = read_text(path) if text is None else text
    kind = TREES.get(suffix(path))
    keys = _tree(text, kind, path) if kind else None
    if arguments is not None:
        if kind:
            raise BadInput(
                f"{path[:80]} is not a script and takes no arguments: leave out what"
                " stands after --"
            )
        text = shell.called_with(arguments) + text
    if named:
        get(named, "--as")
    elif keys and primus.mine(keys):
        return of_primus(keys, path, chips)
    sayings: dict[str, FileKeys] = {}
    refusals: dict[str, BadInput] = {}
    for name in [named] if named else formats():
        try:
            said = _said(
                tool_named(name), text, keys, path=path, sure=bool(named)
            )
        except BadInput as error:
            refusals[name] = error
            continue
        if said:
            sayings[name] = said
    read_as = {name: said.keys for name, said in sayings.items()}
    if refusals:
        words = launch.flags_of_script(text) if keys is None else keys
        if refuser := explains_more(refusals, words, read_as):
            raise refusals[refuser]
    if named and not sayings:
        raise BadInput(f"{path[:80]} is no such file as {named} has")
    every = keys or {key for said in read_as.values() for key in said}
    name = named or recognised(path, every, read_as)
    said = laid_under(name, sayings[name], path if ours else "")
    file = understood_as(name, said, chips)
    if kind is None and arguments is None and shell.read_script(text).asks:
        return replace(file, notes=(*file.notes, CALLED))
    return file


CALLED = (
    "the script is read as called without arguments ($1, ...): those of a call stand after --, such"
    " as meshwright read train.sh -- 8B 1 8"
)


def _said(
    tool: Tool,
    text: str,
    keys: dict[str, Any] | None,
    path: str,
    sure: bool,
) -> FileKeys | None:
    """What a file says as one tool reads it; None: not that tool's.  Raises BadInput."""
    if keys is not None:
        if not tool.trees or not (sure or tool.mine_tree(keys)):
            return None
        return tool.of_tree(keys, path)
    if not tool.format.scripts or not (sure or tool.mine(text)):
        return None
    return tool.said(text, path)


NEAREST = 4
"""Folders above a script in which the file that it names is looked for."""


def laid_under(name: str, said: FileKeys, path: str) -> FileKeys:
    """The keys over those of the file that they change; what a file that is not there says is asked
    for.  path: of the script; "": a text from elsewhere, which opens no file.
    """
    if not said.base:
        return said
    folders = [*Path(path).absolute().parents][:NEAREST] if path else []
    for folder in folders:
        base = folder / said.base
        kind = TREES.get(suffix(said.base))
        if kind and base.is_file():
            keys = _tree(read_text(base), kind, str(base))
            reader = "torchtitan-toml" if name == torchtitan.NAME else name
            under = tool_named(reader).of_tree(keys, str(base))
            note = f"what the flags do not say is in {said.base[:80]}"
            return replace(
                said,
                keys={**under.keys, **said.keys},
                notes=(*said.notes, note),
            )
    asked = [p for p in get(name).cells if p.startswith((*ASKED, BATCH))]
    theirs = decided_elsewhere(get(name), asked, said.keys, said.base)
    return replace(said, elsewhere={**theirs, **said.elsewhere})


def of_primus(
    keys: dict[str, Any], path: str, chips: int | None
) -> ForeignFile:
    """The trainer's settings in a file of Primus."""
    wrapped = primus.unwrapped(keys, path)
    tool = tool_named(wrapped.format)
    said = tool.of_tree(wrapped.keys, path)
    said = primus.with_experts_asked(said, wrapped)
    known = {"model": wrapped.model} if wrapped.model else {}
    said = replace(said, known=known, chips=chips or said.chips)
    return primus.understood_as_primus(said, wrapped)


def understood_as(
    name: str, said: FileKeys, chips: int | None = None
) -> ForeignFile:
    """The job in the keys of one format."""
    if chips is not None:
        said = replace(said, chips=chips)
    return understood(get(name), said)


def write_onto(
    job: Job, to: str, at: launch.Place, path: str, run: Job | None = None
) -> onto.Onto:
    """A plan in a file that is there, whose other keys stay.  Raises BadInput.

    run: the job of the file as it stands, where only that is to change in which the plan differs
    from it.
    """
    format, job = get(to), job.filled
    edits = onto.CHANGED if run else onto.EDITS
    if to not in edits:
        raise BadInput(
            f"files of {', '.join(edits)} are edited: a file of {format.title} is written anew"
        )
    demand_chip(format, job)
    text = read_text(path, LARGEST_BASE)
    ranks = at.nodes * at.ranks
    told = read_file(path, text, ranks).format
    if told.name != to:
        raise BadInput(
            f"--base {path[:80]} is a file of {told.title}, not of {format.title}"
        )
    kind = TREES.get(suffix(path))
    tool = tool_named(to)
    keys = _tree(text, kind, path) if kind else tool.said(text, path).keys
    if primus.mine(keys):
        raise BadInput(
            f"{path[:80]} is a file of Primus, which is read here, not edited"
        )
    head = tool.head(at)
    reading = onto.Reading(format, tool, path, ranks)
    run = run and run.filled
    made = onto.write_onto_file(
        reading, job, text, base=keys, head=head, run=run
    )
    if kind or to != megatron_args.NAME:
        return made
    if run is None:
        made = onto.ranks_edited(made, at, path)
        if suffix(path) == ".args":  # arguments alone
            return made
        keys = tool.said(made.text, path).keys
    return onto.environment_edited(made, keys, job, run)


def demand_chip(format: Format, job: Job) -> None:
    """BadInput where the software does not run on the plan's chips."""
    chip = job.cluster.chip
    if format.gpus:
        launch.demand_gpus(chip.vendor, chip.name, format.title)


def write(job: Job, to: str, at: launch.Place) -> tuple[str, list[str]]:
    """(the text, what the training script must say itself).  Raises BadInput."""
    format, job = get(to), job.filled
    if not format.written:
        raise BadInput(
            f"{format.title} is read here, not written: {', '.join(table.written())} are"
        )
    demand_chip(format, job)
    out, script = keys_of(format, job)
    told = [f"your script says: {word}" for word in script]
    words = filled_in(format.yours, cells.plan_names(job, format))
    yours = [f"not in the plan: {words}"] if words else []
    if not job.tokens:
        yours.append("not in the plan: how long to train (plan with --tokens)")
    notes = (launch.made_of(job, at.path), *at.notes, *told, *yours)
    return tool_named(to).render(out, job, replace(at, notes=notes)), script


__all__ = [
    "Format",
    "ForeignFile",
    "tool_named",
    "foreign",
    "understood_as",
    "read_file",
    "write",
    "write_onto",
]
