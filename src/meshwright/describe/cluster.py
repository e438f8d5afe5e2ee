"""Chips and the network that joins them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from ..errors import BadInput
from ..num import product
from .chip import Chip
from .fields import Checked, Count, Name, Range, Sources, origins
from .frozen import short_repr
from .frozendict import EMPTY
from .measured import Overhead
from .network import Dim, Network


@dataclass(frozen=True)
class Installation(Checked):
    """What is known of one's own machines beside their parts: what a few steps measured there."""

    scale: Annotated[float, Range(1e-3, 1e3)] = 1.0
    """Measured seconds of a step over predicted ones; `meshwright calibrate --from` writes it."""
    steps: Count = 0
    """Measured steps that it is from."""
    sources: Sources = origins()
    """field -> where its number comes from (source, date, note)."""


@dataclass(frozen=True)
class Cluster(Checked):
    """`chips` accelerators of one kind on one network.

    >>> from meshwright import Cluster, chip, network
    >>> on = Cluster(chip("a100-80"), network("selene"), chips=512)
    >>> on.chips, on.sizes
    (512, (8, 64))
    """

    chip: Chip
    network: Network
    chips: Annotated[int, Range(1, 1e8)]
    name: Name = ""
    engine: Mapping[Name, Overhead] = EMPTY
    """feature (plain, tp, zero3, 1f1b, ...) -> what PyTorch's engine costs on this machine's CPUs;
    `meshwright calibrate` writes it.
    """

    installation: Installation = Installation()
    """What steps measured on these machines say of all others there."""

    __repr__ = short_repr

    @property
    def machine(self) -> str:
        """How many chips of which kind: "1,024 x h100-sxm"."""
        return f"{self.chips:,} x {self.chip.name}"

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Members of each network dimension for this many chips, fastest first; the last takes what
        is left, rounded up.

        4 GPUs in 8-GPU nodes give (4, 1); 100 give (8, 13), the last node partly used. Chips that
        fill no racks of 72 but a power of two of each do so: 2,048 give (64, 32). Raises BadInput
        if the network joins fewer.
        """
        for ports in self._ports:
            left, sizes = self.chips, list[int]()
            for dim in self.network.dims[:-1]:
                size = min((dim.size if sizes else ports) or left, left)
                sizes.append(size)
                left = -(-left // size)
            if left <= (self.network.dims[-1].size or left):
                return (*sizes, left)
        raise BadInput(self._too_small())

    @property
    def _ports(self) -> tuple[int | None, ...]:
        """Chips that run of each nearest unit, in the order of trial: a power of two, where the
        ports of its switch are none and the chips fill that and not all ports; else all.

        Racks of NVL72 run so: NVIDIA's script of Nemotron 3 Ultra asks Slurm for 1,536 nodes of 4
        in segments of 16, and the 1,536 GB200 of MLPerf Training v5.0 are 24 x 64.
        """
        near = self.network.dims[0]
        if near.size is None or near.kind != "switch":
            return (near.size,)
        power = 2 ** int(math.log2(near.size))
        some = self.chips % near.size and not self.chips % power
        return (power, near.size) if some else (near.size,)

    def priced(
        self, prices: Mapping[str, float], source: str = "as given"
    ) -> Cluster:
        """The cluster at a user's price of its chip (name -> USD an hour), if there is one."""
        usd = prices.get(self.chip.name)
        if usd is None:
            return self
        return replace(self, chip=self.chip.rented(usd, source))

    def _too_small(self) -> str:
        """The sentence for a network whose dimensions hold fewer chips than the cluster."""
        dims = self.network.dims
        joined = " x ".join(f"{dim.name} {dim.size}" for dim in dims)
        return (
            f"network {self.network.name or 'given'} ({joined}) joins at most"
            f" {product([dim.size for dim in dims]):,} chips, not {self.chips:,}: leave out the"
            " size of its last dimension, add a dimension, or take fewer chips"
        )


NOWHERE = Cluster(
    Chip(
        "",
        matrix_flops={"bf16": 1.0},
        vector_flops=1.0,
        hbm_bytes=1.0,
        hbm_bandwidth=1.0,
    ),
    Network("", (Dim("", 1.0, 0.0),)),
    1,
)
"""One chip, for work that does not depend on where it is done."""
