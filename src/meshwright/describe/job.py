"""A training job: what is trained, on what, how much at a time, in which numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import BadInput, brief, unknown
from ..units import parse
from .assumptions import REALISTIC, Assumptions
from .batch import parse_batch
from .chip import Chip
from .cluster import Cluster
from .fields import (
    ASK,
    BY_NAME,
    FROM_0,
    Amount,
    Checked,
    Length,
    Name,
    OneOf,
    Prose,
    Range,
    Risk,
    SIUnit,
    fields_of,
    finder,
)
from .framework import (
    OF_CODE,
    USUAL,
    Framework,
    framework,
    of_code,
    questions_of,
    running,
    usual,
    with_answers,
)
from .frozen import short_repr, with_values
from .frozendict import EMPTY
from .layout import DEGREES, Layout
from .model import Model
from .precision import PRECISIONS as PRECISIONS
from .precision import Precision as Precision
from .precision import precision
from .software import ATTENTION, NOTHING_SAID, UNFUSED, Software

TABLES = ("model", "cluster", "layout", "software", "job")
"""Tables of a job in a file; `job` has the fields that are no table of their own."""
TRAIN = "train"
"""A table for the trainer alone: it does not describe the job."""


@dataclass(frozen=True)
class Optimizer(Checked):
    """What the optimizer keeps for each parameter.

    >>> from meshwright import Job, Optimizer
    >>> lean = Optimizer("adamw-8bit", state_bytes=6)
    >>> Job("llama3-8b", "8xh100-sxm", batch=64, optimizer=lean).state_bytes
    6.0
    """

    name: Name = "adamw"
    state_bytes: Amount = 12.0
    """fp32 master weight + first moment + second moment."""
    master_bytes: Amount = 4.0
    """The part of it that is an fp32 copy of the weight; not kept where weights are fp32
    themselves.
    """
    flops: Amount = 14.0
    """Floating-point operations of one update of one parameter."""
    iterations: Annotated[int, Range(0, 100)] = 0
    """Newton-Schulz iterations that make the update of each matrix orthogonal (Muon); they are
    named in a note, not timed.
    """


OPTIMIZERS = {
    "adamw": Optimizer(),
    "adam": Optimizer("adam"),
    "adamw-no-master": Optimizer("adamw-no-master", 8.0, 0.0),
    # moments like 16-bit weights: zeros_like(p) in torch/optim/adam.py
    "adamw-pure": Optimizer("adamw-pure", 4.0, 0.0),
    # moments of a byte (bitsandbytes), beside fp32 masters or 16-bit weights alone
    "adamw-8bit": Optimizer("adamw-8bit", 6.0),
    "adamw-8bit-pure": Optimizer("adamw-8bit-pure", 2.0, 0.0),
    "sgd": Optimizer("sgd", 8.0, flops=4.0),
    # Jordan et al. 2024, https://kellerjordan.github.io/posts/muon
    "muon": Optimizer("muon", 8.0, iterations=5),
    "adafactor": Optimizer("adafactor", 4.0),
}
BY_NAME[Optimizer] = finder("optimizer", OPTIMIZERS)


ONE_DEVICE = Layout(dp=1)
"""Nothing is cut or copied."""


@dataclass(frozen=True)
class Job(Checked):
    """Model, cluster, batch and layout of one training step.

    >>> from meshwright import Job
    >>> job = Job("llama3-8b", "64xh100-sxm", batch="4Mi", tokens="2T")
    >>> job.batch, job.T, job.cluster.chips
    (512, 8192, 64)
    """

    model: Model
    cluster: Cluster
    batch: int
    """Global batch. As text: tokens of a step such as 4M, rounded to sequences that the chips share
    (`batch.shared_multiple`), or sequences such as 4096seq; as a number: sequences.
    """
    layout: Layout = Layout()
    seq: Annotated[Length, Range(0, 1e9)] = 0
    """Sequence length in tokens, such as 8192 or 8k (k = 1,024); default (0): the model's."""
    precision: Precision = None  # type: ignore[assignment]  # a Precision once the job is made
    """bf16, fp16, fp8, fp4 (mixed: fp32 master weights, and gradients as the framework has them),
    tf32, fp32, bf16-pure, fp16-pure (gradients of 2 bytes); default: that of the assumption set,
    else bf16."""
    optimizer: Optimizer = OPTIMIZERS["adamw"]
    """adamw, adam, adamw-8bit (moments of a byte), adamw-no-master, adamw-pure and adamw-8bit-pure
    (16-bit weights without fp32 masters), sgd, muon or adafactor."""
    tokens: Annotated[float, SIUnit("token"), FROM_0] = 0.0
    """Length of the whole run, for days, cost and energy; 0 = not asked."""
    attention_kernel: Annotated[
        str, OneOf("flash", "unfused", *ATTENTION, ASK)
    ] = ASK
    """flash (no T x T matrix in memory) or unfused, the framework's version; or one by name: fa1,
    fa2, fa3, cudnn, xla, torch, fused-softmax. framework: its default."""
    assumptions: Assumptions = REALISTIC
    """The set of modelling choices: realistic, lbl-2024, megatron-2021, ..."""
    framework: Framework | None = None
    """The framework, which decides what is kept, what overlaps and which layouts run: megatron-core
    (default on GPUs), maxtext (on TPUs), torchtitan, ... or meshwright, the trainer of this
    project.
    """
    software: Software = NOTHING_SAID
    """What is said of it beside its name, in place of what the framework does by itself."""
    headroom: Risk | None = None
    """Largest risk of running out of memory at which a layout fits, such as 0.05; default: that of
    the assumption set (realistic: 0.1).
    """
    train: Mapping[Prose, Any] = EMPTY
    """Table [train] of a file, the fields that it gives: what `meshwright train` does with the job
    (`describe.training`). It goes with the job into every file; no prediction asks it.
    """

    __repr__ = short_repr

    if TYPE_CHECKING:  # names and texts are taken, too; the fields themselves are what they name

        def __init__(
            self,
            model: Model | str,
            cluster: Cluster | str,
            batch: int | str,
            layout: Layout = ...,
            seq: int | str = ...,
            precision: Precision | str | None = ...,
            optimizer: Optimizer | str = ...,
            tokens: float | str = ...,
            attention_kernel: str = ...,
            assumptions: Assumptions | str = ...,
            framework: Framework | str | None = ...,
            software: Software = ...,
            headroom: float | None = ...,
            train: Mapping[str, Any] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Names become what they name, texts numbers; BadInput for everything else that is no
        job.
        """
        for one in fields_of(Job).values():
            value = getattr(self, one.name)
            if one.kind.unit and isinstance(value, str):
                number = parse(value, one.kind.unit, one.where)
                object.__setattr__(self, one.name, number)
        # "4Mi" tokens are sequences of the length that the model may say
        batch: Any = self.batch
        numbers: Any = self.precision
        if isinstance(batch, str):
            object.__setattr__(self, "batch", 1)
        super().__post_init__()
        if isinstance(batch, str):
            count, _ = parse_batch(batch, self.T, self.cluster.chips)
            object.__setattr__(self, "batch", count)
        if self.precision is None:
            object.__setattr__(self, "precision", self.usual_precision)
        elif isinstance(numbers, str):
            meant = self.precision_named(numbers)
            object.__setattr__(self, "precision", meant)
        elif self.software.gradients:
            object.__setattr__(
                self,
                "precision",
                with_gradients(self.precision, self.software.gradients),
            )

    def conflict(self) -> str:
        """The assumption set uses every setting given with it."""
        how = self.assumptions
        if self.headroom is not None and how.memory.risk_width == 0.0:
            return (
                f"assumptions {how.name} have no memory-risk model: headroom goes with"
                f" those that do, such as {REALISTIC.name}"
            )
        said = [
            name.replace("tp_", "TP ").replace("_", " ")
            for name in self.software.given
        ]
        if self.framework:
            said = [f"framework {self.framework.name}"]
        if said and not questions_of(how):
            return (
                f"assumptions {how.name} say themselves what software does and have no {said[0]};"
                f" use --assumptions {REALISTIC.name}"
            )
        return ""

    @cached_property
    def profile(self) -> Framework | None:
        """The framework that the set asks, with what the job says of it; None if the set asks
        nothing.
        """
        if not questions_of(self.assumptions):
            return None
        by = self.framework or framework(self.usual_framework)
        capability = self.cluster.chip.compute_capability
        return running(by, self.attention_kernel, self.software, capability)

    @property
    def usual_framework(self) -> str:
        """The framework of a job that names none: the set's, else the usual one of chip and layout;
        for a traced model, one that runs its code.
        """
        return self.framework_of(self.layout)

    def framework_of(self, layout: Layout) -> str:
        """The usual framework under another layout."""
        name = usual(self.assumptions, self.cluster.chip, layout)
        if self.model.traced and name in (USUAL, *OF_CODE):
            return of_code(layout, self.model.moe is not None)
        return name

    @property
    def fused_attention(self) -> bool:
        """Attention keeps no T x T matrix in memory."""
        if self.profile:
            return self.profile.attention not in UNFUSED
        return self.attention_kernel not in (*UNFUSED, "unfused")

    @cached_property
    def recipe(self) -> str:
        """How its products' FP8 or FP4 numbers are scaled (`software.Recipe`); empty where they are
        in no such numbers, or the set asks no framework.
        """
        narrow = self.precision.compute
        if not self.profile or narrow not in ("fp8", "fp4"):
            return ""
        return "nvfp4" if narrow == "fp4" else self.profile.float8

    @property
    def usual_precision(self) -> Precision:
        """The precision of a job that names none: that of its set and its framework."""
        numbers = usual_precision(self.assumptions, self.cluster.chip)
        return (
            with_gradients(numbers, self.profile.gradients)
            if self.profile
            else numbers
        )

    def precision_named(self, name: str) -> Precision:
        """The numbers that a name means to this job: their gradients are those of its software, or
        those that its framework has by itself unless the name says them (-pure).
        """
        numbers = precision(name)
        gradients = self.software.gradients
        if self.profile and not name.endswith(PURE):
            gradients = self.profile.gradients
        return with_gradients(numbers, gradients) if gradients else numbers

    @property
    def precision_name(self) -> str:
        """The name that means the job's numbers to it; empty if none does."""
        return next(
            (
                n
                for n in PRECISIONS
                if self.precision_named(n) == self.precision
            ),
            "",
        )

    @property
    def precision_words(self) -> str:
        """The name that means the job's numbers to its framework alone; of other ones what is
        multiplied and how wide gradients are.
        """
        p = self.precision
        plain = with_values(self, software=NOTHING_SAID)
        return plain.precision_name or (
            f"{p.compute}, gradients of {p.gradient_bytes:g} bytes"
        )

    @cached_property
    def how(self) -> Assumptions:
        """The set of assumptions, with what the framework does where the set leaves it open."""
        return (
            with_answers(self.assumptions, self.profile)
            if self.profile
            else self.assumptions
        )

    @property
    def under_words(self) -> str:
        """The assumption set, and the framework if it is not the set's default."""
        other = self.profile and self.profile.name != self.usual_framework
        return f"assumptions {self.assumptions.name}" + (
            f", framework {self.framework.name}"
            if self.framework and other
            else ""
        )

    @property
    def filled(self) -> Job:
        """The job whose layout states its replicas (`Layout.filling` the job's chips)."""
        return self.laid_out(self.layout.filling(self.cluster.chips))

    def with_(self, **fields: Any) -> Job:
        """The job with other values for some fields, named as on the command line: those of a job
        (batch, seq, framework, ...), of its software, of its layout (tp, zero, ...), and `on` for
        the cluster.

        Fields that nobody chose follow: the precision of a set or a framework, dp of a layout that
        takes all chips (`Layout.with_`). The batch keeps its number of sequences unless it is
        given. BadInput for an unknown field or value.

        >>> from meshwright import Job
        >>> job = Job("llama3-70b", "512xh100-sxm", batch=512)
        >>> other = job.with_(tp=8, zero=1, framework="torchtitan")
        >>> other.layout.tp, other.layout.dp, other.framework.name
        (8, 64, 'torchtitan')
        """
        words = {"cluster" if n == "on" else n: v for n, v in fields.items()}
        for name in words:
            if name not in WORDS:
                raise unknown("field", name, (*WORDS, "on"))
        own, software, degrees = (
            {n: v for n, v in words.items() if n in fields_of(cls)}
            for cls in (Job, Software, Layout)
        )
        if software:
            said = own.get("software", self.software)
            own["software"] = replace(said, **software)
        if own:
            usual = self.precision == self.usual_precision
            same = None if usual else self.precision_name or self.precision
            own = {"precision": same, **own}
        other = replace(self, **own) if own else self
        chips = other.cluster.chips
        if not degrees and chips == self.cluster.chips:
            return other
        stated = "layout" in own and other.layout.dp is not None
        mine = self.cluster.chips
        full = self.layout.filling(mine).chips == mine
        layout = other.layout.with_(**degrees)
        if full and not stated and degrees.get("dp") is None:
            # a placement that is given says dp too
            placed = degrees.get("placement")
            layout = (
                with_values(layout, dp=None)
                if placed
                else layout.refilling(chips)
            )
        return with_values(other, layout=layout.filling(chips))

    def laid_out(self, layout: Layout) -> Job:
        """The job under this layout, with its framework unchanged."""
        other = with_values(self, layout=layout)
        other.__dict__.update(
            profile=self.profile, how=self.how, recipe=self.recipe
        )
        return other

    @cached_property
    def gradient_bytes(self) -> float:
        """Bytes of a gradient while it is added up over microbatches and reduced: those of the
        job's numbers, or of fp16 no more than the framework gives it (Megatron-LM, arguments.py:
        accumulate_allreduce_grads_in_fp32 is set for bf16 only) unless the job's software says.
        """
        numbers, holding = self.precision, self.how.memory.holding
        if (
            not self.how.memory.counts_holding
            or holding is None
            or self.software.gradients
        ):
            return numbers.gradient_bytes
        return min(
            holding.gradient_bytes.get(numbers.compute, math.inf),
            numbers.gradient_bytes,
        )

    @cached_property
    def master_is_weight(self) -> bool:
        """Weights that are sharded are the optimizer's fp32 master, with no copy in 16 bits
        (`Holding.shard_is_master`).
        """
        holding = self.how.memory.holding
        return bool(
            self.how.memory.counts_holding
            and holding
            and holding.shard_is_master
            and self.optimizer.master_bytes > self.precision.weight_bytes
        )

    @property
    def state_bytes(self) -> float:
        """Bytes the optimizer keeps for a parameter: those of its name as the framework means it
        (`Holding.narrow_moments`), or those that it states.
        """
        o, weight_bytes = self.optimizer, self.precision.weight_bytes
        moments = o.state_bytes - o.master_bytes
        holding = self.how.memory.holding
        named = OPTIMIZERS.get(o.name) == o
        if holding and holding.narrow_moments and named:
            return moments * weight_bytes / FP32_BYTES
        return moments if weight_bytes >= FP32_BYTES else float(o.state_bytes)

    @property
    def T(self) -> int:
        """Sequence length in tokens."""
        return self.seq or self.model.seq

    @property
    def batch_tokens(self) -> float:
        """Tokens of one optimizer step."""
        return float(self.batch) * self.T


WORDS = (*fields_of(Job), *fields_of(Software), *fields_of(Layout))
"""Fields that `Job.with_` takes, as the command's flags do."""


def usual_precision(how: Assumptions, chip: Chip) -> Precision:
    """The numbers of a job that names none: those of its set, else bf16.

    16-bit numbers are of the kind that the chip has: bytes and rate are the same of both, and who
    trains on a chip of before bf16 (V100, T4) trains in fp16.
    """
    usual = how.precision or PRECISIONS["bf16"]
    other = {"fp16": "bf16", "bf16": "fp16"}.get(usual.compute, "")
    if usual.compute not in chip.matrix_flops and other in chip.matrix_flops:
        return replace(usual, compute=other)
    return usual


def with_gradients(numbers: Precision, gradients: str) -> Precision:
    """The numbers with gradients in fp32, or as wide as activations ("half")."""
    if numbers.activation_bytes >= FP32_BYTES:
        return numbers
    return replace(
        numbers,
        gradient_bytes=FP32_BYTES
        if gradients == "fp32"
        else numbers.activation_bytes,
    )


FP32_BYTES = 4.0
PURE = "-pure"
"""Ends a name that says the width of gradients itself."""


def demand_job(job: object, layout: object = None) -> None:
    """BadInput for what is no job, or no layout."""
    if not isinstance(job, Job):
        raise BadInput(
            "a Job is needed, such as Job('llama3-70b', '512xh100-sxm', batch=512), not"
            f" {str(job)[:40]!r}"
        )
    if layout is not None and not isinstance(layout, Layout):
        raise BadInput(
            f"a Layout is needed, such as Layout(tp=8, dp=4), not {str(layout)[:40]!r}"
        )
    chosen = job.layout if layout is None else layout
    for name in DEGREES:
        value = getattr(chosen, name)
        column = bool(getattr(value, "shape", None))
        if column or (value is not None and value % 1):
            raise BadInput(
                f"layout.{name} must be a whole number, not {brief(value)}"
            )
