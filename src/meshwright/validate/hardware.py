"""The machine of a row: "A100-80GB-SXM" and "8x200Gb HDR InfiniBand per node" to a chip and its network.

The chip is the catalogue's; memory, bandwidth and power that the name itself states replace its figures. The network is
the one the chip is usually sold with, its bandwidths replaced by those the row states; latencies and efficiencies stay
the catalogue's. Nothing is fitted.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from .. import catalog
from ..errors import BadInput
from ..spec.chip import Chip
from ..spec.cluster import Cluster
from ..spec.network import Dim, Network
from ..units import parse
from .rows import Row, needed, part, plain, text, whole

FAMILY = re.compile(r"tpu-?v?\d+[a-z]?|[a-z]{1,3}\d{2,4}[a-z]?")
MEMORY = re.compile(r"\b(\d{2,4}) ?gi?b(?!/s|ps)")
BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?) ?tb/s")
POWER = re.compile(r"\b(\d{2,4}) ?w\b")

NVLINK = {1: "80 GB/s", 2: "150 GB/s", 3: "300 GB/s", 4: "450 GB/s", 5: "900 GB/s"}
"""Generation -> one way per GPU. Sources: NVIDIA whitepapers of P100 to B200 (which print both ways)."""
PCIE = {3: "16 GB/s", 4: "32 GB/s", 5: "64 GB/s", 6: "128 GB/s"}
"""Generation -> one way, 16 lanes. Source: PCI-SIG."""
INFINIBAND = {"edr": "100 Gbit/s", "hdr": "200 Gbit/s", "ndr": "400 Gbit/s", "xdr": "800 Gbit/s"}
"""Port rate, one way. Source: InfiniBand Trade Association roadmap."""
RATE = re.compile(r"(?:(\d+) ?x ?)?(\d+(?:\.\d+)?) ?(gbit/s|gbps|gb/s|gbe|gb|g)\b(?:\+)?", re.IGNORECASE)
BOTH_WAYS = re.compile(r"(\d+(?:\.\d+)?) ?(gb|tb)/s")
NVL = re.compile(r"nvl ?-?(\d{1,4})")
PAPERS = ("lbl-", "epoch-")
"""Chips as a paper counts them, not as they are sold."""
LARGEST_DOMAIN = 16384
"""Chips that one fast domain may join in a row."""


def cluster(row: Row) -> Cluster:
    """The machine of the row; BadInput if its chip is not in the catalogue."""
    hardware = part(row, "hardware")
    name, size = plain(hardware, "gpu"), whole(hardware, "gpus_per_node", 0)
    return Cluster(
        chip(name),
        network(name, size, text(hardware, "intra_node"), text(hardware, "inter_node")),
        needed(hardware, "count"),
    )


@lru_cache(maxsize=1024)
def chip(name: str) -> Chip:
    """The catalogue's chip of that name, alias or family, with what the name itself states; else BadInput."""
    found = _known(name)
    low = name.lower()
    if memory := MEMORY.search(low):
        found = replace(found, hbm_bytes=float(memory[1]) * 1e9)
    if bandwidth := BANDWIDTH.search(low):
        found = replace(found, hbm_bandwidth=float(bandwidth[1]) * 1e12)
    if power := POWER.search(low):
        found = replace(found, power_w=float(power[1]))
    return found


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
        return ("pcie" in c.name) != pcie, abs(c.hbm_bytes / 1e9 - float(memory[1])) if memory else 0.0

    return min(candidates, key=distance)


def _same_family(name: str) -> list[str]:
    """Catalogue chips whose name or alias has the same family token (a100, gb200, tpu-v5p)."""
    family = _family(name)
    if not family:
        return []
    spellings = [(n, n) for n in catalog.names("chips")] + list(catalog.aliases("chips").items())
    real = [(spelling, n) for spelling, n in spellings if not n.startswith(PAPERS)]
    return list(dict.fromkeys(n for spelling, n in real if _family(spelling) == family))


def _family(name: str) -> str:
    low = re.sub(r"[\s_]+", "-", name.strip().lower())
    match = FAMILY.search(low)
    return match[0].replace("-", "").replace("tpuv", "tpu") if match else ""


@lru_cache(maxsize=1024)
def network(chip_name: str, size: int, near: str, far: str) -> Network:
    """The chip's usual network with the node size and bandwidths of the texts (near: in a node, far: between nodes)."""
    base = catalog.network(chip(chip_name).network)
    if "torus" in near:
        return torus(base, size)
    first, last = base.dims[0], base.dims[-1]
    domain = NVL.search(near)
    nodes = int(domain[1]) if domain else size or first.size or 1
    if not 1 <= nodes <= LARGEST_DOMAIN:
        raise BadInput(f"gpus_per_node must be from 1 to {LARGEST_DOMAIN}, not {nodes}")
    return replace(base, dims=(
        replace(first, size=nodes, bandwidth=_near(near) or first.bandwidth),
        replace(last, size=None, bandwidth=_far(far, size or nodes) or last.bandwidth),
    ))  # fmt: skip


def _near(text: str) -> float | None:
    """One way per chip: "NVLink3 600GB/s" (makers print both ways), "PCIe 4.0"; None if the text does not say."""
    if both := BOTH_WAYS.search(text):
        return float(both[1]) * (1e12 if both[2] == "tb" else 1e9) / 2
    for word, rates in (("nvlink", NVLINK), ("pcie", PCIE)):
        if generation := re.search(word + r"[ -]?(?:gen ?)?(\d)", text):
            return parse(rates[int(generation[1])], "B/s") if int(generation[1]) in rates else None
    return None


def _far(text: str, per_node: int) -> float | None:
    """One way per chip: "8x200Gb HDR per node", "1600 Gb/s per node", "per-GPU 400Gb"; None if it does not say."""
    match = RATE.search(text)
    if not match:
        port = next((rate for word, rate in INFINIBAND.items() if word in text), None)
        return parse(port, "B/s") if port else None
    bits = 8.0 if match[3] == "GB/s" else 1.0
    rate = float(match[2]) * 1e9 * bits / 8
    if match[1] or "per node" in text:
        rate = rate * float(match[1] or 1) / per_node
    return rate or None


def torus(base: Network, size: int) -> Network:
    """A slice of `size` chips: the axes of the base network, as equal as whole numbers allow, and what joins slices."""
    axes = [d for d in base.dims if d.kind in ("ring", "line", "mesh")]
    above = [d for d in base.dims if d not in axes]
    sizes = _near_cube(max(1, min(size, LARGEST_DOMAIN)), max(len(axes), 1))
    cut: list[Dim] = [replace(d, size=n) for d, n in zip(axes, sizes, strict=False)]
    return replace(base, dims=(*cut, replace(above[-1], size=None)) if above else tuple(cut))


def _near_cube(n: int, axes: int) -> list[int]:
    """n as a product of `axes` whole numbers, as equal as possible, ascending."""
    if axes == 1:
        return [n]
    side = max(d for d in range(1, round(n ** (1 / axes)) + 1) if n % d == 0)
    return [side, *_near_cube(n // side, axes - 1)]
