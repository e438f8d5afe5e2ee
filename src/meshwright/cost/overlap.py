"""What communication costs once part of it hides behind compute."""

from __future__ import annotations

from collections.abc import Sequence

from ..num import Num, maximum, minimum
from . import levels


def behind_layers(collective: Num, layer: Num, layers: Num) -> Num:
    """Exposed seconds of one collective a layer that runs beside the compute of the next layer.

    The first one is always exposed, of the others what outlasts a layer: T + (layers - 1) max(T - t_layer, 0).
    Source: Subramanian et al. 2024, section 3.4 (data parallel).
    """
    return collective + maximum(collective - layer, 0.0) * (layers - 1)


def prefetched(collective: Num, layer: Num, layers: Num) -> Num:
    """Exposed seconds of one collective a layer when it was started a whole pass earlier: only what outlasts the layers."""
    return maximum(collective - layer, 0.0) * layers


def summa(panel: Num, work: Num, panels: Num) -> Num:
    """Exposed seconds of a SUMMA product: the first panel's broadcasts, and what of all of them outlasts the product's work.

    panel: seconds of one panel's broadcasts;  work: seconds of the whole product.  S + max(nb S - X, 0).
    Source: Subramanian et al. 2024, section 3.4 (prologue and exposed time), as its code adds them up.
    """
    return panel + maximum(panels * panel - work, 0.0)


def partly(comm: Num, share: float, work: Num) -> Num:
    """Exposed seconds when up to `share` of the communication can run beside `work` seconds of compute."""
    if not share:
        return comm
    return comm - minimum(share * comm, work)


def mesh(loads: Sequence[Sequence[Num]], policy: str) -> Num:
    """Seconds of several mesh axes' collectives, each given as the seconds it keeps every network dimension busy.

    policy: "none", one mesh axis after the other, or "full", beside each other: the busiest dimension counts.
    Source: How To Scale Your Model, part 5, whose editions of February 2025 add and whose newest edition takes the larger.
    """
    if policy == "full":
        return levels.slowest(*loads)
    total: Num = 0.0
    for load in loads:
        total = total + levels.slowest(load)
    return total
