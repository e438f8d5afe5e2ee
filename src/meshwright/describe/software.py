"""What a job says of its software beside the framework's name: settings of a run or a recipe, each
one word.

A setting that is not given is the framework's (`describe.framework`), whose fields have the same
names and stand there with a source.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .fields import Checked
from .frozen import shown

UNFUSED = ("torch", "fused-softmax")
"""Attention kernels that write the T x T scores to memory; all others are fused."""


@dataclass(frozen=True)
class Software(Checked):
    """Settings of the software; None = what the framework does by itself."""

    cuda_graphs: str | None = None
    """CUDA graphs: off, parts (of a layer), or full (the whole iteration)."""
    compiled: bool | None = None
    """torch.compile fuses passes over activations."""
    norm: str | None = None
    """Norms run as a fused kernel of their own (fused), or as separate torch kernels (torch)."""
    float8: str | None = None
    """Scaling of FP8 numbers: delayed, tensorwise, rowwise, blockwise or mxfp8."""
    dispatcher: str | None = None
    """What sends tokens to experts: alltoall, or deepep and hybridep, which send a token once to a
    node.
    """
    ep_overlap: bool | None = None
    """All-to-all of the experts runs beside another microbatch's compute."""
    tp_overlap: str | None = None
    """Collectives of tensor parallelism run beside compute: off, backward (beside the weight
    gradient), or all (AsyncTP, XLA).
    """
    dp_overlap: str | None = None
    """Collectives of replicas run beside compute: off, gradients (their sums alone, gathers of
    weights are waited for), or all.
    """
    gradients: str | None = None
    """Gradients are accumulated and reduced in fp32, or as wide as activations (half)."""
    loss: str | None = None
    """How the loss is computed: as the framework does by itself (own), or by torch in eager mode
    (eager).
    """
    logits_gathered: bool | None = None
    """The logits of all tp ranks are gathered on each before the loss."""

    gathered_inputs: str | None = None
    """With sequence parallelism the gathered input of a column-parallel matrix is kept, or its
    shard is gathered again in the backward pass (regathered).
    """
    input_gradients: str | None = None
    """Without sequence parallelism the gradients of the input of gate and up are all-reduced
    together, or apart (each matrix a module of its own).
    """
    stage_message: str | None = None
    """Without sequence parallelism a tp rank sends its share of the activation to the next stage
    (scattered), or all of it (whole).
    """

    __repr__ = shown

    @property
    def given(self) -> dict[str, Any]:
        """The settings that the job states."""
        return {
            f.name: value
            for f in fields(self)
            if (value := getattr(self, f.name)) is not None
        }


NOTHING_SAID = Software()
