"""Collectives as NCCL makes them: the algorithm and protocol that its tuner takes (`nccl_choice`),
and the time they really take.

    t = t0 + sqrt(L^2 + 2 mix L b + b^2)          L: waits of the steps, b: bytes over the rate

    ring    L = K_net hop_net + K_node hop_node, of Simple, LL or LL128
            b = V K/n in the slowest dimension; inside a node a rank copies its own part too:
                V (K + copied)/n
            K = n - 1, twice that for an all-reduce; K_net = N - 1 of them between nodes
    tree    L = 2 [(g - 1) hop_node + ceil(log2 N) climb],  b = 2 V; all-reduce between nodes
    NVLS    b = V (m + 1)/m of m = min(n, 8) GPUs on the switch: each sends all it has up, and its
            part of the sum comes down to all; beyond 8 GPUs no measured gain grows
    all-to-all   V S_i (g_i - 1)/n over dimension i, one after the other

A ring or a tree leaves a node by the links of all its ranks, or by the one adapter that NCCL takes
(`Transport.ring_node`: on Omni-Path).

mix 1 adds waits and bytes up; below 1 they overlap, above 1 chunks follow each other (a p-norm with
p > 1, = 1, < 1 has the
same shape; the square root is the same for numbers and arrays to the last bit). Constants by kind
of link: `describe.transport`. Laws: docs/collectives.md. The time is not monotone in the bytes,
since the tuner may change too early or too late; `floor` takes the least over what it may choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ...describe.transport import Transport
from ...num import Num, ceil, log2, maximum, minimum, sqrt, where
from .. import nccl_choice
from ..floors import any_links
from ..links import Group, Links
from ..load import Busy, Load
from ..span import Over, Span, over
from .ring import Ring, latency

NVLS_GROWS = 8
"""GPUs up to which the gain of NVLS was measured: 5 to 8 H200 and 6 to 8 B200, and 72 GB200 no more
than 8.
"""


class AlgorithmProtocol(NamedTuple):
    """The law of one algorithm by one protocol: b = V slow."""

    wait: Num
    slow: Num
    mix: Num

    def time(self, V: Num) -> Num:
        """L and b together."""
        return blend(self.wait, V * self.slow, self.mix)


def blend(wait: Num, bytes_: Num, mix: Num) -> Num:
    """sqrt(L^2 + 2 mix L b + b^2): grows with each of them, and is at least both."""
    return sqrt(wait * wait + bytes_ * (bytes_ + 2.0 * mix * wait))


class Nccl(Ring):
    """What NCCL's tuner chooses, timed as measured."""

    title = "ring, tree or reduction in the switch, by LL, LL128 or Simple, as NCCL's tuner chooses"
    source = "NCCL, src/graph/tuning.cc; times: catalog/transports"
    laws = (
        "cost.collectives.nccl:ring",
        "cost.collectives.nccl:ring_ll",
        "cost.collectives.nccl:ring_ll128",
        "cost.collectives.nccl:trees",
        "cost.collectives.nccl:nvls_load",
        "cost.collectives.nccl:nccl_exchange",
        "cost.collectives.nccl:blend",
    )

    def load(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """The cost of one collective over V bytes."""
        on = over(net, group)
        if kind == "all_to_all":
            return nccl_exchange(on, V)
        if kind == "all_reduce":
            return self.reduced(on, V)
        if kind in ("broadcast", "reduce"):
            return pair_load(on, V, on.once(ring, 1.0, True), 1.0)
        choice = nccl_choice.gather(on, V)
        return pair_load(on, V, ring_chosen(on, choice), on.once(passed_on))

    def floor(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        """The least over all that may be chosen, in the nearest group; or what the links of a chip
        can carry at all.
        """
        if not net.once(_nearer_is_quicker, ()):
            return any_links(net, kind, V, group)
        on = over(net, group)
        if kind == "all_to_all":
            return nccl_exchange(on, V, least=True)
        seconds: Num = float("inf")
        for pair in on.once(choices, kind):
            seconds = minimum(seconds, pair.time(V))
        seconds = where(
            (V > 0) & on.once(has_peers), on.once(launch) + seconds, 0.0
        )
        return Load(seconds, 0.0 * seconds)

    def reduced(self, on: Over, V: Num) -> Load:
        """An all-reduce."""
        net = on.net
        passed = on.once(passed_on, 2.0)
        switch = on.once(nvls_load) if adds_up(net) else None
        nvls = on.once(switch_is_quicker) if switch else False
        choice = nccl_choice.all_reduce(on, V, nvls)
        pair = ring_chosen(on, choice, 2.0)
        if net.inside < len(net.rates):
            pair = pick(choice.tree, tree_chosen(on, choice), pair)
            passed = where(choice.tree, 2.0, passed)
        if switch:
            pair = pick(choice.nvls, switch, pair)
            passed = where(choice.nvls, (on.span.n + 1) / on.span.n, passed)
        return pair_load(on, V, pair, passed)


def launch(net: Links, s: Span) -> Num:
    """Seconds before the first step."""
    return net.near.launch + where(s.over, net.far.launch, 0.0)


def has_peers(net: Links, s: Span) -> Any:
    """There is somebody to send to."""
    return s.n > 1


def passed_on(net: Links, s: Span, times: float = 1.0) -> Num:
    """The part of a vector that passes each rank of a ring so many times round."""
    return times * (s.n - 1) / s.n


def pick(
    condition: Any, a: AlgorithmProtocol, b: AlgorithmProtocol
) -> AlgorithmProtocol:
    """One where the condition holds, another elsewhere."""
    return AlgorithmProtocol(
        *(where(condition, x, y) for x, y in zip(a, b, strict=True))
    )


def ring_chosen(
    on: Over, choice: nccl_choice.TunerChoice, times: float = 1.0
) -> AlgorithmProtocol:
    """The ring by the protocol that the tuner takes, `times` round."""
    other = on.once(ring, times)
    if on.net.near.ll128:
        other = pick(choice.ll128, on.once(ring_ll128, times), other)
    return pick(choice.ll, on.once(ring_ll, times), other)


def tree_chosen(
    on: Over, choice: nccl_choice.TunerChoice
) -> AlgorithmProtocol:
    """The tree by the protocol that the tuner takes."""
    by_ll, by_ll128, other = on.once(trees)
    if on.net.ll128_between:
        other = pick(choice.tree_ll128, by_ll128, other)
    return pick(choice.tree_ll, by_ll, other)


def pair_load(on: Over, V: Num, pair: AlgorithmProtocol, part: Num) -> Load:
    """The time that it takes; part: of V, what passes a rank."""
    s = on.span
    start = on.once(launch)
    sends = (V > 0) & on.once(has_peers)
    crossed = (
        V * part * share / rate
        for share, rate in zip(s.share, on.net.reach(s.ranks), strict=True)
    )
    busy = Busy(
        where(used, seconds, 0.0)
        for used, seconds in zip(s.used, crossed, strict=True)
    )
    return Load(
        where(sends, start + pair.time(V), 0.0),
        where(sends, start + pair.wait, 0.0),
        busy,
    )


def leaving(
    net: Links, s: Span, rates: Sequence[Num], share: Num = 1.0
) -> Num:
    """Seconds for a byte to leave every node, with a rate of a chip in each dimension between
    nodes: by the links of all its ranks, or by the one adapter that NCCL takes.

    share: of its rate, what the protocol gets from an adapter.
    """
    out = s.slowest(rates, net.inside)
    if not (net.far.ring_node and net.dims):
        return out
    far = net.dims[net.inside]
    # not of `rates`, which a limit of the node may have cut: faster links would slow the adapter
    rate = share * net.reach(s.ranks)[net.inside]
    reached = rate * far.sharers(net.ranks) / far.bandwidth
    least = where(s.over, 1.0 / (net.far.ring_node * reached), 0.0)
    return maximum(out, least)


def leaving_ll128(net: Links, s: Span) -> Num:
    """Seconds for a byte to leave every node by LL128: a share of the rate of the links, and no
    more than its limit through an adapter.
    """
    share = net.far.ll128 * where(s.g == 1, net.far.alone, 1.0)
    rates = [share * rate for rate in net.reach(s.ranks)[net.inside :]]
    if (most := net.near.channel_ll128) and net.dims:
        dims = net.dims[net.inside :]
        rates = [
            minimum(rate, most / dim.sharers(net.ranks))
            for rate, dim in zip(rates, dims, strict=True)
        ]
    return leaving(net, s, rates, share)


def ring(
    net: Links, s: Span, times: float = 1.0, whole: bool = False
) -> AlgorithmProtocol:
    """By Simple, `times` round; whole: the whole vector passes every link, else each rank's
    part.
    """
    inside = net.inside
    rates = net.reach(s.ranks)
    steps = times * (s.n - 1)
    near = s.slowest(rates[:inside]) * (
        1.0 if whole else (steps + net.near.copied) / s.n
    )
    far = leaving(net, s, rates[inside:]) * (1.0 if whole else steps / s.n)
    slow = maximum(near, far / where(s.g == 1, net.far.alone, 1.0))
    wait = times * latency([t.hop for t in net.transports], s.ranks)
    return AlgorithmProtocol(
        wait, slow, where(s.over, net.far.mix, net.near.mix)
    )


def ring_ll(net: Links, s: Span, times: float = 1.0) -> AlgorithmProtocol:
    """By LL: less of the rate, and of a node no more than its limit."""
    inside = net.inside
    rates = net.reach(s.ranks)
    steps = times * (s.n - 1)
    near = (
        s.slowest(rates[:inside])
        * (steps + net.near.copied)
        / s.n
        / net.near.ll
    )
    most = (net.far.ll_node or float("inf")) / s.g
    far = (
        leaving(
            net,
            s,
            [minimum(net.far.ll * rate, most) for rate in rates[inside:]],
            net.far.ll,
        )
        * steps
        / s.n
    )
    wait = times * latency([t.hop_ll for t in net.transports], s.ranks)
    return AlgorithmProtocol(
        wait,
        maximum(near, far),
        where(s.over, net.far.mix_ll, net.near.mix_ll),
    )


def ring_ll128(net: Links, s: Span, times: float = 1.0) -> AlgorithmProtocol:
    """By LL128, of which 120 bytes in 128 are data: less of the rate, shorter waits than Simple."""
    inside = net.inside
    rates = net.reach(s.ranks)
    steps = times * (s.n - 1)
    slow = (
        s.slowest(rates[:inside]) * (steps + net.near.copied) / net.near.ll128
    )
    if net.ll128_between:
        slow = maximum(slow, leaving_ll128(net, s) * steps)
    wait = times * latency([t.hop_ll128 for t in net.transports], s.ranks)
    return AlgorithmProtocol(
        wait, slow / s.n, where(s.over, net.far.mix_ll, net.near.mix)
    )


def trees(
    net: Links, s: Span, chains: bool = True
) -> tuple[AlgorithmProtocol, AlgorithmProtocol, AlgorithmProtocol]:
    """Trees: all-reduce by LL, by LL128 and by Simple: a chain in each node, a tree of nodes
    beyond; the whole vector up and down. By LL128 as by Simple where it is off.

    chains: without them a nearer group is never slower.
    """
    inside = net.inside
    rates = net.reach(s.ranks)
    far = net.far
    near = s.slowest(rates[:inside])
    out = leaving(net, s, rates[inside:])
    chain = 2.0 * (s.g - 1) if chains else 0.0
    # a tree of one node still goes up and down once
    depth = 2.0 * maximum(ceil(log2(s.nodes)), 1.0)
    slow = maximum(
        near, out / (far.climb_rate * where(s.g == 1, far.alone, 1.0))
    )
    slow_ll = maximum(near / net.near.ll, out / far.climb_rate_ll)
    simple = AlgorithmProtocol(
        chain * net.near.hop + depth * far.climb,
        2.0 * slow,
        far.mix_ll,
    )
    by_ll = AlgorithmProtocol(
        chain * net.near.hop_ll + depth * far.climb_ll,
        2.0 * slow_ll,
        far.mix_ll,
    )
    if not net.ll128_between:
        return by_ll, simple, simple
    by_ll128 = AlgorithmProtocol(
        chain * net.near.hop_ll128 + depth * far.climb_ll128,
        2.0
        * maximum(
            near / net.near.ll128, leaving_ll128(net, s) / far.climb_rate
        ),
        far.mix_ll,
    )
    return by_ll, by_ll128, simple


def nvls_load(net: Links, s: Span, members: float = 0.0) -> AlgorithmProtocol:
    """NVLS: all-reduce in the switch of a node with the rate that so many members reach (0: those
    of the group): V (n-1)/n (m+1)/(m-1) at `sharp` of the rate.
    """
    # (m+1)/(m-1) has no value for one member; beyond NVLS_GROWS none was measured
    m = minimum(maximum(members or s.n, 2.0), NVLS_GROWS)
    part = (s.n - 1) / s.n * (m + 1) / (m - 1)
    return AlgorithmProtocol(
        net.near.sharp_wait,
        part * s.slowest(net.reach(s.ranks)) / net.near.sharp,
        net.near.sharp_mix,
    )


def switch_is_quicker(net: Links, s: Span) -> Any:
    """It carries more than a ring in the same node does."""
    return (s.nodes == 1) & (nvls_load(net, s).slow < ring(net, s, 2.0).slow)


def adds_up(net: Links) -> bool:
    """The switches of a node add up values."""
    return (
        net.near.sharp > 0
        and net.inside > 0
        and all(net.reduces[: net.inside])
    )


def nccl_exchange(on: Over, V: Num, least: bool = False) -> Load:
    """Exchange, all-to-all: all messages start at once, dimensions are taken one after the other,
    so that more ranks nearby never cost time. least: for a floor.
    """
    net, s = on.net, on.span
    near, far = net.near, net.far
    sends = (V > 0) & on.once(has_peers)
    busy: list[Num] = []
    moved: Num = 0.0
    for i, rate in enumerate(net.reach(s.ranks)):
        busy.append(V * (s.ranks[i] - 1) / (s.n * s.share[i]) / rate)
        moved = moved + busy[-1] / net.transports[i].exchange
    own = (
        near.exchange_copied * V / s.n / (net.rates[0] * near.exchange)
        if net.inside
        else 0.0
    )
    inside = (
        min(near.exchange_mix, far.exchange_mix)
        if least
        else near.exchange_mix
    )
    mix = where(s.over, far.exchange_mix, inside)
    wait = near.exchange_launch + where(s.over, far.exchange_launch, 0.0)
    seconds = where(sends, blend(wait, moved + own, mix), 0.0)
    return Load(seconds, where(sends, wait, 0.0), Busy(busy))


def choices(net: Links, s: Span, kind: str) -> list[AlgorithmProtocol]:
    """Of all that may be chosen, in this group or in a larger one, none is quicker than the
    quickest of these.
    """
    near, far = net.near, net.far
    mix, mix_ll = (
        where(s.over, b, min(a, b))
        for a, b in ((near.mix, far.mix), (near.mix_ll, far.mix_ll))
    )
    if kind in ("broadcast", "reduce"):
        return [ring(net, s, whole=True)._replace(mix=mix)]
    times = 2.0 if kind == "all_reduce" else 1.0
    candidates = [
        ring(net, s, times)._replace(mix=mix),
        ring_ll(net, s, times)._replace(mix=mix_ll),
    ]
    if near.ll128:
        by_ll128 = ring_ll128(net, s, times)._replace(
            mix=where(s.over, far.mix_ll, min(near.mix, far.mix_ll))
        )
        candidates.append(
            by_ll128
            if net.ll128_between
            else pick(s.over, candidates[0], by_ll128)
        )
    if kind == "all_reduce":
        candidates += (
            trees(net, s, chains=False) if net.inside < len(s.used) else ()
        )
        candidates += (
            [pick(s.over, candidates[0], nvls_load(net, s, NVLS_GROWS))]
            if adds_up(net)
            else []
        )
    return candidates


def _rate_ll128(net: Links, rate: Num, t: Transport) -> Num:
    """What a chip sends by LL128, by the links inside a node or out of it."""
    most = net.near.channel_ll128
    return (
        rate * t.ll128
        if t.inside or most is None
        else minimum(rate * t.ll128, most)
    )


def _nearer_is_quicker(net: Links, _: Group) -> bool:
    return nearer_is_quicker(net)


def nearer_is_quicker(net: Links) -> bool:
    """No dimension beats one before it in a step or in the rate of a protocol: the nearest group is
    the quickest.
    """
    if not net.nearer_is_faster:
        return False
    on = net.ll128_between
    steps = [
        (t.hop, t.hop_ll, t.hop_ll128 if on else 0.0) for t in net.transports
    ]
    speeds = [
        (
            rate,
            rate * t.ll,
            _rate_ll128(net, rate, t) if on else 0.0,
            rate * t.exchange,
            rate * (t.ll if t.inside else t.climb_rate_ll),
        )
        for rate, t in zip(
            net.reach((2.0,) * len(net.rates)), net.transports, strict=True
        )
    ]
    sooner = all(
        a <= b
        for near, far in pairwise(steps)
        for a, b in zip(near, far, strict=True)
    )
    own = [
        1.0 + net.near.copied if i == net.inside else 1.0
        for i in range(1, len(speeds))
    ]
    pairs = zip(pairwise(speeds), own, strict=True)
    return sooner and all(
        a >= b * more
        for (near, far), more in pairs
        for a, b in zip(near, far, strict=True)
    )


NCCL = Nccl()
