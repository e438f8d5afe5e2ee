"""A config.json of Hugging Face -> `Model`, by the model's own code in the transformers that is
installed: built on the meta device, without weights, remote code or a network.

The run is a process of its own with a deadline and bounded memory (`worker`): a configuration is
data of whoever wrote it. What it gives is kept by the hash of the configuration and the versions.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .._version import __version__
from ..describe.model import Model
from ..describe.read import read
from ..errors import BadInput

SECONDS = 240.0
"""Of a trace, imports included: what takes longer loops over tokens or is far too large."""
MEMORY = 24 * 2**30
"""Bytes of address space of the process that traces."""
LONGEST_FILE = 2**20
MOST_LAYERS = 1000
"""More than any model has; a module for each would be built."""
COUNTS = ("layer", "expert", "head", "block")
"""Words in keys that count modules."""
INSTALL = (
    "where transformers has its code, pip install 'meshwright[hf]' counts it by tracing that"
    " code"
)


def installed() -> bool:
    """Whether the code of models is there."""
    return (
        find_spec("transformers") is not None
        and find_spec("torch") is not None
    )


def versions() -> dict[str, str]:
    """What a trace depends on beside the configuration."""
    return {
        "meshwright": __version__,
        "torch": metadata.version("torch"),
        "transformers": metadata.version("transformers"),
    }


def read_traced(config: Mapping[str, Any], name: str = "") -> Model:
    """The Model that a trace of the configuration's code gives; BadInput says why there is none."""
    demand_sane(config)
    text = json.dumps(config, sort_keys=True)
    if len(text) > LONGEST_FILE:
        raise BadInput(
            f"config.json: {len(text):,} characters are more than a trace takes ({LONGEST_FILE:,})"
        )
    file = kept_at(text)
    fields = _cached_fields(file) if file else None
    if fields is None:
        fields = trace_of(text)
        if file and "error" not in fields:
            _cache_fields(file, fields)
    if "error" in fields:
        raise BadInput(f"config.json: {fields['error']}")
    own = {k: v for k, v in fields.items() if k != "longest"}
    if name:
        own["name"] = name
    return read(Model, own, "config.json (traced)")


def demand_sane(config: Mapping[str, Any]) -> None:
    """Raise BadInput for counts of modules that no model has, wherever they stand."""
    open_: list[tuple[str, Any]] = [("", config)]
    while open_:
        where, value = open_.pop()
        if isinstance(value, Mapping):
            open_ += [(str(k), v) for k, v in value.items()]
        elif (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and where.startswith(("num_", "n_"))
            and any(word in where for word in COUNTS)
        ):
            most = MOST_LAYERS if "layer" in where else 100_000
            if not 0 <= value <= most:
                raise BadInput(
                    f"config.json: {where} {value:g} is not between 0 and {most:,}, the most that"
                    " a trace builds"
                )


def kept_at(text: str) -> Path | None:
    """The file of a configuration's trace; None where there is no home for it."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base).expanduser() / "meshwright" / "traced"
    key = json.dumps([text, versions()], sort_keys=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _cached_fields(file: Path) -> dict[str, Any] | None:
    try:
        made = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return made if isinstance(made, dict) else None


def _cache_fields(file: Path, fields: Mapping[str, Any]) -> None:
    """Written beside and renamed, so that nobody reads half of it."""
    part = file.with_suffix(f".{os.getpid()}")
    try:
        part.write_text(json.dumps(fields), "utf-8")
        part.replace(file)
    except OSError:
        return


def trace_of(text: str) -> dict[str, Any]:
    """What the process that traces says of a configuration."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "meshwright.trace.worker"],
            input=text,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"its code was not traced within {SECONDS:.0f} s"}
    lines = done.stdout.strip().splitlines()
    try:
        made = json.loads(lines[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return {"error": f"its code was not traced: {last[:200]}"}
    return dict(made)
