"""A measured machine as a TOML file: what `meshwright calibrate` writes, and `--on
4x./machine.toml` takes.

[chip]     as in the catalogue, with [chip.kernels."fp32/matmul forward"]:
           axes, points, seconds, residual, source, date
[network]  as in the catalogue, with dims[i].collectives: seconds by ranks and bytes
           either may be one of the catalogue by its name, with the fields that differ
[engine.tp] ranks, step, microbatch, layer, layer_microbatch
[installation] scale, steps: from `meshwright calibrate --from`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import catalog
from ..describe.chip import Chip
from ..describe.cluster import Cluster
from ..describe.network import Network
from ..describe.read import read, to_dict
from ..errors import unknown
from . import parse_toml, read_text
from .toml_writer import dumps_toml

TABLES = ("chip", "network", "engine", "installation")


def load_machine(path: str | Path) -> Cluster:
    """One device of the machine in a file; BadInput for every mistake in it."""
    data = parse_toml(read_text(path), str(path))
    for key in data:
        if key not in TABLES:
            raise unknown(f"{path}: table", key, TABLES)
    return read(Cluster, {**data, "chips": 1}, str(path), _named)


def _named(cls: type, name: str) -> Any:
    """The chip or network of that name, of which a file may change fields."""
    finder = {Chip: catalog.chip, Network: catalog.network}.get(cls)
    return finder(name) if finder else None


def dump_machine(machine: Cluster, remark: str = "") -> str:
    """The TOML text that `load_machine` reads back."""
    data: dict[str, Any] = {
        name: value
        for name, value in to_dict(machine).items()
        if name in TABLES
    }
    return "".join(f"# {line}\n" for line in remark.splitlines()) + dumps_toml(
        data
    )
