"""Files of other tools that people published: how many are recognised, give a whole job, are refused
in a sentence, or raise.

    python benchmarks/public_files.py FOLDER [--json FILE] [--only FORMAT]

FOLDER: a folder for each format, named as in docs/bridges.md, with the files as they were published
(none is kept here). Flags give what a file may leave open: the chips, and where it names none a
model and a batch. A line a file: what it was taken for, the answer, the settings that it states.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OPEN = {"on": "h100-sxm", "batch": "512seq", "model_": "llama3-8b"}
"""Flags for what a file may leave open; chips are counted where it does not start its own."""


def answer(file: Path) -> dict[str, Any]:
    """What is made of one file."""
    from meshwright.errors import BadInput
    from meshwright.formats import bridge
    from meshwright.formats.flags import missing

    try:
        read = bridge.read_file(str(file))
    except BadInput as error:
        return {"refused": str(error)}
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"}
    needs = missing(read, {"on": "1"})
    return {
        "format": read.format.name,
        "needs": needs,
        "left": dict(read.left),
        "tables": read.tables,
        "taken": dict(read.taken),
        "chips": read.chips,
        "notes": list(read.notes),
    } | run(file, read)


def run(file: Path, read: Any) -> dict[str, Any]:
    """Whether a step is predicted once the open flags are given."""
    from meshwright.errors import MeshwrightError
    from meshwright.formats.flags import foreign_tables

    needs = " ".join(str(n) for n in read.missing)
    given = {"on": OPEN["on"] if read.chips else f"64x{OPEN['on']}"}
    if "batch" not in read.tables.get("job", {}):
        given["batch"] = OPEN["batch"]
    if "model" not in read.tables or needs:
        given["model_"] = OPEN["model_"]
    try:
        foreign_tables(str(file), given, [])
    except MeshwrightError as error:
        return {"incomplete": str(error)}
    return {}


def verdict(of: Mapping[str, Any]) -> str:
    """complete, incomplete, refused or raised."""
    for key in ("raised", "refused", "incomplete"):
        if key in of:
            return key
    return "complete"


def main() -> None:
    """A table of the formats, with the sentences of what is not complete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    made = []
    for folder in sorted(p for p in given.folder.iterdir() if p.is_dir()):
        if given.only not in ("", folder.name):
            continue
        for file in sorted(folder.iterdir()):
            one = {"folder": folder.name, "file": file.name, **answer(file)}
            made.append(one)
            why = next(
                (
                    one[k]
                    for k in ("raised", "refused", "incomplete")
                    if k in one
                ),
                "",
            )
            print(
                f"{folder.name:14} {verdict(one):10} {one.get('format', '-'):16}"
                f" {file.name[-60:]:60} {why[-160:]}"
            )
    if given.json:
        given.json.write_text(json.dumps(made, indent=1, default=str), "utf-8")
    counts: Counter[tuple[str, str]] = Counter(
        (of["folder"], verdict(of)) for of in made
    )
    words = ("complete", "incomplete", "refused", "raised")
    print(f"| format | files | {' | '.join(words)} | taken for another |")
    print("|---|" + "--:|" * (len(words) + 2))
    for name in dict.fromkeys(of["folder"] for of in made):
        mine = [of for of in made if of["folder"] == name]
        other = Counter(
            of["format"] for of in mine if of.get("format") not in (None, name)
        )
        print(
            f"| `{name}` | {len(mine)} |"
            f" {' | '.join(str(counts[name, w]) for w in words)} |"
            f" {', '.join(f'{n} {w}' for w, n in other.items()) or '-'} |"
        )
    if any(verdict(of) == "raised" for of in made):
        raise SystemExit("some raised")


if __name__ == "__main__":
    main()
