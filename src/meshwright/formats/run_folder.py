"""The folder of a training run (read only; `meshwright train` writes it).

    job.toml                 what was run, by the newest attempt; its table [train] too
    attempts.jsonl           a line an attempt: what it ran (job and [train]), on which versions,
                             after which step
    metrics.jsonl            a row a step, with its attempt; a last line that a killed rank left
                             unfinished does not count
    record/rank-RRRR.jsonl   what a rank did in a few steps: a line about the rank, then a step each
    profile/rank-RRRR.json   a Chrome trace of a few other steps (read in `formats.profile_trace`)

The first line of a record: schema, rank, ranks, place {axis: index}, host, cores, device, threads.
A line a step: step, began_unix_s, wall_s, thread_cpu_s, process_cpu_s, bytes {kind: bytes}, parts
[[kind, stage, microbatch, start_s, end_s, busy_s], ...].
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..errors import BadInput
from . import parse_toml, profile_trace, read_text
from .records import RankRecord, RecordedRun, StepPart, StepRecord
from .toml import load_job

ATTEMPTS = "attempts.jsonl"
RECORD = "record"
PROFILE = "profile"
"""Folders of the records and of the profiler's traces."""
SCHEMA = "meshwright-record/1"
MOST_RANKS = 4096
"""Ranks whose records are read."""
LARGEST_RECORD = 64 * 2**20
"""Bytes of one rank's record."""
LARGEST_RUN = 2**30
"""Bytes of all records together, and of metrics.jsonl."""
MOST = 1e18
"""Of any number in a record."""


def rank_file(rank: int, suffix: str) -> str:
    """The name of a rank's file."""
    return f"rank-{rank:04d}.{suffix}"


def read_run(folder: str | Path) -> RecordedRun:
    """The run in a folder. BadInput if it is none, or a file in it is not what it should be."""
    path = Path(str(folder)[:4096])
    try:
        known = (path / "job.toml").is_file()
    except (OSError, ValueError):
        known = False
    if not known:
        if not os.path.lexists(path):
            raise BadInput(f"there is no file or folder {str(folder)[:200]}")
        raise BadInput(
            f"{str(folder)[:200]!r} is not a run folder (no job.toml): `meshwright train` creates"
            " one"
        )
    job = load_job(
        parse_toml(read_text(path / "job.toml"), "job.toml"), files=False
    )
    rows = metrics(path / "metrics.jsonl")
    ranks = records(path)
    traces = {
        rank.rank: path / PROFILE / rank_file(rank.rank, "json")
        for rank in ranks
    }
    profiles = {
        rank: profile_trace.read_profile(f)
        for rank, f in traces.items()
        if f.is_file()
    }
    return RecordedRun(
        str(path),
        job,
        rows,
        ranks=ranks,
        profiles=profiles,
        attempts=attempts(path),
    )


def attempts(folder: Path) -> tuple[dict[str, Any], ...]:
    """The attempts of a run, oldest first; none in a folder of an older version."""
    path = folder / ATTEMPTS
    rows = (
        [row for row in json_lines(path, LARGEST_RUN) if isinstance(row, dict)]
        if path.exists()
        else []
    )
    for row in rows:
        finite_number(row.get("attempt"), f"{path}: attempt")
        for key in ("layout", "job", "order", "train", "hashed"):
            if not isinstance(row.get(key, {}), Mapping):
                raise BadInput(f"{path}: {key} of an attempt must be a table")
    return tuple({"layout": {}, "job": {}, "order": {}, **row} for row in rows)


def metrics(path: Path) -> tuple[dict[str, Any], ...]:
    """The rows of a metrics.jsonl, none if there is no such file."""
    rows = (
        [row for row in json_lines(path, LARGEST_RUN) if isinstance(row, dict)]
        if path.exists()
        else []
    )
    for row in rows:
        for key in ("step", "step_time_s", "cpu_s"):
            finite_number(row.get(key), f"{path}: {key}")
    return tuple(rows)


def json_lines(path: Path, largest: int = LARGEST_RECORD) -> list[Any]:
    """The JSON values of a file, one a line; an unfinished last line is left out."""
    text = read_text(path, largest).split("\n")
    rows = []
    for count, line in enumerate(text, 1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError):
            if count < len(text) and any(
                rest.strip() for rest in text[count:]
            ):
                raise BadInput(
                    f"{path}, line {count}: not a line of JSON"
                ) from None
    return rows


def records(folder: Path) -> tuple[RankRecord, ...]:
    """The records of all ranks, by rank; none if nothing was recorded. All ranks of the run must be
    there.
    """
    files = sorted((folder / RECORD).glob("rank-*.jsonl"))[: MOST_RANKS + 1]
    if not files:
        return ()
    if (
        len(files) > MOST_RANKS
        or sum(file.stat().st_size for file in files) > LARGEST_RUN
    ):
        raise BadInput(
            f"{folder / RECORD} holds more than {MOST_RANKS} records or {LARGEST_RUN // 2**20} MiB"
        )
    ranks = tuple(rank_record(file) for file in files)
    whole = ranks[0].ranks
    if [each.rank for each in ranks] != [*range(whole)] or any(
        each.ranks != whole for each in ranks
    ):
        raise BadInput(
            f"{folder / RECORD} holds {len(ranks)} records, not those of ranks 0 to {whole - 1} of"
            " one run"
        )
    shared = set.intersection(
        *({step.step for step in each.steps} for each in ranks)
    )
    if not shared:
        return ()
    return tuple(select_steps(each, shared) for each in ranks)


def select_steps(record: RankRecord, steps: set[int]) -> RankRecord:
    """The record with these steps alone: those that every rank finished."""
    kept = tuple(step for step in record.steps if step.step in steps)
    return RankRecord(**{**vars(record), "steps": kept})


def rank_record(path: Path) -> RankRecord:
    """One file."""
    head, *rows = json_lines(path) or [None]
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        raise BadInput(
            f"{path} is not the record of a rank: its first line must have schema {SCHEMA!r}"
        )
    place = head.get("place")
    if not isinstance(place, dict) or len(place) > 8:
        raise BadInput(
            f"{path}: place must say where the rank stands on each axis"
        )
    whole = {
        key: int(finite_number(head.get(key), f"{path}: {key}"))
        for key in ("rank", "ranks", "cores", "threads")
    }
    steps = tuple(
        step_record(row, f"{path}, line {count}")
        for count, row in enumerate(rows, 2)
    )
    if any(b.step <= a.step for a, b in pairwise(steps)):
        raise BadInput(
            f"{path}: recorded steps must follow each other, each once"
        )
    return RankRecord(
        place={
            str(axis)[:20]: int(finite_number(index, f"{path}: place"))
            for axis, index in place.items()
        },
        host=str(head.get("host"))[:200],
        device=str(head.get("device"))[:20],
        steps=steps,
        **whole,
    )


def step_record(row: object, where: str) -> StepRecord:
    """One line."""
    if (
        not isinstance(row, Mapping)
        or not isinstance(row.get("bytes"), Mapping)
        or not isinstance(row.get("parts"), list)
    ):
        raise BadInput(
            f"{where}: a recorded step has step, began_unix_s, wall_s, thread_cpu_s, process_cpu_s,"
            " bytes and parts"
        )
    seconds = {
        key: finite_number(row.get(key), f"{where}: {key}")
        for key in ("began_unix_s", "wall_s", "thread_cpu_s", "process_cpu_s")
    }
    return StepRecord(
        step=int(finite_number(row.get("step"), f"{where}: step")),
        bytes={
            str(kind)[:40]: finite_number(value, f"{where}: bytes")
            for kind, value in row["bytes"].items()
        },
        parts=tuple(step_part(value, where) for value in row["parts"]),
        **seconds,
    )


def step_part(value: object, where: str) -> StepPart:
    """One part of a step."""
    if (
        not isinstance(value, list)
        or len(value) != 6
        or not isinstance(value[0], str)
    ):
        raise BadInput(
            f"{where}: a part is [kind, stage, microbatch, start_s, end_s, busy_s]"
        )
    kind, *numbers = value
    stage, microbatch, start, end, busy = (
        finite_number(n, f"{where}: part {kind[:20]}", least=-1e9)
        for n in numbers
    )
    if end < start or busy < 0:
        raise BadInput(f"{where}: part {kind[:20]} ends before it begins")
    return StepPart(
        kind[:20],
        int(stage),
        int(microbatch),
        start_s=start,
        end_s=end,
        busy_s=busy,
    )


def finite_number(value: object, where: str, least: float = 0.0) -> float:
    """A finite number of at least `least`."""
    if (
        # nan is neither
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not least <= value <= MOST
    ):
        raise BadInput(
            f"{where} must be a number of at least {least:g}, not {str(value)[:40]!r}"
        )
    return float(value)


__all__ = [
    "ATTEMPTS",
    "RECORD",
    "SCHEMA",
    "attempts",
    "metrics",
    "rank_file",
    "read_run",
]
