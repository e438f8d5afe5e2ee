"""Jobs on an invented machine of as many chips as their layouts have."""

from __future__ import annotations

from meshwright import Chip, Cluster, Dim, Job, Layout, Model, Network

CPU = Chip("cpu", {"fp32": 1e11}, 1e10, 1e10, 1e10)
HOST = Network("host", (Dim("host", 1e9, 1e-4),))


def job(model: Model, layout: Layout, batch: int = 8) -> Job:
    """A job in fp32: one replica, if its layout does not say."""
    layout = layout.filling(1)
    cluster = Cluster(CPU, HOST, int(layout.chips))
    return Job(model, cluster, batch, layout, precision="fp32")
