"""Seals of checkpoints that another engine writes: SHA-256 of every file, beside its folders.

An engine that goes on takes its newest checkpoint without a look at its contents. A checkpoint
whose files are no longer those that were sealed is set aside first, so the one before is taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from ..errors import BadInput

NAME = "seals.json"
COMPLETE = ".metadata"
"""PyTorch's DCP writes it last, so a folder without it is no checkpoint."""
ASIDE = ".damaged"
NEWEST = "latest_checkpointed_iteration.txt"
"""Megatron-LM's pointer, which would still lead to a folder that was set aside."""


def complete(folder: Path) -> Iterator[Path]:
    """Checkpoints in a folder."""
    for path in sorted(folder.glob("*")):
        if (path / COMPLETE).is_file() and path.suffix != ASIDE:
            yield path


def digests(checkpoint: Path) -> dict[str, str]:
    """File, relative to the checkpoint -> SHA-256 of its contents."""
    found = {}
    for path in sorted(p for p in checkpoint.rglob("*") if p.is_file()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found[str(path.relative_to(checkpoint))] = digest
    return found


def known(folder: Path) -> dict[str, dict[str, str]]:
    """Checkpoint -> digests, as they were sealed; BadInput for seals that cannot be read."""
    path = folder / NAME
    if not path.is_file():
        return {}
    try:
        seals = json.loads(path.read_text("utf-8"))
        return {name: dict(files) for name, files in seals.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        raise BadInput(
            f"{path} is damaged: without it no checkpoint of {folder} can be"
            " trusted; delete it to go on all the same"
        ) from None


def seal(folder: Path) -> None:
    """Seal what is complete and was not yet; forget what the engine has deleted."""
    there = {path.name: path for path in complete(folder)}
    if not there:
        return
    before = known(folder)
    seals = {
        name: before.get(name) or digests(path) for name, path in there.items()
    }
    to = folder / NAME
    to.with_suffix(".part").write_text(json.dumps(seals, indent=1), "utf-8")
    to.with_suffix(".part").replace(to)


def set_aside(folder: Path) -> list[str]:
    """A sentence for each checkpoint that is not what was sealed, and was set aside."""
    sentences = []
    seals = known(folder)
    for path in complete(folder):
        if path.name not in seals:
            continue  # of a run that was killed: complete, and never sealed
        now, then = digests(path), seals[path.name]
        changed = sorted(
            name for name in now | then if now.get(name) != then.get(name)
        )
        if changed and (folder / NEWEST).is_file():
            raise BadInput(
                f"{path} is damaged: {changed[0]} was changed; put it back,"
                f" or name an earlier one in {folder / NEWEST}"
            )
        if changed:
            path.rename(path.with_name(path.name + ASIDE))
            sentences.append(
                f"{path} is damaged: {changed[0]} was changed; it was set"
                f" aside as {path.name}{ASIDE}"
            )
    return sentences
