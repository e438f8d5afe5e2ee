"""The machine of a row: "A100-80GB-SXM" and "8x200Gb HDR InfiniBand per node" to a chip and its
network.

The chip is the catalogue's; memory, bandwidth and power that the name itself states replace its
figures (a size that is only the box's rounding of the catalogue's does not). The network is the one
the chip is usually sold with, its bandwidths replaced by those the row states; latencies and
efficiencies stay the catalogue's. A rate that does not say whether it is a GPU's or a node's is
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
from meshwright.errors import BadInput
from meshwright.units import parse

from .rows import Row, demand_whole, plain, table_of_row, whole_of_row

FAMILY = re.compile(r"tpu-?v?\d+[a-z]?|[a-z]{1,3}\d{2,4}[a-z]?")
MEMORY = re.compile(r"(?<![\d.x])(\d{2,4}) ?(gi?b)(?!/s|ps)")
SAME_SIZE = 0.12
"""A stated size this near to the catalogue's is the same memory: boxes round nvidia-smi's MiB to
decimal GB (5 to 8 % less), and tables of one chip differ (B200: 180 GB in DGX tables, 192 GB on the
package)."""
BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?) ?tb/s")
POWER = re.compile(r"\b(\d{2,4}) ?w\b")

NVLINK = {
    1: "80 GB/s",
    2: "150 GB/s",
    3: "300 GB/s",
    4: "450 GB/s",
    5: "900 GB/s",
}
"""Generation -> one way per GPU. Sources: NVIDIA whitepapers of P100 to B200 (which print both
ways).
"""
DIRECT = {"80 GB/s": 8, "150 GB/s": 8, "300 GB/s": 4, "450 GB/s": 4}
"""Rate of NVLink -> most GPUs of a node that it joins by direct links: a link to each other one, so
two of them share few. Sources: NVIDIA DGX-1 with Tesla V100 System Architecture (a hybrid cube
mesh); NVIDIA HGX A100 and H100, 4-GPU boards.
"""
FABRICS = (
    ("opa", r"omni-?path|\bopa\b"),
    ("slingshot", r"slingshot"),
    ("efa", r"\befa\b"),
    ("roce", r"\broce\b"),
    ("ib", r"infiniband|\b(?:hdr|ndr|edr|xdr)\d*\b"),
    ("ethernet", r"ethernet|\d ?gbe\b"),
)
"""What joins nodes: name of its dimension in the catalogue -> its own names, those of generations
after those of fabrics.
"""
SWITCHED = re.compile(r"nv[ -]?switch|dgx-?2|nvl ?-?\d")
PCIE = {3: "16 GB/s", 4: "32 GB/s", 5: "64 GB/s", 6: "128 GB/s"}
"""Generation -> one way, 16 lanes. Source: PCI-SIG."""
INFINIBAND = {
    "hdr100": "100 Gbit/s",
    "ndr200": "200 Gbit/s",
    "edr": "100 Gbit/s",
    "hdr": "200 Gbit/s",
    "ndr": "400 Gbit/s",
    "xdr": "800 Gbit/s",
}
"""Port rate, one way. Source: InfiniBand Trade Association roadmap."""
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
UNITS = {"gb": 1e9, "gib": 2.0**30}
LARGEST_DOMAIN = 16384
"""Chips that one fast domain may join in a row."""


def cluster_of_row(row: Row) -> Cluster:
    """The machine of the row; BadInput if its chip is not in the catalogue."""
    hardware = table_of_row(row, "hardware")
    name = plain(hardware, "gpu")
    size = whole_of_row(hardware, "gpus_per_node", 0)
    return Cluster(
        chip_in_words(name),
        network_of_row(
            name,
            size,
            plain(hardware, "intra_node"),
            plain(hardware, "inter_node"),
        ),
        demand_whole(hardware, "count"),
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
    if not family:
        return []
    spellings = [(n, n) for n in catalog.names("chips")] + list(
        catalog.aliases("chips").items()
    )
    real = [
        (spelling, n) for spelling, n in spellings if not n.startswith(PAPERS)
    ]
    return list(
        dict.fromkeys(n for spelling, n in real if _family(spelling) == family)
    )


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
    if "torus" in near.lower():
        return _sliced(base, size, far)
    first = base.dims[0]
    last = fabric(far, base)
    domain = NVL.search(near.lower())
    nodes = int(domain[1]) if domain else size or first.size or 1
    if not 1 <= nodes <= LARGEST_DOMAIN:
        raise BadInput(
            f"gpus_per_node must be from 1 to {LARGEST_DOMAIN}, not {nodes}"
        )
    between = _far(far, size or nodes, last, _system(far) or base)
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
            replace(
                last,
                size=None,
                bandwidth=between.bandwidth,
                shared_by=between.shared_by,
            ),
        ),
    )


def note(row: Row) -> str:
    """What the row leaves open of its network between nodes; "" if nothing, or if it has one node
    only.
    """
    hardware = table_of_row(row, "hardware")
    name = plain(hardware, "gpu")
    size = whole_of_row(hardware, "gpus_per_node", 0)
    far = plain(hardware, "inter_node")
    machine = network_of_row(name, size, plain(hardware, "intra_node"), far)
    inside = math.prod(d.size for d in machine.dims if d.size)
    if demand_whole(hardware, "count") <= inside:
        return ""
    base = catalog.network(chip_in_words(name).network)
    return _far(far, size or inside, base.dims[-1], _system(far) or base).note


def _near(text: str) -> float | None:
    """One way per chip: "NVLink3 600GB/s" (makers print both ways), "PCIe 4.0"; None if the text
    does not say.
    """
    if both := BOTH_WAYS.search(text):
        return float(both[1]) * (1e12 if both[2] == "tb" else 1e9) / 2
    for word, rates in (("nvlink", NVLINK), ("pcie", PCIE)):
        if generation := re.search(word + r"[ -]?(?:gen ?)?(\d)", text):
            return (
                parse(rates[int(generation[1])], "B/s")
                if int(generation[1]) in rates
                else None
            )
    return None


def machines() -> list[Network]:
    """The networks of the catalogue as they are sold."""
    return [
        catalog.network(n)
        for n in catalog.names("networks")
        if not n.startswith(PAPERS)
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
    named = next(
        (name for name, words in FABRICS if re.search(words, text.lower())),
        last.name,
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
    most = next((n for of, n in DIRECT.items() if parse(of, "B/s") == rate), 0)
    return "mesh" if 1 < size <= most else ""


class Far(NamedTuple):
    """The network between nodes, as one chip sees it."""

    bandwidth: float
    shared_by: int
    note: str = ""


def _far(text: str, per_node: int, usual: Dim, system: Network) -> Far:
    """One way per chip: "8x200Gb HDR per node", "1600 Gb/s per node", "per-GPU 400Gb"; else what is
    usual, and a note.

    usual: the last dimension of the chip's own network;  system: the one the text names ("DGX
    A100"), else the chip's. A rate alone is one adapter's, and there are as many as the system
    usually has; a rate nearer to that of all of them together is a node's.
    """
    words = text.lower()
    adapter = system.dims[-1]
    match = RATE.search(text)
    rate, count = (
        (_rate(match), float(match[1] or 1))
        if match
        else (_port(words) or 0.0, 1.0)
    )
    if not rate:
        if system.dims[-1] is usual:
            return Far(
                usual.bandwidth,
                usual.shared_by,
                f"the rate between nodes is not stated: that of {system.name} is taken",
            )
        return Far(
            adapter.bandwidth,
            adapter.shared_by,
            f"the rate between nodes is taken from {system.name}, which the row names",
        )
    if of := _of(words, match):
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


def _of(words: str, match: re.Match[str] | None) -> str:
    """What a rate is said to be of, the nearest such words after it first: "node", "gpu" or ""."""
    for part_of in (words[match.end() :] if match else "", words):
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


def _port(words: str) -> float | None:
    """B/s of a generation of InfiniBand."""
    port = next(
        (rate for word, rate in INFINIBAND.items() if word in words), None
    )
    return parse(port, "B/s") if port else None


def _system(text: str) -> Network | None:
    """The machine of the catalogue that a text names: "DGX A100", "p4d.24xlarge"."""
    words = f"-{re.sub(r'[^a-z0-9.]+', '-', text.lower())}-"
    spellings = [(n, n) for n in catalog.names("networks")] + list(
        catalog.aliases("networks").items()
    )
    matches = [
        (len(s), n)
        for s, n in spellings
        if f"-{s}-" in words and not n.startswith(PAPERS)
    ]
    return catalog.network(max(matches)[1]) if matches else None


def _sliced(base: Network, size: int, far: str) -> Network:
    """A torus with what the text says of the network between slices."""
    cut = torus(base, size)
    last = base.dims[-1]
    if last.size is not None or cut.dims[-1].size is not None:
        return cut
    between = _far(far, size or 1, last, _system(far) or base)
    return replace(
        cut,
        dims=(
            *cut.dims[:-1],
            replace(
                cut.dims[-1],
                bandwidth=between.bandwidth,
                shared_by=between.shared_by,
            ),
        ),
    )


def torus(base: Network, size: int) -> Network:
    """A slice of `size` chips: the axes of the base network, as equal as whole numbers allow, and
    what joins slices.
    """
    axes = [d for d in base.dims if d.kind in ("ring", "line", "mesh")]
    above = [d for d in base.dims if d not in axes]
    sizes = _near_cube(max(1, min(size, LARGEST_DOMAIN)), max(len(axes), 1))
    cut: list[Dim] = [
        replace(d, size=n) for d, n in zip(axes, sizes, strict=False)
    ]
    return replace(
        base,
        dims=(*cut, replace(above[-1], size=None)) if above else tuple(cut),
    )


def _near_cube(n: int, axes: int) -> list[int]:
    """n as a product of `axes` whole numbers, as equal as possible, ascending."""
    if axes == 1:
        return [n]
    side = max(d for d in range(1, round(n ** (1 / axes)) + 1) if n % d == 0)
    return [side, *_near_cube(n // side, axes - 1)]
