"""First weights, the same under every layout: each parameter has its own random numbers, drawn from
the seed and its global name.

Matrices N(0, 0.02^2), those that write to the residual stream N(0, 0.02^2 / 2L) (Radford et al.
2019, GPT-2), biases 0, norms 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import starmap

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from ..describe.model import Model

DEVIATION = 0.02


def parameters(stage: nn.Module, m: Model) -> Iterator[tuple[str, nn.Parameter]]:
    """(global name, parameter). A tied head on a stage of its own has the embedding's name, for it
    has its values.
    """
    for name, p in stage.named_parameters():
        yield "embedding.weight" if m.tied_embeddings and name == "head.weight" else name, p


def initial(name: str, shape: torch.Size, m: Model, seed: int) -> Tensor:
    """The whole first value of a parameter, fp32 on the CPU."""
    if "norm" in name:
        return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
    if name.endswith("bias"):
        return torch.zeros(shape)
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    residual = name.endswith(("attention.wo.weight", "down.weight"))
    return torch.empty(shape).normal_(
        0.0, DEVIATION / (2 * m.layers) ** 0.5 if residual else DEVIATION, generator=generator
    )


def region(p: Tensor) -> tuple[slice, ...]:
    """Which part of the whole tensor this rank holds."""
    if not isinstance(p, DTensor):
        return tuple(slice(0, n) for n in p.shape)
    shape, offset = compute_local_shape_and_global_offset(p.shape, p.device_mesh, p.placements)
    return tuple(starmap(lambda at, n: slice(at, at + n), zip(offset, shape, strict=True)))


def local(x: Tensor) -> Tensor:
    """This rank's part of a tensor, without communication."""
    return x.to_local() if isinstance(x, DTensor) else x


@torch.no_grad()
def initialise(stage: nn.Module, m: Model, seed: int) -> None:
    """Fill a stage's parameters in place, each rank its own part."""
    for name, p in parameters(stage, m):
        local(p).copy_(initial(name, p.shape, m, seed)[region(p)])
