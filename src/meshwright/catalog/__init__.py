"""Chips, networks and models by name. The data are TOML files beside this one; every number has a source and a date.

chip("h100-sxm")   chip("NVIDIA H200")   network("superpod-h100")   model("llama3-70b")   cluster("1024xh100-sxm")
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import BadInput, unknown
from ..spec.chip import Chip
from ..spec.cluster import Cluster
from ..spec.model import Model
from ..spec.network import Network
from ..spec.read import read
from ..spec.slices import axes, shape_for, sliced

KINDS = {"chips": Chip, "networks": Network, "models": Model}
COUNT = re.compile(r"\s*(\d[\d,_]*)\s*[xX*×]\s*(\S.*?)\s*$", re.ASCII)


def chip(name: str) -> Chip:
    """The chip of that name or alias ("NVIDIA H100 80GB HBM3"); BadInput names the nearest ones."""
    found: Chip = _get("chips", name)
    return found


def network(name: str) -> Network:
    """The network of that name or alias; BadInput names the nearest ones."""
    found: Network = _get("networks", name)
    return found


def model(name: str, *, files: bool = True) -> Model:
    """The model of that name or Hugging Face id, or of a config.json at that path (or in that directory).

    files: may the name be a path; False where the name comes from a stranger (the web page).
    """
    if _key(name) in _index("models"):
        found: Model = _get("models", name)
        return found
    if files and (name.endswith(".json") or "/" in name or "\\" in name or _is_directory(name)):
        from ..formats.hf import load_hf  # the one look upwards: formats read files, the catalogue only knows its own

        return load_hf(name)
    raise unknown("model", name, names("models"))


def cluster(text: str, network: str | Network | None = None, *, files: bool = True) -> Cluster:
    """So many chips: "1024xh100-sxm", "512xselene" for a network that names its chip, or "4x./machine.toml" as `meshwright calibrate` writes it.

    network: another network than the one the chip is usually sold with;  files: may a path be given (False for strangers). Part of a torus is cut out as a slice.  Raises BadInput.
    """
    match, where = COUNT.match(text[:200]), f"cluster {text[:80]!r}"
    if not match:
        raise BadInput(f"{where} must be a number of chips and a chip or network, such as '1024xh100-sxm'")
    count, what = match[1].replace(",", "").replace("_", ""), match[2]
    if files and what.endswith(".toml"):
        from ..formats.machine import load_machine  # the other look upwards, as for a model's config.json

        machine = load_machine(what)
        given = network if isinstance(network, Network) else _get("networks", network) if network else machine.network
        return read(Cluster, {**vars(machine), "network": given, "chips": count, "name": text.strip()}, where)
    if _key(what) in _index("networks"):
        known: Network = _get("networks", what)
        name, own = known.chip, known.name
    elif _key(what) in _index("chips"):
        name = what
        own = chip(what).network
    else:
        raise unknown("chip", what, [*names("chips"), *names("networks")])
    joined = network if isinstance(network, Network) else _get("networks", network or own)
    whole: Cluster = read(Cluster, {"chip": chip(name), "network": joined, "chips": count, "name": text.strip()}, where)
    if not axes(whole.network):
        return whole
    return replace(whole, network=sliced(whole.network, shape_for(whole.network, whole.chips)[0]))


def names(kind: str) -> tuple[str, ...]:
    """Names of all "chips", "networks" or "models", in the order of their files."""
    if kind not in KINDS:
        raise unknown("catalogue", kind, KINDS)
    return tuple(_tables(kind))


def aliases(kind: str) -> dict[str, str]:
    """alias -> name, for all of a kind, as other tools spell them."""
    return {a: name for name, table in _tables(kind).items() for a in table.get("aliases", ())}


def _is_directory(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False


def _key(text: str) -> str:
    """Spelling does not matter: case, spaces and underscores."""
    return re.sub(r"[\s_]+", "-", text.strip().lower())


@cache
def _tables(kind: str) -> dict[str, dict[str, Any]]:
    """name -> table of all files of a kind."""
    from ..formats import parse_toml

    tables: dict[str, dict[str, Any]] = {}
    folder = resources.files(__package__) / kind
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            tables |= parse_toml(file.read_text("utf-8"), f"catalog/{kind}/{file.name}")
    return tables


@cache
def _index(kind: str) -> dict[str, str]:
    """Spelling-free name or alias -> name."""
    return {_key(a): name for a, name in [*aliases(kind).items(), *((n, n) for n in _tables(kind))]}


def _get(kind: str, name: str) -> Any:
    found = _index(kind).get(_key(str(name)[:200]))
    if found is None:
        raise unknown(kind.removesuffix("s"), name, names(kind))
    return _entry(kind, found)


@cache
def _entry(kind: str, name: str) -> Any:
    table = dict(_tables(kind)[name])
    if kind == "models":
        table.pop("aliases", None)  # only this index knows them
    return read(KINDS[kind], {"name": name, **table}, f"catalog {name}")
