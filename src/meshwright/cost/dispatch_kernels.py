"""Tokens to experts and back by kernels that send a token once to each node (DeepEP, HybridEP).

A token goes to k of the experts, dealt evenly over n ranks on N nodes of g. It reaches N (1 - (1 -
1/N)^k) nodes, and is handed on inside them to n (1 - (1 - 1/n)^k) ranks; to fewer where a router is
limited to groups of experts (`exchange.reach`):

    b_net = V/k (N - 1) (1 - (1 - 1/N)^k) / W_net
    b_node = V/k n (1 - (1 - 1/n)^k) (g - 1)/g / min(share W_node, most)

V = k times the tokens of a rank, as for an all-to-all; most: what the multiprocessors that the
kernels run on bring into a link (`NodeKernels`). Both run at once: t = t0 + sqrt(b_net^2 +
b_node^2). Source: DeepSeek-AI 2024, arXiv 2412.19437, section 3.2; measured times of DeepEP on 1, 2
and 4 nodes: ai-dynamo/aiconfigurator; of HybridEP: its authors (docs/collectives.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..count.work import Op
from ..exchange import KERNELS
from ..exchange.reach import Draw, expected_reach
from ..num import Num, maximum, product, sqrt, where
from .links import Group, Links
from .load import Busy, Load
from .span import over


def has_dispatch_kernel(ops: Iterable[Op]) -> bool:
    """Tokens go to experts by a kernel that orders them too."""
    return any(
        message.kind in KERNELS and KERNELS[message.kind].ordered
        for op in ops
        for message in op.forward.comm
    )


def once_a_node(
    net: Links,
    V: Num,
    group: Group,
    draw: Draw,
    kernel: str,
) -> Load:
    """One way of a layer's tokens by a `kernel` of `KERNELS`; V bytes are sent by a rank if each
    copy goes by itself.
    """
    s = over(net, group).span
    near = net.near
    far = net.far
    token = V / draw.copies
    rates = net.reach(group)
    inside = token * expected_reach(s.n, draw) * (s.g - 1) / s.g
    nodes = expected_reach(s.nodes, draw)
    outside = token * nodes * (s.nodes - 1) / s.nodes
    reached = KERNELS[kernel]
    busy_in = inside * maximum(
        s.slowest(rates[: net.inside]) / reached.share.value,
        1.0 / reached.most.value,
    )
    busy_out = outside * s.g * s.slowest(rates[net.inside :], net.inside)
    sends = (V > 0) & (s.n > 1)
    start = near.exchange_launch + where(s.over, far.exchange_launch, 0.0)
    seconds = where(
        sends, start + sqrt(busy_in * busy_in + busy_out * busy_out), 0.0
    )
    busy = Busy(
        [busy_in] * net.inside + [busy_out] * (len(rates) - net.inside)
    )
    return Load(
        seconds,
        where(sends, start, 0.0),
        Busy(where(u, b, 0.0) for u, b in zip(s.used, busy, strict=True)),
    )


def floor_load(net: Links, V: Num, group: Group, draw: Draw) -> Load:
    """At most that of any group of at least so many ranks: what leaves a rank at all, over the
    fastest link.
    """
    n = product(group)
    seconds: Num = V / draw.copies * (n - 1) / n / max(net.rates)
    return Load(seconds, 0.0 * seconds)
