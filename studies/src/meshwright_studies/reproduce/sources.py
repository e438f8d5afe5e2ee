"""Published numbers in files: which format a file has is told by its content, never by its name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from meshwright.describe.read import brief, read
from meshwright.errors import BadInput

from ..validate.rows import lines_without_remarks, text_of_rows

T = TypeVar("T")
MOST_FILES = 1000
HEADERS = {
    "epoch": ("T_flop", "n_gpu", "util_vs_boost_peak"),
    "nccl": ("collective", "gpus_total", "size_bytes"),
}
"""CSV format -> columns by which it is known."""


def find(where: str | Path) -> dict[str, tuple[Path, ...]]:
    """format (lbl, scaling-book, epoch, nccl) -> files, of a file or of the .json and .csv files
    two folders deep.

    Raises BadInput if there is nothing there, or if a file named by itself has an unknown format.
    """
    path = Path(where)
    try:
        if path.is_dir():
            below = (p for pattern in ("*", "*/*") for p in path.glob(pattern))
            files = sorted(
                p
                for p in below
                if p.suffix in (".json", ".csv") and p.is_file()
            )[:MOST_FILES]
        elif path.exists():
            files = [path]
        else:
            raise BadInput(f"there is no file or folder {str(where)[:200]}")
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {str(where)[:200]}: {error}") from None
    by_format: dict[str, list[Path]] = {}
    for file in files:
        kind = format_of(file)
        if kind:
            by_format.setdefault(kind, []).append(file)
        elif not path.is_dir():
            raise BadInput(
                f"{file.name[:80]} is in no format of published numbers: lbl, scaling-book (JSON),"
                " epoch, nccl"
            )
    return {kind: tuple(paths) for kind, paths in by_format.items()}


def format_of(file: Path) -> str | None:
    """The format of a file, or None."""
    text = text_of_rows(file)
    if text.lstrip()[:1] == "{":
        table = read_json(file)
        if isinstance(table.get("cases"), list):
            return "scaling-book"
        return "lbl" if isinstance(table.get("data"), dict) else None
    header = next(iter(lines_without_remarks(text)), "").split(",")
    return next(
        (
            kind
            for kind, columns in HEADERS.items()
            if set(columns) <= {c.strip() for c in header}
        ),
        None,
    )


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file; BadInput if it is not one."""
    try:
        table = json.loads(text_of_rows(file))
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{file.name[:80]} is not valid JSON: {str(error)[:200]}"
        ) from None
    if not isinstance(table, dict):
        raise BadInput(f"{file.name[:80]} must hold a JSON object")
    return table


def known(cls: type[T], value: Any, where: str, leave: str = "") -> T:
    """The fields that a class has of a JSON object, but one; null and what else it holds is passed
    over.
    """
    names = {f.name for f in fields(cls)} - {leave}  # type: ignore[arg-type]
    data = {
        k: v
        for k, v in mapping(value, where).items()
        if k in names and v is not None
    }
    return read(cls, data, where[:200])


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """The value, which must be a JSON object."""
    if not isinstance(value, dict):
        raise BadInput(f"{where[:200]} must be a table, not {brief(value)}")
    return value
