"""One transformer layer under Megatron-LM tensor parallelism (1D), with sequence and context
parallelism.

Column-parallel then row-parallel matrices: heads and feed-forward are cut tp ways, tokens cp ways.
Around each pair the activations are gathered and reduce-scattered over tp (with sequence
parallelism) or all-reduced (without). LBL's "1D TP" is this with cp = 1, its "2D TP" (`scheme =
"context"`) this with cp = n2; what `scheme = "gspmd"` does otherwise stands in `gspmd`. Source:
Korthikanti et al. 2022; Subramanian et al. 2024, Tables A1 and A2.
"""

from __future__ import annotations

from collections.abc import Callable

from ..describe.layers import Kind
from . import traced
from .attention import attention
from .convolution import convolution
from .feed_forward import dense, parallel_block
from .linear_attention import linear_attention
from .microbatch import DeviceMicrobatch
from .moe import experts
from .state_space import state_space
from .work import Op


def megatron_layer(microbatch: DeviceMicrobatch, kind: Kind) -> list[Op]:
    """Operations of one layer for one microbatch on one device, in forward order."""
    if microbatch.model.traced:
        return traced.traced_layer(microbatch, kind)
    ops: list[Op] = []
    for word in kind.mixers:
        mixed = MIXERS[word](microbatch, kind)
        ops += mixed[1:] if ops else mixed  # side by side they share a norm
    if kind.moe:
        return ops + experts(
            microbatch, beside=parallel_block(microbatch.model, kind)
        )
    return ops + (
        dense(microbatch, width=microbatch.model.ffn, kind=kind)
        if kind.ffn
        else []
    )


def no_mixer(microbatch: DeviceMicrobatch, kind: Kind) -> list[Op]:
    """A layer that only feeds forward."""
    return []


MIXERS: dict[str, Callable[[DeviceMicrobatch, Kind], list[Op]]] = {
    "full": attention,
    "sliding": attention,
    "sparse": attention,
    "chosen": attention,
    "linear": linear_attention,
    "ssm": state_space,
    "conv": convolution,
    "none": no_mixer,
}
"""Word of a layer's pattern -> its operations."""
