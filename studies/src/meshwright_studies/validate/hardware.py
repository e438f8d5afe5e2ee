"""The machine of a row: "A100-80GB-SXM" and "8x200Gb HDR InfiniBand per node" to a chip and its
network.

The chip is the catalogue's; memory, bandwidth and power that the name itself states replace its
figures (a size that is only the box's rounding of the catalogue's does not), and so does
`hardware.clock`, what the source's own long loops of products hold (`Chip.clock`). The network is
the one the chip is usually sold with, its bandwidths replaced by those the row states; latencies
and efficiencies stay the catalogue's. A rate that does not say whether it is a GPU's or a node's is
that of the usual adapters of the system, and a note says so. Nothing is fitted.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from meshwright import catalog
from meshwright.describe.chip import Chip
from meshwright.describe.cluster import Cluster
from meshwright.describe.network import Dim, Network
from meshwright.describe.slices import axes, shape_for, slice_network
from meshwright.errors import BadInput
from meshwright.units import parse

from . import words
from .rows import (
    UNITS,
    Row,
    demand_whole,
    plain,
    positive_number,
    whole_of_row,
)

FAMILY = re.compile(r"tpu-?v?\d+[a-z]?|[a-z]{1,3}\d{2,4}[a-z]?")
MEMORY = re.compile(r"(?<![\d.x])(\d{2,4}) ?(gi?b)(?!/s|ps)")
SAME_SIZE = 0.12
"""A stated size this near to the catalogue's is the same memory: boxes round nvidia-smi's MiB to
decimal GB (5 to 8 % less), and tables of one chip differ (B200: 180 GB in DGX tables, 192 GB on the
package)."""
BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?) ?tb/s")
POWER = re.compile(r"\b(\d{2,4}) ?w\b")

SWITCHED = re.compile(r"nv[ -]?switch|dgx-?2|nvl ?-?\d")
RATE = re.compile(
    r"(?:(\d+) ?[x\u00d7*] ?)?(\d+(?:\.\d+)?)"
    r" ?(gbit/s|gbps|gb/s|gbe|gbit|gb|g|tbit/s|tbps|tb/s|tbit|tb)\b(?:\+)?",
    re.IGNORECASE,
)
BYTES = re.compile(r"[GT]B(?:/s|ps)")
"""Rates in bytes; bits are written Gb/s, and text in lower case is taken as bits."""
OF_GPU = re.compile(
    r"\bper[- ]?(?:gpu|chip|accelerator|device|gcd|rank)\b|/"
    r" ?(?:gpu|chip|accelerator|device)\b|\b(?:a|each|every) (?:gpu|chip)\b"
)
OF_NODE = re.compile(
    r"\bper[- ]?(?:node|host|server|machine|vm|instance|box)\b|/"
    r" ?(?:node|host|server|machine)\b|\b(?:a|each|every) (?:node|host|server)\b"
)
BOTH_WAYS = re.compile(r"(\d+(?:\.\d+)?) ?(gb|tb)/s")
NVL = re.compile(r"nvl ?-?(\d{1,4})")
PAPERS = ("lbl-", "epoch-", "book-")
"""Chips as a paper counts them, not as they are sold."""
LARGEST_DOMAIN = 16384
"""Chips that one fast domain may join in a row."""


def cluster_of_row(row: Row) -> Cluster:
    """The machine of the row; BadInput if its chip is not in the catalogue."""
    parts = parts_of_row(row)
    clock = positive_number(row, "hardware.clock")
    return Cluster(
        replace(chip_in_words(parts.gpu), clock=clock),
        network_of_row(*parts),
        demand_whole(row, "hardware.count"),
    )


class Parts(NamedTuple):
    """What a row says of its machine."""

    gpu: str
    size: int
    """Chips of a node; 0 = not said."""
    near: str
    far: str
    """What joins the chips of a node, and nodes."""


def parts_of_row(row: Row) -> Parts:
    """What a row says of its machine."""
    return Parts(
        plain(row, "hardware.gpu"),
        whole_of_row(row, "hardware.gpus_per_node", 0),
        plain(row, "hardware.intra_node"),
        plain(row, "hardware.inter_node"),
    )


@lru_cache(maxsize=1024)
def chip_in_words(name: str) -> Chip:
    """The catalogue's chip of that name, alias or family, with what the name itself states; else
    BadInput.
    """
    described = _known(name)
    low = name.lower()
    if memory := MEMORY.search(low):
        described = replace(
            described, hbm_bytes=capacity(stated(memory), described.hbm_bytes)
        )
    if bandwidth := BANDWIDTH.search(low):
        described = replace(
            described, hbm_bandwidth=float(bandwidth[1]) * 1e12
        )
    if power := POWER.search(low):
        described = replace(described, power_w=float(power[1]))
    return described


def stated(memory: re.Match[str]) -> float:
    """Bytes of a size in words."""
    return float(memory[1]) * UNITS[memory[2]]


def capacity(named: float, known: float) -> float:
    """Bytes of a device's memory: the catalogue's, unless the size in the name is clearly another
    one.
    """
    return known if abs(named / known - 1) <= SAME_SIZE else named


def _known(name: str) -> Chip:
    try:
        return catalog.chip(name)
    except BadInput:
        candidates = [catalog.chip(other) for other in _same_family(name)]
    if not candidates:
        raise BadInput(f"chip {name[:60]!r} is not in the catalogue")
    memory = MEMORY.search(name.lower())
    pcie = "pcie" in name.lower()

    def distance(c: Chip) -> tuple[bool, float]:
        return ("pcie" in c.name) != pcie, abs(
            c.hbm_bytes - stated(memory)
        ) if memory else 0.0

    return min(candidates, key=distance)


def _same_family(name: str) -> list[str]:
    """Catalogue chips whose name or alias has the same family token (a100, gb200, tpu-v5p)."""
    family = _family(name)
    same = (n for spelling, n in sold("chips") if _family(spelling) == family)
    return list(dict.fromkeys(same)) if family else []


def sold(kind: str) -> list[tuple[str, str]]:
    """(a spelling, the name) of each "chips" or "networks" of the catalogue that is sold."""
    spellings = (
        *((name, name) for name in catalog.names(kind)),
        *catalog.aliases(kind).items(),
    )
    return [s for s in spellings if not s[1].startswith(PAPERS)]


def _family(name: str) -> str:
    low = re.sub(r"[\s_]+", "-", name.strip().lower())
    match = FAMILY.search(low)
    return match[0].replace("-", "").replace("tpuv", "tpu") if match else ""


@lru_cache(maxsize=1024)
def network_of_row(chip_name: str, size: int, near: str, far: str) -> Network:
    """The chip's usual network with the node size and bandwidths of the texts (near: in a node,
    far: between nodes).
    """
    base = catalog.network(chip_in_words(chip_name).network)
    if "torus" in near.lower() and axes(base):
        return _sliced(base, size, far)
    first = base.dims[0]
    last = fabric(far, base)
    domain = NVL.search(near.lower())
    nodes = int(domain[1]) if domain else size or first.size or 1
    if not 1 <= nodes <= LARGEST_DOMAIN:
        raise BadInput(
            f"gpus_per_node must be from 1 to {LARGEST_DOMAIN}, not {nodes}"
        )
    rate = _near(near.lower()) or first.bandwidth
    kind = _wired(near.lower(), nodes, rate) or first.kind
    return replace(
        base,
        dims=(
            replace(
                links(first, rate, kind, near.lower()),
                size=nodes,
                bandwidth=rate,
                kind=kind,
            ),
            _far(far, size or nodes, base).joins(last),
        ),
    )


def note(row: Row) -> str:
    """What the row leaves open of its network between nodes; "" if nothing, or if it has one node
    only.
    """
    parts = parts_of_row(row)
    machine = network_of_row(*parts)
    inside = math.prod(d.size for d in machine.dims if d.size)
    if demand_whole(row, "hardware.count") <= inside:
        return ""
    base = catalog.network(chip_in_words(parts.gpu).network)
    return _far(parts.far, parts.size or inside, base).note


def _near(text: str) -> float | None:
    """One way per chip: "NVLink3 600GB/s" (makers print both ways), "PCIe 4.0"; None if the text
    does not say.
    """
    if both := BOTH_WAYS.search(text):
        return float(both[1]) * (1e12 if both[2] == "tb" else 1e9) / 2
    for word in ("nvlink", "pcie"):
        if generation := re.search(word + r"[ -]?(?:gen ?)?(\d)", text):
            rate = words.word_table().links[word].get(generation[1])
            return parse(rate, "B/s") if rate else None
    return None


def machines() -> list[Network]:
    """The networks of the catalogue as they are sold."""
    return [
        catalog.network(n)
        for n in dict.fromkeys(n for _, n in sold("networks"))
    ]


def links(first: Dim, rate: float, kind: str, text: str) -> Dim:
    """What joins the chips of a node: the base's first dimension; where rate or wiring differ, that
    of a machine with such links.
    """
    if (first.bandwidth, first.kind) == (rate, kind):
        return first
    every = [m.dims[0] for m in machines()]
    pcie = [d for d in every if "pcie" in text and d.name == "pcie"]
    return next(
        iter(
            [d for d in every if (d.bandwidth, d.kind) == (rate, kind)] + pcie
        ),
        first,
    )


def fabric(text: str, base: Network) -> Dim:
    """What joins nodes: the base's last dimension; of another fabric that the text names, what a
    machine of the catalogue reaches with it, one with the same chip if there is one."""
    last = base.dims[-1]
    named = words.first_value(
        words.word_table().links["fabrics"], text.lower()
    )
    having = [m for m in machines() if m.dims[-1].name == named]
    if named == last.name or not having:
        return last
    reached = min(having, key=lambda m: m.chip != base.chip).dims[-1]
    return replace(reached, bandwidth=last.bandwidth, shared_by=last.shared_by)


def _wired(text: str, size: int, rate: float) -> str:
    """mesh, if NVLink joins the GPUs of the node without a switch; "" if the text speaks of another
    way, or none.
    """
    if SWITCHED.search(text) or "pcie" in text:
        return ""
    direct = words.word_table().links["direct"]
    most = next((n for of, n in direct.items() if parse(of, "B/s") == rate), 0)
    return "mesh" if 1 < size <= most else ""


class Far(NamedTuple):
    """The network between nodes, as one chip sees it."""

    bandwidth: float
    shared_by: int
    note: str = ""

    def joins(self, dim: Dim) -> Dim:
        """The dimension between nodes with this rate."""
        return replace(
            dim,
            size=None,
            bandwidth=self.bandwidth,
            shared_by=self.shared_by,
        )


def _far(text: str, per_node: int, base: Network) -> Far:
    """One way per chip: "8x200Gb HDR per node", "1600 Gb/s per node", "per-GPU 400Gb"; else what is
    usual, and a note.

    Usual is the machine that the text names ("DGX A100"), else the chip's own, base. A rate alone
    is one adapter's, and there are as many as the machine usually has; a rate nearer to that of all
    of them together is a node's.
    """
    said = text.lower()
    system = _system(text) or base
    adapter = system.dims[-1]
    match = RATE.search(text)
    rate, count = (
        (_rate(match), float(match[1] or 1))
        if match
        else (_port(said) or 0.0, 1.0)
    )
    if not rate:
        return Far(
            adapter.bandwidth,
            adapter.shared_by,
            f"the rate between nodes is not stated: that of {system.name} is taken"
            if system is base
            else f"the rate between nodes is taken from {system.name}, which the row names",
        )
    if of := _of(said, match):
        return Far(rate * count / (per_node if of == "node" else 1), 1)
    if match and match[1]:
        return Far(
            rate * count / per_node,
            1,
            f"{match[0].strip()} between nodes is taken as the adapters of a node",
        )
    inside = math.prod(d.size or 1 for d in system.dims[:-1])
    adapters = max(inside / adapter.shared_by, 1.0)
    if rate > adapter.bandwidth * adapters**0.5 and adapters > 1:
        return Far(
            rate / per_node,
            1,
            "the rate between nodes does not say of what: it is taken as a node's",
        )
    return Far(
        rate,
        adapter.shared_by,
        "the rate between nodes does not say of what: it is taken as that of each of the"
        f" {adapters:g} usual adapters of {system.name}",
    )


def _of(said: str, match: re.Match[str] | None) -> str:
    """What a rate is said to be of, the nearest such said after it first: "node", "gpu" or ""."""
    for part_of in (said[match.end() :] if match else "", said):
        matches = [
            (m.start(), of)
            for of, kind in (("node", OF_NODE), ("gpu", OF_GPU))
            if (m := kind.search(part_of))
        ]
        if matches:
            return min(matches)[1]
    return ""


def _rate(match: re.Match[str]) -> float:
    """B/s of a rate in words."""
    unit = match[3]
    scale = 1e12 if unit.lower().startswith("t") else 1e9
    return float(match[2]) * scale / (1.0 if BYTES.fullmatch(unit) else 8.0)


def _port(text: str) -> float | None:
    """B/s of a generation of InfiniBand."""
    ports = words.word_table().links["infiniband"]
    port = next((rate for word, rate in ports.items() if word in text), None)
    return parse(port, "B/s") if port else None


def _system(text: str) -> Network | None:
    """The machine of the catalogue that a text names: "DGX A100", "p4d.24xlarge"."""
    said = f"-{re.sub(r'[^a-z0-9.]+', '-', text.lower())}-"
    matches = [(len(s), n) for s, n in sold("networks") if f"-{s}-" in said]
    return catalog.network(max(matches)[1]) if matches else None


def _sliced(base: Network, size: int, far: str) -> Network:
    """A slice of a torus, as a user's is cut, with what the text says of the network between
    slices.
    """
    cut = slice_network(base, shape_for(base, max(size, 1))[0])
    last = base.dims[-1]
    if last.size is not None:
        return cut
    between = _far(far, size or 1, base).joins(last)
    return replace(cut, dims=(*cut.dims[:-1], between))
