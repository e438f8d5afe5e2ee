"""Strict semantics, checked on the running program: whoever holds the same part of a weight holds
the same bits.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import MeshwrightError
from .initial import local, parameters, region
from .model import Decoder

Prints = dict[tuple[Any, ...], str]
"""(name of a parameter, the part of it) -> hash of its bits."""


class ReplicasDiffer(MeshwrightError):
    """Two ranks hold different values of the same weights."""

    exit_code = 3


def prints(stages: dict[int, Decoder]) -> Prints:
    """The hashes of this rank's weights."""
    found = {}
    for number, stage in stages.items():
        for name, p in parameters(stage, stage.m):
            part = tuple((s.start, s.stop) for s in region(p))
            found[
                (name, part, number if name != "embedding.weight" else 0)
            ] = digest(local(p))
    return found


def digest(x: Tensor) -> str:
    """Hash of a tensor's bits."""
    return hashlib.sha256(
        x.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes()
    ).hexdigest()


def check(stages: dict[int, Decoder], step: int) -> int:
    """Compare all ranks; the number of parts that more than one rank holds. Raises
    ReplicasDiffer.
    """
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, prints(stages))
    seen: dict[tuple[Any, ...], tuple[int, str]] = {}
    shared = set()
    for rank, found in enumerate(every):
        for key, value in found.items():
            first, expected = seen.setdefault(key, (rank, value))
            if value != expected:
                raise ReplicasDiffer(
                    f"after step {step}, ranks {first} and {rank} hold different values of {key[0]}"
                )
            if first != rank:
                shared.add(key)
    return len(shared)
