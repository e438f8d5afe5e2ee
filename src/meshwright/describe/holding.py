"""What a framework holds in a device's memory beside the tensors that the mathematics needs; a
profile gives a source for each field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from .fields import ASK, FROM_0, Amount, Bytes, Checked, OneOf, With
from .frozendict import EMPTY
from .precision import Compute

HELD = With("memory.resident", "held", ASK)
"""Counts of memory that add it up."""
Held = Annotated[Bytes, FROM_0, HELD]


@dataclass(frozen=True)
class Holding(Checked):
    """Bytes that a framework's code holds. The defaults are those of a set that counts none of
    it.
    """

    norm_extra: Held = 0.0
    """Of each element of an RMS norm of separate torch kernels, over a fused one's 16-bit input:
    the input is kept in fp32 in its place, and beside it the normalised value in 16 bits.
    """
    gradient_bytes: Annotated[Mapping[Compute, Amount], HELD] = EMPTY
    """Precision of the products -> bytes of a gradient while it is accumulated; others, and numbers
    that say 16 bits, as the job says.
    """
    shard_is_master: Annotated[bool, HELD] = False
    """Sharded weights (ZeRO-3) are kept in fp32 alone and cast as they are gathered; else a 16-bit
    shard lies beside the optimizer's fp32 master.
    """
    narrow_moments: Annotated[bool, HELD] = False
    """An optimizer that is named keeps its moments in the numbers of the weights, which are their
    own master (a model made in 16 bits); else it keeps what its name says, in fp32.
    """
    narrow_gradients: Annotated[bool, HELD] = False
    """Gradients have the numbers of the weights, but for whole ones that wait to be summed over
    replicas; else all are as wide as accumulated ones.
    """
    unit_gradient: Annotated[
        str, OneOf("accumulated", "activations", "none"), HELD
    ] = "accumulated"
    """Whole gradients of a unit whose gradients are sharded (ZeRO 2 and 3) are as wide as
    "accumulated" ones, as "activations", or there are "none".
    """
    step_gradients: Annotated[str, OneOf("kept", "layers", "loop"), HELD] = (
        "kept"
    )
    """Gradients of a step of one microbatch are there all the time (kept); or the optimizer's step
    frees them, so that those of layers arise while their activations leave (layers), unless
    replicas sum whole ones in buckets that stay; or they are arrays of a loop over layers, there
    from its begin beside all activations, and not beside the logits (loop).
    """
    step_bytes: Held = 0.0
    """Of each parameter that a rank updates, while the optimizer runs, where gradients are
    accumulated in 16 bits: their fp32 copies.
    """
    step_copies: Annotated[str, OneOf("reused", "new"), HELD] = "reused"
    """These copies lie in memory that activations have left ("reused"), or in a block larger than
    any cached ("new"): that adds to what the allocator holds, but not to what a device must have,
    since the cache is freed before an allocation fails.
    """
    step_elements: Annotated[Amount, HELD] = 0.0
    """Most parameters whose copies are there at once where weights are sharded (ZeRO-3); 0: all
    that a rank updates."""
    dummy_weight_gradients: Annotated[bool, HELD] = False
    """Autograd gets a 16-bit tensor in place of each weight gradient that is accumulated elsewhere:
    one for each shape of weight in a layer, for the whole run but where gradients are sharded, and
    the head's beside the logits."""
    keeps_pipeline_outputs: Annotated[bool, HELD] = False
    """A pipeline keeps each stage's output beside its input until the backward pass."""
    bucket_elements: Annotated[Amount, HELD] = 0.0
    """Most gradients that are copied into one block to be reduced, unless the job says how many
    (`Software.bucket_size`)."""
    backward_share: Annotated[Amount, HELD] = 0.0
    """Temporaries of the backward pass of a layer, over what the layer keeps if nothing is computed
    again.
    """
    holds_recomputed: Annotated[bool, HELD] = True
    """What a layer's recomputation makes is there at once; else a compiler that knows the room
    makes each tensor where it is read, once more if need be.
    """
    gathered_twice: Annotated[bool, HELD] = False
    """The backward pass of a tensor-parallel product holds its input, gathered over tp with
    sequence parallelism, and that input's gradient, beside their shards; twice of each
    (DTensor)."""
    allocator_share: Amount = 0.0
    """Bytes that the allocator holds and no tensor uses, over those of tensors, at the peak."""
    allocator_need: Amount = 0.0
    """The same of what a device must have: the allocator frees its cache and tries again before it
    fails.
    """
