"""Context parallelism: the sequence is cut cp ways and attention gathers the keys and values of the
other ranks.

Forward: all-gather of K and V, b K T (q + v) elements. Backward: the same again, unless they were
kept, and a reduce-scatter of dK and dV. Source: Subramanian et al. 2024, section 3 ("2D TP"); ring
attention moves the same volume block by block.
"""

from __future__ import annotations

from ..describe.layout import Layout
from ..num import Num
from .work import Local, Message, Op


def exchange(
    layout: Layout, size: Local, K: Num, q: Num, v: Num, act: float, keys: str = "regathered"
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Messages of the attention core (forward, backward); K local kv heads of widths q and v, `act`
    bytes an element.

    keys: "kept" or "regathered" in backward.
    """
    volume = size.b * K * size.T * (q + v) * act
    gather = Message("all_gather", "cp", volume)
    again = (gather,) if keys == "regathered" else ()
    return (gather,), (*again, Message("reduce_scatter", "cp", volume))


def exchanged(op: Op, volume: Num) -> Op:
    """With an all-to-all over cp that turns parts of the sequence into whole sequences of some
    heads, or back: what has a state (linear attention, state spaces) needs the tokens in order.
    Source: Megatron Core, core/ssm/mamba_context_parallel.py; gated delta net: its pull request
    2642.
    """
    both = (Message("all_to_all", "cp", volume),)
    return op._replace(
        forward=op.forward._replace(comm=both), backward=op.backward._replace(comm=both)
    )
