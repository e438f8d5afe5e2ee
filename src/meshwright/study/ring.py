"""Collectives written out as messages round a ring, so that every byte is counted where it leaves.

Each of n ranks holds a tensor of N bytes, cut into n parts. In n - 1 turns everyone passes one
part to the next rank:

    reduce-scatter   adds what comes in       sends (n-1)/n N, ends with one part of the sum
    all-gather       keeps what comes in      sends (n-1)/n N, ends with all parts
    all-reduce       one, then the other      sends 2 (n-1)/n N
    all-to-all       part i goes to rank i    sends (n-1)/n N

A gradient flows against the data: what is gathered going forward is reduce-scattered coming back.
`conjugate` says both at once, and each axis of parallelism is one or two such pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Operator = Callable[[Tensor], Tensor]


class RankRing:
    """Some of the world's ranks in a circle, and the bytes that this one has sent to the others.

    lose: the message, counted from one, that arrives as zeros: a fault to be seen.
    """

    def __init__(self, ranks: Sequence[int], lose: int = 0) -> None:
        self.ranks, self.size = ranks, len(ranks)
        self.rank = ranks.index(dist.get_rank())
        self.sent = self.arrived = 0
        self.calls = Counter[str]()
        """Collectives, by the letters they are known by; an all-reduce is an RS and an AG."""
        self.lose = lose
        self.pending: list[tuple[Any, Tensor]] = []

    def send(self, x: Tensor, to: int, tag: int = 0) -> None:
        """Begin to send; the tensor is kept until `wait`."""
        self.sent += x.nbytes
        x = x.contiguous()
        work = dist.isend(x, self.ranks[to % self.size], tag=tag)
        self.pending.append((work, x))

    def receive(self, like: Tensor, source: int, tag: int = 0) -> Tensor:
        x = torch.empty_like(like, memory_format=torch.contiguous_format)
        dist.recv(x, self.ranks[source % self.size], tag=tag)
        self.arrived += 1
        return x.zero_() if self.arrived == self.lose else x

    def wait(self) -> None:
        """Until all that was sent has left."""
        for work, _ in self.pending:
            work.wait()
        self.pending.clear()

    def exchange(self, x: Tensor, distance: int = 1) -> Tensor:
        """Send to the rank that stands so far ahead, receive from the one as far behind."""
        self.send(x, self.rank + distance)
        y = self.receive(x, self.rank - distance)
        self.wait()
        return y

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        """Part r of the sum, on rank r."""
        self.calls["RS"] += 1
        # the part that has farthest to go, that of the rank behind, starts first; after each turn
        # a rank holds the sum of one rank more, of the part one further back (negative: from the
        # end of the ring)
        total = parts[self.rank - 1]
        for turn in range(2, self.size + 1):
            total = self.exchange(total) + parts[self.rank - turn]
        return total

    def all_gather(self, part: Tensor) -> list[Tensor]:
        """The parts of all ranks, in their order."""
        self.calls["AG"] += 1
        parts = [part] * self.size
        for turn in range(1, self.size):
            part = self.exchange(part)
            parts[self.rank - turn] = part
        return parts

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum, on every rank to the same bits."""
        parts = x.reshape(self.size, -1)
        return torch.cat(
            self.all_gather(self.reduce_scatter(parts.unbind()))
        ).view(x.shape)

    def all_to_all(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Part i of every rank, on rank i."""
        self.calls["A2A"] += 1
        out = list(parts)
        for ahead in range(1, self.size):
            out[self.rank - ahead] = self.exchange(
                parts[(self.rank + ahead) % self.size], ahead
            )
        return out


class Conjugate(torch.autograd.Function):
    """One operator on the data, another on the gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, forward: Operator, backward: Operator
    ) -> Tensor:
        ctx.operator = backward
        return forward(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.operator(gradients[0]), None, None


def conjugate(forward: Operator, backward: Operator) -> Operator:
    """An operator whose gradient goes through another."""
    return lambda x: Conjugate.apply(x, forward, backward)  # type: ignore[no-untyped-call]


def identity(x: Tensor) -> Tensor:
    return x.view_as(x)
