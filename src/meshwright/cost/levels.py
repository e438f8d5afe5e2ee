"""Hierarchical collectives and messages over a network of any depth, level by level.

A reduce-scatter first sums inside every unit of the nearest level, then between units of the next, on what is left of
the vector; an all-gather goes the other way. Levels work side by side (the slowest one sets the bandwidth time) and
wait for each other once (their latencies add up). Letters as in `links`: g_i ranks of a group in dimension i, S_i =
g_0 ... g_{i-1}. Source: Erdil & Schneider-Joseph 2024, arXiv 2411.01137, section 4.2 and appendix.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from ..num import Num, maximum, product, where
from .links import Group, Links
from .load import Busy, Load
from .ring import Ring


class Rated(Protocol):
    """Anything that knows the rate a group reaches in each dimension, nearest first."""

    def reach(self, group: Group) -> Sequence[Num]: ...


def phase(fabric: Rated, V: Num, group: Group, whole: bool = False) -> tuple[Num, ...]:
    """Seconds in each dimension of a reduce-scatter or an all-gather of V bytes: (g_i - 1)/g_i V/(S_i W_i).

    whole: without the factor (g_i - 1)/g_i, the shorthand for large groups.
    """
    seconds: list[Num] = []
    inside: Num = 1.0
    for g, rate in zip(group, fabric.reach(group), strict=True):
        seconds.append(where(g > 1, V / (inside * rate), 0.0) if whole else V * (g - 1) / (g * inside * rate))
        inside = inside * g
    return tuple(seconds)


def slowest(*traffic: Sequence[Num]) -> Num:
    """Seconds of the busiest dimension when several collectives share the network: max over i of the sum of their
    parts."""
    worst: Num = 0.0
    for parts in zip(*traffic, strict=True):
        worst = maximum(worst, sum(parts))
    return worst


def waits(fabric: Links, group: Group) -> Num:
    """Latency of one phase: one hop in each dimension the group spans."""
    total: Num = 0.0
    for g, latency in zip(group, fabric.latencies, strict=True):
        total = total + where(g > 1, latency, 0.0)
    return total


class Levels(Ring):
    """Reduce-scatter, all-gather and all-reduce level by level; the rest as a ring."""

    def gather(self, net: Links, V: Num, group: Group) -> Load:
        """One phase: the busiest level, and one hop in each."""
        busy, hops = phase(net, V, group), where(V > 0, waits(net, group), 0.0)
        return Load(where(V > 0, slowest(busy) + hops, 0.0), hops, Busy(busy))


def neighbour(group: Group, chunks: Num, steps: Num) -> tuple[Num, ...]:
    """Shares of `steps` steps along a pipeline that stay on the chip (first) or cross dimension 0, 1, ...; they add
    up to one.

    group: p stages over the dimensions, consecutive stages nearest;  chunks: v model chunks a device holds, dealt out
    in rounds; steps: L - 1 of a model of L layers.  The p v - 1 stage boundaries cross, for i below the farthest
    dimension in use, v g_{i+1} g_{i+2} ... (g_i - 1) times dimension i; the rest, with the way back to the first
    device, is for the farthest.
    """
    p = product(group)
    shares: list[Num] = [where(p > 1, (steps + 1 - chunks * p) / steps, 1.0)]
    for i, g in enumerate(group):
        above = product(group[i + 1 :])
        crossed = where(above > 1, chunks * above * (g - 1), chunks * g - 1)
        shares.append(where(g > 1, crossed / steps, 0.0))
    return tuple(shares)


def any_rank(group: Group) -> tuple[Num, ...]:
    """Chances that a rank chosen at random from the group is the sender itself (first), or lies across dimension 0,
    1, ...

    (g_i - 1)/(g_i g_{i+1} ...) for dimension i; they add up to one.
    """
    shares: list[Num] = [1.0 / product(group)]
    for i, g in enumerate(group):
        shares.append((g - 1) / product(group[i:]))
    return tuple(shares)


def farthest(group: Group) -> tuple[Num, ...]:
    """As `any_rank`, if somebody always sits at the far end: 1 for the farthest dimension the group spans."""
    beyond = [where(product(group[i:]) > 1, 1.0, 0.0) for i in range(len(group))]
    return (1 - beyond[0], *(a - b for a, b in pairwise([*beyond, 0.0])))


def farther(a: Sequence[Num], b: Sequence[Num]) -> tuple[Num, ...]:
    """Shares of messages by the farther of two independent ways to go: P(max = i) = A_i B_i - A_{i-1} B_{i-1}, sums A
    and B."""
    shares: list[Num] = []
    below: Num = 0.0
    sum_a: Num = 0.0
    sum_b: Num = 0.0
    for x, y in zip(a, b, strict=True):
        sum_a, sum_b = sum_a + x, sum_b + y
        shares.append(sum_a * sum_b - below)
        below = sum_a * sum_b
    return tuple(shares)


def mean_message(fabric: Links, V: Num, shares: Sequence[Num]) -> Num:
    """Bandwidth seconds of a message of V bytes, on average over `shares` of staying here and of crossing each
    dimension."""
    pair = (2.0,) * len(fabric.rates)
    return sum(share * V / rate for share, rate in zip(shares[1:], fabric.reach(pair), strict=True))


def mean_latency(fabric: Links, shares: Sequence[Num]) -> Num:
    """Latency of a message, on average over the same shares."""
    return sum(share * latency for share, latency in zip(shares[1:], fabric.latencies, strict=True))
