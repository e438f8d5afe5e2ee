"""What a better machine would change, one number of it at a time, and in what two layouts differ.

All for the layout as it is: a machine that differs may have another best one. What ranks layouts
(`Prediction.merit_s`) is compared, so that more memory counts by the risk it takes away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from ..describe.cluster import Cluster
from ..describe.frozen import put, scaling
from .prediction import Prediction, predict

TIMES = 2.0
"""How many times as good a number is taken to be."""
CHIP = (
    ("flops", "twice the FLOP/s", "chip.matrix_flops"),
    ("hbm", "twice the HBM bandwidth", "chip.hbm_bandwidth"),
    ("memory", "twice the memory", "chip.hbm_bytes"),
)
"""Name, words, and the number of a cluster."""


@dataclass(frozen=True)
class Elasticity:
    """One number of the machine, twice as good."""

    name: str
    words: str
    change: float
    """Of the expected time over the chance to fit: -0.04 is 4 % less."""

    def to_dict(self) -> dict[str, object]:
        """The fields of one of `elasticities` of `plan --json`."""
        return asdict(self)


def elasticities(p: Prediction) -> tuple[Elasticity, ...]:
    """What each number of the machine would change, the most first."""
    changes = []
    for name, words, cluster in better(p.job.cluster):
        unnamed = replace(cluster, name="")
        other = predict(replace(p.job, cluster=unnamed), p.layout)
        change = other.merit_s / p.merit_s - 1.0
        changes.append(Elasticity(name, words, change))
    return tuple(sorted(changes, key=lambda one: one.change))


def better(cluster: Cluster) -> Iterator[tuple[str, str, Cluster]]:
    """(name, words, the cluster with that number twice as good)."""
    for name, words, path in CHIP:
        yield name, words, scaling(path, TIMES)(cluster)
    dims = cluster.network.dims
    for i, (dim, size) in enumerate(zip(dims, cluster.sizes, strict=True)):
        if size > 1:
            faster = scaling("bandwidth", TIMES)(dim)
            others = (*dims[:i], faster, *dims[i + 1 :])
            yield (
                dim.name,
                f"twice the {dim.name}",
                put("network.dims", others)(cluster),
            )
    if any(dim.latency for dim in dims):
        shorter = scaling("network.dims.latency", 1 / TIMES)
        yield "latency", "half the latency", shorter(cluster)


def seconds_by_cause(p: Prediction, best: Prediction) -> dict[str, float]:
    """Cause -> seconds that one layout takes more than another; they add up to the difference of
    their step times.
    """
    return {cause: s - best.time_s[cause] for cause, s in p.time_s.items()}
