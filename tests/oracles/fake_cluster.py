"""A mesh of any size in one process (`meshwright.train.oracle`), and a record of what the program of
one rank computes and sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from meshwright.train.oracle import fake_world, without_storage
from meshwright.train.traffic import TrafficCounter


class Record(TrafficCounter):
    """What was counted, by axis."""

    def over(self, axis: str) -> Counter[tuple[str, int]]:
        """(kind, bytes) -> how often, on one axis."""
        return Counter(
            {
                (kind, size): times
                for (kind, where, size), times in self.sent.items()
                if where == axis
            }
        )

    def volume(self, axis: str) -> dict[str, int]:
        """kind -> bytes of all full vectors, on one axis."""
        elements: Counter[str] = Counter()
        for (kind, size), times in self.over(axis).items():
            elements[kind] += size * times
        return dict(elements)


@contextmanager
def fake_cluster(
    rank: int = 0, **axes: int
) -> Iterator[tuple[DeviceMesh, Record]]:
    """The mesh of `axes` (slowest first, such as dp=2, tp=4) as rank `rank` sees it, and the record
    of what it sends; bf16.
    """
    before = torch.get_default_dtype()
    with fake_world(rank, prod(axes.values())):
        mesh = init_device_mesh(
            "cpu", tuple(axes.values()), mesh_dim_names=tuple(axes)
        )
        record = Record(
            {mesh.get_group(axis).group_name: axis for axis in axes}
        )
        try:
            with without_storage(), record:
                torch.set_default_dtype(torch.bfloat16)
                yield mesh, record
        finally:
            torch.set_default_dtype(before)
