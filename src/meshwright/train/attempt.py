"""What a run was asked to do, after everything about it was checked, and what its folder says of
how it was made: job.toml, and a line an attempt in attempts.jsonl.

An attempt is what goes on from one checkpoint, or from the first weights. It leaves its record when
its first step is done: a start that fails, or that finds nothing to do, changes nothing.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import time
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .._version import __version__
from ..describe.job import TRAIN, Job
from ..describe.training import Settings, train_table
from ..errors import BadInput, unknown
from ..formats import write_whole
from ..formats.run_folder import (
    ATTEMPTS,
    LARGEST_RUN,
    attempts,
    json_lines,
)
from ..formats.toml import dump_job
from ..prediction.prediction import Prediction
from . import checkpoint, data
from .registry import is_own
from .storage import sha256

ORDER = ("data", "seq", "seed", "batch")
"""What decides which samples a step trains on."""
HASHED = "hashed"
"""In the record of an attempt: path of a token file -> [bytes, nanoseconds of its last change,
SHA-256]. While bytes and time stay, a file of terabytes is not read at every start."""
ELSEWHERE = ("train.output",)
"""What may change without a word."""


def description(job: Job, settings: Settings) -> str:
    """The TOML text from which `meshwright train` does the same again."""
    return dump_job(replace(job, train=train_table(settings)))


def versions() -> dict[str, str]:
    """What it runs on."""
    return {
        "meshwright": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def batch_order(job: Job, settings: Settings) -> dict[str, Any]:
    """What a step trains on, by `ORDER`."""
    return {
        "data": contents(job, settings),
        "seq": job.T,
        "seed": settings.seed,
        "batch": sequences(job, settings),
    }


def is_files(settings: Settings) -> bool:
    """Whether samples come from token files."""
    return settings.data != "synthetic" and not is_own(settings.data)


def sequences(job: Job, s: Settings) -> int | str:
    """How many sequences each step trains."""
    if s.ramp_batch is None:
        return job.batch
    return f"{job.batch} after {s.ramp_steps} steps from {s.ramp_batch}"


def token_files(s: Settings) -> list[tuple[Path, float | None]]:
    """Token files and their shares."""
    return data.files(
        str(Path(s.output) / "corpus") if s.data == "corpus" else s.data
    )


def contents(job: Job, settings: Settings) -> str:
    """Which tokens: what does not change when a token file is moved; and what is held out of it."""
    if not is_files(settings):
        return settings.data
    folder = Path(settings.output)
    hashes = []
    for path, share in token_files(settings):
        count = data.read_header(path)["tokens"]
        said = hashed(path, folder)[2]
        part = "" if share is None else f", share {share:g}"
        hashes.append(f"{count} tokens, SHA-256 {said[:16]}{part}")
    held_out = settings.eval_every and settings.eval_data is None
    apart = [f"{settings.eval_batches} batches held out"] if held_out else []
    return "; ".join(hashes + apart)


def hashed(path: Path, folder: Path) -> list[Any]:
    """[bytes, nanoseconds of its last change, SHA-256] of one token file, as the newest attempt of
    the folder has them, where they are as they were; else it is read whole.
    """
    tokens = data.sibling(path, ".bin").resolve()
    about = tokens.stat()
    same = [about.st_size, about.st_mtime_ns]
    newest = next(iter(attempts(folder)[-1:]), {})
    before: list[Any] = newest.get(HASHED, {}).get(str(tokens), [])
    return before if before[:2] == same else [*same, token_hash(tokens, *same)]


@cache
def token_hash(tokens: Path, size: int, changed_ns: int) -> str:
    """SHA-256 of a whole file, once in a process."""
    return sha256(tokens, f"reading {tokens.name}"[:48])


def hashes_of(s: Settings) -> dict[str, Any]:
    """The `HASHED` of an attempt, if it has token files."""
    if not is_files(s):
        return {}
    names = [path for path, _ in token_files(s)]
    folder = Path(s.output)
    files = {
        str(data.sibling(path, ".bin").resolve()): hashed(path, folder)
        for path in names
    }
    return {HASHED: files}


def begin(
    folder: Path,
    job: Job,
    settings: Settings,
    first: int,
) -> int:
    """Write the record of this attempt, whose first step is done; its number."""
    number = len(attempts(folder)) + 1
    text = description(job, settings)
    row = {
        "attempt": number,
        "after_step": first,
        "began_unix_s": time.time(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "versions": versions(),
        "order": batch_order(job, settings),
        **hashes_of(settings),
        **tomllib.loads(text),
    }
    said = ", ".join(
        f"{name} {version}" for name, version in row["versions"].items()
    )
    write_whole(
        folder / "job.toml",
        f"# Attempt {number} of this run, by {said}.\n{text}",
    )
    # a killed attempt may have left half a line, which nothing may follow
    path = folder / ATTEMPTS
    before = json_lines(path, LARGEST_RUN) if path.exists() else []
    write_whole(path, "".join(json.dumps(r) + "\n" for r in (*before, row)))
    return number


def demand_same(
    folder: Path,
    job: Job,
    settings: Settings,
    allowed: Collection[str],
) -> str | None:
    """A sentence that names what a run goes on with otherwise than before; None if nothing.

    BadInput if that is what its steps train on, and no word allows it.
    """
    for name in allowed:
        if name not in ORDER:
            raise unknown("--allow-change", name, ORDER)
    before = next(iter(attempts(folder)[-1:]), None)
    if before is None:
        return None
    now, was = batch_order(job, settings), before["order"]
    moved = [name for name in ORDER if name in was and was[name] != now[name]]
    if forbidden := [name for name in moved if name not in allowed]:
        said = "; ".join(
            f"{name} was {was[name]} and is {now[name]}" for name in forbidden
        )
        raise BadInput(
            f"{folder} cannot resume: {said}, so steps would train on other samples;"
            f" --allow-change {','.join(forbidden)} resumes anyway"
        )
    changes = [f"{name} {was[name]} -> {now[name]}" for name in moved]
    a, b = (
        flat(each)
        for each in (before, tomllib.loads(description(job, settings)))
    )
    for name in [name for name in {**a, **b} if name not in ELSEWHERE]:
        if a.get(name) != b.get(name) and name.rpartition(".")[2] not in moved:
            changes.append(
                f"{name} {a.get(name, 'not given')} -> {b.get(name, 'not given')}"
            )
    return (
        f"the run resumes with changed settings: {'; '.join(changes)}"
        if changes
        else None
    )


def flat(tables: Mapping[str, Any]) -> dict[str, Any]:
    """`job.precision` and the like -> value, of [job] and [train]; layouts may change."""
    return {
        f"{name}.{key}": value
        for name in ("job", TRAIN)
        for key, value in tables.get(name, {}).items()
    }


@dataclass(frozen=True)
class RunPlan:
    """What is run, and what was said before."""

    job: Job
    settings: Settings
    predicted: Prediction
    resume: Path | None
    """The checkpoint to go on from."""
    allowed: tuple[str, ...] = ()
    """What of `attempt.ORDER` a resumed run may change."""

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        return Path(self.settings.output)

    @property
    def finished(self) -> bool:
        """Nothing is left to do."""
        return (
            self.resume is not None
            and checkpoint.steps_of(self.resume) >= self.settings.steps
        )
