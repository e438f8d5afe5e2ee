"""Keys of a file changed in its text, and nothing else: comments, order and spelling stay.

Each way to edit ends by reading the text that it made: the keys must be those that were asked for,
or the file is refused with a sentence.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
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


def with_changes(
    data: dict[str, Any], changes: Changes
) -> tuple[dict[str, Any], list[str]]:
    """(the data with its keys changed, paths that are gone: a table with all that was in it)."""
    made = copy.deepcopy(data)
    gone = []
    for key, (_, new) in changes.items():
        *steps, last = key.split(".")
        trail = [made]
        for step in steps:
            inner = trail[-1].get(step)
            if not isinstance(inner, dict):
                if new == NONE:
                    break
                inner = trail[-1][step] = {}
            trail.append(inner)
        if new != NONE:
            trail[-1][last] = new
        elif last in trail[-1]:
            del trail[-1][last]
            gone.append(key)
    for key in [*gone]:
        _empty(made, key, gone)
    return made, gone


def _empty(made: dict[str, Any], key: str, gone: list[str]) -> None:
    """Tables that held nothing else go too."""
    while "." in key:
        key = key.rpartition(".")[0]
        *steps, last = key.split(".")
        table: Any = made
        for step in steps:
            table = table.get(step, {})
        if table.get(last) != {}:
            return
        del table[last]
        gone[:] = [g for g in gone if not g.startswith(key + ".")] + [key]


def edit_json(
    text: str, changes: Changes, keys: dict[str, Any], where: str
) -> str:
    """JSON, which has no comments: read, changed and written as wide as it was."""
    data, _ = with_changes(parse_json(text, where), changes)
    wide = re.search(r"\n([ \t]+)\"", text)
    made = json.dumps(
        data, indent=wide[1] if wide else 2, ensure_ascii=False, allow_nan=True
    )
    if not same_keys(
        flat_keys(parse_json(made, where), where), flat_keys(data, where)
    ):
        raise refused(where, changes)
    return made + "\n"


def same_keys(made: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    """The keys are as they shall be, whatever their order; 1 is not True."""
    return {k: repr(v) for k, v in made.items()} == {
        k: repr(v) for k, v in keys.items()
    }


def edit_yaml(
    text: str, changes: Changes, keys: dict[str, Any], where: str
) -> str:
    """YAML: values replaced where they stand, lines taken out and put in; PyYAML says where."""
    data = parse_yaml(text, where)
    import yaml  # type: ignore[import-untyped]

    wanted, gone = with_changes(data, changes)
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    cuts: list[Cut] = []
    added: dict[str, Any] = {}
    try:
        for path in gone:
            cuts += [_line(text, *pair) for pair in _pairs(root, path)]
        for key, (_, new) in changes.items():
            if new == NONE:
                continue
            if pairs := [*_pairs(root, key)]:
                cuts += [_value(value, new) for _, value, _ in pairs]
            else:
                added[key] = new
        cuts += _added(text, root, added)
        made = replaced_parts(text, cuts)
        if same_keys(
            flat_keys(parse_yaml(made, where), where), flat_keys(wanted, where)
        ):
            return made
    except (BadInput, LookupError):
        pass
    raise refused(where, changes)


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


def _added(text: str, root: Any, added: dict[str, Any]) -> list[Cut]:
    """Keys that were not there: in the first line of their table, or at the end."""
    cuts = []
    rest: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for key, new in added.items():
        table, _, last = key.rpartition(".")
        here = [*_pairs(root, table)] if table else []
        if here and here[0][1].id == "mapping" and here[0][1].value:
            inner.setdefault(table, {})[last] = new
        else:
            rest[key] = new
    for table, keys in inner.items():
        _, value, _ = next(_pairs(root, table))
        if value.flow_style:
            cuts.append(_braced(text, value, keys))
            continue
        first = value.value[0][0].start_mark
        at = text.rfind("\n", 0, first.index) + 1
        cuts.append((at, at, yaml_text(keys, first.column)))
    if rest and root.flow_style:
        cuts.append(_braced(text, root, nested(rest)))
    elif rest:
        cuts += _tables(text, root, nested(rest))
    return cuts


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


def _tables(text: str, root: Any, data: dict[str, Any]) -> list[Cut]:
    """New tables at the end; those that stand there empty are filled."""
    cuts = []
    for name in [*data]:
        for _, value, _ in _pairs(root, name):
            block = "\n" + yaml_text(data.pop(name), 2).rstrip("\n")
            cuts.append((value.start_mark.index, _end(value), block))
    if data:
        start = "" if text.endswith("\n") or not text else "\n"
        cuts.append((len(text), len(text), start + yaml_text(data)))
    return cuts


TABLE = re.compile(r"[ \t]*\[([\w.-]+)\][ \t]*(?:#.*)?\s*")
LIST = r"\[(?:[^\[\]\n]|\[[^\[\]\n]*\])*\]"
"""A list of one line, or a list of lists such as torchtitan's layers of stages."""
SINGLE = rf"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|{LIST}|[^\s#\["'{{][^\s#]*)"""
SETTING = re.compile(
    rf"([ \t]*([\w.-]+)[ \t]*=[ \t]*){SINGLE}([ \t]*(?:#.*)?\s*)"
)


def edit_toml(
    text: str, changes: Changes, keys: dict[str, Any], where: str
) -> str:
    """TOML, a line at a time: values of one line replaced, lines taken out and put in."""
    wanted, gone = with_changes(parse_toml(text, where), changes)
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
    if same_keys(
        flat_keys(parse_toml(made, where), where), flat_keys(wanted, where)
    ):
        return made
    raise refused(where, changes)


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
