"""Context parallelism: the sequence is cut cp ways, and attention exchanges keys and values with
the other ranks, in one of the ways of `meshwright.exchange`.
"""

from __future__ import annotations

from ..describe.layout import Layout
from ..exchange import EXCHANGES, AttentionWork, Collective, RankHeads
from ..exchange.types import Message
from ..num import Num
from .microbatch import DeviceMicrobatch
from .work import Op


def exchange(
    layout: Layout, heads: RankHeads, act: float, keys: str = "regathered"
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Messages of the attention core (forward, backward), `act` bytes an element.

    keys: "kept" or "regathered" in backward.
    """
    how = EXCHANGES[layout.cp_exchange]

    def messages(sent: tuple[Collective, ...]) -> tuple[Message, ...]:
        return tuple(
            Message(one.kind, "cp", one.elements * act) for one in sent
        )

    return messages(how.forward(heads)), messages(
        how.backward(heads, keys == "kept")
    )


def heads_of(
    microbatch: DeviceMicrobatch, H: Num, K: Num, q: Num, v: Num
) -> RankHeads:
    """One microbatch on one tp rank; H query and K key/value heads of widths q and v."""
    return RankHeads(
        microbatch.b, T=microbatch.T, cp=microbatch.cp, H=H, K=K, q=q, v=v
    )


def attended(layout: Layout, heads: RankHeads) -> AttentionWork:
    """What attention on a rank works on."""
    return EXCHANGES[layout.cp_exchange].work(heads)


def with_all_to_all(op: Op, volume: Num) -> Op:
    """With an all-to-all over cp that turns parts of the sequence into whole sequences of some
    heads, or back: what has a state (linear attention, state spaces) needs the tokens in order.
    Source: Megatron Core, core/ssm/mamba_context_parallel.py; gated delta net: its pull request
    2642.
    """
    both = (Message("all_to_all", "cp", volume),)
    return op._replace(
        forward=op.forward._replace(comm=both),
        backward=op.backward._replace(comm=both),
    )
