"""Keys and values go round a ring of ranks, block by block, while each rank computes with the block
that it has.

Forward: cp - 1 sends of a block of K and V, b K T (q + v) / cp elements. Backward: the blocks go
round again, and their gradients with them. Source: Liu et al. 2023, arXiv 2310.01889 (ring
attention); Transformer Engine, cp_comm_type p2p.
"""

from __future__ import annotations

from .types import Collective, Exchange, RankHeads


def _forward(h: RankHeads) -> tuple[Collective, ...]:
    return (Collective("ring", h.keys),)


def _backward(h: RankHeads, kept: bool) -> tuple[Collective, ...]:
    return (Collective("ring", 2 * h.keys),)


RING = Exchange(
    name="ring",
    title="ring attention",
    source="Liu et al. 2023, arXiv 2310.01889",
    forward=_forward,
    backward=_backward,
)
