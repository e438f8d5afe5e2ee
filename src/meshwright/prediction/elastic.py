"""What a better machine would change, one number of it at a time, and in what two layouts differ.

All for the layout as it is: a machine that differs may have another best one. What ranks layouts
(`Prediction.merit_s`) is compared, so that more memory counts by the risk it takes away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..describe.cluster import Cluster
from ..describe.network import Dim
from .prediction import Prediction, predict

TIMES = 2.0
"""How many times as good a number is taken to be."""


@dataclass(frozen=True)
class Elasticity:
    """One number of the machine, twice as good."""

    name: str
    words: str
    change: float
    """Of the expected time over the chance to fit: -0.04 is 4 % less."""

    def to_dict(self) -> dict[str, object]:
        """The fields of one of `elasticities` of `plan --json`."""
        return {"name": self.name, "words": self.words, "change": self.change}


def elasticities(p: Prediction) -> tuple[Elasticity, ...]:
    """What each number of the machine would change, the most first."""
    found = []
    for name, words, cluster in better(p.job.cluster):
        other = predict(replace(p.job, cluster=cluster), p.layout)
        found.append(Elasticity(name, words, other.merit_s / p.merit_s - 1.0))
    return tuple(sorted(found, key=lambda each: each.change))


def better(cluster: Cluster) -> Iterator[tuple[str, str, Cluster]]:
    """(name, words, the cluster with that number twice as good)."""
    chip = cluster.chip
    net = cluster.network
    flops = {k: v * TIMES for k, v in chip.matrix_flops.items()}
    changed = {
        "flops": ("twice the FLOP/s", replace(chip, matrix_flops=flops)),
        "hbm": (
            "twice the HBM bandwidth",
            replace(chip, hbm_bandwidth=chip.hbm_bandwidth * TIMES),
        ),
        "memory": (
            "twice the memory",
            replace(chip, hbm_bytes=chip.hbm_bytes * TIMES),
        ),
    }
    for name, (words, other) in changed.items():
        yield name, words, replace(cluster, chip=other, name="")
    for i, (dim, size) in enumerate(zip(net.dims, cluster.sizes, strict=True)):
        if size > 1:
            faster = replace(dim, bandwidth=dim.bandwidth * TIMES)
            dims = (*net.dims[:i], faster, *net.dims[i + 1 :])
            yield dim.name, f"twice the {dim.name}", _on(cluster, dims)
    if any(dim.latency for dim in net.dims):
        dims = tuple(
            replace(dim, latency=dim.latency / TIMES) for dim in net.dims
        )
        yield "latency", "half the latency", _on(cluster, dims)


def _on(cluster: Cluster, dims: tuple[Dim, ...]) -> Cluster:
    return replace(
        cluster, network=replace(cluster.network, dims=dims), name=""
    )


def split(mine: Prediction, best: Prediction) -> dict[str, float]:
    """Cause -> seconds that one layout takes more than another; they add up to the difference of
    their step times.
    """
    return {cause: s - best.time_s[cause] for cause, s in mine.time_s.items()}
