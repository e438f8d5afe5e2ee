"""What ranks send each other; and the words of an exchange of keys and values between the ranks of
cp: what is sent, and what attention then works on.

Letters: b sequences of T tokens, cut cp ways; H query and K key/value heads of one tp rank, of
widths q (queries, keys) and v (values).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..num import Num
from .reach import Draw


class Message(NamedTuple):
    """One collective over the ranks of one axis."""

    kind: str
    """all_gather, reduce_scatter, all_reduce, all_to_all, broadcast, reduce; ring, blocks that go
    round; or the name of a dispatcher whose own kernels send it (`exchange.KERNELS`).
    """
    axis: str
    """tp, cp, ep, etp, replicas, edp: a group of `Layout.group`."""
    bytes: Num
    """The FULL vector: what each rank ends with (all_gather), starts with (reduce_scatter,
    all_to_all) or holds (all_reduce, broadcast, reduce).
    """
    draw: Draw = Draw()
    """Of these kernels: the experts that a token goes to; `bytes` counts each of them."""


class RankHeads(NamedTuple):
    """One microbatch on one tp rank."""

    b: Num
    T: Num
    cp: Num
    H: Num
    K: Num
    q: Num
    v: Num

    @property
    def keys(self) -> Num:
        """Elements of all keys and values."""
        return self.b * self.K * self.T * (self.q + self.v)


class Collective(NamedTuple):
    """One collective over cp."""

    kind: str
    """As `Message.kind`; ring: as many sends to the next rank as there are other ranks."""
    elements: Num
    """Of the full vector."""


class AttentionWork(NamedTuple):
    """What attention on a rank works on."""

    H: Num
    K: Num
    queries: Num
    """Tokens whose queries are there; keys are all T of them, at once or block by block."""


def own_queries(h: RankHeads) -> AttentionWork:
    """All heads of the tp rank, for the rank's own tokens."""
    return AttentionWork(h.H, h.K, h.T / h.cp)


@dataclass(frozen=True)
class Exchange:
    """One way to give every query its keys."""

    name: str
    """What a layout calls it."""
    title: str
    source: str
    forward: Callable[[RankHeads], tuple[Collective, ...]]
    backward: Callable[[RankHeads, bool], tuple[Collective, ...]]
    """(heads, keys and values were kept) -> messages."""
    work: Callable[[RankHeads], AttentionWork] = own_queries
    holds: Callable[[Any, Any], Any] = lambda kv_heads, ranks: True
    """(kv heads, tp x cp) -> where it can run."""
    output_sent: bool = False
    """What attention returns was sent, and is another tensor than what its backward pass reads."""
    refusal: str = ""
    """Why it cannot, where it does not."""

    @property
    def all_keys(self) -> bool:
        """Each rank is given the keys of all tokens, whatever window its queries have."""
        return self.work is own_queries
