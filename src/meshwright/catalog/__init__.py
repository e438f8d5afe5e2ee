"""Chips, networks and models by name. The data are TOML files beside this one; every number has a
source and a date.

chip("h100-sxm")   chip("NVIDIA H200")   network("superpod-h100")   model("llama3-70b")
cluster("1024xh100-sxm")
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from string import digits
from typing import Any

from ..describe import shipped
from ..describe.chip import Chip
from ..describe.cluster import Cluster
from ..describe.fields import BY_NAME
from ..describe.model import Model
from ..describe.network import Network
from ..describe.read import read
from ..describe.slices import axes, shape_for, slice_network
from ..errors import BadInput, command, unknown

KINDS = {"chips": Chip, "networks": Network, "models": Model}
COUNT = re.compile(r"\s*(\d[\d,_]*)\s*[xX*×]\s*(\S.*?)\s*$", re.ASCII)


def chip(name: str) -> Chip:
    """The chip of that name or alias ("NVIDIA H100 80GB HBM3"); BadInput names the nearest ones.

    >>> from meshwright import chip
    >>> chip("NVIDIA H100 80GB HBM3").name
    'h100-sxm'
    """
    entry: Chip = _get("chips", name)
    return entry


def network(name: str) -> Network:
    """The network of that name or alias; BadInput names the nearest ones.

    >>> from meshwright import network
    >>> [dim.name for dim in network("selene").dims]
    ['nvlink', 'ib']
    """
    entry: Network = _get("networks", name)
    return entry


def model(name: str) -> Model:
    """The model of that name or Hugging Face id; BadInput names the nearest ones."""
    entry: Model = _get("models", name)
    return entry


def has(kind: str, name: str) -> bool:
    """The catalogue has a chip, network or model ("chips", ...) of that name or alias."""
    return _key(name) in _index(kind)


def split_count(text: str) -> tuple[str, str]:
    """("1024", "h100-sxm") of "1,024 x h100-sxm"; BadInput if it is no number of something."""
    if not (match := COUNT.match(text[:200])):
        raise BadInput(
            f"cluster {text[:80]!r} must be a number of chips and a chip or network, such as"
            f" {_meant(text[:80])!r}"
        )
    count = match[1].replace(",", "").replace("_", "")
    if again := COUNT.match(match[2]):
        whole = f"{int(count) * int(again[1].replace(',', '').replace('_', ''))}x{again[2]}"
        raise BadInput(
            f"cluster {text[:80]!r} has two numbers: say {whole[:80]}"
        )
    return count, match[2]


def _meant(text: str) -> str:
    """A cluster as it is written: "8 h100" and "h100x8" are 8xh100, a chip alone eight of them."""
    for way in (
        r"(?P<n>\d[\d,_]*)\s+(?P<name>\S+)",
        r"(?P<name>\S+?)\s*[xX*]\s*(?P<n>\d+)",
    ):
        if (match := re.fullmatch(way, text.strip())) and _known(
            match["name"]
        ):
            return f"{match['n']}x{match['name']}"
    return f"8x{text.strip()}" if _known(text.strip()) else "1024xh100-sxm"


def _known(name: str) -> bool:
    """A chip or a network of the catalogue."""
    return has("chips", name) or has("networks", name)


def cluster(text: str, network: str | Network | None = None) -> Cluster:
    """So many chips: "1024xh100-sxm", or "512xselene" for a network that names its chip.

    network: another network than the one the chip is usually sold with. Part of a torus is cut out
    as a slice. Raises BadInput.
    """
    count, what = split_count(text)
    if has("networks", what):
        known: Network = _get("networks", what)
        name = known.chip
        own = known.name
    elif has("chips", what):
        name = what
        own = chip(what).network
    elif "+" in what or "," in what:
        raise BadInput(
            f"cluster {text[:80]!r} mixes chips: a step is predicted on one kind, and where all get"
            " even shares the slowest sets the pace; ask for as many of each:"
            f" {command('sweep')} MODEL --over on={','.join(each_alone(text))}"
        )
    else:
        spelled = {**_index("networks"), **_index("chips")}
        raise _unknown("chips", what, spelled.values(), spelled)
    joined = (
        network
        if isinstance(network, Network)
        else _get("networks", network or own)
    )
    parts = {
        "chip": chip(name),
        "network": joined,
        "chips": count,
        "name": text.strip(),
    }
    whole: Cluster = read(Cluster, parts, f"cluster {text[:80]!r}")
    if not axes(whole.network):
        return whole
    return replace(
        whole,
        network=slice_network(
            whole.network, shape_for(whole.network, whole.chips)[0]
        ),
    )


def names(kind: str) -> tuple[str, ...]:
    """Names of all "chips", "networks" or "models", in the order of their files."""
    if kind in KINDS:
        return tuple(_tables(kind))
    if lies := [known for known in KINDS if has(known, kind)]:
        raise BadInput(
            f"catalogue {kind!r} is one of its {lies[0]}:"
            f" {command(f'catalog {lies[0]} {kind}')}"
        )
    # a framework is no description of hardware or model, and is listed by `report.catalog`
    raise unknown("catalogue", kind, (*KINDS, "frameworks"))


def aliases(kind: str) -> dict[str, str]:
    """alias -> name, for all of a kind, as other tools spell them."""
    return {
        a: name
        for name, table in _tables(kind).items()
        for a in table.get("aliases", ())
    }


def each_alone(text: str) -> list[str]:
    """Clusters of one kind, each of as many chips as a mixed one has: 16xh100-sxm, 16xa100-80 of
    8xh100-sxm+8xa100-80; an example where it cannot be read.
    """
    parts = [
        COUNT.match(part.strip()) for part in re.split("[+,]", text[:200])
    ]
    read = [p for p in parts if p and has("chips", p[2])]
    if len(read) < len(parts):
        return ["8xh100-sxm", "8xa100-80"]
    chips = sum(int(re.sub("[,_]", "", p[1])) for p in read)
    return [*dict.fromkeys(f"{chips}x{p[2].strip()}" for p in read)]


def _key(text: str) -> str:
    """Spelling does not matter: case, spaces and underscores."""
    return re.sub(r"[\s_]+", "-", text.strip().lower())


OWN: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
"""Kind -> name -> what somebody added for this process."""


def add(kind: str, entry: Any) -> None:
    """A chip or network of one's own among those of the catalogue, until the process ends."""
    OWN[kind][entry.name] = entry
    for known in (_tables, _index, _entry):
        known.cache_clear()


def is_own(entry: object) -> bool:
    """It was added for this process: elsewhere nobody knows its name."""
    return any(entry in entries.values() for entries in OWN.values())


def has_shipped(kind: str, name: str) -> bool:
    """The catalogue itself has one of that name or alias."""
    return has(kind, name) and _index(kind)[_key(name)] not in OWN[kind]


@cache
def _tables(kind: str) -> dict[str, dict[str, Any]]:
    """name -> table of all files of a kind; of what was added, the aliases."""
    tables: dict[str, dict[str, Any]] = {}
    for file in shipped.tables(kind).values():
        tables |= file
    own = {name: {"aliases": t.aliases} for name, t in OWN[kind].items()}
    return tables | own


@cache
def _index(kind: str) -> dict[str, str]:
    """Spelling-free name or alias -> name."""
    return {
        _key(a): name
        for a, name in [
            *aliases(kind).items(),
            *((n, n) for n in _tables(kind)),
        ]
    }


APPLE = re.compile(r"apple\b.*|m[1-9](-(pro|max|ultra))?")
"""Chips of Apple, as people call them."""


def _unknown(
    kind: str, name: object, known: Iterable[str], spelled: Mapping[str, str]
) -> BadInput:
    """The sentence for a name that the catalogue does not have."""
    if kind == "chips" and APPLE.fullmatch(_key(str(name)[:80])):
        return BadInput(
            f"chip {str(name)[:80]!r} has no training profile: no framework of the catalogue trains"
            f" on Apple's chips; {command('calibrate')} measures the machine it runs on"
        )
    sentence = unknown(kind.removesuffix("s"), name, known, spelled)
    return BadInput(f"{sentence}{_other_size(str(name)[:80])}")


def _other_size(name: str) -> str:
    """How to ask for a machine that differs from a known one in a size: lbl-b200-nvs32."""
    stem = name.lower().rstrip(digits)
    size = name[len(stem) :]
    for other in _tables("networks"):
        if size and stem and other.rstrip(digits) == stem != other:
            first = _get("networks", other).dims[0]
            # the number is a size, and not a generation: dgx-h100
            if first.size == int(other[len(stem) :]):
                return (
                    f" Other sizes: {command('sweep')} --over"
                    f" network.{first.name}.size={size}"
                )
    return ""


def _get(kind: str, name: str) -> Any:
    file = _index(kind).get(_key(str(name)[:200]))
    if file is None:
        raise _unknown(kind, name, names(kind), _index(kind))
    return _entry(kind, file)


@cache
def _entry(kind: str, name: str) -> Any:
    if name in OWN[kind]:
        return OWN[kind][name]
    table = dict(_tables(kind)[name])
    if kind == "models":
        table.pop("aliases", None)  # only this index knows them
    return read(KINDS[kind], {"name": name, **table}, f"catalog {name}")


BY_NAME.setdefault(Model, model)
BY_NAME.setdefault(Cluster, cluster)
# `formats.resolve` takes files, too
