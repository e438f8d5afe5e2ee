"""Time of one collective over a group that spans dimensions of a network.

A group has g_i ranks in dimension i (fastest first), n = g_0 g_1 ... in all; V is the full vector in bytes, W_i what one chip
sends into dimension i and a_i the latency of a hop there. A unit of dimension i holds S_i = g_0 ... g_{i-1} ranks of the group,
which share the traffic that crosses it, each through its own interface. In a mesh W_i is that of the links between the members of
the group (`Fabric.reach`).

Ring (NCCL): every rank passes (n-1)/n V on, so V (n-1)/n / (S_i W_i) in the slowest dimension; n/S_i hops leave units of level i.
Sources: NCCL tests, PERFORMANCE.md; Subramanian et al. 2024, eq. 2-3 (two dimensions); the scaling book, chapter 12 (levels).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..describe.assumptions import NetworkTime
from ..describe.network import Dim, Network
from ..num import Num, ceil, log2, maximum, minimum, product, where
from . import levels, measured, torus

Group = Sequence[Num]
IN_NETWORK_GAIN = 480 / 370
"""Bus bandwidth of an all-reduce by NVLink SHARP over that of a ring, 8 H100, large messages: NCCL issue 1455 (2024), How To Scale Your Model, part 12."""


@dataclass(frozen=True)
class Fabric:
    """A network under an assumption set: rates [B/s] and latencies [s] per dimension, fastest first.

    rates are those of all links of a chip; a group reaches them in a switch, and in a mesh that it fills (`reach`).
    """

    rates: tuple[float, ...]
    latencies: tuple[float, ...]
    reduces: tuple[bool, ...]
    how: NetworkTime
    dims: tuple[Dim, ...] = ()
    """The dimensions themselves: which of them are axes of a torus, and how long."""

    @classmethod
    def of(cls, network: Network, how: NetworkTime) -> Fabric:
        dims = network.dims
        rates = tuple(d.reached(how.efficiency) for d in dims)
        return cls(rates, tuple(d.latency for d in dims), tuple(d.reduces for d in dims), how, dims=dims)

    @property
    def nearer_is_faster(self) -> bool:
        """No dimension beats one before it in rate or latency: a larger share of the near dimensions never costs time."""
        if (
            self.how.collective in ("book", "measured") or self.on_torus
        ):  # two axes of a torus carry twice as much as one
            return False
        if self.how.slow_hops == "free":  # a farther pipeline is the faster one
            return False
        if any(far and not near for near, far in zip(self.reduces, self.reduces[1:], strict=False)):
            return False
        if any(d.kind == "mesh" for d in self.dims[1:]):  # fewer ranks there reach less of it
            return False
        pairs = self.reach((2.0,) * len(self.rates))  # the least a group reaches in a mesh
        return all(a >= b for a, b in zip(pairs, self.rates[1:], strict=False)) and all(
            a <= b for a, b in zip(self.latencies, self.latencies[1:], strict=False)
        )

    def reach(self, group: Group) -> tuple[Num, ...]:
        """Bytes per second that one chip sends into each dimension to the others of its group there."""
        if all(d.kind != "mesh" for d in self.dims):
            return self.rates
        return tuple(rate * d.used(g) for rate, d, g in zip(self.rates, self.dims, group, strict=True))

    @property
    def on_torus(self) -> bool:
        """Some dimensions are axes of a torus, whose links chips pass messages along."""
        return any(d.kind in torus.TORUS for d in self.dims)

    def time(self, kind: str, V: Num, group: Group) -> Num:
        """Seconds of one collective; 0 if V = 0 or the group has one rank."""
        if self.how.collective == "free":
            return 0.0 * V
        if self.how.collective == "book" or self.on_torus:
            return torus.time(self, kind, V, group)
        if self.how.collective == "measured":
            return self.measured(kind, V, group)
        return COLLECTIVES[kind](self, V, group)

    def measured(self, kind: str, V: Num, group: Group) -> Num:
        """Seconds as measured in the dimension that holds the whole group; by formula where it spans several or none was measured."""
        n, seconds = product(group), COLLECTIVES[kind](self, V, group)
        for g, dim in zip(group, self.dims, strict=True):
            if table := dim.collectives.get(kind):
                here = (g == n) & (n > 1) & (V > 0)
                seconds = where(here, measured.seconds(table, (n, V)), seconds)
        return seconds


def bandwidth_time(fabric: Fabric, V: Num, group: Group) -> Num:
    """V over the slowest dimension the group spans: max_i V / (S_i W_i)."""
    slowest: Num = 0.0
    inside: Num = 1.0
    for g, rate in zip(group, fabric.reach(group), strict=True):
        slowest = maximum(slowest, where(g > 1, V / (inside * rate), 0.0))
        inside = inside * g
    return slowest


def ring_latency(fabric: Fabric, group: Group) -> Num:
    """Latency of n-1 steps round a ring: of its n hops n/S_i leave a unit of level i; the last one is not needed."""
    total: Num = 0.0
    units = product(group)
    for i, latency in enumerate(fabric.latencies):
        above = product(group[i + 1 :])
        total = total + latency * maximum(units - above, 0.0)
        units = above
    return total


def ring(fabric: Fabric, V: Num, group: Group) -> Num:
    """All-gather or reduce-scatter round a ring: (n-1)/n V in the slowest dimension, n-1 hops; or level by level."""
    if fabric.how.collective == "levels":
        return levels.one_phase(fabric, V, group)
    n = product(group)
    seconds = bandwidth_time(fabric, V, group) * (n - 1) / n + ring_latency(fabric, group)
    return where((V > 0) & (n > 1), seconds, 0.0)


def all_reduce(fabric: Fabric, V: Num, group: Group) -> Num:
    """Reduce-scatter, then all-gather; with `best` the faster of that and a tree, or the switch adds up (in-network)."""
    if (
        fabric.how.all_reduce_factor == "across domains"
    ):  # the LBL code: the factor 2 only if a group has several ranks in several domains
        n = product(group)
        both = (group[0] > 1) & (n > group[0])
        seconds = bandwidth_time(fabric, V, group) * (n - 1) / n * where(both, 2.0, 1.0) + ring_latency(fabric, group)
        return where((V > 0) & (n > 1), seconds, 0.0)
    seconds = 2 * ring(fabric, V, group)
    if fabric.how.collective not in ("best", "measured"):
        return seconds
    return minimum(
        minimum(seconds, tree_all_reduce(fabric, V, group)), in_network_all_reduce(fabric, V, group, seconds)
    )


def in_network_all_reduce(fabric: Fabric, V: Num, group: Group, otherwise: Num) -> Num:
    """Switches add up the values (NVLink SHARP), if every dimension the group spans can; else `otherwise`.

    The bandwidth term of a ring over IN_NETWORK_GAIN, and one message up and one down in each dimension.
    """
    if not any(fabric.reduces):
        return otherwise
    n, possible, start = product(group), V > 0, 0.0 * V
    for g, latency, reduces in zip(group, fabric.latencies, fabric.reduces, strict=True):
        possible = possible & ((g <= 1) | reduces)
        start = start + where(g > 1, 2 * latency, 0.0)
    seconds = 2 * bandwidth_time(fabric, V, group) * (n - 1) / n / IN_NETWORK_GAIN + start
    return where(possible, minimum(seconds, otherwise), otherwise)


def tree_all_reduce(fabric: Fabric, V: Num, group: Group) -> Num:
    """Double binary tree (NCCL): a chain inside each unit of the nearest dimension, a binary tree of units beyond it, up and down again.

    2 [ (g_0 - 1) a_0 + sum_i log2(g_i) a_i ] + 2 V in the slowest dimension. Source: NCCL, tuning of the tree algorithm.
    """
    steps = fabric.latencies[0] * (group[0] - 1) if fabric.how.tree_chains else 0.0 * group[0]
    for g, latency in zip(group[1:], fabric.latencies[1:], strict=True):
        steps = steps + latency * ceil(log2(g))
    seconds = 2 * steps + 2 * bandwidth_time(fabric, V, group)
    return where((V > 0) & (product(group) > 1), seconds, 0.0)


def broadcast(fabric: Fabric, V: Num, group: Group) -> Num:
    """Broadcast or reduce, pipelined along the ring: the whole vector passes every link."""
    seconds = bandwidth_time(fabric, V, group) + ring_latency(fabric, group)
    return where((V > 0) & (product(group) > 1), seconds, 0.0)


def all_to_all(fabric: Fabric, V: Num, group: Group) -> Num:
    """Each rank sends V/n to every other one: V S_i (g_i - 1)/n of it crosses dimension i, at W_i; all messages start at once.

    Dimensions are taken one after the other, so that more ranks nearby never cost time.
    """
    n = product(group)
    total: Num = 0.0
    start: Num = 0.0
    inside: Num = 1.0
    for g, rate, latency in zip(group, fabric.reach(group), fabric.latencies, strict=True):
        total = total + V * inside * (g - 1) / n / rate
        start = maximum(start, where(g > 1, latency, 0.0))
        inside = inside * g
    return where((V > 0) & (n > 1), total + start, 0.0)


def point_to_point(fabric: Fabric, V: Num, dim: int) -> Num:
    """One message of V bytes to a neighbour in dimension `dim`: latency + V / W; over one link of a mesh."""
    table = fabric.dims[dim].collectives.get("send") if fabric.how.collective == "measured" else None
    rate = fabric.reach((2.0,) * len(fabric.rates))[dim]
    seconds = measured.seconds(table, (2.0, V)) if table else fabric.latencies[dim] + V / rate
    return where(V > 0, seconds, 0.0)


def pipeline_hop(fabric: Fabric, V: Num, group: Group) -> Num:
    """One hop of V bytes between pipeline stages; `group` is the pp axis.

    Of the p-1 links, p/S_{i+1} - ... cross dimension i: p (1 - 1/g_0) - ... stay near. "slowest": the farthest dimension in use;
    "mean": weighted by the number of links (LBL). LBL's code times far links as 0 when some stages share a domain ("free").
    """
    p = product(group)
    if fabric.how.collective == "free":
        return 0.0 * V
    farthest: Num = 0.0
    mean: Num = 0.0
    inside: Num = 1.0
    for i, g in enumerate(group):
        here = point_to_point(fabric, V, i)
        farthest = where(g > 1, here, farthest)
        links = p / inside - p / (inside * g)  # links between units of level i inside one unit of level i+1
        far_but_free = (fabric.how.slow_hops == "free") & (inside > 1)
        mean = mean + where(far_but_free, 0.0, links * here)
        inside = inside * g
    hop = mean / maximum(p - 1, 1) if fabric.how.hop == "mean" else farthest
    return where(p > 1, hop, 0.0)


COLLECTIVES = {
    "all_gather": ring,
    "reduce_scatter": ring,
    "all_reduce": all_reduce,
    "broadcast": broadcast,
    "reduce": broadcast,
    "all_to_all": all_to_all,
}

ALGORITHMS = {
    "ring": ("one ring through all ranks", "NCCL; Subramanian et al. 2024, arXiv 2410.00273, eq. 2-3"),
    "best": (
        "the faster of ring, tree and reduction in the switch",
        "NCCL; ring: Subramanian et al. 2024, arXiv 2410.00273, eq. 2-3",
    ),
    "levels": (
        "level by level, all levels at work at once",
        "Erdil & Schneider-Joseph 2024, arXiv 2411.01137, section 4.2",
    ),
    "book": ("axes of the mesh side by side", "How To Scale Your Model, parts 3 and 12"),
    "free": ("communication takes no time", "closed forms without it: Narayanan et al. 2021, arXiv 2104.04473"),
    "measured": ("as measured, else the faster of ring and tree", "measured by `meshwright calibrate`; else NCCL"),
}
"""Option `NetworkTime.collective` -> (algorithm, source), as `--explain` prints them."""


def told(fabric: Fabric) -> tuple[str, str]:
    """The algorithm of the collectives on this network, and where it is from: a torus has its own."""
    how = fabric.how.collective
    return ALGORITHMS["book" if fabric.on_torus and how != "free" else how]
