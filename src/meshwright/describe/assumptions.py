"""Assumption sets: what a paper (or we) chose at each joint of the model of a step.

A set is data: it names options, and the code at each joint looks at the option, never at the name
of the set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Annotated, Any

from ..errors import BadInput, unknown
from ..parts import module_names
from . import fitted
from .choices import FIELDS, Choices, Value, refusal, sole_values
from .elsewhere import ELSEWHERE
from .fields import (
    ASK,
    BY_NAME,
    FROM_0,
    Amount,
    Answered,
    AnyShare,
    Bytes,
    Checked,
    Known,
    Name,
    Object,
    OneOf,
    Prose,
    Range,
    Risk,
    Seconds,
    Share,
    With,
    fields_of,
)
from .frozen import hashed_once, short_repr
from .frozendict import EMPTY
from .holding import Holding
from .layout import Layout
from .precision import PRECISIONS, Precision
from .software import (
    ATTENTION,
    BackwardNeeds,
    Biases,
    CudaGraphs,
    Float8,
    Full,
    Gate,
    Gathered,
    InputGradients,
    Launches,
    Norm,
    Recipe,
    Resident,
    Rotary,
    Routing,
    Selective,
    SendChannels,
    SendOverlap,
    StageMessage,
    StepBarrier,
    TiedGradients,
    WeightGradient,
    WeightsQuantised,
)

WITH_MEMORY = With("model", "roofline", "hierarchy", "calibrated")
"""Models of a chip whose memory and vector units take time."""
PEAKS = With("model", "peak", "roofline", "hierarchy", "calibrated")
"""Models of a chip that know shares of its peaks, and no kernels."""
BY_SHAPE = With("model", "by-shape")
"""Laws of kernels."""
SENT = With("collective", but=("free",))
"""Networks on which messages take time."""
TIMED = With("chip.model", but=("peak",))
"""Models of a chip on which passes over activations take time."""
CARRIED = With("network.collective", but=("free",))
"""Networks on which messages take time, of another joint."""
OWN = With("kernel", but=(ASK,))
"""A stack that the set itself describes."""
HIDING = With("scope", but=(ASK,))
"""What hides is the set's own to say."""
UNMEASURED = 0.41
"""Share of the matrix peak assumed for a chip without a measured `sustained`: the lowest measured
one of the catalogue (MI300X), so that what nobody measured is never the faster.
"""


@dataclass(frozen=True)
class Counting(Checked):
    """S1, what counts as work."""

    dot_product: Annotated[str, OneOf("2k", "2k-1")] = "2k"
    """FLOPs of a dot product of length k: "2k", or "2k-1" (LBL)."""
    causal: Annotated[str, OneOf("full", "half", "window")] = "half"
    """Attention scores above the diagonal: "full" computes them all (most papers, torch's counter),
    "half" skips them as flash kernels do; "window" computes those inside a sliding window, the
    convention of model FLOPs."""
    vocabulary: bool = True
    """Embedding, output head and loss."""
    tied_gradients: Annotated[TiedGradients, CARRIED, Answered()] = "none"
    """Gradients of a table that the first and the last stage both hold are summed between the two,
    after all others and before the update: "whole", whatever ZeRO cuts, in "shards" of those who
    own them, or not at all ("none": the papers; and where every stage holds embedding and head).
    """
    residual: Annotated[bool, TIMED] = True
    """Residual additions."""
    optimizer_step: bool = True
    """The optimizer's own pass over its state."""
    dropout: Annotated[str, OneOf("blocks", "lbl")] = "blocks"
    """Where a model with dropout has it: "blocks" (after attention and feed-forward), or "lbl"
    (also after the activation, and inside attention).
    """
    output_bias: Annotated[str, OneOf("sharded", "replicated"), TIMED] = (
        "sharded"
    )
    """The bias after a reduce-scatter acts on the shard ("sharded") or on the whole sequence
    ("replicated", LBL 1D).
    """
    gathered_inputs: Annotated[Gathered, Answered()] = "regathered"
    """Inputs of column-parallel matrices are kept as shards and gathered again in backward
    ("regathered", Megatron-LM) or "kept" whole.
    """
    attention_output: Annotated[str, OneOf("once", "twice")] = "once"
    """The attention result is kept "once" (as input of the projection) or "twice" (LBL)."""
    gathered_keys: Annotated[Gathered, CARRIED, Answered()] = "regathered"
    """Keys and values of context parallelism are gathered again in backward ("regathered") or
    "kept" whole.
    """
    backward_needs: Annotated[BackwardNeeds, Answered()] = "fused"
    """What stays in memory for the backward pass: what "fused" kernels need (Megatron-LM), or what
    PyTorch's autograd keeps operation by operation ("autograd"): keys and values copied for every
    query head, the SiLU beside its product, RMSNorm's input in fp32 and normalised.
    """
    summa_width: Object = None
    """In place of hidden / n1: a function of job and layout to the width of a SUMMA shard between
    two products. An object, never a text.
    """
    weight_gradient: Annotated[WeightGradient, TIMED, Answered()] = "apart"
    """A matrix's two gradients are products "apart", each against its own roofline, and that of the
    weights is added up over microbatches in `Job.gradient_bytes` by the product itself; or apart,
    and "added" up by a pass of its own (autograd, Megatron-LM to 2022), or first "copied" into
    wider numbers where the sum has such (DeepSpeed); or "one pass" (the papers), which writes dW as
    wide as W.
    """
    rotary: Annotated[Rotary, TIMED, Answered("rotary_meant")] = "fused"
    """Rotary positions, and copies of key/value heads for grouped queries, are "fused" into their
    neighbours; or so but for heads of latent attention and YaRN's, which are scaled too ("plain":
    one kernel puts the former together, which all others copy); or they are a pass of their own
    ("apart"), or several: of halves side by side in the numbers of activations ("torch"), of each
    half by itself ("halves"), or of "complex" ones.
    """
    gate: Annotated[Gate, Answered()] = "fused"
    """SiLU(gate) * up is one kernel ("fused"), or SiLU and product are two of plain "torch", the
    second of which keeps what the first made.
    """
    biases: Annotated[Biases, TIMED, Answered()] = "apart"
    """A bias and the activation after it, and a bias, dropout and the residual sum, are passes
    "apart" (the papers); or "chained": each chain is one kernel forward, which reads its inputs and
    writes its result and the mask, and softmax between unfused products reads no masked scores
    (`blocks.score_passes`).
    """
    stage_message: Annotated[StageMessage, CARRIED, Answered()] = "scattered"
    """What a tp rank sends to the next stage where all hold the same activation (no sequence
    parallelism): 1/tp of it ("scattered": scatter/gather of Megatron-LM and DeepSpeed), or all of
    it ("whole": PyTorch's pipelines, and LBL, where only sequence parallelism cuts it).
    """
    selective: Annotated[Selective, Answered()] = "scores"
    """What a layout's recompute "selective" means: a part of `describe.recompute`."""
    full: Annotated[Full, TIMED, Answered("full_meant")] = "whole"
    """What "full" means: a layer runs again as a "whole"; as the "prefix" without what ends it,
    which nobody reads; or only what is "needed" (`describe.recompute.FULL`).
    """
    input_gradients: Annotated[InputGradients, CARRIED, Answered()] = (
        "together"
    )
    """Without sequence parallelism the gradients of an input that the gate and the up matrix read
    are all-reduced "together", or each by itself ("apart": matrices that are modules of their own).
    """


@dataclass(frozen=True)
class Stack(Checked):
    """What software adds to the time of kernels, for `ChipTime.model` "by-shape"; of a set that
    asks, the framework's.
    """

    kernel: Annotated[str, OneOf(*ATTENTION, "flash", ASK)] = "flash"
    """Of attention: a name of `Job.attention_kernel`."""
    elementwise: Annotated[float, OWN] = 1.0
    """Bytes that passes over activations move, over those that their inputs and outputs need."""
    efficiency: Annotated[float, OWN] = 1.0
    """Share of the rate of matrix products and attention that its layers reach in training."""
    norm: Annotated[Norm, OWN] = "fused"
    """RMS norms are kernels of their own ("fused"), or operations of "torch"."""
    sequence_first: Annotated[bool, OWN] = True
    """Activations are [sequence, batch, hidden]: shards of the sequence lie one after the other. If
    not, what gathers and scatters it over tp copies the whole tensor too.
    """
    host_s: Annotated[Seconds, OWN] = 0.0
    """Seconds in which the host launches the forward pass of one layer."""
    step_s: Annotated[Seconds, OWN] = 0.0
    """Seconds of each step beside passes and optimizer."""
    cuda_graphs: Annotated[CudaGraphs, OWN] = "off"
    """What the host launches as a whole: nothing, "parts" of a layer, or the "full" iteration."""
    routing: Annotated[Routing, OWN] = "drawn"
    """How tokens are dealt to experts: what is "padded" has one shape in all steps."""
    launches: Annotated[Launches, OWN] = "ahead"
    """The host launches kernels "ahead" of the device, or waits for each one ("blocking")."""
    float8: Annotated[Float8, OWN] = "tensorwise"
    """Scaling of FP8 numbers."""
    weights_quantised: Annotated[WeightsQuantised, OWN] = "pass"
    """Weights are quantised in each forward "pass", or once a "step" and kept narrow for all its
    microbatches."""
    quantise: Annotated[Mapping[Recipe, Amount], OWN] = EMPTY
    """Recipe of FP8 -> bytes moved for each element that its own kernels quantise, where they are
    not those of `Kernels.quantise`.
    """


@dataclass(frozen=True)
class Host(Checked):
    """Seconds of the host, over those of the forward pass of one layer (`Stack.host_s`)."""

    backward: Amount = 2.0
    """Of a backward pass: two products for each of the forward pass (estimate)."""
    experts_s: Seconds = 2e-3
    """What experts add to a layer: routing, permutation, a launch for each product (estimate)."""
    dispatched: Amount = 0.5
    """Of that, with HybridEP, which sorts and counts too, where passes of their own sort before and
    after an all-to-all and after DeepEP, and the host reads how much is sent (Megatron-LM,
    core/transformer/moe/token_dispatcher.py; estimate)."""
    routed: Amount = 0.75
    """Of that, left with CUDA graphs of parts of a layer: the router and what prepares the dispatch
    are in them, dispatch and products of experts are not (Megatron-LM, --cuda-graph-scope attn
    moe_router moe_preprocess; estimate), unless they are padded: then nobody reads how many tokens
    an expert has (core/transformer/moe/token_dispatcher.py, drop_and_pad), and `parts` are left."""
    embedding: Amount = 0.3
    """Of the embedding (estimate)."""
    head: Amount = 0.5
    """Of head and loss (estimate)."""
    update: Amount = 0.25
    """Of the optimizer, for each layer of a device: gradients and weights are copied tensor by
    tensor, 24 launches where a layer's forward pass has 100 (Megatron-LM, core/optimizer;
    estimate).
    """
    collective_s: Seconds = 20e-6
    """Of a collective: a call of NCCL through PyTorch, with its events (estimate)."""
    parts: Amount = 0.5
    """Left of the rest of a layer with CUDA graphs of its parts (estimate)."""
    full: Amount = 0.02
    """Left with one graph of the whole iteration (estimate)."""


@hashed_once
@dataclass(frozen=True)
class ChipTime(Checked):
    """S2, from work to seconds on one chip."""

    model: Annotated[
        str, OneOf("peak", "roofline", "hierarchy", "calibrated", "by-shape")
    ] = "roofline"
    """peak (compute only), roofline (the slower of compute and memory), hierarchy (Epoch's memory
    levels), calibrated (times measured on the chip, kernel by kernel, where it has them; else
    roofline), or by-shape (laws of kernels, with the constants of catalog/kernels).
    """
    stack: Annotated[Stack, BY_SHAPE, Answered()] = Stack()
    """What software adds."""
    wide_norm: Annotated[float, Range(1.0, 100.0), BY_SHAPE] = 9.0
    """Bytes that a norm of separate torch operations moves over those of a fused kernel: 36 of an
    element forward, not 4 (to fp32, square, mean, product, back to 16 bits, weight; count of this
    project)."""
    host: Annotated[Host, BY_SHAPE] = Host()
    """What a layer costs the host."""
    optimizer: Annotated[float, BY_SHAPE] = 1.5
    """Bytes that the optimizer moves over those that it needs (estimate: Megatron-LM scales
    gradients in place, 8 B, and reads the master weights again for the 16-bit copy, 4 B:
    46 / 34 = 1.35; it zeroes gradients besides. Published runs do not tell 1 from 1.5).
    """
    kernels: Object = None
    """In place of those of the catalogue: constants of kernels (`describe.kernels.Kernels`). An
    object, never a text."""
    matrix_efficiency: Share | None = None
    """Sustained share of the matrix peak; None = the chip's measured `sustained`, else
    `sustained`.
    """
    sustained: Annotated[Share, With("matrix_efficiency", None)] = UNMEASURED
    """Share assumed for chips without a measurement."""
    attention_forward: Annotated[float | None, PEAKS] = None
    """Share of the 16-bit matrix peak that fused attention reaches; None = that of other
    products.
    """
    attention_backward: Annotated[float | None, PEAKS] = None
    """The same in the backward pass."""
    vector_efficiency: Annotated[Share, WITH_MEMORY] = 0.8
    memory_efficiency: Annotated[Share, WITH_MEMORY] = 0.9
    """Share of the peak memory bandwidth that streams reach."""
    launch_s: Annotated[Seconds, PEAKS] = 4.5e-6
    """Paid once by every operation in each direction."""


@hashed_once
@dataclass(frozen=True)
class NetworkTime(Checked):
    """S2, from messages to seconds."""

    collective: Annotated[str, OneOf(*module_names("cost.collectives"))] = (
        "ring"
    )
    """nccl: the algorithm and protocol that NCCL's tuner chooses, timed as measured; ring: one ring
    through all ranks; best: the faster of ring and tree, with in-network reduction where a switch
    has it; levels: inside each unit before the next level, all levels at work at once (Epoch);
    book: torus axes side by side, levels pipelined behind one another, latency hidden under the
    bytes (the scaling book); measured: times measured on the network where it has them, else
    best."""
    efficiency: Annotated[Share | None, SENT] = None
    """Share of a link's bandwidth that large messages reach; None = the one of each network
    dimension (`network.UNMEASURED` where none was measured).
    """
    ring_factor: Annotated[
        str, OneOf("exact", "one"), With("collective", "book")
    ] = "exact"
    """n ranks move (n-1)/n of the vector ("exact"), or all of it ("one", the book's shorthand for
    large n).
    """
    algorithm: Object = None
    """In place of the one that `collective` names: an algorithm of `cost`. An object, never a
    text.
    """
    send_channels: Annotated[SendChannels, Answered()] = "several"
    """NCCL sends to a rank of another node by "one" channel (to 2.11), which no fast link is filled
    by, or by "several" (since 2.12).
    """
    hop: Annotated[str, OneOf("each", "slowest", "mean"), SENT] = "each"
    """A pipeline hop costs, "each" by itself, the links between its own two ranks; or all the same,
    the "slowest" link between stages or the "mean" over the links."""


@dataclass(frozen=True)
class Hide(Checked):
    """How far the collectives of one axis hide behind the compute of their layer."""

    scope: Annotated[
        str,
        OneOf(
            "none",
            "weight gradient",
            "operation",
            "shared expert",
            "sublayer",
            "layer",
            "step",
            ASK,
        ),
    ] = "none"
    """Whose seconds they hide behind, each second once: the product of an operation that makes its
    "weight gradient" (backward passes only, Megatron-LM), the "operation" that sends, the
    "shared expert" beside it, its "sublayer" (attention or feed-forward), its "layer", or the whole
    "step", as if any microbatch could hide what another sends; or "none"."""
    share: Annotated[AnyShare, HIDING] = 1.0
    """Of those seconds."""
    slow: Annotated[AnyShare, HIDING] = 0.0
    """Compute beside them is slower: seconds added for each second hidden, at most 1."""
    most: Annotated[AnyShare, HIDING] = field(default=1.0, kw_only=True)
    """Of the collectives, what hides at most, however long the compute is."""

    def conflict(self) -> str:
        """What does not hide hides in no way."""
        said = any(
            getattr(self, f.name) != f.default
            for f in fields_of(type(self)).values()
        )
        return (
            "with scope none nothing hides, so that share, slow, most and links mean nothing"
            if self.scope == "none" and said
            else ""
        )


@dataclass(frozen=True)
class HidePass(Hide):
    """How far the collectives of weights and gradients hide behind a forward or backward "pass" of
    a microbatch, gradients alone behind a "backward" pass, or both behind the whole "step".
    """

    scope: Annotated[
        str,
        OneOf(
            *("none", "backward", "pass", "layer", "step"),
            *("weights", "update", ASK),
        ),
    ] = "none"
    """Beside those of the docstring: "weights", as "pass" with ZeRO-3 and nothing below it; or
    "update", as "pass" with ZeRO-3, and below it, where whole weights are gathered at the end of an
    update, as "backward".
    """
    links: Annotated[str, OneOf("shared", "serial", "free"), HIDING] = "shared"
    """With the collectives of the pass itself: "shared", no dimension of the network carries more
    than its rate; taken "serial", one collective after the other; or "free", as if each axis had
    links of its own."""

    def at(self, zero: int) -> HidePass:
        """What it is with a ZeRO stage."""
        if self.scope not in BY_STAGE:
            return self
        scope = "pass" if zero == SHARDED_WEIGHTS else BY_STAGE[self.scope]
        return replace(self, scope=scope) if scope != "none" else HidePass()


BY_STAGE = {"weights": "none", "update": "backward"}
"""Scope that is "pass" where weights are sharded -> what it is where they are not."""
SHARDED_WEIGHTS = 3
"""The ZeRO stage that shards weights."""


@dataclass(frozen=True)
class ReplicaTraffic(Checked):
    """How weights and gradients go between replicas."""

    gradients: Annotated[
        str,
        OneOf("reduce-scatter", "all-reduce", "all-reduce below 3", ASK),
    ] = "reduce-scatter"
    """With ZeRO 1 and more, gradients are summed by "reduce-scatter", or by "all-reduce"
    (DeepSpeed's ZeRO-1 of 2022), or by that where weights are not sharded (today's).
    """
    gathers: Annotated[Share, With("gradients", but=(ASK,))] = 1.0
    """Of the rate of its links that a gather of whole weights reaches."""

    def summed_whole(self, zero: int) -> bool:
        """Whether gradients of shards are summed by all-reduce with a ZeRO stage from 1 on."""
        return self.gradients == "all-reduce" or (
            self.gradients == "all-reduce below 3" and zero < SHARDED_WEIGHTS
        )


NOT_HIDDEN = Hide()


@hashed_once
@dataclass(frozen=True)
class Overlap(Checked):
    """What hides behind what."""

    dp: Annotated[HidePass, CARRIED, Answered("dp_hidden")] = HidePass("pass")
    """Gradients and weights: weights of ZeRO 1 and 2 hide behind the forward pass of the first
    microbatch, gradients of ZeRO 0 and 1 behind the backward pass of the last; gradients of ZeRO 2
    and 3 and weights of ZeRO 3 behind every pass; of each the first unit that
    arrives, or the last that leaves, is exposed. Scope "layer": nothing is, as in the middle of
    many layers, each hiding what the next one needs (the scaling book)."""
    tp: Annotated[Hide, CARRIED, Answered("tp_hidden")] = NOT_HIDDEN
    """Tensor parallelism."""
    cp: Annotated[Hide, CARRIED, Answered("cp_hidden")] = NOT_HIDDEN
    """Exchange of keys and values: "operation" for a ring that computes on the blocks that are
    there.
    """
    ep: Annotated[Hide, CARRIED, Answered("ep_hidden")] = NOT_HIDDEN
    """All-to-all of the experts."""
    pp: Annotated[SendOverlap, Answered("send_overlap")] = "interleaved"
    """Pipeline sends: "interleaved", they wait where the order of the schedule has them wait, and
    hide elsewhere (the order is replayed); as papers add them up, those of every microbatch
    hide behind compute ("all") or do not ("none"), and the bubble is that of equal stages.
    """
    weights: Annotated[ReplicaTraffic, CARRIED, Answered()] = ReplicaTraffic()
    """How weights and gradients go."""
    step_barrier: Annotated[StepBarrier, Answered()] = "global norm"
    """What ends a step on all ranks at once: a "global norm" of the gradients (PyTorch's and this
    project's trainer), or "none": each rank of the pipeline begins the next step as soon as it is
    done (zero bubble as published, Qi et al. 2024, whose optimizer validates afterwards). Orders
    with whole backward passes take the same either way."""

    @property
    def follows_schedule(self) -> bool:
        """Sends wait where the order of the schedule has them wait; papers say for all microbatches
        whether they do.
        """
        return self.pp == "interleaved"

    @property
    def has_barrier(self) -> bool:
        """No rank begins the next step before all have ended this one."""
        return self.step_barrier != "none"


@dataclass(frozen=True)
class MemoryCount(Checked):
    """What lives on a device beside the model itself."""

    framework_bytes: Annotated[Bytes | None, FROM_0, Answered()] = None
    """Context, kernels and communicators, outside the allocator; None = the framework's."""
    capacity_share: Share = 0.96
    """Share of the chip's memory that can be allocated."""
    resident: Annotated[Resident, Answered()] = "layers"
    """What is counted: what "layers" save and the states of their weights; that and what a
    framework keeps "held" beside it (`holding`); or every tensor of the trainer's "program" at its
    fullest moment."""
    working_set: Annotated[bool, With("resident", "layers", "held", ASK)] = (
        True
    )
    """Count the largest temporary: the layer being recomputed, gathered weights, logits in fp32."""
    holding: Annotated[Holding | None, Answered()] = None
    """What the framework holds; None = as its profile says."""
    risk_width: Annotated[float | None, Range(0.0, 10.0), Answered()] = 0.0
    """Width w of the risk of running out of memory, 1 / (1 + (capacity / needed)^(1/w)); 0: what
    needs more runs out, what does not fits; None = by what the framework's memory was off by.
    """
    headroom: Annotated[Risk, With("risk_width", but=(0.0,))] = 0.5
    """The largest risk at which a layout fits, unless the job says another."""

    @property
    def counts_holding(self) -> bool:
        """What the framework holds is counted."""
        return self.resident == "held"

    @property
    def framework_holding(self) -> Holding:
        """What the framework holds, of a set that it has answered."""
        assert self.holding is not None
        return self.holding


@dataclass(frozen=True)
class Assumptions(Checked):
    """Modelling options: counting, chip, network, overlap, memory.

    >>> from meshwright import Assumptions, assumptions
    >>> isinstance(assumptions("lbl-2024"), Assumptions)
    True
    """

    name: Name
    source: Prose
    count: Counting = Counting()
    chip: ChipTime = ChipTime()
    network: NetworkTime = NetworkTime()
    overlap: Overlap = Overlap()
    memory: MemoryCount = MemoryCount()
    precision: Precision | None = None
    """Numbers of a job that names none; None = bf16."""
    choices: tuple[Choices, ...] = ()
    """Layouts that a search takes: those that one of these allows, each a strategy of its own;
    empty = all of `search.Space`.
    """
    strict: bool = False
    """A search takes only layouts in which everything divides: chips, batch and the layers of a
    stage.
    """
    framework: Known = ""
    """Name of the framework that is asked (`ASK`) where the job names none; empty: the one usual on
    the chip.
    """

    __repr__ = short_repr


BY_SHAPE_AS_WRITTEN = ChipTime("by-shape", Stack(ASK))
"""The chip of `realistic`, before any run."""
REALISTIC = Assumptions(
    "realistic",
    "This project's default: full transformer, sustained clocks, collectives as NCCL makes them,"
    " memory as frameworks hold it; the numbers that only runs tell are fitted to published ones"
    " (catalog/fitted.toml).",
    count=Counting(
        tied_gradients=ASK,
        gathered_inputs=ASK,
        input_gradients=ASK,
        gathered_keys=ASK,
        backward_needs=ASK,
        weight_gradient=ASK,
        rotary=ASK,
        gate=ASK,
        biases=ASK,
        stage_message=ASK,
        selective=ASK,
        full=ASK,
    ),
    chip=fitted.with_fitted("set/chip", BY_SHAPE_AS_WRITTEN),
    network=NetworkTime(collective="nccl", send_channels=ASK),
    overlap=Overlap(
        dp=HidePass(ASK),
        tp=Hide(ASK),
        cp=Hide(ASK),
        ep=Hide(ASK),
        pp=ASK,
        weights=ReplicaTraffic(ASK),
        step_barrier=ASK,
    ),
    # logistic in the logarithm, its centre kept at needed = capacity, its width by what measured
    # memory is off by: no verdict on a run has told it
    memory=MemoryCount(
        capacity_share=1.0, resident=ASK, risk_width=None, headroom=0.1
    ),
)

LBL_SEARCH = Choices(
    schedule=("1f1b",),
    zero=(1,),
    recompute=("none",),
    sequence_parallel=(True,),
)
"""What is the same in the three strategies of the paper: 1F1B, optimizer states sharded, nothing
recomputed.
"""

ON_PAPER = MemoryCount(
    framework_bytes=0.0,
    capacity_share=1.0,
    working_set=False,
    holding=Holding(),
)
"""All of the memory holds tensors of the model, and no others."""

LBL = Assumptions(
    "lbl-2024",
    "Subramanian et al. 2024, arXiv 2410.00273, with the defects of its public code repaired.",
    count=Counting(
        "2k-1",
        causal="full",
        vocabulary=False,
        residual=False,
        optimizer_step=False,
        dropout="lbl",
        output_bias="replicated",
        gathered_inputs="kept",
        attention_output="twice",
        weight_gradient="one pass",
        stage_message="whole",
    ),
    chip=ChipTime(
        matrix_efficiency=0.8,
        vector_efficiency=0.8,
        memory_efficiency=1.0,
        launch_s=20e-6,
    ),
    network=NetworkTime(hop="mean"),
    overlap=Overlap(dp=HidePass("pass", links="free"), pp="none"),
    memory=ON_PAPER,
    precision=PRECISIONS["fp16-pure"],
    choices=(
        Choices(LBL_SEARCH, scheme=("megatron",), cp=(1,)),  # 1D
        Choices(LBL_SEARCH, scheme=("context",)),  # 2D, cp beside tp
        # shards of n1 x n2, no tokens over tp
        Choices(LBL_SEARCH, scheme=("summa",), sequence_parallel=(False,)),
    ),
    strict=True,
)

MEGATRON = replace(
    REALISTIC,
    name="megatron-2021",
    source=(
        "Narayanan et al. 2021, arXiv 2104.04473: its analysis (bubbles of equal stages, bytes of"
        " section 3 at the rate of their links, one after the other) with its software (framework"
        " megatron-2021)."
    ),
    # section 3 counts what a layer sends
    count=replace(REALISTIC.count, tied_gradients="none"),
    # a ring moves what section 3 counts: of each all-reduce 2 (t-1)/t b s h
    network=NetworkTime("ring", hop="slowest"),
    precision=PRECISIONS["fp16"],
    choices=(
        Choices(
            scheme=("megatron",),
            cp=(1,),
            schedule=("1f1b", "interleaved"),
            zero=(0,),
            recompute=("full",),  # as all runs of its tables
            sequence_parallel=(False,),
        ),
    ),
    framework="megatron-2021",
)

EPOCH_SEARCH = Choices(
    schedule=("1f1b", "interleaved", "zb-h2"), zero=(1,), recompute=("none",)
)
"""Weights on every replica, states sharded."""
EPOCH = Assumptions(
    "epoch-2024",
    "Erdil & Schneider-Joseph 2024, arXiv 2411.01137: matrix products on a memory hierarchy,"
    " collectives level by level, all of them but the data-parallel ones behind compute.",
    count=Counting(
        causal="full",
        vocabulary=False,
        residual=False,
        optimizer_step=False,
        weight_gradient="one pass",
    ),
    chip=ChipTime("hierarchy", memory_efficiency=1.0, launch_s=4.5e-6),
    network=NetworkTime("levels", hop="mean"),
    overlap=Overlap(
        dp=HidePass(),
        tp=Hide("step"),
        ep=Hide("step"),
        pp="all",
        step_barrier="none",
    ),
    memory=ON_PAPER,
    precision=PRECISIONS["fp16-pure"],
    choices=(
        Choices(EPOCH_SEARCH, cp=(1,)),
        # the paper's own: cp cuts d_model, tp d_ff; of models of feed-forwards alone
        Choices(EPOCH_SEARCH, scheme=("mlp2d",)),
    ),
)


def in_layers(links: str) -> Overlap:
    """Everything hides behind the layer it belongs to, T = max(T_math, T_comms); links: of weights
    and gradients with the rest.
    """
    whole = Hide("layer")
    return Overlap(
        dp=HidePass("layer", links=links),
        tp=whole,
        cp=whole,
        ep=whole,
        pp="none",
    )


BOOK_SUM = Assumptions(
    "scaling-book-sum",
    "How To Scale Your Model, part 5, editions of February 2025: collectives of different mesh axes"
    " do not overlap.",
    count=Counting(
        "2k",
        causal="full",
        vocabulary=False,
        residual=False,
        optimizer_step=False,
        gathered_inputs="kept",
        weight_gradient="one pass",
    ),
    chip=ChipTime("peak", matrix_efficiency=1.0, launch_s=0.0),
    network=NetworkTime(
        "book", efficiency=1.0, ring_factor="one", hop="slowest"
    ),
    overlap=in_layers("serial"),
    memory=ON_PAPER,
    precision=PRECISIONS["bf16-pure"],
    # data, fully sharded, tensor parallel
    choices=(
        Choices(
            cp=(1,),
            pp=(1,),
            schedule=("1f1b",),
            zero=(0, 3),
            dp_replicate=(1,),
        ),
    ),
)

BOOK_MAX = replace(
    BOOK_SUM,
    name="scaling-book-max",
    source=(
        "How To Scale Your Model, part 5, newest edition: collectives of different mesh axes"
        " overlap fully (a lower bound)."
    ),
    overlap=in_layers("shared"),
)

PYTORCH = replace(
    REALISTIC,
    name="pytorch",
    source=(
        "realistic for the trainer of this project (framework meshwright) on a machine that"
        " `meshwright calibrate` has measured: kernels and collectives as measured."
    ),
    # 73 % and 63 % of an A100's peak: Dao 2023, FlashAttention-2 (arXiv 2307.08691), the best of
    # its measurements
    chip=ChipTime(
        "calibrated", attention_forward=0.73, attention_backward=0.63
    ),
    network=NetworkTime(collective="measured", hop="slowest"),
    framework="meshwright",
)

JOINTS = ("count", "chip", "network", "overlap", "memory")
"""Fields of a set that hold its options."""
WHOLE = ("precision", "choices", "strict")
"""Fields that are one option each."""
NAMED = 4
"""Ignored options that a sentence names."""

SETS = {
    s.name: s
    for s in (
        REALISTIC,
        PYTORCH,
        LBL,
        MEGATRON,
        EPOCH,
        BOOK_SUM,
        BOOK_MAX,
    )
}


def assumptions(name: str) -> Assumptions:
    """The assumption set of that name; BadInput names the nearest ones.

    >>> from meshwright import Job, assumptions
    >>> job = Job("gpt3-175b", "512xa100-80", batch=1024, assumptions="lbl-2024")
    >>> job.assumptions == assumptions("lbl-2024")
    True
    """
    if name in ELSEWHERE:
        made: Assumptions = ELSEWHERE[name]()
        return made
    if name not in SETS:
        raise unknown("assumption set", name, {*SETS, *ELSEWHERE})
    return SETS[name]


BY_NAME[Assumptions] = assumptions


def search_refusal(how: Assumptions, layout: Layout) -> str:
    """The sentence for a layout that the set's own search would not take; empty if it would, or
    takes any.
    """
    allows = f"{how.name} allows "
    why = [
        reason.removeprefix(allows)
        for reason in refusal(how.choices, layout, how.name)
    ]
    return (
        f"no layout of {how.name}'s: it allows {'; '.join(why)}" if why else ""
    )


def sole_changes(
    every: Iterable[Choices], layout: Layout, said: Collection[str]
) -> dict[str, Value]:
    """Fields of a layout that are not said, of which the choices of a set, or of a framework, allow
    one value alone, where the layout has another.

    >>> sole_changes(MEGATRON.choices, Layout(tp=8), ["tp"])
    {'recompute': 'full', 'sequence_parallel': False}
    """
    given = {name: getattr(layout, name) for name in said if name in FIELDS}
    return {
        name: value
        for name, value in sole_values(every, given).items()
        if getattr(layout, name) != value
    }


def demand_read(
    how: Assumptions, of: Assumptions, read: tuple[str, ...], verb: str
) -> None:
    """Raise BadInput if a set chooses something else than `of` where a verb does not look.

    read: the fields it reads ("overlap.dp.scope"), or all below one ("chip").  verb: its name, for
    the sentence.
    """
    unread = ignored_fields(how, of, read)
    if unread:
        more = (
            f" and {len(unread) - NAMED} more" if len(unread) > NAMED else ""
        )
        whole = [
            s.name for s in SETS.values() if not ignored_fields(s, of, read)
        ]
        raise BadInput(
            f"assumptions {how.name}: {verb} would ignore its {', '.join(unread[:NAMED])}{more};"
            f" it reads all of {' and '.join(whole)}"
        )


def ignored_fields(
    how: Assumptions, of: Assumptions, read: tuple[str, ...]
) -> list[str]:
    """Fields in which a set differs from `of` and that are not among those read."""
    fields = [
        name
        for joint in JOINTS
        for name in differing(getattr(how, joint), getattr(of, joint), joint)
        if not any(f"{name}.".startswith(f"{known}.") for known in read)
    ]
    fields += [
        name
        for name in WHOLE
        if getattr(how, name) != getattr(of, name) and name not in read
    ]
    return fields


def changed(how: Assumptions) -> list[str]:
    """Fields in which a set times a step otherwise than the registered one of its name: choices
    limit a search, and memory decides what fits.

    >>> levels = replace(LBL.network, collective="levels")
    >>> changed(replace(LBL, network=levels, choices=()))
    ['network.collective']
    """
    own = SETS.get(how.name, how)
    if own is how:
        return []
    return ignored_fields(how, own, (*WHOLE, "memory"))


def differing(one: Any, other: Any, name: str) -> Iterator[str]:
    """Names of the fields in which two options differ, down to those of a `Hide`."""
    if not is_dataclass(one) or type(one) is not type(other):
        yield from () if one == other else (name,)
        return
    for option in fields(one):
        yield from differing(
            getattr(one, option.name),
            getattr(other, option.name),
            f"{name}.{option.name}",
        )
