"""Models and clusters by what a user writes: a name of the catalogue, or a file.

A `Job` takes such texts too once this module is loaded, which `meshwright.Job` sees to.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from .. import catalog
from ..describe.cluster import Cluster
from ..describe.fields import BY_NAME, demand_text, fields_of
from ..describe.job import Job
from ..describe.model import Model
from ..describe.network import Network
from ..describe.read import read
from ..errors import BadInput, command
from .hf import load_hf
from .machine import load_machine

HUB = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,90}(?<!\.json)")
"""What a model may be called on a hub: owner/name."""
TRACE = "trace:"
"""Before the path of a config.json: count it by a trace of its code, whatever tables know."""
__all__ = ["Job", "cluster", "model"]


def model(name: str, *, files: bool = True) -> Model:
    """The model of that name or Hugging Face id, or of a config.json at that path (or in that
    directory, or in the Hugging Face cache of this machine); "trace:PATH" counts it by its code in
    transformers.

    files: whether the name may be a path (False for untrusted input).  Raises BadInput.

    >>> from meshwright import model
    >>> model("llama3-8b").layers
    32
    """
    demand_text(name, "the name of a model")
    if not name.strip():
        raise BadInput(
            "the model has no name: give one, such as llama3-8b, or the path of a config.json"
        )
    if files and name.startswith(TRACE):
        return load_hf(name.removeprefix(TRACE), by_code=True)
    path = (
        name.endswith(".json")
        or "/" in name
        or "\\" in name
        or _is_directory(name)
    )
    if files and path and not catalog.has("models", name):
        if HUB.fullmatch(name) and not Path(name).exists():
            return of_hub(name)
        return load_hf(name)
    return catalog.model(name)


def of_hub(name: str) -> Model:
    """The model owner/name of the Hugging Face Hub, if its config.json is in this machine's cache;
    nothing is fetched.  Raises BadInput.
    """
    folder = hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        head = (folder / "refs" / "main").read_text("ascii").strip()
    except (OSError, ValueError):
        head = ""
    file = folder / "snapshots" / head / "config.json"
    if not head or not file.is_file():
        raise BadInput(
            f"{name} is neither a model of the catalogue, nor a file here, nor in the Hugging Face"
            f" cache: hf download {name} config.json puts it there; {command('catalog models')}"
            " lists the names"
        )
    model = load_hf(file)
    said = f"model: config.json of {name} in the Hugging Face cache, revision {head[:8]}"
    short = name.rpartition("/")[2].lower()
    return replace(model, name=short, notes=(*model.notes, said))


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it downloads (its documentation, environment variables)."""
    if kept := os.environ.get("HF_HUB_CACHE"):
        return Path(kept)
    home = os.environ.get("HF_HOME")
    return Path(home or Path.home() / ".cache" / "huggingface") / "hub"


def cluster(
    text: str, network: str | Network | None = None, *, files: bool = True
) -> Cluster:
    """Chips of the catalogue and their number ("1024xh100-sxm"), or of a machine that `meshwright
    calibrate` wrote ("4x./machine.toml").

    network: instead of the chip's own;  files: whether a path may be given (False for untrusted
    input).  Raises BadInput.

    >>> from meshwright import cluster
    >>> cluster("1024xh100-sxm").chips
    1024
    """
    demand_text(text, "a cluster")
    count, what = catalog.split_count(text)
    if not (files and what.endswith(".toml")):
        return catalog.cluster(text, network)
    machine = load_machine(what)
    given = (
        catalog.network(network)
        if isinstance(network, str)
        else network or machine.network
    )
    parts = {
        **{name: getattr(machine, name) for name in fields_of(Cluster)},
        "network": given,
        "chips": count,
        "name": text.strip(),
    }
    described: Cluster = read(Cluster, parts, f"cluster {text[:80]!r}")
    return described


def _is_directory(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


BY_NAME.update({Model: model, Cluster: cluster})
