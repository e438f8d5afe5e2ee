"""Which algorithm and protocol NCCL takes: the least of its OWN model of the time, right or wrong.

    ring    base + (K - K_net) a_node + K_net a_net + K/n V/B
    LL128   as a ring, by 0.92 B; between nodes no more than a limit of each channel
    tree    base + 2 [(g - 1) a_node + log2(N) a_net] + 2 V/(0.92 B c(V)), by LL128 120/128 of that
    NVLS    25 us + V/(e B)

A ring takes K = n - 1 steps, K_net = N - 1 of them between nodes. Trees make all-reduces between
nodes only, NVLS inside a node only.

An all-reduce goes round a ring twice. B is what the tuner takes the slowest dimension for; by LL at
most B/2, and no more than a limit. LL128 is offered over NVLink (on A100 in every release since
2.8, on Hopper since 2.16), and between such nodes where cards and GPUs share a PCIe switch, as in a
DGX. Source: NVIDIA/nccl, src/graph/tuning.cc, commit 5067397c (2026-06, Apache-2.0).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..num import Num, at, cell, floor, log2, maximum, minimum, where
from .links import Links
from .span import Over, Span

BASE = 8.4e-6
BASE_LL = 6.6e-6
BASE_LL128 = 14e-6
BASE_TREE_LL = 6.8e-6
"""Seconds before the first step."""
NODE = 3.4e-6
NODE_LL = 0.6e-6
NODE_LL128 = 1.9e-6
NODE_TREE = 4.0e-6
NODE_TREE_LL128 = 1.25e-6
"""Seconds of a step over NVLink: by Simple, LL and LL128, along the chain of a tree by Simple and
by LL128."""
NET = 14e-6
NET_2011 = 9.6e-6
NET_LL = 2.7e-6
NET_LL128 = 4.0e-6
NET_TREE_LL = 5.0e-6
NET_TREE_LL128 = 8.5e-6
"""Seconds of a step over the network, NET_2011 in a ring by Simple to release 2.11. A ring with one
rank a node takes that of a tree."""
PLATEAU = 1.4
PLATEAU_BYTES = 64 * 8.0
"""A ring all-reduce between nodes by Simple waits so much longer from so many bytes a rank on: 64
in each of 8 channels (1.9 before Ampere)."""
SIMPLE_STEP = 3.0
"""The host's part of a step is so much longer by Simple."""
NVLS = 25e-6
LL128 = 0.92
"""Share of B that a ring by LL128 carries: 120 bytes of 128, as NCCL rounds it."""
TREE = 0.92
TREE_LL = 0.92 / 3.8
TREE_LL128 = 0.92 * 120 / 128
"""Shares of B that a tree carries."""
SIZES = tuple(64.0 * 2**i for i in range(26))
CORRECTED = (
    0.9,
    0.9,
    0.9,
    0.9,
    0.9,
    0.9,
    0.9,
    0.8,
    0.7,
    0.6,
    0.6,
    0.5,
    0.5,
    0.5,
    0.5,
    0.6,
    0.7,
    0.8,
    0.7,
    0.7,
    0.8,
    0.9,
    0.9,
    0.9,
    1.0,
)
CORRECTED_LL = (
    1.0,
    1.0,
    1.0,
    1.0,
    0.9,
    0.8,
    0.7,
    0.7,
    0.7,
    0.7,
    0.6,
    0.5,
    0.4,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
    1.0,
    1.0,
    1.0,
    1.0,
    1.0,
)
CORRECTED_LL128 = (
    1.0,
    1.0,
    1.0,
    1.0,
    1.0,
    0.9,
    0.8,
    0.8,
    0.8,
    0.7,
    0.6,
    0.6,
    0.6,
    0.6,
    0.6,
    0.6,
    0.8,
    0.9,
    0.9,
    0.9,
    0.9,
    1.0,
    1.0,
    1.0,
    1.0,
)
"""c of a tree, by floor(log2(bytes/64))."""


class TunerChoice(NamedTuple):
    """What the tuner takes: true or false, or arrays of that."""

    ll: Any
    """Of rings, the one by LL."""
    ll128: Any = False
    """Of the others, the one by LL128."""
    tree: Any = False
    """A tree rather than a ring."""
    tree_ll: Any = False
    """Of trees, the one by LL."""
    tree_ll128: Any = False
    """Of the other trees, the one by LL128."""
    nvls: Any = False
    """Reduction in the switch rather than either."""


class Waits(NamedTuple):
    """What the tuner takes a ring or a tree for, whatever it carries."""

    ll: Num
    """Seconds before bytes count, by LL."""
    simple: Num
    slow_ll: Num
    """Seconds a byte by LL."""
    ll128: Num
    """Seconds before bytes count, by LL128; endless where it is off."""
    slow_ll128: Num
    """Seconds a byte by LL128."""


def tuner_seconds(net: Links, s: Span) -> Num:
    """Seconds the tuner takes a byte of every unit for, in the slowest dimension."""
    if not net.dims:
        return s.slowest(net.rates)
    pairs = zip(net.dims, net.transports, s.ranks, strict=True)
    return s.slowest(
        [
            d.bandwidth * t.believed / d.sharers(net.ranks) * d.used(g)
            for d, t, g in pairs
        ]
    )


def ll128_seconds(net: Links, s: Span, tree: bool) -> Num:
    """Seconds the tuner takes a byte for by LL128: a share of each rate, and of a channel
    between nodes no more than its limit. One channel goes through each adapter.
    """
    share = TREE_LL128 if tree else LL128
    limits = net.near.believed_ll128
    if not (net.dims and limits):
        return tuner_seconds(net, s) / share
    ring, two, more = limits
    most = where(s.nodes <= 2, two, more) if tree else ring
    return s.slowest(
        [
            (
                share * d.bandwidth * t.believed
                if t.inside
                else minimum(share * d.bandwidth * t.believed, most)
            )
            / d.sharers(net.ranks)
            * d.used(g)
            for d, t, g in zip(net.dims, net.transports, s.ranks, strict=True)
        ]
    )


def gather(on: Over, V: Num) -> TunerChoice:
    """An all-gather or a reduce-scatter of V bytes: LL, LL128 or Simple."""
    by_ll, by_ll128, simple = _ring(on, V, 1.0)
    return TunerChoice(by_ll <= minimum(by_ll128, simple), by_ll128 <= simple)


def all_reduce(on: Over, V: Num, nvls: Any) -> TunerChoice:
    """nvls: where the switch can add up the values of this group, faster than a ring."""
    net = on.net
    slow = on.once(tuner_seconds)
    by_ll, by_ll128, simple = _ring(on, V, 2.0)
    other = minimum(by_ll128, simple)
    best = minimum(by_ll, other)
    switch = nvls & (NVLS + V * slow / net.near.believed_sharp < best)
    if net.inside == len(net.rates):
        return TunerChoice(by_ll <= other, by_ll128 <= simple, nvls=switch)
    tree_ll, tree_ll128, tree = _tree(on, V)
    other_tree = minimum(tree_ll128, tree)
    return TunerChoice(
        by_ll <= other,
        by_ll128 <= simple,
        on.span.over & (minimum(tree_ll, other_tree) < best),
        tree_ll <= other_tree,
        tree_ll128 <= tree,
        switch,
    )


def _ring(on: Over, V: Num, times: float) -> tuple[Num, Num, Num]:
    """Seconds the tuner expects of a ring, by LL, by LL128 and by Simple."""
    s = on.span
    waits = on.once(_ring_waits, times)
    wait = waits.simple
    if times > 1:
        wait = where(s.over & (PLATEAU_BYTES * s.n <= V), PLATEAU * wait, wait)
    part = V * (times * (s.n - 1)) / s.n
    slow = on.once(tuner_seconds)
    return (
        waits.ll + part * waits.slow_ll,
        waits.ll128 + part * waits.slow_ll128,
        wait + part * slow,
    )


def _ring_waits(net: Links, s: Span, times: float) -> Waits:
    steps = times * (s.n - 1)
    far = times * (s.nodes - 1)
    # to 2.11 one channel went to a peer, and the host had no part in a step (since 2.18 it has)
    old = net.how.send_channels == "one"
    step = 0.0 if old else net.near.believed_step
    wait = (
        BASE
        + (steps - far) * where(s.over, max(NODE, SIMPLE_STEP * step), NODE)
        + far * (NET_2011 if old else NET)
    )
    wait_ll = (
        BASE_LL
        + (steps - far) * where(s.over, max(NODE_LL, step), NODE_LL)
        + far * where(s.g == 1, NET_TREE_LL, NET_LL)
    )
    slow_ll = maximum(2.0 * tuner_seconds(net, s), 1.0 / _most_ll(net, s))
    wait_ll128 = _where_on(
        net,
        s,
        BASE_LL128
        + (steps - far) * where(s.over, max(NODE_LL128, step), NODE_LL128)
        + far * where(s.g == 1, NET_TREE_LL128, NET_LL128),
    )
    return Waits(
        wait_ll, wait, slow_ll, wait_ll128, ll128_seconds(net, s, False)
    )


def _where_on(net: Links, s: Span, wait: Num) -> Num:
    """A wait by LL128; endless where NCCL does not offer it."""
    if net.ll128_between:
        return wait
    off = float("inf")
    return where(s.over, off, wait) if net.near.ll128 else off


def _tree(on: Over, V: Num) -> tuple[Num, Num, Num]:
    """What the tuner takes a tree of nodes for, by LL, by LL128 and by Simple."""
    waits = on.once(_tree_waits)
    slow = on.once(tuner_seconds)
    size = cell(V, SIZES)[0]
    slow_ll = waits.slow_ll / at(CORRECTED_LL, size)
    slow_ll128 = waits.slow_ll128 / at(CORRECTED_LL128, size)
    slow = slow / (TREE * at(CORRECTED, size))
    return (
        waits.ll + 2 * V * slow_ll,
        waits.ll128 + 2 * V * slow_ll128,
        waits.simple + 2 * V * slow,
    )


def _tree_waits(net: Links, s: Span) -> Waits:
    depth = floor(log2(s.nodes))
    wait_ll = BASE_TREE_LL + 2 * ((s.g - 1) * NODE_LL + depth * NET_TREE_LL)
    wait = BASE + 2 * ((s.g - 1) * NODE_TREE + depth * NET)
    slow_ll = maximum(tuner_seconds(net, s) / TREE_LL, 1.0 / _most_ll(net, s))
    wait_ll128 = BASE_LL128 + 2 * (
        (s.g - 1) * NODE_TREE_LL128 + depth * NET_TREE_LL128
    )
    return Waits(
        wait_ll,
        wait,
        slow_ll,
        _where_on(net, s, wait_ll128),
        ll128_seconds(net, s, True),
    )


def _most_ll(net: Links, s: Span) -> Num:
    """What the tuner takes LL to carry at most: on one, two and more nodes."""
    if not net.near.believed_ll:
        return float("inf")
    one, two, more = net.near.believed_ll
    return where(s.over, where(s.nodes <= 2, two, more), one)
