"""The catalogue as tables: one row a thing, or one thing with all its fields, units and sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import catalog
from ..count.model import parameters
from ..describe.chip import Chip
from ..describe.fields import fields_of
from ..describe.framework import Framework, framework, frameworks
from ..describe.model import Model
from ..describe.network import Network
from ..describe.read import to_dict as plain_data
from ..units import count, show
from .card import Card, CardRow, CardTable, Commands
from .tables import text_table
from .text import layers_words

FINDERS: dict[str, Callable[[str], Any]] = {
    "chips": catalog.chip,
    "networks": catalog.network,
    "models": catalog.model,
    "frameworks": framework,
}


def names_of(kind: str) -> Sequence[str]:
    """Names of a kind; profiles of frameworks are described, not catalogued."""
    return [*frameworks()] if kind == "frameworks" else catalog.names(kind)


def catalog_report(kind: str, name: str | None) -> RenderableType:
    """Things of a kind, or one of them with all its fields."""
    kind = plural(kind)
    names = names_of(kind)
    if name is not None:
        return details(FINDERS[kind](name))
    rows = [(each, *_cells(kind, FINDERS[kind](each))) for each in names]
    total = PARAMETERS if kind == "models" else ()
    heads = (HEADS.get(key, key) for key in KEY[kind])
    columns = (kind.removesuffix("s"), *total, *heads)
    left = [i for i, column in enumerate(columns) if column in WORDS]
    return text_table(columns, rows, left=left)


KEY = {
    "chips": (
        *("bf16", "fp16", "hbm_bytes", "hbm_bandwidth", "power_w"),
        *("usd_per_hour", "network"),
    ),
    "networks": ("name", "kind", "bandwidth", "latency", "size", "chip"),
    "models": (
        *("layers", "hidden", "heads", "kv_heads", "ffn", "experts", "top_k"),
        *("vocab", "seq"),
    ),
    "frameworks": (
        *("attention", "compiled", "framework_bytes", "host_s", "float8"),
    ),
}
"""Kind -> last words of the fields that its card shows, and a table of all things of the kind."""
HEADS = {
    "hbm_bytes": "memory",
    "hbm_bandwidth": "memory bandwidth",
    "power_w": "power",
    "usd_per_hour": "price",
    "kv_heads": "kv heads",
    "top_k": "top k",
    "framework_bytes": "memory of its own",
    "host_s": "host a layer",
}
"""Last word of a field -> what people call it at the head of a column."""
WORDS = ("network", "name", "kind", "chip", "attention", "float8")
"""Those whose values are words."""
PARAMETERS = ("parameters", "active")
"""Of models, what is counted."""


def _cells(kind: str, entry: Any) -> Iterator[str]:
    """The fields of KEY; of a network those of its dimensions, the fastest first."""
    if kind == "models":
        total, active = parameters(entry), parameters(entry, True)
        yield count(total, 4)
        yield count(active, 4) if active != total else ""
    rows = [*_rows(entry, "")]
    for key in KEY[kind]:
        fields = [
            text for path, text, _ in rows if path.rpartition(".")[2] == key
        ]
        if key == "kv_heads" and not fields:
            # not stated: as many as there are heads
            fields = [str(entry.K)]
        yield "; ".join(fields)


PAPERS = ("book-", "epoch-", "lbl-")
"""How names of machines as a paper reckons with them begin: a card lists them last."""


def catalog_card(kind: str, name: str | None) -> Card:
    """The names of a kind, or the fields of one of them that people ask for first."""
    kind = plural(kind)
    names = names_of(kind)
    if name is None:
        names = sorted(names, key=lambda each: each.startswith(PAPERS))
        words = ", ".join(names)
        one = f"meshwright catalog {kind} {names[0]}"
        return Card(
            f"{len(names)} {kind} of the catalogue",
            (
                CardRow("names", words, most=10),
                CardRow(
                    "next",
                    f"{one}: one of them, with the source of every number",
                ),
            ),
            "--all: a table of them",
        )
    entry = FINDERS[kind](name)
    texts = {path: text for path, text, _ in _rows(entry, "")}
    shown = [
        (
            _query_path(entry, path),
            text,
            _origin(entry.sources, path) or _words(entry.sources.get("*", {})),
        )
        for path, text in texts.items()
        if path.rpartition(".")[2] in KEY[kind] and not path.endswith(".name")
    ]
    use = {
        "chips": f"meshwright plan llama3-8b --on 64x{entry.name} --batch 1Mi",
        "networks": f"meshwright plan llama3-8b --on 64x{entry.name} --batch 1Mi",
        "models": f"meshwright plan {entry.name} --on 64xh100-sxm --batch 1Mi",
    }.get(kind)
    counted = (
        f": {count(parameters(entry), 4)} parameters{active_words(entry)}"
        if isinstance(entry, Model)
        else ""
    )
    return Card(
        f"{kind.removesuffix('s')} {entry.name}{counted}",
        (
            CardTable(("field", "value", "source"), shown, most=9),
            *([Commands((use,))] if use else []),
        ),
        f"--all: all {len(texts)} fields with unit and source",
    )


def _query_path(entry: Any, path: str) -> str:
    """A field as `--over` and a file ask for it: network.nvlink.size for dims[0].size."""
    if isinstance(entry, Network):
        for i, dim in enumerate(entry.dims):
            path = path.replace(f"dims[{i}]", f"network.{dim.name}")
    return path


def plural(kind: str) -> str:
    """chips for chip."""
    return f"{kind}s" if f"{kind}s" in FINDERS else kind


def catalog_to_dict(kind: str, name: str | None) -> dict[str, Any]:
    """The fields of `catalog --json`."""
    kind = plural(kind)
    names = names_of(kind)
    if name is not None:
        return plain_data(FINDERS[kind](name))
    return {kind: [plain_data(FINDERS[kind](each)) for each in names]}


def active_words(m: Model) -> str:
    """ ", 12.9 B active for a token (12.8 B without the embedding)" of a mixture of experts; empty
    where a token passes through all parameters.
    """
    active, inner = parameters(m, True), parameters(m, True, embedding=False)
    if active == parameters(m):
        return ""
    without = f" ({count(inner, 4)} without the embedding)"
    return f", {count(active, 4)} active for a token" + without * (
        inner < active
    )


def details(entry: Chip | Network | Model | Framework) -> RenderableType:
    """One thing: every field with unit and origin."""
    table = text_table(
        "field | value | source",
        [
            (
                _query_path(entry, path),
                text,
                _origin(entry.sources, path) or "default" * default,
            )
            for path, text, default in _rows(entry, "")
        ],
        left=(1,),
    )
    whole = entry.sources.get("*")
    lines = [Text(_words(whole), "dim")] if whole else []
    if isinstance(entry, Model):
        lines.append(Text(layers_words(entry)))
    return Group(*lines, table)


def _rows(record: Any, path: str) -> Iterator[tuple[str, str, bool]]:
    """(path, text, whether nobody stated it: it is what the description takes by itself) of all
    fields that are set.
    """
    for field in fields_of(type(record)).values():
        value = getattr(record, field.name)
        here = path + field.name
        if value in (None, "", ()) or field.name == "sources":
            continue
        if field.name == "name" and not path:
            continue
        if is_dataclass(value):
            yield from _rows(value, here + ".")
        elif isinstance(value, tuple) and is_dataclass(value[0]):
            for i, part in enumerate(value):
                yield from _rows(part, f"{here}[{i}].")
        else:
            default = value == field.default
            for place, text in _leaf(here, value, field.kind.units or None):
                yield place, text, default


def _leaf(
    path: str, value: Any, unit: str | None
) -> Iterator[tuple[str, str]]:
    if hasattr(value, "items"):
        for key, number in value.items():
            yield f"{path}.{key}", show(number, unit or "")
    elif isinstance(value, tuple):
        yield path, ", ".join(map(str, value))
    elif isinstance(value, float) and unit:
        yield (
            path,
            (
                show(value, unit, 4)
                if value
                else "unknown"
                if path in ("power_w", "usd_per_hour")
                else f"0 {unit}"
            ),
        )
    else:
        yield (
            path,
            str(value).lower() if isinstance(value, bool) else str(value),
        )


def _origin(sources: Any, path: str) -> str:
    """The source of this field, or of the field it belongs to."""
    pieces = path.replace("[", ".[").split(".")
    for n in range(len(pieces), 0, -1):
        if origin := sources.get(".".join(pieces[:n]).replace(".[", "[")):
            return _words(origin)
    return ""


def _words(origin: Any) -> str:
    return ", ".join(
        str(origin[key])
        for key in ("source", "date", "note")
        if origin.get(key)
    )
