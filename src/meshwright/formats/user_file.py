"""What a user sets once for all commands: prices of chips, a default framework, own machines.

# ~/.config/meshwright/config.toml, or the file that $MESHWRIGHT_CONFIG names
framework = "torchtitan"

[prices]
h100-sxm = 2.5

[chips.our-h100]            # a chip of the catalogue with other fields, or all fields of a new one
like = "h100-sxm"
network = "our-hall"
power_w = "500 W"

[networks.our-hall]
dims = [
  { name = "nvlink", size = 8, bandwidth = "450 GB/s", latency = "2.5 us", efficiency = 0.8 },
  { name = "ib", bandwidth = "200 Gbit/s", latency = "8 us", efficiency = 0.85 },
]
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import BadInput, article, unknown
from . import parse_toml, read_text

VARIABLE = "MESHWRIGHT_CONFIG"
MACHINES = ("networks", "chips")
"""Tables of things of one's own; a chip may stand on one of the networks."""
KEYS = ("framework", "prices", *MACHINES)
LIKE = "like"
"""Which thing of the catalogue the other fields change."""


def path() -> Path:
    """Where the file is looked for."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(
        os.environ.get(VARIABLE) or Path(home) / "meshwright" / "config.toml"
    )


def user_file() -> dict[str, Any]:
    """The tables of the user's file; {} without one."""
    file = path()
    if not os.environ.get(VARIABLE) and not file.is_file():
        return {}
    tables = parse_toml(read_text(str(file)), str(file))
    for key in tables:
        if key not in KEYS:
            raise unknown(f"{file}: key", key, KEYS)
    return tables


def add_own_machines() -> None:
    """The file's chips and networks among those of the catalogue, for this process.  Raises
    BadInput.
    """
    tables = user_file()
    for kind in MACHINES:
        if not (own := tables.get(kind)):
            continue
        from .. import catalog  # who has none need not wait for it

        where = f"{path()}: {kind}"
        if not isinstance(own, Mapping):
            raise BadInput(f"{where} must be a table of {kind}")
        for name, fields in own.items():
            catalog.add(kind, thing(kind, name, fields, f"{where}.{name}"))


def like_dim(base: Any, dim: Any, where: str) -> Any:
    """A dimension laid over the base's of that name: a ring of a torus stays one. Tables that were
    measured at another rate stay behind. Raises BadInput for a new one that does not say its kind
    where the base's are no switches.
    """
    from ..describe.read import laid_over

    if not isinstance(dim, Mapping):
        return dim
    for other in base.dims:
        if other.name == dim.get("name"):
            same = {**laid_over(other, dim)}
            if {"bandwidth", "latency"} & dim.keys():
                same["collectives"] = dim.get("collectives", {})
            return same
    kinds = [other.kind for other in base.dims]
    if "kind" not in dim and set(kinds) != {"switch"}:
        names = ", ".join(
            f"{other.name} ({other.kind})" for other in base.dims
        )
        raise BadInput(
            f"{where}: {base.name} has no dimension {str(dim.get('name'))[:40]!r}, only {names}:"
            ' name one of these, or say kind = "ring" or another'
        )
    return dim


def thing(kind: str, name: str, fields: object, where: str) -> Any:
    """A chip or network as the file describes it."""
    from .. import catalog
    from ..describe.read import laid_over, read

    one = kind.removesuffix("s")
    if not isinstance(fields, Mapping):
        raise BadInput(
            f"{where} must be a table of the fields of {article(one)}"
        )
    if catalog.has_shipped(kind, name):
        raise BadInput(
            f"{where}: the catalogue has {article(one)} of that name; take another, with"
            f' {LIKE} = "{name}"'
        )
    given = {key: value for key, value in fields.items() if key != LIKE}
    source = str(path())
    if LIKE in fields:
        base = getattr(catalog, one)(str(fields[LIKE]))
        if isinstance(given.get("dims"), list):
            given["dims"] = [
                like_dim(base, dim, f"{where}.dims[{i}]")
                for i, dim in enumerate(given["dims"])
            ]
        given = {**laid_over(base, given), "aliases": given.get("aliases", ())}
        source += f", else {base.name}"
    return read(
        catalog.KINDS[kind],
        {"source": source, **given, "name": name},
        where,
        bare=False,
    )
