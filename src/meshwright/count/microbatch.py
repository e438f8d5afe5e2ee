"""One microbatch as one device sees it: what of which model, cut how far, in which numbers, counted
by which rules. Every count of an operation begins with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..describe.assumptions import Counting
from ..describe.framework import Framework
from ..describe.job import Job
from ..describe.layout import GRIDS, HIDDEN_CUT, Layout
from ..describe.model import Model
from ..layout.sequence import length
from ..num import Num, where
from .blocks import Matrix, Numbers

SUMMED_BY_A_PASS = ("added", "copied")
"""Words of `Counting.weight_gradient` under which a pass of its own adds up the gradients of
microbatches; else the product that makes them does."""


@dataclass(frozen=True, eq=False)
class DeviceMicrobatch:
    """A microbatch of a job under a layout, on one device. The layout's numbers may be columns."""

    job: Job
    layout: Layout
    model: Model
    profile: Framework | None
    """The framework whose kernels run; None: papers know none."""
    counting: Counting
    """How the set of assumptions counts."""
    act: float
    """Bytes of one number of an activation."""
    wgt: float
    """Bytes of one weight."""
    b: Num
    """Sequences."""
    T: Num
    """Whole sequence length, padded to what cp asks (`layout.sequence`)."""
    tokens: Num
    """b T / cp: tokens of the device's part of the sequence."""
    shard: Num
    """Tokens in norms and residuals: tokens / tp with sequence parallelism, else tokens."""
    tp: Num
    cp: Num
    hidden_cut: bool
    """Norms and residuals have all tokens and 1/tp of the hidden size (scheme gspmd)."""

    @classmethod
    def from_layout(cls, job: Job, layout: Layout) -> DeviceMicrobatch:
        """A microbatch of the layout's sequences on a tp x cp group."""
        T = length(job, layout)
        tokens = layout.microbatch * T / layout.cp
        hidden_cut = layout.scheme in HIDDEN_CUT
        along = layout.sequence_parallel and not hidden_cut
        return cls(
            job,
            layout,
            job.model,
            job.profile,
            counting=job.how.count,
            act=job.precision.activation_bytes,
            wgt=job.precision.weight_bytes,
            b=layout.microbatch,
            T=T,
            tokens=tokens,
            shard=tokens / layout.tp if along else tokens,
            tp=layout.tp,
            cp=layout.cp,
            hidden_cut=hidden_cut,
        )

    def part(self, hidden: Num) -> Num:
        """The part of the hidden size that norms and residuals have on a rank."""
        return hidden / self.tp if self.hidden_cut else hidden

    @property
    def summa_width(self) -> Num:
        """Columns of an activation that a rank holds between two products of SUMMA: D / n1."""
        injected = self.counting.summa_width
        if injected:
            columns: Num = injected(self.job, self.layout)
            return columns
        return self.model.hidden / self.tp

    @property
    def boundary(self) -> Num:
        """Bytes the device holds between two layers: tokens of width D, a shard of them (/ tp) with
        sequence parallelism or SUMMA, else all. It is what full recomputation keeps of a layer.
        """
        if self.layout.scheme == "summa":
            return self.tokens * self.summa_width * self.act
        share = self.tp if self._boundary_is_sharded else 1.0
        return self.tokens * self.model.hidden / share * self.act

    @property
    def stage_message(self) -> Num:
        """Bytes the device sends to the next stage: what it holds, or, where tp ranks hold the same
        and the set scatters it, 1/tp of that (Narayanan et al. 2021, section 4.1).
        """
        scattered = self.counting.stage_message == "scattered"
        if scattered and not self._boundary_is_sharded:
            return self.boundary / self.tp
        return self.boundary

    @property
    def _boundary_is_sharded(self) -> bool:
        """Do the tp ranks hold different parts of the activation between layers?"""
        if self.layout.scheme in GRIDS:
            return self.layout.scheme == "summa"
        return self.layout.sequence_parallel

    @cached_property
    def numbers(self) -> Numbers:
        """Bytes of the numbers of a matrix and its gradient, and how a dot product is counted."""
        moved = moved_gradient_bytes(self)
        return Numbers(
            1.0 if self.counting.dot_product == "2k-1" else 0.0,
            act=self.act,
            wgt=self.wgt,
            gradient=moved,
            summed=summed_bytes(self),
            stored=self.job.precision.kept_input_bytes,
            sums=fp32_sums(self, moved),
        )

    @cached_property
    def gather_bytes(self) -> float | None:
        """Bytes of a number of a shard that ranks of tp quantise before they gather it; None: they
        gather it as it is (`Framework.activation_gather_bytes`), or hold no shards of a sequence.
        """
        if not self.profile or not self.layout.sequence_parallel:
            return None
        return self.profile.activation_gather_bytes.get(self.job.recipe)

    def numbers_of(self, matrix: Matrix) -> Numbers:
        """`numbers`; of a matrix that is not quantised, its input is kept as wide as
        activations."""
        if matrix.quantised:
            return self.numbers
        return self.numbers._replace(stored=self.act)


def moved_gradient_bytes(microbatch: DeviceMicrobatch) -> Num | None:
    """Bytes that the gradient of one weight moves in each microbatch; None: it is written once, as
    wide as the weight.

    Written once with one microbatch; read, added to and written with m > 1 (Megatron-LM's
    gradient accumulation fusion, into `Job.gradient_bytes` a weight).
    """
    if microbatch.counting.weight_gradient == "one pass":
        return None
    if microbatch.counting.weight_gradient in SUMMED_BY_A_PASS:
        return microbatch.wgt
    several = accumulates(microbatch.layout, microbatch.job.batch)
    return microbatch.job.gradient_bytes * where(several, 2.0, 1.0)


def fp32_sums(microbatch: DeviceMicrobatch, moved: Num | None) -> Num:
    """Bytes of fp32 sums that the product of one weight's gradient reads and writes, of all that it
    moves."""
    itself = microbatch.counting.weight_gradient == "apart"
    wide = microbatch.job.gradient_bytes > microbatch.wgt
    return moved if itself and wide and moved is not None else 0.0


def summed_bytes(microbatch: DeviceMicrobatch) -> Num | None:
    """Bytes that adding up the gradient of one weight moves in each microbatch beside the product
    that makes it; None: the product adds it up.

    Autograd reads the new gradient and the old one and writes their sum. Where gradients are kept
    wider than weights, every microbatch has a narrow one of its own, which is added to the wide
    ones (Megatron-LM's main_grad), or copied to the wide numbers and added up there (BF16Optimizer
    of DeepSpeed).
    """
    way = microbatch.counting.weight_gradient
    if way not in SUMMED_BY_A_PASS:
        return None
    w, g = microbatch.wgt, microbatch.job.gradient_bytes
    if g > w:
        return w + 2 * g + (2 * g if way == "copied" else 0.0)
    return (
        3
        * w
        * where(accumulates(microbatch.layout, microbatch.job.batch), 1.0, 0.0)
    )


def accumulates(layout: Layout, batch: int) -> Any:
    """True (element by element) where a step has several microbatches to add up: m > 1."""
    return layout.dp * layout.microbatch < batch
