"""Bytes on one chip as the scaling book counts them: weights, optimizer state, activation
checkpoints, all cut evenly.

The book keeps bf16 weights and two fp32 Adam moments, 10 bytes a parameter, and counts gradients
and fp32 master weights as nothing; `STATES` has both habits side by side. Source: How To Scale Your
Model, parts 4 to 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..describe.job import OPTIMIZERS, PRECISIONS
from ..num import Num

STATES: Mapping[str, float] = MappingProxyType(
    {
        "book": PRECISIONS["bf16"].weight_bytes
        + OPTIMIZERS["adamw-no-master"].state_bytes,
        "full": PRECISIONS["bf16"].weight_bytes
        + PRECISIONS["bf16"].gradient_bytes
        + OPTIMIZERS["adamw"].state_bytes,
    }
)
"""habit -> bytes a parameter: 2 + 8, and with fp32 gradients and master weights 2 + 4 + 12."""


def checkpoints(
    layers: Num, tokens: Num, width: Num, each: Num = 1.0, size: float = 2.0
) -> Num:
    """Bytes of activations kept for the backward pass on all chips together: `each` tensors of
    `width` a layer and token.

    1 of width D: whole blocks are recomputed;  about 7: only big products are kept;  about 20:
    nothing is recomputed.
    """
    return size * layers * tokens * width * each


def per_chip(
    parameters: Num,
    kept: Num,
    chips: Num,
    shards: Num,
    state_bytes: float = STATES["book"],
) -> Num:
    """Bytes of one of `chips` chips: states cut `shards` ways (FSDP, TP and both: all chips; DP:
    1), activations over all."""
    return parameters * state_bytes / shards + kept / chips
