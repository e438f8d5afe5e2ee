"""What the software does: what a framework keeps, counts and overlaps, and which layouts it can
run.

A set of assumptions leaves to the framework what it has no answer of its own to (`ASK`); `answered`
fills that in. The profiles lie in catalog/frameworks, each field with its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import permutations
from typing import Annotated, Any

from ..errors import BadInput
from ..exchange import EXCHANGES
from . import fitted, memory_error, shipped
from .assumptions import (
    JOINTS,
    NOT_HIDDEN,
    Assumptions,
    Hide,
    HidePass,
    ReplicaTraffic,
    Stack,
)
from .chip import Chip
from .choices import Choices
from .fields import (
    ASK,
    BY_NAME,
    FROM_0,
    Amount,
    AnyShare,
    Bytes,
    Checked,
    Count,
    Known,
    Name,
    OneOf,
    Range,
    Seconds,
    Share,
    Sources,
    fields_of,
    finder,
    origins,
)
from .frozen import hashed_once, short_repr, what_if
from .frozendict import EMPTY
from .holding import Holding
from .layout import AXES, Layout
from .read import read, tables_merged
from .software import (
    AttentionKernel,
    BackwardNeeds,
    Biases,
    CudaGraphs,
    Dispatcher,
    DpOverlap,
    Ends,
    Float8,
    Full,
    Gate,
    Gathered,
    Gradients,
    InputGradients,
    Launches,
    Loss,
    Norm,
    Offer,
    Recipe,
    ReductionNumbers,
    Resident,
    Rotary,
    Routing,
    Selective,
    SendChannels,
    SendOverlap,
    Software,
    StageMessage,
    StepBarrier,
    TiedGradients,
    TpOverlap,
    WeightGradient,
    WeightsQuantised,
    runs_kernel,
)

USUAL = "megatron-core"
"""The framework that is asked where neither job nor set nor chip names one."""
OF_CODE = ("fsdp", "torchtitan")
"""Those that run a model's own PyTorch code, where Megatron has layers of its own."""
ORDERS = tuple("-".join(axes) for axes in permutations(AXES))


@hashed_once
@dataclass(frozen=True)
class Framework(Checked):
    """The profile of a framework. Fields that a set of assumptions asks for are described there
    (`describe.assumptions`).
    """

    name: Name
    gathered_inputs: Gathered
    input_gradients: InputGradients
    gathered_keys: Gathered
    exchanges: tuple[Annotated[str, OneOf(*EXCHANGES)], ...]
    """What it has to give each query its keys over cp (`Layout.cp_exchange`); empty: no cp."""
    backward_needs: BackwardNeeds
    weight_gradient: WeightGradient
    rotary: Rotary
    gate: Gate
    biases: Biases
    """What adds a bias, and dropout and the residual sum after it (`Counting.biases`)."""
    stage_message: StageMessage
    tied_gradients: TiedGradients
    selective: Selective
    full: Full
    """What full recomputation runs (`full_meant`)."""
    full_compiled: Full
    """The same where layers are compiled."""
    gradient_overlap: HidePass
    """How far collectives of weights and gradients hide where `dp_overlap` lets them."""
    dp_overlap: DpOverlap
    """Which of them run beside compute."""
    send_overlap: SendOverlap
    """`Overlap.pp`."""
    send_channels: SendChannels
    step_barrier: StepBarrier
    resident: Resident
    framework_bytes: Annotated[Bytes, FROM_0]
    attention: AttentionKernel
    """The attention kernel that runs unless the job names one (`Job.attention_kernel`)."""
    attention_otherwise: AttentionKernel
    """The kernel that runs by itself on chips that do not run that one
    (`software.CAPABILITIES`).
    """
    flash: AttentionKernel
    """The fused kernel that it has."""
    unfused: AttentionKernel
    """The kernel that it has for unfused attention."""
    norm: Norm
    sequence_first: bool
    """`Stack.sequence_first`."""
    elementwise: Annotated[float, Range(0.1, 100.0)]
    """Bytes that passes over activations move, over those that their inputs and outputs need."""
    elementwise_compiled: Annotated[float, Range(0.1, 100.0)]
    """The same with torch.compile."""
    compiled: bool
    efficiency: Annotated[float, Range(0.1, 2.0)]
    """Share of the rate of matrix products and attention that its layers reach in training:
    streams, copies and waiting that no other number has.
    """
    cuda_graphs: CudaGraphs
    launches: Launches
    host_s: Seconds
    """Seconds in which the host launches the forward pass of one layer."""
    step_s: Seconds
    """Seconds of each step beside passes and optimizer: the loss and the norm read by the host,
    logging, the next batch.
    """
    float8: Float8
    weights_quantised: WeightsQuantised
    """`Stack.weights_quantised`."""
    dispatcher: Dispatcher
    routing: Routing
    ep_overlap: bool
    ep_overlap_share: AnyShare
    """Of the all-to-all of the experts, what hides where it is overlapped."""
    shared_overlap: bool
    tp_overlap: TpOverlap
    tp_overlap_share: AnyShare
    """Of what `tp_overlap` overlaps, what hides, where it does."""
    cp_overlap_share: AnyShare
    """The same of the exchange of keys and values."""
    gradients: Gradients
    gradient_collective: Annotated[
        str, OneOf("reduce-scatter", "all-reduce", "all-reduce below 3")
    ]
    """`ReplicaTraffic.gradients`."""
    reduction_numbers: ReductionNumbers
    """Numbers in which replicas sum gradients (`step.weights.bucket_copies`)."""
    bucket_size: Amount
    """Parameters that replicas exchange in one collective, at least (`step.weights.bucket`); 0:
    those that are copied into one block (`Holding.bucket_elements`), else of a layer, of embedding
    or head.
    """
    bucket_a_replica: Amount
    """Parameters of a bucket for each of dp ranks, at least."""
    gather_share: Share
    """Of the rate of a link between nodes that gathers of whole weights reach (ZeRO 3)."""
    ends: Ends
    """With ZeRO-3, embedding, final norm and head are gathered before each pass as layers are
    (units); or once a microbatch, before its forward pass, and kept until its backward pass ends
    (root); or norm and head are so, and the embedding is a unit of its own, unless it is the head's
    table too (apart).
    """
    weights_kept: Annotated[str, OneOf("step", "microbatch")]
    """With ZeRO-2, weights that were gathered are kept for a step, or for a microbatch."""
    vocabulary_rows: Count
    """Rows of the vocabulary on each tp rank are a multiple of the model's `vocab_multiple`, or of
    this where it has none (Megatron-LM); 0: only those of all ranks together are.
    """
    logits_gathered: bool
    """The loss is computed on the logits of all tp ranks, gathered on each (`gathered` of
    catalog/losses.toml).
    """
    loss: Loss
    """The implementation of the loss: its bytes are in catalog/losses.toml (`describe.loss`)."""
    holding: Holding
    """What it holds beside states and saved tensors (`MemoryCount.holding`)."""
    quantise: Mapping[Recipe, Amount] = EMPTY
    """Recipe of FP8 of one scale -> bytes moved for each element that its own kernels quantise
    along rows, where they are not those of `Kernels.quantise`; one more where the chip's products
    read a copy along columns (`Kernels.quantised_weight`).
    """
    gather_bytes: Mapping[Recipe, Amount] = EMPTY
    """Recipe of FP8 or FP4 -> bytes of a weight when shards of it are gathered once a step, where
    they are not `Precision.gather_bytes`.
    """
    activation_gather_bytes: Mapping[Recipe, Amount] = EMPTY
    """Recipe of FP8 or FP4 -> bytes of a number of an activation that tp ranks quantise, each its
    shard of the sequence, before they gather it (`count.parallel.gathered`); of other recipes they
    gather it as it is.
    """
    latents: Annotated[str, OneOf("shard", "whole")] = "shard"
    """Of latent attention: tp ranks make the latents of their shard of the sequence and gather
    them, or gather the hidden state and make those of all tokens, each rank again
    (`count.latent`).
    """
    logits_quantised: bool = False
    experts_fused: bool = False
    clamp_fused: bool = False
    """Gated experts with biases clamp what they activate in the kernel of the activation (whatever
    is compiled does); else in passes of their own, whose results are kept beside what they read.
    """
    experts_padded: Annotated[str, OneOf("none", "copied", "sorted")] = "none"
    """In FP8 and FP4 an expert's tokens are rounded up to a multiple (`count.moe.padding`): by a
    copy into a block with room and one back out of it (copied; not where experts are fused), or as
    they are sorted, without one.
    """
    vendors: tuple[Name, ...] = ()
    """Whose chips it runs on (`Chip.vendor`); empty: any."""
    choices: tuple[Choices, ...] = ()
    """Layouts it can run: those that one of these allows; empty = all."""
    otherwise: Known = ""
    """The framework of a job that names none, where its layout is none of these; empty: this one,
    which then refuses it.
    """
    proposes: tuple[Choices, ...] = ()
    """Those of them that its released version runs, and so a plan takes unless other values are
    named, each a strategy of its own; empty = all.
    """
    rules: tuple[Known, ...] = ()
    """Names of rules (`layout.trainable`) that its layouts keep beside those of all."""
    orders: tuple[Annotated[str, OneOf(*ORDERS)], ...] = ()
    """Orders of the axes, nearest first (tp-cp-dp-pp), in which its launcher numbers ranks: who
    names the framework gets no other placement; empty: any.
    """
    mesh: bool = False
    """Its ranks are a mesh that fills each slice (a node, or a torus) and one of slices, as those
    of JAX: whatever axes fill a slice lie in it, and no slice is left to be filled by the next.
    """
    offers: tuple[Offer, ...] = ()
    """What its software can be set to beside what it does by itself."""
    sources: Sources = origins()
    """Where each field is from."""

    __repr__ = short_repr

    @property
    def stack(self) -> Stack:
        """What its kernels and its host add, as a set of assumptions reads it."""
        return Stack(
            kernel=self.attention,
            elementwise=self.elementwise_compiled
            if self.compiled
            else self.elementwise,
            efficiency=self.efficiency,
            norm=self.norm,
            sequence_first=self.sequence_first,
            host_s=self.host_s,
            step_s=self.step_s,
            cuda_graphs=self.cuda_graphs,
            routing=self.routing,
            launches=self.launches,
            float8=self.float8,
            weights_quantised=self.weights_quantised,
            quantise=self.quantise,
        )

    def offered(self, setting: str) -> tuple[Any, ...]:
        """Values of a setting that it offers beside the one it has by itself."""
        return tuple(
            one.meant for one in self.offers if one.setting == setting
        )

    @property
    def rotary_meant(self) -> str:
        """`Counting.rotary`: what is compiled is one pass."""
        several = self.rotary in ("torch", "complex", "halves")
        return "apart" if self.compiled and several else self.rotary

    @property
    def full_meant(self) -> str:
        """What full recomputation leaves out, of layers that are compiled or not."""
        return self.full_compiled if self.compiled else self.full

    @property
    def risk_width(self) -> float:
        """Width w of the risk of running out of memory, by how far off its memory was."""
        return memory_error.risk_width(self.name)

    @property
    def dp_hidden(self) -> HidePass:
        """Which collectives between replicas hide, and how much of them."""
        if self.dp_overlap == "off":
            return HidePass()
        if self.dp_overlap == "gradients":
            return replace(self.gradient_overlap, scope="backward")
        if self.dp_overlap == "zero3":
            return replace(self.gradient_overlap, scope="weights")
        return self.gradient_overlap

    @property
    def tp_hidden(self) -> Hide:
        """What tensor-parallel collectives hide behind."""
        if self.tp_overlap == "off":
            return NOT_HIDDEN
        if self.tp_overlap == "all":
            return Hide("sublayer", most=self.tp_overlap_share)
        return Hide("weight gradient", most=self.tp_overlap_share)

    @property
    def weights(self) -> ReplicaTraffic:
        """How gradients are reduced and weights gathered between replicas."""
        return ReplicaTraffic(self.gradient_collective, self.gather_share)

    @property
    def cp_hidden(self) -> Hide:
        """`Overlap.cp`: attention on the blocks that are there."""
        return (
            Hide("operation", most=self.cp_overlap_share)
            if self.cp_overlap_share
            else NOT_HIDDEN
        )

    @property
    def ep_hidden(self) -> Hide:
        """`Overlap.ep`: beside another microbatch, as long as this one's layer, or beside the
        shared experts of this one.
        """
        if self.ep_overlap:
            return Hide("layer", most=self.ep_overlap_share)
        return Hide("shared expert") if self.shared_overlap else NOT_HIDDEN


ANSWERS = {
    (joint, name): option.kind.answered or name
    for joint in JOINTS
    for name, option in fields_of(
        fields_of(Assumptions)[joint].kind.type
    ).items()
    if option.kind.answered is not None
}
"""(joint of a set, its field) -> the field of the framework that answers it."""


@lru_cache(maxsize=1024)
def questions_of(how: Assumptions) -> tuple[tuple[str, str], ...]:
    """(joint, field) of what a set leaves to the framework."""
    return tuple(
        (joint, name)
        for joint, name in ANSWERS
        if _open(getattr(getattr(how, joint), name))
    )


def _open(value: object) -> bool:
    """A set leaves the field to the framework, or one of the options in it."""
    inside = vars(value).values() if isinstance(value, Checked) else ()
    return value is None or value == ASK or ASK in inside


@lru_cache(maxsize=1024)
def running(
    by: Framework, kernel: str, said: Software, capability: float = 0.0
) -> Framework:
    """The framework with what a job says of its software. kernel: `Job.attention_kernel`;
    capability: `Chip.compute_capability`.
    """
    waits = by.dp_overlap == "off" and said.dp_overlap not in (None, "off")
    if waits and said.dp_overlap not in by.offered("dp_overlap"):
        others = "".join(f" or {x}" for x in by.offered("dp_overlap"))
        raise BadInput(
            f"software.dp_overlap {said.dp_overlap}: {by.name} waits for the collectives of"
            f" replicas, so only off{others}"
        )
    usual = (
        by.attention
        if runs_kernel(by.attention, capability)
        else by.attention_otherwise
    )
    named = {ASK: usual, "flash": by.flash, "unfused": by.unfused}
    given = {"attention": named.get(kernel, kernel), **said.given}
    if said.bucket_size:  # whatever dp is
        given["bucket_a_replica"] = 0.0
    return replace(by, **given)


@lru_cache(maxsize=1024)
def with_answers(how: Assumptions, by: Framework) -> Assumptions:
    """The set with the framework's answers in place of its questions."""
    answers: dict[str, dict[str, Any]] = {}
    for joint, name in questions_of(how):
        answer = getattr(by, ANSWERS[joint, name])
        answers.setdefault(joint, {})[name] = answer
    joints: dict[str, Any] = {
        joint: what_if(getattr(how, joint), **fields)
        for joint, fields in answers.items()
    }
    return replace(how, **joints) if joints else how


@cache
def frameworks() -> dict[str, Framework]:
    """name -> profile, with the numbers that runs tell."""
    return {
        name: fitted.with_fitted(f"frameworks/{name}", of)
        for name, of in as_written().items()
    }


@cache
def as_written() -> dict[str, Framework]:
    """name -> profile of the catalogue's files, before any run."""
    files = shipped.tables("frameworks")
    return {
        name: read(
            Framework,
            {"name": name, **table, "holding": _holding(name, files)},
            f"framework {name}",
        )
        for name, table in files.items()
    }


def _holding(name: str, said: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a framework holds, laid over what the one holds that it is `like`."""
    own = dict(said[name]["holding"])
    base = own.pop("like", None)
    return tables_merged(_holding(base, said), own) if base else own


CALLED = {
    "torch_xla": "maxtext",
    "torchprime": "maxtext",
    "jax": "maxtext",
    "paxml": "maxtext",
    "megatron": "megatron-core",
    "megatron-lm": "megatron-core",
    "nemo": "megatron-bridge",
    "pytorch": "fsdp",
}
"""What people ask for -> the profile that is nearest to it, which an error names."""


def framework(name: str) -> Framework:
    """The profile of that name; BadInput names the nearest ones."""
    profile: Framework = finder("framework", frameworks(), CALLED)(name)
    return profile


BY_NAME[Framework] = framework


def usual(how: Assumptions, chip: Chip, layout: Layout | None = None) -> str:
    """The framework where a job names none: the set's, else that of the chip, else the usual one.

    Where a layout is given that the chip's framework does not run, it is what that one has
    `otherwise`: two consumer cards with tp 2 are not FSDP.
    """
    name = how.framework or chip.framework or USUAL
    profile = frameworks().get(name)
    if layout and profile and profile.otherwise:
        runs = any(some.allows(layout) for some in profile.choices)
        return name if runs else profile.otherwise
    return name


def of_code(layout: Layout, experts: bool) -> str:
    """The framework that runs a model's own PyTorch code where a job names none: FSDP; where that
    does not run the layout, or would gather all experts of a layer as one unit, torchtitan, which
    is FSDP with tp, cp, pp and ep beside it.
    """
    plain, parallel = OF_CODE
    runs = any(some.allows(layout) for some in framework(plain).choices)
    return plain if runs and not experts else parallel
