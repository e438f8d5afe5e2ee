"""The parameters of a stage by their global names: their first values, the same under every layout,
and strict semantics checked on the running program.

Each parameter has its own random numbers, drawn from the seed and its name, block by block, so that
a rank draws little more than its own. Matrices N(0, 0.02^2), those that write to the residual
stream N(0, 0.02^2 / 2L) (Radford et al. 2019, GPT-2), biases 0, norms 1. Whoever holds the same
part of a weight holds the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import (
    compute_local_shape_and_global_offset,
)

from ..describe.model import Model
from ..errors import MeshwrightError
from . import watchdog
from .model import Decoder

DEVIATION = 0.02


def parameters_of_stages(
    stage: nn.Module, m: Model
) -> Iterator[tuple[str, nn.Parameter]]:
    """(global name, parameter). A tied head on a stage of its own has the embedding's name, for it
    has its values.
    """
    for name, p in stage.named_parameters():
        yield (
            "embedding.weight"
            if m.tied_embeddings and name == "head.weight"
            else name,
            p,
        )


BLOCK = 2**10
"""Rows and columns that are drawn together: a rank draws no more than the blocks that it has a part
of, whatever its part is.
"""


def initial(
    name: str,
    shape: torch.Size,
    m: Model,
    seed: int,
    part: tuple[slice, ...] | None = None,
) -> Tensor:
    """The first value of a parameter, or of this part of it, fp32 on the CPU."""
    part = part or tuple(slice(0, n) for n in shape)
    size = [s.stop - s.start for s in part]
    if name.endswith("bias"):
        return torch.zeros(size)
    if "norm" in name:
        return torch.ones(size)
    residual = name.endswith(("attention.wo.weight", "down.weight"))
    deviation = DEVIATION / (2 * m.layers) ** 0.5 if residual else DEVIATION
    tensor = torch.empty(size)
    for block in blocks(shape, part):
        drawn = torch.empty([s.stop - s.start for s in block]).normal_(
            0.0, deviation, generator=generator(name, block, seed)
        )
        both = [
            slice(max(a.start, b.start), min(a.stop, b.stop))
            for a, b in zip_(block, part)
        ]
        into, out = (
            tuple(
                slice(s.start - first.start, s.stop - first.start)
                for s, first in zip_(both, whole)
            )
            for whole in (part, block)
        )
        tensor[into] = drawn[out]
    return tensor


zip_ = partial(zip, strict=True)


def blocks(
    shape: torch.Size, part: tuple[slice, ...]
) -> Iterator[tuple[slice, ...]]:
    """The blocks of a tensor that a part of it meets; of matrices side by side, each its own."""
    ways = []
    for dim, (whole, mine) in enumerate(zip_(shape, part)):
        step = BLOCK if dim >= len(shape) - 2 else 1
        first = mine.start // step
        last = -(-mine.stop // step)
        ways.append(
            [
                slice(i * step, min((i + 1) * step, whole))
                for i in range(first, last)
            ]
            if mine.stop > mine.start
            else []
        )
    return product(*ways)


def generator(
    name: str, block: tuple[slice, ...], seed: int
) -> torch.Generator:
    """The generator of the random numbers of one block."""
    at = "/".join(str(s.start) for s in block)
    digest = hashlib.sha256(f"{seed}/{name}/{at}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def region(p: Tensor) -> tuple[slice, ...]:
    """Which part of the whole tensor this rank holds."""
    if not isinstance(p, DTensor):
        return tuple(slice(0, n) for n in p.shape)
    shape, offset = compute_local_shape_and_global_offset(
        p.shape, p.device_mesh, p.placements
    )
    return tuple(slice(at, at + n) for at, n in zip_(offset, shape))


def local(x: Tensor) -> Tensor:
    """This rank's part of a tensor, without communication."""
    return x.to_local() if isinstance(x, DTensor) else x


@torch.no_grad()
def initialise(stage: nn.Module, m: Model, seed: int) -> None:
    """Fill a stage's parameters in place, each rank its own part."""
    for name, p in parameters_of_stages(stage, m):
        watchdog.beat(f"drawing {name}"[:48])
        local(p).copy_(
            initial(name, shape=p.shape, m=m, seed=seed, part=region(p))
        )


Prints = list[tuple[tuple[Any, ...], int]]
"""((name of a parameter, the part of it), sum of its bits (`digest`)) of each."""
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
    sums: list[tuple[tuple[Any, ...], Tensor]] = []
    for number, stage in stages.items():
        for name, p in parameters_of_stages(stage, stage.m):
            part = tuple((s.start, s.stop) for s in region(p))
            key = name, part, number if name != "embedding.weight" else 0
            sums.append((key, digest(local(p))))
    values = torch.stack([x for _, x in sums]).tolist() if sums else []
    return [(key, value) for (key, _), value in zip_(sums, values)]


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
        for key, value in prints_of:
            first, expected = seen.setdefault(key, (rank, value))
            if value != expected:
                raise ReplicasDiffer(
                    f"after step {step}, ranks {first} and {rank} hold different values of {key[0]}"
                )
            if first != rank:
                shared.add(key)
    return len(shared)
