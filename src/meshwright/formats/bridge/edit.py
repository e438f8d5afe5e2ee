"""Keys of a file changed in its text, and nothing else: comments, order and spelling stay.

Each way to edit ends by reading the text that it made: the keys must be those that were asked for,
or the file is refused with a sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    found = re.finditer(r"(?:\.py|-m [\w.]+)(?=\s|\"|$)", live)
    return [m.end() for m in found]


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


def edit_yaml(text: str, changes: Changes, keys: Keys, where: str) -> str:
    """YAML: values replaced where they stand, lines taken out and put in; PyYAML says where."""
    parse_yaml(text, where)
    import yaml  # type: ignore[import-untyped]

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    error = refused(where, changes)
    cuts: list[Cut] = []
    added: dict[str, Any] = {}
    try:
        for path in paths_gone(changes, keys):
            cuts += [_line(text, *pair) for pair in _pairs(root, path)]
        for key, (_, new) in changes.items():
            if new == NONE:
                continue
            if pairs := [*_pairs(root, key)]:
                cuts += [_value(value, new) for _, value, _ in pairs]
            else:
                added[key] = new
        made = replaced_parts(text, [*cuts, *_added(text, root, added)])
        read = flat_keys(parse_yaml(made, where), where)
    except (BadInput, LookupError):
        raise error from None
    demand_keys(read, keys, error)
    return made


def _pairs(root: Any, path: str) -> Iterator[tuple[Any, Any, Any]]:
    """(key, value, the table) of all places where a path stands."""
    first, _, rest = path.partition(".")
    for key, value in root.value:
        if key.value != first:
            continue
        if not rest:
            yield key, value, root
        elif isinstance(value.value, list) and value.id == "mapping":
            yield from _pairs(value, rest)


def _end(node: Any) -> int:
    """Where a value ends; a block ends with the last of its parts, before what is behind it."""
    if isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def _line(text: str, key: Any, value: Any, table: Any) -> Cut:
    """The lines of a key away."""
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if table.flow_style:
        return _entry(text, key, value)
    if text[start : key.start_mark.index].strip():
        raise LookupError(key.value)  # behind something else
    end = text.find("\n", max(_end(value), key.end_mark.index))
    return start, (len(text) if end < 0 else end + 1), ""


def _entry(text: str, key: Any, value: Any) -> Cut:
    """A key in braces away with its comma; with its line where nothing but a remark is on it."""
    start = key.start_mark.index
    line = text.rfind("\n", 0, start) + 1
    comma = re.compile(r"[ \t]*,[ \t]*").match(text, value.end_mark.index)
    end = comma.end() if comma else value.end_mark.index
    rest = re.compile(r"[ \t]*(?:#[^\n]*)?\n").match(text, end)
    if rest and not text[line:start].strip():
        return line, rest.end(), ""
    return start, end, ""


def _value(value: Any, new: Any) -> Cut:
    """Another value at the same place."""
    start, end = value.start_mark.index, _end(value)
    space = " " if start == end else ""
    return start, end, space + scalar_text(new)


def _added(text: str, root: Any, added: dict[str, Any]) -> Iterator[Cut]:
    """Keys that were not there: in the first line of the nearest table that is there, or at the end
    of the file; in a table that stands there empty.
    """
    groups: dict[str, dict[str, Any]] = {}
    nodes = {"": root}
    for key, new in added.items():
        table = key
        while table not in nodes:
            table = table.rpartition(".")[0]
            for _, value, _ in _pairs(root, table):
                if value.id == "mapping" and value.value:
                    nodes[table] = value
        rest = key.removeprefix(f"{table}.")
        groups.setdefault(table, {})[rest] = new
    for table, keys in groups.items():
        node, data = nodes[table], nested(keys)
        if node.flow_style:
            yield _braced(text, node, data)
            continue
        first = node.value[0][0].start_mark
        for name in [*data]:
            for _, empty, _ in _pairs(node, name):
                block = yaml_text(data.pop(name), first.column + 2).rstrip(
                    "\n"
                )
                yield empty.start_mark.index, _end(empty), f"\n{block}"
        if data and table:
            at = text.rfind("\n", 0, first.index) + 1
            yield at, at, yaml_text(data, first.column)
        elif data:
            start = "" if text.endswith("\n") else "\n"
            yield len(text), len(text), start + yaml_text(data)


def _braced(text: str, table: Any, added: Mapping[str, Any]) -> Cut:
    """New keys in braces: before the first one, as it is quoted, a line each where it has one."""
    first = table.value[0][0].start_mark.index
    quote = text[first] if text[first] in "\"'" else ""
    before = text[text.rfind("\n", 0, first) + 1 : first]
    between = " " if before.strip() else f"\n{before}"
    new = (
        f"{quote}{key}{quote}:"
        f" {json.dumps(v) if isinstance(v, dict) else scalar_text(v)},{between}"
        for key, v in added.items()
    )
    return first, first, "".join(new)


TABLE = re.compile(r"[ \t]*\[([\w.-]+)\][ \t]*(?:#.*)?\s*")
LIST = r"\[(?:[^\[\]\n]|\[[^\[\]\n]*\])*\]"
"""A list of one line, or a list of lists such as torchtitan's layers of stages."""
SINGLE = rf"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|{LIST}|[^\s#\["'{{][^\s#]*)"""
SETTING = re.compile(
    rf"([ \t]*([\w.-]+)[ \t]*=[ \t]*){SINGLE}([ \t]*(?:#.*)?\s*)"
)


def edit_toml(text: str, changes: Changes, keys: Keys, where: str) -> str:
    """TOML, a line at a time: values of one line replaced, lines taken out and put in."""
    gone = paths_gone(changes, keys)
    more = {key: new for key, (_, new) in changes.items() if new != NONE}
    lines: list[str] = []
    heads: dict[str, int] = {}
    table = ""
    for line in text.splitlines(keepends=True):
        head, setting = TABLE.fullmatch(line), SETTING.fullmatch(line)
        if head:
            table = head[1]
            if any(f"{table}.".startswith(f"{path}.") for path in gone):
                continue
            heads.setdefault(table, len(lines))
        elif setting:
            path = f"{table}.{setting[2]}" if table else setting[2]
            if path in changes and path not in more:
                continue
            if path in more:
                new = toml_literal(more.pop(path))
                line = f"{setting[1]}{new}{setting[3]}"
        lines.append(line)
    made = _put(lines, heads, more)
    read = flat_keys(parse_toml(made, where), where)
    demand_keys(read, keys, refused(where, changes))
    return made


def _put(
    lines: list[str], heads: Mapping[str, int], more: dict[str, Any]
) -> str:
    """New settings behind the heads of their tables; new tables at the end."""
    behind: dict[int, list[str]] = {}
    rest: dict[str, Any] = {}
    for key, new in more.items():
        table, _, last = key.rpartition(".")
        if table in heads:
            told = f"{last} = {toml_literal(new)}\n"
            behind.setdefault(heads[table], []).append(told)
        else:
            rest[key] = new
    parts = [
        part
        for i, line in enumerate(lines)
        for part in (line, *behind.get(i, ()))
    ]
    if rest:
        parts.append("\n" + dumps_toml(nested(rest)))
    return "".join(parts)
