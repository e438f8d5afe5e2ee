"""Small runs of the trainer's tests, in the folder that they are in."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from meshwright.describe.job import Job
from meshwright.formats.toml import dump_job
from meshwright.formats.toml_writer import dumps_toml

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.toml"


def small(file: str = "job.toml", layers: int = 2, **train: Any) -> str:
    """The quickstart with a smaller model, fewer steps and invented data."""
    table = tomllib.loads(QUICKSTART.read_text("utf-8"))
    table["model"] |= {"layers": layers, "hidden": 32, "ffn": 96, "seq": 32}
    table["train"] |= {
        "steps": 12,
        "data": "synthetic",
        "eval_every": 0,
        "sample": 0,
        "save_every": 5,
        "output": "run",
        **train,
    }
    Path(file).write_text(dumps_toml(table), "utf-8")
    return file


def described(of: Job, file: str = "job.toml", **train: Any) -> str:
    """A file with the job and these settings."""
    text = f"{dump_job(of)}\n{dumps_toml({'train': train})}"
    Path(file).write_text(text, "utf-8")
    return file


def rows(folder: str | Path = "run") -> list[dict[str, Any]]:
    """A row for each step of a run."""
    lines = Path(folder, "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def free_port() -> str:
    """One that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def two_ranks(command: list[str], folder: Path) -> list[tuple[int, str]]:
    """Exit code and stderr of two processes with the variables that torchrun sets."""
    world = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **world, "RANK": r, "LOCAL_RANK": r},
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in "01"
    ]
    said = [rank.communicate(timeout=100)[1] for rank in ranks]
    return [
        (rank.wait(), words) for rank, words in zip(ranks, said, strict=True)
    ]
