"""First weights, the same under every layout: each parameter has its own random numbers, drawn from
the seed and its global name, block by block, so that a rank draws little more than its own.

Matrices N(0, 0.02^2), those that write to the residual stream N(0, 0.02^2 / 2L) (Radford et al.
2019, GPT-2), biases 0, norms 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from itertools import product, starmap

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import (
    compute_local_shape_and_global_offset,
)

from ..describe.model import Model
from . import heartbeat

DEVIATION = 0.02


def parameters(
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
        into = tuple(
            slice(a.start - b.start, a.stop - b.start)
            for a, b in zip_(both, part)
        )
        out = tuple(
            slice(a.start - b.start, a.stop - b.start)
            for a, b in zip_(both, block)
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
    return tuple(
        starmap(
            lambda at, n: slice(at, at + n), zip(offset, shape, strict=True)
        )
    )


def local(x: Tensor) -> Tensor:
    """This rank's part of a tensor, without communication."""
    return x.to_local() if isinstance(x, DTensor) else x


@torch.no_grad()
def initialise(stage: nn.Module, m: Model, seed: int) -> None:
    """Fill a stage's parameters in place, each rank its own part."""
    for name, p in parameters(stage, m):
        heartbeat.beat(f"drawing {name}"[:48])
        local(p).copy_(
            initial(name, shape=p.shape, m=m, seed=seed, part=region(p))
        )
