"""Every rank gathers the keys and values of all others.

Forward: all-gather of K and V, b K T (q + v) elements. Backward: the same again, unless they were
kept, and a reduce-scatter of dK and dV. Source: Subramanian et al. 2024, arXiv 2410.00273, section
3 ("2D TP"); Grattafiori et al. 2024, arXiv 2407.21783, section 3.3.2 (Llama 3).
"""

from __future__ import annotations

from .types import Collective, Exchange, RankHeads


def _forward(h: RankHeads) -> tuple[Collective, ...]:
    return (Collective("all_gather", h.keys),)


def _backward(h: RankHeads, kept: bool) -> tuple[Collective, ...]:
    again = () if kept else _forward(h)
    return (*again, Collective("reduce_scatter", h.keys))


GATHER = Exchange(
    name="gather",
    title="all-gather of keys and values",
    source="Grattafiori et al. 2024, arXiv 2407.21783, section 3.3.2",
    forward=_forward,
    backward=_backward,
)
