"""Section 6.2, "important phenomena": which axis is at an advantage when memories, the network's
bandwidth or its latency are the bottleneck. Shares are those of figure 7, log N_axis / log N.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshwright.describe.frozen import put, scaling
from meshwright.limits.answer import parallelism_split
from meshwright.limits.curve import Point, curve
from meshwright.limits.scenario import Scenario, preset

from ..report import Check, holds
from .golden import ours

FACTOR = 10.0
"""By how much what shall be the bottleneck is made slower."""
BASE = "h100"


def slow_memories(s: Scenario) -> Scenario:
    """With HBM, L2 and shared memory at a tenth of their bandwidth."""
    for path in (
        "hierarchy.l2_bandwidth",
        "hierarchy.smem_bytes_per_clock",
        "hbm_bandwidth",
    ):
        s = scaling(f"chip.{path}", 1 / FACTOR)(s)
    return s


def slow_links(s: Scenario) -> Scenario:
    """With a tenth of the network's bandwidth, and nothing to wait for."""
    slower = scaling("network.dims.bandwidth", 1 / FACTOR)(s)
    return put("network.dims.latency", 0.0)(slower)


def one_bubble(s: Scenario) -> Scenario:
    """Without zero-bubble schedules, which hide every wait of a stage in this model."""
    return replace(s, schedules=("1f1b",))


def shares_of_chips(p: Point) -> dict[str, float]:
    """Shares of tp, dp and pp in the logarithm of the chips, of a model without experts."""
    split = parallelism_split(p)
    return {axis: split[axis] for axis in ("tp", "dp", "pp")}


def mean(points: Sequence[Point]) -> dict[str, float]:
    """Shares, mean over the models of a curve."""
    each = [shares_of_chips(p) for p in points]
    return {a: sum(x[a] for x in each) / len(each) for a in each[0]}


def shares_text(of: dict[str, float]) -> str:
    """tp .45, dp .20, pp .35"""
    return ", ".join(f"{axis} {share:.2f}" for axis, share in of.items())


def leading(of: dict[str, float]) -> str:
    """The axis of the largest share."""
    return max(of, key=lambda axis: of[axis])


def share_of_one_dimension(points: Sequence[Point]) -> float:
    """Share of the models whose tensor parallelism cuts one dimension only."""
    return float(sum(p.degrees.tp_model == 1 for p in points) / len(points))


def phenomenon_checks() -> Iterator[Check]:
    """The phenomena as statements: 1 where ours shows them. An axis is favoured where its share of
    the same models grows, mean over a curve, or is the largest at one end of it.
    """
    usual = mean(ours(BASE).points)
    memory = mean(curve(slow_memories(preset(BASE))).points)
    yield holds(
        "section 6.2/memory bandwidth favours tp over dp and pp",
        memory["tp"] > usual["tp"],
        f"memories at a tenth: {shares_text(memory)}; as they are: {shares_text(usual)}",
    )
    links = curve(slow_links(preset(BASE))).points
    small, large = shares_of_chips(links[0]), shares_of_chips(links[-1])
    note = f"a tenth of the bandwidth, no latency, {links[0].flops:.1e} FLOP: {shares_text(small)}"
    yield holds(
        "section 6.2/network bandwidth favours pp at small scales",
        leading(small) == "pp",
        note,
    )
    yield holds(
        "section 6.2/network bandwidth favours tp at large scales",
        leading(large) == "tp",
        f"the same at {links[-1].flops:.1e} FLOP: {shares_text(large)}",
    )
    near = one_bubble(preset(BASE))
    far = scaling("network.dims.latency", FACTOR)(near)
    before, after = (curve(s).points for s in (near, far))
    slower = (
        f"1F1B, ten times the latency: {shares_text(mean(after))};"
        f" as it is: {shares_text(mean(before))}"
    )
    yield holds(
        "section 6.2/network latency favours dp over tp and pp",
        mean(after)["dp"] > mean(before)["dp"],
        slower,
    )
    yield holds(
        "section 6.2/network latency favours 1D over 2D tensor parallelism",
        share_of_one_dimension(after) > share_of_one_dimension(before),
        f"models that cut one dimension: {share_of_one_dimension(after):.0%}"
        f" for {share_of_one_dimension(before):.0%}",
    )
