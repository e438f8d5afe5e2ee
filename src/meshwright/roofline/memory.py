"""Bytes on one chip as the scaling book counts them: weights, optimizer state, activation
checkpoints, all cut evenly.

The book keeps bf16 weights and two fp32 Adam moments, 10 bytes a parameter, and counts gradients
and fp32 master weights as nothing; `KEPT` has both habits side by side. Source: How To Scale Your
Model, parts 4 to 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..describe.job import OPTIMIZERS, PRECISIONS
from ..num import Num
from ..step.zero import state_bytes

_BF16 = PRECISIONS["bf16"]
KEPT: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        "book": (
            _BF16.weight_bytes,
            0.0,
            OPTIMIZERS["adamw-no-master"].state_bytes,
        ),
        "full": (
            _BF16.weight_bytes,
            _BF16.gradient_bytes,
            OPTIMIZERS["adamw"].state_bytes,
        ),
    }
)
"""habit -> bytes of a parameter's weight, gradient and optimizer state: 2 + 8, and with fp32
gradients and master weights 2 + 4 + 12."""
FSDP = 3
"""ZeRO stage that shards all of them."""


def checkpoints(
    layers: Num, tokens: Num, width: Num, each: Num = 1.0, size: float = 2.0
) -> Num:
    """Bytes of activations kept for the backward pass on all chips together: `each` tensors of
    `width` a layer and token.

    1 of width D: whole blocks are recomputed;  about 7: only big products are kept;  about 20:
    nothing is recomputed.
    """
    return size * layers * tokens * width * each


def states(parameters: Num, shards: Num = 1.0, habit: str = "book") -> Num:
    """Bytes of weights, gradients and optimizer state of one of so many shards, in a habit of
    `KEPT`.
    """
    share = parameters / shards
    return state_bytes(
        *KEPT[habit], full=parameters, split=share, zero=FSDP
    ).total


def per_chip(
    parameters: Num, kept: Num, chips: Num, shards: Num, habit: str = "book"
) -> Num:
    """Bytes of one of `chips` chips: states cut `shards` ways (FSDP, TP and both: all chips; DP:
    1), activations over all."""
    return states(parameters, shards, habit) + kept / chips
