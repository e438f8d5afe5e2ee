"""What a job says of its software beside the framework's name: settings of a run or a recipe, each
one word.

A setting that is not given is the framework's (`describe.framework`), whose fields have the same
names and stand there with a source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any

from ..exchange import DISPATCHERS, KERNELS
from .fields import ActsOn, Checked, Known, OneOf, Prose, Range
from .frozen import short_repr
from .recompute import FULL, PARTS

ATTENTION = (
    *("fa1", "triton", "fa2", "fa3", "cudnn", "cudnn-fp8", "efficient", "xla"),
    *("torch", "torch-fp32", "fused-softmax"),
)
"""Attention kernels: FlashAttention of three generations, the first one in Triton too, cuDNN's in
16 and in 8 bits, PyTorch's memory-efficient one (CUTLASS, from xFormers), XLA's own; unfused in
plain torch, in Megatron-LM's torch with scores in fp32, or with its fused softmax.
"""
RECIPES = ("delayed", "tensorwise", "rowwise", "blockwise", "mxfp8")
AttentionKernel = Annotated[str, OneOf(*ATTENTION)]
CudaGraphs = Annotated[str, OneOf("off", "parts", "full")]
Launches = Annotated[str, OneOf("ahead", "blocking")]
Routing = Annotated[str, OneOf("drawn", "neighbours", "padded")]
Norm = Annotated[str, OneOf("fused", "torch")]
Float8 = Annotated[str, OneOf(*RECIPES)]
Recipe = Annotated[str, OneOf(*RECIPES, "nvfp4")]
WeightsQuantised = Annotated[str, OneOf("pass", "step")]
Dispatcher = Annotated[str, OneOf.titled(DISPATCHERS)]
TpOverlap = Annotated[str, OneOf("off", "backward", "all")]
DpOverlap = Annotated[str, OneOf("off", "gradients", "zero3", "all")]
Gradients = Annotated[str, OneOf("fp32", "half")]
LOSSES = (
    *("eager", "narrow", "compiled", "passes", "copies", "fused"),
    *("in place", "kernel", "pieces"),
    *("liger", "cut", "linear chunks", "chunks", "compiled chunks"),
)
"""Implementations of the loss, whose bytes are in catalog/losses.toml (`describe.loss`)."""
Loss = Annotated[str, OneOf(*LOSSES)]
Ends = Annotated[str, OneOf("units", "root", "apart")]
Gathered = Annotated[str, OneOf("regathered", "kept")]
InputGradients = Annotated[str, OneOf("together", "apart")]
StageMessage = Annotated[str, OneOf("scattered", "whole")]
BackwardNeeds = Annotated[str, OneOf("fused", "autograd")]
WeightGradient = Annotated[str, OneOf("apart", "added", "copied", "one pass")]
Rotary = Annotated[
    str, OneOf("fused", "plain", "apart", "torch", "complex", "halves")
]
Gate = Annotated[str, OneOf("fused", "torch")]
ReductionNumbers = Annotated[str, OneOf("kept", "fp32")]
Biases = Annotated[str, OneOf("apart", "chained")]
Selective = Annotated[str, OneOf(*PARTS)]
Full = Annotated[str, OneOf(*FULL)]
TiedGradients = Annotated[str, OneOf("whole", "shards", "none")]
SendOverlap = Annotated[str, OneOf("none", "interleaved", "all")]
SendChannels = Annotated[str, OneOf("one", "several")]
StepBarrier = Annotated[str, OneOf("none", "global norm")]
Resident = Annotated[str, OneOf("layers", "held", "program")]

UNFUSED = ("torch", "torch-fp32", "fused-softmax")
"""Attention kernels that write the T x T scores to memory; all others are fused."""
CAPABILITIES = {
    "fa1": (7.5, math.inf),
    "triton": (8.0, math.inf),
    "fa2": (8.0, math.inf),
    "fa3": (9.0, 9.9),
    "cudnn": (8.0, math.inf),
    "cudnn-fp8": (9.0, math.inf),
}
"""Attention kernel -> compute capabilities of NVIDIA's chips that run it (`Chip.
compute_capability`), first and last; none: all. FlashAttention's READMEs (Turing; Ampere; Hopper);
cuDNN's as Transformer Engine takes it (common/fused_attn/fused_attn.cpp: sm_arch_ >= 80).
"""


def runs_kernel(kernel: str, capability: float) -> bool:
    """Chips of this compute capability run the attention kernel, as far as that is known."""
    first, last = CAPABILITIES.get(kernel, (0.0, math.inf))
    return not capability or first <= capability <= last


@dataclass(frozen=True)
class Software(Checked):
    """Settings of the software; None = what the framework does by itself."""

    cuda_graphs: CudaGraphs | None = None
    """CUDA graphs: off, parts (of a layer), or full (the whole iteration)."""
    launches: Launches | None = None
    """The host launches kernels ahead of the device (ahead), or waits for each one
    (CUDA_LAUNCH_BLOCKING=1: blocking).
    """
    compiled: bool | None = None
    """torch.compile fuses passes over activations."""
    norm: Annotated[Norm | None, ActsOn("RMS norms")] = None
    """RMS norms run as one fused kernel (fused), or as separate torch kernels (torch); layer norms
    are one kernel of torch either way.
    """
    float8: Annotated[Float8 | None, ActsOn("products in FP8")] = None
    """Scaling of FP8 numbers: delayed, tensorwise, rowwise, blockwise or mxfp8."""
    dispatcher: Annotated[
        Dispatcher | None, ActsOn("experts of several ranks")
    ] = None
    """How tokens reach experts."""
    routing: Annotated[
        Routing | None,
        ActsOn(
            f"tokens that are sent to a node only once (dispatcher {' or '.join(KERNELS)}),"
            " and padded on CUDA graphs of parts of a layer"
        ),
    ] = None
    """A token's experts are drawn, any as likely as another (drawn); or a benchmark deals them in
    turn, so that a token gets k that stand side by side (neighbours); or they are drawn, and each
    expert's tokens are dropped or padded to the balanced number (padded: capacity factor 1), so
    that CUDA graphs of layers hold the experts too.
    """
    ep_overlap: Annotated[bool | None, ActsOn("experts of several ranks")] = (
        None
    )
    """The experts' all-to-all overlaps with the compute of another microbatch."""
    shared_overlap: Annotated[
        bool | None, ActsOn("shared experts beside those of several ranks")
    ] = None
    """The experts' all-to-all overlaps with the shared experts of the same microbatch."""
    tp_overlap: Annotated[TpOverlap | None, ActsOn("tensor parallelism")] = (
        None
    )
    """Tensor-parallel collectives overlap with compute: off, backward (with the weight gradient),
    or all (AsyncTP, XLA).
    """
    dp_overlap: Annotated[
        DpOverlap | None, ActsOn("collectives between replicas")
    ] = None
    """Collectives between replicas overlap with compute: off, gradients (only their reduction;
    gathers of weights are exposed), zero3 (those of ZeRO-3 alone), or all.
    """
    gradients: Gradients | None = None
    """Gradients are accumulated and reduced in fp32, or in the width of activations (half)."""
    reduction_numbers: Annotated[
        ReductionNumbers | None,
        ActsOn("gradients that replicas sum in 16 bits"),
    ] = None
    """Replicas sum gradients in the numbers they are kept in (kept), or copy each bucket to fp32
    first (fp32).
    """
    bucket_size: Annotated[
        int | None, Range(1.0, 1e12), ActsOn("collectives between replicas")
    ] = None
    """Parameters whose gradients, or sharded weights, replicas exchange in one collective, at
    least; with ZeRO-3 each layer has its own.
    """
    loss: Loss | None = None
    """How the loss is computed: by torch in eager mode, in fp32 (eager) or in the numbers of the
    logits (narrow), or compiled (compiled, XLA's too); by Megatron's passes over fp32 logits, in
    place (passes) or with one more copy (copies, until 2023), or fused by torch.compile (fused); by
    one kernel whose gradient takes the logits' place, Transformer Engine's (in place) or
    FlashAttention's (kernel); on some rows at a time (pieces), with the head by Liger (liger) or
    torchtune (linear chunks; chunks: the loss alone; compiled chunks: either, compiled); or with
    the head in one kernel that keeps no logits (cut).
    """
    logits_gathered: Annotated[bool | None, ActsOn("tensor parallelism")] = (
        None
    )
    """The logits of all tp ranks are gathered on each before the loss."""
    logits_quantised: Annotated[
        bool | None, ActsOn("products in FP8 or FP4")
    ] = None
    """The product that makes the logits runs in the layers' precision, FP8 or FP4."""
    experts_fused: Annotated[bool | None, ActsOn("experts")] = None
    """Experts' products include the activation and the quantisation for the next product."""

    ends: Annotated[Ends | None, ActsOn("ZeRO-3")] = None
    """With ZeRO-3, embedding, final norm and head are gathered before each pass as layers are
    (units); or once a microbatch, with the unit around the layers (root); or norm and head are so,
    and the embedding is a unit of its own (apart).
    """

    gathered_inputs: Annotated[
        Gathered | None, ActsOn("sequence parallelism")
    ] = None
    """With sequence parallelism, the gathered input of a column-parallel matrix is kept, or its
    shard is gathered again in the backward pass (regathered).
    """
    input_gradients: Annotated[
        InputGradients | None,
        ActsOn("tensor parallelism without sequence parallelism"),
    ] = None
    """Without sequence parallelism, the gradients of the input of gate and up are all-reduced
    together, or apart (each matrix is a separate module).
    """
    weight_gradient: WeightGradient | None = None
    """The gradient of a weight is added up over microbatches by the product that makes it (apart);
    by a pass of its own (added), or two where the sum is wider (copied); or is written once (one
    pass).
    """
    stage_message: Annotated[
        StageMessage | None,
        ActsOn(
            "messages between stages whose tp ranks hold copies (--sequence-parallel false)"
        ),
    ] = None
    """Without sequence parallelism, a tp rank sends its share of the activation to the next stage
    (scattered), or all of it (whole).
    """
    send_channels: Annotated[
        SendChannels | None, ActsOn("messages between stages on several nodes")
    ] = None
    """Channels of NCCL that a message to a rank of another node is sent by: one (to 2.11), or
    several.
    """
    full: Annotated[
        Full | None,
        ActsOn("full recomputation of layers that are not compiled"),
    ] = None
    """Where layers are not compiled, full recomputation runs a layer again as a whole (whole),
    without the product that ends it, whose result nobody reads (prefix), or without any such result
    (needed).
    """

    __repr__ = short_repr

    @cached_property
    def given(self) -> dict[str, Any]:
        """The settings that the job states."""
        return {
            f.name: value
            for f in fields(self)
            if (value := getattr(self, f.name)) is not None
        }


NOTHING_SAID = Software()


@dataclass(frozen=True)
class Offer(Checked):
    """A value that a setting of a framework's software may have beside the one it has by itself."""

    setting: Annotated[str, OneOf(*(f.name for f in fields(Software)))]
    value: Known
    """As a file has it, such as deepep or true."""
    since: Prose
    """The release that brought it."""
    chips: tuple[Known, ...] = ()
    """Kernels of the chips that run it (`Chip.kernel_law`); empty: any."""
    models: Annotated[str, OneOf("all", "dense", "experts")] = "all"
    numbers: tuple[Known, ...] = ()
    """Precisions that run with it; empty: any."""
    rules: tuple[Known, ...] = ()
    """Names of rules that layouts keep with it (`layout.setting_rules`)."""

    __repr__ = short_repr

    @cached_property
    def meant(self) -> Any:
        """The value as `Software` holds it."""
        return {"true": True, "false": False}.get(self.value, self.value)

    def runs(self, kernels: str, experts: bool, numbers: str) -> bool:
        """On chips of these kernels, with or without experts, in these numbers of products."""
        kind = "experts" if experts else "dense"
        return (
            self.models in ("all", kind)
            and (not self.chips or kernels in self.chips)
            and (not self.numbers or numbers in self.numbers)
        )
