"""Published rows, read as untrusted data: bounded in size, and every field looked up by kind.

A row is one measurement with its description: {id, source, model{...}, hardware{...},
parallel{...}, measured{...}}. A field that is absent, null or of another kind counts as not said,
and `jobs` puts a default in its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshwright import formats
from meshwright.describe.read import brief
from meshwright.errors import BadInput
from meshwright.units import GB, GIB, MIB

Row = Mapping[str, Any]

LARGEST_FILE = 64 * 2**20
"""Bytes; the largest published collection so far has 2.3 MB."""
MOST_ROWS = 50_000
LONGEST_TEXT = 400
"""Characters of a text that are looked at."""
LARGEST = 1e9
"""No whole number of a row may be larger; products of a few stay finite."""
SMALLEST = 1e-30
"""No number of a row may be smaller; ratios of two stay finite."""
UNITS = {"bytes": 1.0, "mb": 1e6, "mib": MIB, "gb": GB, "gib": GIB}
"""Bytes of a unit, as rows write it."""


def text_of_rows(path: str | Path) -> str:
    """The text of a file of published rows, or of a table; BadInput if it cannot be read."""
    return formats.read_text(path, LARGEST_FILE)


def lines_without_remarks(text: str) -> list[str]:
    """The lines of a CSV that say something: no empty ones, none that begin with #."""
    return [
        line
        for line in text.splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]


def parse_rows(text: str) -> list[Row]:
    """Rows of a JSON text: a list of objects, or an object with such a list under "rows" or
    "runs".
    """
    try:
        data = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"the runs are not valid JSON: {str(error)[:120]}"
        ) from None
    if isinstance(data, Mapping):
        data = data.get("rows", data.get("runs"))
    return demand_rows(data)


def demand_rows(rows: object) -> list[Row]:
    """The rows themselves; BadInput unless they are a list of objects."""
    if not isinstance(rows, Sequence) or isinstance(rows, (str, bytes)):
        raise BadInput(f"runs must be a list of objects, not {brief(rows)}")
    if len(rows) > MOST_ROWS:
        raise BadInput(
            f"runs must have at most {MOST_ROWS} rows, not {len(rows)}"
        )
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise BadInput(f"row {i + 1} must be an object, not {brief(row)}")
    return list(rows)


def value_of_row(row: Row, name: str) -> object:
    """What stands under a name, or under a path of names such as parallel.tp; None if nothing."""
    value: object = row
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def table_of_row(row: Row, name: str) -> Row:
    """A nested object, {} if it is not one."""
    value = row.get(name)
    return value if isinstance(value, Mapping) else {}


def text_of_row(row: Row, name: str) -> str:
    """A text in lower case, "" if it is not one."""
    return plain(row, name).lower()


def sharding_of_row(row: Row) -> str:
    """What a row says of sharding."""
    names = ("optimizer_sharding", "parallel.fsdp")
    return " ".join(text_of_row(row, name) for name in names)


def plain(row: Row, name: str) -> str:
    """A printable text as it stands, "" if it is not one."""
    value = value_of_row(row, name)
    return (
        "".join(c for c in value[:LONGEST_TEXT] if c.isprintable())
        if isinstance(value, str)
        else ""
    )


def positive_number(row: Row, name: str) -> float | None:
    """A finite number above 0, from SMALLEST (a text that is one counts), else None."""
    value = value_of_row(row, name)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        parsed = float(value[:40]) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return parsed if math.isfinite(parsed) and parsed >= SMALLEST else None


def whole_of_row(row: Row, name: str, default: int) -> int:
    """A whole number from 1 to LARGEST, else the default; BadInput for a number that is neither."""
    value = value_of_row(row, name)
    parsed = positive_number(row, name)
    if parsed is None:
        negative = (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and value < 0
        )
        if negative:
            raise BadInput(f"{name} must be at least 1, not {brief(value)}")
        return default
    if parsed != int(parsed) or parsed > LARGEST:
        raise BadInput(
            f"{name} must be a whole number up to {LARGEST:g}, not {brief(value)}"
        )
    return int(parsed)


def demand_whole(row: Row, name: str) -> int:
    """A whole number from 1 to LARGEST of a field without a default: BadInput if it is not said."""
    if positive_number(row, name) is None:
        raise BadInput(f"{name} is not given")
    return whole_of_row(row, name, 0)


def flag_of_row(row: Row, name: str) -> bool | None:
    """True, False, or None if not said."""
    value = value_of_row(row, name)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    return value if isinstance(value, bool) else None
