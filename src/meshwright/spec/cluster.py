"""Chips and the network that joins them."""

from __future__ import annotations

from dataclasses import dataclass

from .chip import Chip
from .network import Network


@dataclass(frozen=True)
class Cluster:
    """`chips` accelerators of one kind on one network."""

    chip: Chip
    network: Network
    chips: int
    name: str = ""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Members of each network dimension for this many chips, fastest first; the last takes what is left.

        A cluster smaller than a dimension uses only part of it: 4 GPUs in an 8-GPU node give (4, 1).
        """
        left, sizes = self.chips, []
        for dim in self.network.dims[:-1]:
            size = min(dim.size or left, left)
            while left % size:  # 12 chips in nodes of 8: nodes hold 6
                size -= 1
            sizes.append(size)
            left //= size
        return (*sizes, left)
