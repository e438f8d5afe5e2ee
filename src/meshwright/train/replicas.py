"""Strict semantics, checked on the running program: whoever holds the same part of a weight holds
the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import MeshwrightError
from .initial import local, parameters, region
from .model import Decoder

Prints = dict[tuple[Any, ...], int]
"""(name of a parameter, the part of it) -> sum of its bits (`digest`)."""
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
AT_ONCE = 2**24
"""Elements: 128 MiB of factors."""
STEP, SHIFT = -0x61C8864680B583EB, 29
"""2^64 over the golden ratio, odd (Knuth's multiplicative hashing), as a signed number."""


class ReplicasDiffer(MeshwrightError):
    """Two ranks hold different values of the same weights."""

    exit_code = 3


def prints(stages: dict[int, Decoder]) -> Prints:
    """The sums of this rank's weights, made where they are; one copy brings them to the host."""
    sums: dict[tuple[Any, ...], Tensor] = {}
    for number, stage in stages.items():
        for name, p in parameters(stage, stage.m):
            part = tuple((s.start, s.stop) for s in region(p))
            sums[(name, part, number if name != "embedding.weight" else 0)] = (
                digest(local(p))
            )
    values = torch.stack([*sums.values()]).tolist() if sums else []
    return dict(zip(sums, values, strict=True))


@torch.no_grad()
def digest(x: Tensor) -> Tensor:
    """A sum of a tensor's bits, [], int64: of element i, as a whole number, times an odd number
    that depends on i, modulo 2^64. One element that differs always changes it, several do but once
    in 2^64.
    """
    bits = x.detach().contiguous().flatten().view(INTEGERS[x.dtype.itemsize])
    total = torch.zeros((), dtype=torch.int64, device=x.device)
    for at in range(0, len(bits), AT_ONCE):
        part = bits[at : at + AT_ONCE]
        factor = torch.arange(at, at + len(part), device=x.device)
        factor = factor.mul_(STEP).bitwise_xor_(factor >> SHIFT).mul_(STEP)
        total += factor.bitwise_or_(1).mul_(part).sum()
    return total


def check_replicas(stages: dict[int, Decoder], step: int) -> int:
    """Compare all ranks; the number of parts that more than one rank holds. Raises
    ReplicasDiffer.
    """
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, prints(stages))
    seen: dict[tuple[Any, ...], tuple[int, int]] = {}
    shared = set()
    for rank, prints_of in enumerate(every):
        for key, value in prints_of.items():
            first, expected = seen.setdefault(key, (rank, value))
            if value != expected:
                raise ReplicasDiffer(
                    f"after step {step}, ranks {first} and {rank} hold different values of {key[0]}"
                )
            if first != rank:
                shared.add(key)
    return len(shared)
