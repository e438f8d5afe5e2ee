"""Keys of a file changed in its text, and nothing else: comments, order and spelling stay.

Each way to edit ends by reading the text that it made: the keys must be those that were asked for,
or the file is refused with a sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from ...errors import BadInput
from .. import parse_json, parse_toml
from ..toml_writer import dumps_toml, toml_literal
from . import shell
from .tree import flat_keys, nested, parse_yaml, scalar_text, yaml_text

NONE = "(none)"
"""Of a key that is not there."""
Changes = Mapping[str, tuple[Any, Any]]
"""Key -> (what it was, what it is)."""
Keys = dict[str, Any]
"""All keys of a file as they shall be."""
Cut = tuple[int, int, str]
"""(from, to, what stands there instead)."""
MOST_PLACES = 20
"""Places of a script at which new arguments are tried."""
LARGEST_BASE = 2**20
"""Bytes of a file that is edited: a script is read again for each such place."""


def replaced_parts(text: str, cuts: list[Cut]) -> str:
    """The text with its parts replaced, last first; what is put in comes before what is cut."""
    for start, end, new in sorted(cuts, key=lambda c: c[:2], reverse=True):
        text = text[:start] + new + text[end:]
    return text


def refused(where: str, changes: Changes) -> BadInput:
    """What is written in a way that no simple edit reaches."""
    names = ", ".join([*changes][:8])
    what = (
        f" so that {names} change{'s' * (len(changes) == 1)} and nothing else"
    )
    return BadInput(
        f"{where} cannot be edited in place{what * bool(changes)}: export without --base, and carry"
        " the keys over"
    )


# ---------------------------------------------------------------- arguments in a script

BARE = r"""[^\s\\"'();|&$`]|\$\{[^{}\n]*\}|\$\w+|\$\(\([^\n]{0,200}?\)\)"""
VALUE = rf"""(?:'[^'\n]*'|"[^"\n]*"|(?:{BARE})+)"""
SPACE = r"(?:\s|\\\n)+"


class Spelling(NamedTuple):
    """How the arguments of a tool stand in a script."""

    said: Callable[[str, str], Any]
    """(text, name of the file) -> what it says (`FileKeys`)."""
    stands: Callable[[str, Any], str]
    """(key, value) -> a pattern of the argument, whose first group is its name."""
    written: Callable[[str, Any, str], str]
    """(key, value, its name as it stands; "" where it is new) -> the argument."""

    def edit(
        self, text: str, changes: Changes, keys: dict[str, Any], where: str
    ) -> str:
        """A script whose program gets other arguments: replaced where they stand, or added."""

        def good(made: str) -> bool:
            try:
                return bool(self.said(made, where).keys == keys)
            except BadInput:
                return False

        live, quoted = shell.live(text)
        cuts: list[Cut] = []
        anchors: list[int] = []
        added: list[str] = []
        for key, (old, new) in changes.items():
            if old == NONE:
                added.append(self.written(key, new, ""))
                continue
            for m in re.finditer(self.stands(key, old), live):
                start, end = m.span()
                if new == NONE:
                    cuts.append(_gone(text, start, end))
                    continue
                words = self.written(key, new, m[1])
                if quoted[start] and "'" in words:
                    raise refused(where, {key: (old, new)})
                cuts.append((start, end, words))
                anchors.append(end)
        done = replaced_parts(text, cuts)
        if not added:
            if good(done):
                return done
            raise refused(where, changes)
        inline = any("'" in words for words in added)
        places = [*_programs(live), *anchors, *_value_ends(live)]
        for place in places[:MOST_PLACES]:
            if inline and quoted[place - 1]:
                continue
            made = replaced_parts(
                text, [*cuts, (place, place, _more(live, place, added))]
            )
            if good(made):
                return made
        raise refused(where, changes)


def _gone(text: str, start: int, end: int) -> Cut:
    """An argument away; with its line where nothing else is on it but the sign that it goes on."""
    line = text.rfind("\n", 0, start) + 1
    after = text.find("\n", end)
    alone = not text[line:start].strip()
    if after >= 0 and alone and text[end:after].strip() == "\\":
        return line, after + 1, ""
    if alone:
        while text[end : end + 1] in (" ", "\t"):
            end += 1
        return start, end, ""
    while text[start - 1] in " \t":
        start -= 1
    return start, end, ""


def _programs(live: str) -> list[int]:
    """Behind each program of Python's."""
    matches = re.finditer(r"(?:\.py|-m [\w.]+)(?=\s|\"|$)", live)
    return [m.end() for m in matches]


def _value_ends(live: str) -> list[int]:
    """Places behind the value of each argument that has one, the last first."""
    pattern = rf"(?<![\w$-])--[A-Za-z][\w-]*(?:=|[ \t]+)(?!-){VALUE}"
    return [m.end() for m in re.finditer(pattern, live)][::-1]


def _more(live: str, place: int, added: list[str]) -> str:
    """New arguments: a line each behind a program, else in the line that is there."""
    behind = re.search(r"(?:\.py|-m [\w.]+)$", live[:place])
    alone = behind and not live[place:].startswith('"')
    between = " \\\n    " if alone else " "
    return "".join(between + words for words in added)


# ---------------------------------------------------------------- trees


def table_paths(keys: Iterable[str]) -> set[str]:
    """The tables that hold the keys, and those that hold these."""
    steps = [key.split(".") for key in keys]
    return {".".join(way[:n]) for way in steps for n in range(1, len(way))}


def paths_gone(changes: Changes, keys: Mapping[str, Any]) -> list[str]:
    """What is taken out: keys, or the largest table in which nothing is left."""
    tables, paths = table_paths(keys), []
    for path in (key for key, (_, new) in changes.items() if new == NONE):
        while "." in path and path.rpartition(".")[0] not in tables:
            path = path.rpartition(".")[0]
        paths.append(path)
    return [*dict.fromkeys(paths)]


def demand_keys(made: Mapping[str, Any], keys: Keys, error: BadInput) -> None:
    """The error, unless a file says these keys and no others, whatever their order; 1 is not True,
    and a table that was empty is one of those that hold the keys.
    """
    tables = table_paths(keys)
    wanted = {k: repr(v) for k, v in keys.items() if k not in tables}
    if {k: repr(v) for k, v in made.items()} != wanted:
        raise error


def edit_json(text: str, changes: Changes, keys: Keys, where: str) -> str:
    """JSON, which has no comments: read, changed and written as wide as it was."""
    data, error = parse_json(text, where), refused(where, changes)
    if nested(flat_keys(data, where)) != data:  # a key with a dot in it
        raise error
    tables = table_paths(keys)
    wide = re.search(r"\n([ \t]+)\"", text)
    made = json.dumps(
        nested({k: v for k, v in keys.items() if k not in tables}),
        indent=wide[1] if wide else 2,
        ensure_ascii=False,
    )
    demand_keys(flat_keys(parse_json(made, where), where), keys, error)
    return made + "\n"


QUOTED = r"""\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'"""
WITHIN = r"\[[^\n#]*\]|\{[^\n#]*\}"
"""A list or a table of one line."""
BRACED = re.compile(r"(?:\s|#.*\n)*+\{")
"""All of a YAML file stands in braces, where indentation says nothing."""
TABLE = re.compile(r"[ \t]*\[([\w.-]+)\][ \t]*(?:#.*)?\s*")


class Syntax(NamedTuple):
    """How keys stand in the lines of a file."""

    parse: Callable[[str, str], dict[str, Any]]
    value: Callable[[Any], str]
    entry: re.Pattern[str]
    """A key with its value, which may be in the lines below where it is empty or a bracket."""


TOML = Syntax(
    parse_toml,
    toml_literal,
    re.compile(
        r"[ \t]*(?P<indent>)(?P<quote>)(?P<key>[\w.-]+)[ \t]*="
        rf"[ \t]*(?P<value>{QUOTED}|{WITHIN}|[^\s#\[\"'{{][^\s#]*)"
        r"[ \t]*(?:#.*)?\s*"
    ),
)
YAML = Syntax(
    parse_yaml,
    scalar_text,
    re.compile(
        r"(?P<indent>[ \t]*)(?P<quote>[\"']?)(?P<key>[\w.-]+)(?P=quote)[ \t]*:"
        rf"(?!\S)[ \t]*(?P<value>{QUOTED}|{WITHIN}|[\[{{]|[^\s#\"'\[{{].*?|)"
        r"[ \t]*,?(?:[ \t]+#.*|[ \t]*)\s*"
    ),
)


def lines_of(
    syntax: Syntax, text: str
) -> Iterator[tuple[str, str, re.Match[str] | None]]:
    """(line, the key that it is a part of or the table that it begins, the key that begins there)
    of a file, by the tables of TOML and the indentation of YAML; remarks are part of no key.
    """
    above: list[tuple[int, str]] = []
    braced, depth = bool(BRACED.match(text)), 0
    for line in text.splitlines(keepends=True):
        code = line.partition("#")[0].strip()
        width = 0 if syntax is TOML else len(line) - len(line.lstrip())
        if braced:
            width = depth - code.startswith(("}", "]"))
            depth += sum((c in "[{") - (c in "]}") for c in code)
        entry, table = syntax.entry.fullmatch(line), TABLE.fullmatch(line)
        if syntax is TOML and table:
            above = [(-1, table[1])]
        elif entry:
            above = [(n, path) for n, path in above if n < width]
            outer = f"{above[-1][1]}." if above else ""
            above.append((width, outer + entry["key"]))
        elif code:
            above = [(n, path) for n, path in above if n <= width]
        path = above[-1][1] if above and code else ""
        yield line, path, entry


def edit_lines(
    syntax: Syntax, text: str, changes: Changes, keys: Keys, where: str
) -> str:
    """TOML or YAML, a line at a time: values replaced where they stand, lines taken out and put in
    before the first of their table; what that does not reach is refused.
    """
    error = refused(where, changes)
    syntax.parse(text, where)
    gone = paths_gone(changes, keys)
    new = {key: value for key, (_, value) in changes.items() if value != NONE}
    lines: list[str] = []
    places = {"": (0, "", "")}
    filled: set[str] = set()
    done: set[str] = set()
    for line, path, entry in lines_of(syntax, text):
        table = path.rpartition(".")[0]
        if entry and table not in filled:
            filled.add(table)
            places[table] = (len(lines), entry["indent"], entry["quote"])
        if entry and entry["value"] in ("", "{"):
            deeper = entry["indent"] + "  "
            places[path] = (len(lines) + 1, deeper, entry["quote"])
        elif TABLE.fullmatch(line):
            places[path] = (len(lines) + 1, "", "")
        if any(f"{path}.".startswith(f"{out}.") for out in gone):
            continue
        if path in done and not entry:
            continue  # the rest of a value that is written anew
        inside = {k for k in changes if k.startswith(f"{path}.")}
        if entry and (path in new or (inside and entry["value"][1:])):
            entries = {
                k.removeprefix(f"{path}."): v
                for k, v in keys.items()
                if k.startswith(f"{path}.")
            }
            value = syntax.value(new.get(path, nested(entries)))
            start, end = entry.span("value")
            space = " " * (line[start - 1] == ":")
            line = line[:start] + space + value + line[end:]
            done |= {path, *inside}
        lines.append(line)
    made = _with_new(
        syntax,
        lines,
        places,
        {key: value for key, value in new.items() if key not in done},
        braced=bool(BRACED.match(text)),
    )
    try:
        read = flat_keys(syntax.parse(made, where), where)
    except BadInput:
        raise error from None
    demand_keys(read, keys, error)
    return made


def _with_new(
    syntax: Syntax,
    lines: list[str],
    places: Mapping[str, tuple[int, str, str]],
    new: Mapping[str, Any],
    braced: bool,
) -> str:
    """The lines with new keys in the nearest tables that are there; new tables of TOML at the end.

    places: table -> (the line before which its keys are put, their indentation and quotes);
    braced: in the braces of YAML.
    """
    groups: dict[str, dict[str, Any]] = {}
    tables: dict[str, Any] = {}
    for key, value in new.items():
        table = key.rpartition(".")[0]
        while table not in places:
            table = table.rpartition(".")[0]
        rest = key.removeprefix(f"{table}.")
        if syntax is TOML and "." in rest:
            tables[key] = value
        else:
            groups.setdefault(table, {})[rest] = value
    before: dict[int, str] = {}
    for table, group in groups.items():
        at, indent, quote = places[table]
        if syntax is YAML and not braced:
            before[at] = yaml_text(nested(group), len(indent))
            continue
        sign, end = (" =", "") if syntax is TOML else (":", ",")
        before[at] = "".join(
            f"{indent}{quote}{key}{quote}{sign} {syntax.value(value)}{end}\n"
            for key, value in nested(group).items()
        )
    parts = [before.get(i, "") + line for i, line in enumerate([*lines, ""])]
    if tables:
        parts.append("\n" + dumps_toml(nested(tables)))
    return "".join(parts)


edit_toml, edit_yaml = partial(edit_lines, TOML), partial(edit_lines, YAML)
