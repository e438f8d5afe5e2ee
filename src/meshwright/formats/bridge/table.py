"""One table: the fields of a job in the words of other tools' files (catalog/bridges.toml).

Readers, writers, what a writer refuses and the table of the documentation follow from it:

    "tensor_model_parallel_size"                the key that holds the same value
    { keys = [...], says = [[ours, {theirs}]] }  our value -> all keys that say it, in this order
    { once = [[ours, {theirs}, "..."]] }        the same, read and not written; a text is a pattern,
                                                ours "" changes nothing, the third is what differs
    { keys = [...], beside = true }             the keys of another field say it too
    { script = "--per_device_batch_size" }      not in this file: the training script says it
    { always = true }                           what the tool always does
    { says = [...], why = "..." }               why it has no other value, for the refusal
    { keys = [...], formula = "..." }           the field worked out of keys, read and not written
    { product = ["...", "..."] }                the keys' product, such as inside and across nodes
    { when = "formula" }                        the row is read only where this is true
    { put = { key = "formula" } }               written: what the key is in a plan; None: not there
    { refuse = [["formula", "..."]] }           plans that are not written, and why
    { demand = [["formula", "..."]] }           files that are refused, and why
    { left = [["formula", "key", "..."]] }      the key says what the prediction has not
    { unread = [["formula", "key", "..."]] }    the key's value cannot be read: it is asked for
    { notes = [["formula", "..."]] }            what was assumed
    { runs = [["formula", "profile"]] }         the software that such a file is run by
    { as = "deepspeed", ... }                   the row of another format, with its own words
    { reader = "megatron:stages" }              read, or written, by a function of that module: what
    { writer = "megatron:stages" }              no row can say, such as layers of stages; what the
                                                function leaves open (None) `says` reads

Formulas (`formats.formulas`) of a file's keys have the names of `keys.Keys` and those that a
format has in `let`; formulas of a plan the fields of a job, such as layout.tp (`cells.plan_names`).
In a sentence a formula may stand in braces.

A field without a cell cannot be said: a writer refuses every other value than the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import Any

from ...describe import shipped
from ...describe.frozendict import EMPTY
from ...errors import unknown

UNNAMED = "unknown"
"""The profile of software that nobody names."""
UNSAID = object()
"""A cell says nothing of what a key means that is not there."""


@dataclass(frozen=True)
class Cell:
    """One field in one format."""

    keys: tuple[str, ...] = ()
    """Their names; several where a value is made of them."""
    says: Sequence[tuple[Any, Mapping[str, Any]]] = ()
    """(Our value, their keys that say it); true: a flag that is on."""
    once: Sequence[Sequence[Any]] = ()
    """The same in words that are read and not written; they come before `says`. A third entry says
    what such a file does and the prediction does not."""
    unknown: Any = UNSAID
    """What is taken, and said, where a key of such a row has a value that none of them has."""
    kind: str = ""
    """whole, number, flag, switch (no other word than true and false) or word: what the first of
    the keys that is there holds; empty: as is."""
    beside: bool = False
    """What another field, or the launcher, writes says this one too."""
    where: str = ""
    """A degree, such as layout.cp: where it is 1 the field means nothing."""
    lengths: Mapping[str, str] | None = None
    """Key of a length of the run -> its unit, steps, sequences or tokens; the first is written."""
    default: Any = UNSAID
    """What the format means where the key is missing, in our words; UNSAID: our default."""
    script: str = ""
    """What the training script calls it."""
    always: Any = UNSAID
    """The only value that the tool has."""
    write: bool = False
    """Written even where it has the default."""
    why: str = ""
    """Why the tool has no other value: a sentence's end, for the refusal."""
    formula: str = ""
    """What the keys say together, read and not written: `keys.Keys` are its names."""
    when: str = ""
    """A formula of keys: where it is false the row is not read."""
    put: Mapping[str, str] = EMPTY
    """Key -> formula of a plan that makes its value; None: it is not written."""
    refuse: Sequence[tuple[str, str]] = ()
    """(Formula of a plan that is not written, sentence)."""
    demand: Sequence[tuple[str, str]] = ()
    """(Formula of keys that are refused, sentence)."""
    left: Sequence[tuple[str, str, str]] = ()
    """(Formula of keys, the key that says what is not in the prediction, sentence)."""
    unread: Sequence[tuple[str, str, str]] = ()
    """(Formula of keys, the key whose value cannot be read, sentence)."""
    notes: Sequence[tuple[str, str]] = ()
    """(Formula of keys, what was assumed)."""
    runs: Sequence[tuple[str, str]] = ()
    """(Formula of keys, the software that runs such a file); fsdp2: PyTorch's second FSDP."""
    product: Sequence[str] = ()
    """Keys whose product it is; -1 in one of them takes what others leave, which is asked for."""
    reader: str = ""
    """Function of a module here, `megatron:stages`, that reads the field from `Keys`."""
    writer: str = ""
    """Function (job, keys of the file) that adds the keys which say the field."""


@dataclass(frozen=True)
class Format:
    """One foreign format."""

    name: str
    title: str
    """In sentences."""
    frameworks: Sequence[str]
    """Profiles of the software that reads it; the first is meant where a file says no more."""
    gpus: bool = True
    """It runs on GPUs only."""
    source: str = ""
    version: str = ""
    cells: Mapping[str, Cell] = EMPTY
    """Field, such as layout.tp -> cell."""
    harmless: Sequence[str] = ()
    """Patterns of keys that change neither seconds nor bytes of a step."""
    matters: Mapping[str, str] = EMPTY
    """Pattern of a key that changes them -> what it does, which a job cannot say."""
    wider: Mapping[str, str] = EMPTY
    """Key that decides more than the fields it is read for -> formula of a plan under which it
    stays in a file that has it, where the plan itself does not need it."""
    usual: Mapping[str, Sequence[str]] = EMPTY
    """Key of `matters` -> its values, in lower case, with which the prediction is right."""
    refuses: Mapping[str, str] = EMPTY
    """Pattern of a key that makes another model of it -> what to do instead."""
    programs: Mapping[str, str] = EMPTY
    """Pattern of a program that has the same flags and is no training of a decoder -> why."""
    models: Mapping[str, str] = EMPTY
    """Their name of a model -> ours."""
    let: Mapping[str, str] = EMPTY
    """Name -> formula of keys that others of the format are made of."""
    names: Mapping[str, str] = EMPTY
    """Key of the format that it is like -> what it is called here."""
    yours: str = ""
    """What a run needs and a plan does not say, such as data; empty where nobody is told."""
    sections: Mapping[str, Sequence[str]] = EMPTY
    """Where the keys stand in the file, if not at its top."""
    notes: Sequence[str] = ()
    """What is assumed of every file."""
    like: str = ""
    """The format whose keys it has too; a file with keys of its own is not of that one."""
    own: Sequence[str] = ()
    """Patterns of keys that no other tool has, hyphens as underscores."""
    enough: int = 2
    """Keys of its own from which on a file is the tool's."""
    defaults: Mapping[str, Any] = EMPTY
    """Key -> what the tool takes where a file does not say it."""
    ranks: Sequence[str] = ()
    """Keys whose product is the number of ranks."""
    scripts: bool = False
    """The keys are flags of a program too."""
    starts: Sequence[str] = ()
    """Words that start the program, such as "swift sft": no other tool reads such a command."""
    apart: Mapping[str, str] = EMPTY
    """Words that start what is not predicted -> what that does."""
    over: str = ""
    """The program that takes flags over a file of the format, the first of its words; or the flag
    that names the file, whose settings further words change (name=value)."""
    words: Mapping[str, Mapping[str, Mapping[str, Any]]] = EMPTY
    """Key -> its words, in lower case -> what they are in keys of the format that it is like."""
    older: Mapping[str, str] = EMPTY
    """Older name of a key -> its name."""
    prefix: str = ""
    """What stands before the keys of the format that it is like."""
    environment: Sequence[str] = ()
    """Names of the environment whose product is the number of ranks, the first in any case."""
    program: str = ""
    """What a written file starts; none: no plan is written in the format."""
    starts_ranks: str = ""
    """The command of a program that starts all ranks itself, from one node."""
    configs: Mapping[str, Mapping[str, Mapping[str, Any]]] = EMPTY
    """Key -> the configuration that it names -> what that sets where the file does not; *: any."""
    config: str = ""
    """What the written file is called."""
    heading: Sequence[str] = ()
    """Its first remarks, with {title}, {version}, {gpus} and {chips}; none where it has none."""
    takes: str = ""
    """The flag of the program before the name of the file."""
    last: Mapping[str, Any] = EMPTY
    """What stands at its end for the reader to fill in."""
    fixed: Mapping[str, Any] = EMPTY
    """Keys that the tool demands and a plan does not say."""

    @property
    def written(self) -> bool:
        """Plans are written in it; others are read only."""
        return bool(self.program)

    def knows(self, key: str) -> bool:
        """The format has such a key."""
        short = key.rpartition(".")[2]
        return (
            key in self.read_keys
            or key in self.older
            or any(
                self.is_harmless(k) or self.why(k) or self.refusal(k)
                for k in (key, short)
            )
        )

    @cached_property
    def read_keys(self) -> frozenset[str]:
        """Keys that a field is read from."""
        return frozenset(k for cell in self.cells.values() for k in cell.keys)

    def refusal(self, key: str) -> str:
        """What to do about a key that makes another model of it; empty for others."""
        return text_of(key, self.refuses, self._starred["refuses"])

    def is_harmless(self, key: str) -> bool:
        """Does the key change neither time nor memory?"""
        return key in self._names or any(
            fnmatchcase(key, p) for p in self._starred["harmless"]
        )

    def why(self, key: str) -> str:
        """What a key does that a job cannot say; empty if it is not known."""
        return text_of(key, self.matters, self._starred["matters"])

    # nearly all patterns are plain names, and a text of 500 kB may ask for 40,000 keys
    @cached_property
    def _names(self) -> frozenset[str]:
        """Harmless keys, by name."""
        return frozenset(self.harmless)

    @cached_property
    def _starred(self) -> dict[str, tuple[str, ...]]:
        """List of this table -> its patterns that stand for several keys."""
        return {
            name: tuple(p for p in getattr(self, name) if {*p} & {*"*?["})
            for name in ("harmless", "matters", "refuses")
        }


def text_of(key: str, texts: Mapping[str, str], starred: Sequence[str]) -> str:
    """The text of a key, by its name or else the first pattern that fits it; empty if none does."""
    return texts.get(key) or next(
        (texts[p] for p in starred if fnmatchcase(key, p)), ""
    )


@dataclass(frozen=True)
class Other:
    """A tool whose files are known by their keys, and not read."""

    title: str
    own: tuple[str, ...]
    """Patterns of keys that no other tool has, hyphens as underscores."""


@cache
def others() -> tuple[Other, ...]:
    """Tools whose files are told from those that are read."""
    return tuple(
        Other(said["title"], tuple(said["own"]))
        for said in _data()["others"].values()
    )


def wrapper(name: str) -> Mapping[str, Any]:
    """The table of a tool whose files hold another tool's settings."""
    made: Mapping[str, Any] = _data()[name]
    return made


@cache
def skypilot_names() -> Mapping[str, str]:
    """Chip -> what SkyPilot calls it."""
    names: dict[str, str] = _data()["skypilot"]
    return names


@cache
def _data() -> dict[str, Any]:
    return shipped.shipped_table("bridges.toml")


@cache
def formats() -> dict[str, Format]:
    """name -> format, in the order of the table."""
    return {
        name: _format(name, said) for name, said in _data()["formats"].items()
    }


def written() -> dict[str, Format]:
    """name -> format of those that plans are written in."""
    return {name: f for name, f in formats().items() if f.written}


def written_for(framework: str) -> list[Format]:
    """Formats of a framework's files, its own first; software without a name has none."""
    named = framework != UNNAMED
    its = [
        f for f in written().values() if named and framework in f.frameworks
    ]
    return sorted(its, key=lambda f: f.frameworks.index(framework))


def get(name: str, flag: str = "--to") -> Format:
    """The format of that name; BadInput names the nearest.  flag: what the user said it with."""
    if name not in formats():
        raise unknown(flag, name, formats())
    return formats()[name]


INHERITED = (
    *("matters", "usual", "refuses", "defaults", "let"),
    *("notes", "scripts"),
)
"""What a format has of the one that it is like, where it says no other."""


def _format(name: str, said: dict[str, Any]) -> Format:
    base = formats_like(said)
    ancestor = _data()["formats"].get(base, {})
    cells = {
        path: _cell(_row(row, w))
        for path, row in _data()["fields"].items()
        for w in [name if name in row else base]
        if w in row
    }
    given: dict[str, Any] = {
        **{key: ancestor[key] for key in INHERITED if key in ancestor},
        **said,
        "harmless": [*said.get("harmless", ()), *ancestor.get("harmless", ())],
    }
    for key in INHERITED[:-2]:  # tables, key by key
        both = {**ancestor.get(key, {}), **said.get(key, {})}
        given[key] = {k: v for k, v in both.items() if v != ""}
    kept = {path: cell for path, cell in cells.items() if cell is not None}
    return Format(name=name, cells=kept, **given)


def _row(rows: Mapping[str, Any], name: str) -> Any:
    """The row of a format, over that of another which it names."""
    said = rows[name]
    if not isinstance(said, dict) or "as" not in said:
        return said
    own = {key: value for key, value in said.items() if key != "as"}
    return {**rows[said["as"]], **own}


def formats_like(said: Mapping[str, Any]) -> str:
    """The format whose cells another has where the table says no more."""
    return str(said.get("like", ""))


def _cell(said: Any) -> Cell | None:
    """A cell; None: the format cannot say it although the one that it is like can."""
    if said is False:
        return None
    if isinstance(said, str):
        return Cell((said,))
    rest = {k: v for k, v in said.items() if k not in ("key", "keys")}
    keys = said.get("keys", [said["key"]] if "key" in said else [])
    rows = [*rest.get("once", ()), *rest.get("says", ())]
    keys = keys or [k for _, theirs, *_ in rows for k in theirs]
    keys = keys or [*rest.get("lengths", ())]
    keys = keys or rest.get("product", ())
    return Cell(tuple(dict.fromkeys(keys)), **rest)
