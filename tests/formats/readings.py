"""What a file of another tool means, held against rows of a table."""

from __future__ import annotations

from typing import Any

from meshwright.formats import bridge


def unread(file: bridge.ForeignFile) -> set[str]:
    """Fields that the file says in a way that cannot be read."""
    return {path.partition(".")[2] for path in file.unread}


def layout(file: bridge.ForeignFile) -> dict[str, Any]:
    """The layout, degrees as numbers: a script has them as text."""
    made = file.tables.get("layout", {}).items()
    return {k: int(v) if str(v).isdigit() else v for k, v in made}


def facts(file: bridge.ForeignFile) -> dict[str, Any]:
    """What was read by the names of the fields, and what was said of the rest."""
    model = file.tables.get("model")
    parts = model if isinstance(model, dict) else {"model": model}
    return {
        **parts,
        **{
            f"{table}.{name}": value
            for table in ("moe", "mla")
            for name, value in (parts.get(table) or {}).items()
        },
        **file.tables.get("software", {}),
        **file.tables["job"],
        **layout(file),
        "format": file.format.name,
        "chips": file.chips,
        "unread": unread(file),
        "left": {*file.left},
        "missing": [*file.missing],
    }


def demand_meaning(file: bridge.ForeignFile, fields: dict[str, Any]) -> None:
    """The file has these fields, None where it has none.

    says, silent: what its sentences have in them, and not; asks: fields that cannot be read, among
    others; takes: what stands for fields that the file does not say.
    """
    told = " ".join((*file.notes, *file.missing, *file.left.values()))
    wanted = dict(fields)
    assert wanted.pop("says", "") in told
    assert wanted.pop("silent", "\0") not in told
    assert wanted.pop("asks", set()) <= unread(file)
    for field, value in wanted.pop("takes", {}).items():
        assert file.taken[field] == value
    made = facts(file)
    assert {field: made.get(field) for field in wanted} == wanted
