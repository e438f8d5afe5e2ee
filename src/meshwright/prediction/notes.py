"""What a prediction says beside its numbers: rates that nobody measured, choices of this model,
corners where it is too fast.
"""

from __future__ import annotations

from dataclasses import replace

from ..count.model import MODEL_FLOPS, executed_flops, groups, model_flops
from ..count.optimizer import orthogonal_flops
from ..describe.assumptions import REALISTIC, unsearched
from ..describe.assumptions import UNMEASURED as CHIP_SHARE
from ..describe.framework import OF_CODE
from ..describe.job import Job
from ..describe.kernels import Kernels, kernels
from ..describe.layout import Layout
from ..describe.network import UNMEASURED as LINK_SHARE
from ..describe.offload import offload
from ..layout import practice, rules
from ..layout.beside import PAIRED
from ..layout.sequence import length, padding
from ..step import room
from ..units import show
from .result import StepResult

WORST_CHIP = ", the lowest measured share of the catalogue (MI300X)"
WORST_LINK = (
    ", the lowest measured share of the catalogue (Perlmutter; Subramanian et al. 2024, arXiv"
    " 2410.00273)"
)
FEW_TOKENS = 512
"""Of a product on one device: with fewer, kernels reach less of the peak than the share that is
assumed for all shapes.
"""

ALONE = ("1f1b", "interleaved", "gpipe")
"""Schedules that mean something on one device: the usual one, the one that interleave asks for, and
the one that keeps the activations of all microbatches."""


def of_question(r: StepResult) -> tuple[str, ...]:
    """What is to be said of a job and its layout before anything of it is counted."""
    job, layout = r.job, r.layout
    strict = (
        rule.sentence(job, layout)
        for rule in rules.STRICT
        if not rule.holds(job, layout)
    )
    return (
        *job.model.notes,
        *filter(None, (r.idle, unsearched(job.assumptions, layout))),
        *strict,
        *unmeasured(job),
        *unused(layout),
        *practice.not_proposed(job, layout),
        *choices(r),
        *corners(job, layout),
    )


def of_answer(r: StepResult) -> tuple[str, ...]:
    """What is to be said of its seconds and bytes."""
    return (*above_peak(r), *too_large(r), *scans(r))


def unmeasured(job: Job) -> list[str]:
    """A sentence for the chip, and one for the links, whose rates are assumed because no
    measurement is in their data.
    """
    sentences = []
    chip = job.cluster.chip
    if chip_unmeasured(job):
        law = by_law(job)
        share = law.share * law.clock if law else job.how.chip.sustained
        sentences.append(
            f"chip {chip.name} is unmeasured: {share:g} of its peak is assumed"
            f"{WORST_CHIP if share == CHIP_SHARE else ''}"
        )
    if links := unmeasured_links(job):
        are = (
            f"network dimension {links[0]} is"
            if len(links) == 1
            else f"network dimensions {', '.join(links)} are"
        )
        sentences.append(
            f"{are} unmeasured: {LINK_SHARE:g} of the bandwidth is assumed{WORST_LINK}"
        )
    return sentences


def unmeasured_links(job: Job) -> list[str]:
    """Dimensions of the network whose reached share of the bandwidth is assumed."""
    how, on = job.how.network, job.cluster
    if how.efficiency is not None or how.collective == "free":
        return []
    return [
        dim.name
        for dim, size in zip(on.network.dims, on.sizes, strict=True)
        if size > 1
        and dim.efficiency is None
        and not (how.collective == "measured" and dim.collectives)
    ]


def choices(r: StepResult) -> list[str]:
    """A sentence for each choice of this model of a step that costs or saves something only here,
    and is not in its terms.
    """
    sentences = (
        padding(r.job, r.layout),
        measured_set(r.job),
        own_code(r.job),
        free_network(r.job, r.layout),
        free_update(r.job, r.layout),
        orthogonal(r),
        whole_windows(r.job, r.layout),
        unpaired(r.job, r.layout),
    )
    return [*filter(None, sentences), *mixers(r.job)]


def measured_set(job: Job) -> str:
    """What a set is that was given for a machine instead of a framework."""
    if job.framework or not (job.profile and job.assumptions.framework):
        return ""
    return (
        f"assumptions {job.assumptions.name} are {REALISTIC.name} with framework"
        f" {job.profile.name}, kernels and collectives as measured where the machine has them"
    )


def own_code(job: Job) -> str:
    """Which framework a traced model is timed under where none is named."""
    by = job.profile
    if not job.model.traced or job.framework or not by:
        return ""
    if by.name not in OF_CODE:
        return ""
    return (
        f"no framework is named: timed as {by.name}, which runs the model's own PyTorch code;"
        " Megatron would need its layers written anew"
    )


def free_network(job: Job, layout: Layout) -> str:
    """Where degrees go is no advice of a set without communication."""
    if job.how.network.collective != "free" or layout.tp <= 1:
        return ""
    return (
        f"assumptions {job.assumptions.name} have no communication in them: tp {layout.tp:g} costs"
        " the same wherever it lies, so that they are no advice on where degrees go"
    )


def free_update(job: Job, layout: Layout) -> str:
    """The host's update is not timed where no optimizer step is."""
    away = offload(layout.offload).optimizer
    if not away or job.how.count.optimizer_step:
        return ""
    return (
        f"assumptions {job.assumptions.name} time no optimizer step: what the host updates, and"
        " copies for that, is free here"
    )


def orthogonal(r: StepResult) -> str:
    """Iterations of an optimizer that are not timed."""
    job = r.job
    if not job.optimizer.iterations:
        return ""
    work = orthogonal_flops(job.model, job.optimizer.iterations)
    seconds = work / r.clock.rates.matrix / r.layout.chips
    return (
        f"optimizer {job.optimizer.name} is timed without its {job.optimizer.iterations}"
        f" Newton-Schulz iterations ({work:.3g} FLOPs a step, {show(float(seconds), 's')} if all"
        f" chips share them evenly) and without gathering whole matrices; it keeps"
        f" {job.state_bytes:g} B of state for every parameter, where AdamW for embedding, head and"
        " norms would keep more"
    )


def whole_windows(job: Job, layout: Layout) -> str:
    """Keys beyond a window are gathered too."""
    windows = [
        kind.window
        for part in groups(job.model)
        for kind, _ in part
        if kind.window
    ]
    if not windows or layout.cp <= 1 or layout.scheme == "summa":
        return ""
    return (
        f"cp {layout.cp:g} gathers the keys and values of all {job.T:,} tokens in layers with a"
        f" window of {min(windows):,} too, as Transformer Engine's all-gather does: a choice, not a"
        " need"
    )


def unpaired(job: Job, layout: Layout) -> str:
    """What a schedule hides in its authors' hands, and not by itself."""
    if not (
        layout.schedule in PAIRED
        and job.model.moe
        and layout.ep > 1
        and job.profile
        and not job.profile.ep_overlap
    ):
        return ""
    return (
        f"{layout.schedule} was made to hide the experts' all-to-all of one microbatch behind"
        f" another's compute, which {job.profile.name} by itself does not: --ep-overlap true"
        " predicts it hidden"
    )


def unused(layout: Layout) -> list[str]:
    """A sentence for what the layout names and its step never reads."""
    if layout.pp > 1:
        return []
    named = []
    if layout.schedule not in ALONE:
        named.append(f"schedule {layout.schedule}")
    if layout.interleave > 1:
        named.append(f"interleave {layout.interleave:g}")
    alone = "a device that is alone runs all its layers as one stage"
    return [
        f"{name} has no effect on time with pp 1: {alone}" for name in named
    ]


def mixers(job: Job) -> list[str]:
    """What is timed without a measurement of models whose layers differ."""
    lead_and_body = groups(job.model)
    states = {
        w for part in lead_and_body for kind, _ in part for w in kind.mixers
    } & SCANS.keys()
    if not states or job.how.chip.model == "peak":
        return []
    return [
        f"{' and '.join(SCANS[word] for word in sorted(states))} are timed by the products and"
        " bytes of their kernels, at the rate of large products: none of them was measured"
    ]


SCANS = {
    "linear": "scans of linear attention",
    "ssm": "scans of state spaces",
    "sparse": "indexers",
}
"""Mixer -> what of it no measurement is known of."""


def corners(job: Job, layout: Layout) -> list[str]:
    """A sentence for each corner of the space where what this model leaves out decides; a search
    finds them, people do not train there.
    """
    tokens = layout.microbatch * length(job, layout) / layout.cp
    if job.how.chip.model != "roofline" or tokens >= FEW_TOKENS:
        return []
    return [
        f"matrix products of {tokens:,.0f} tokens (microbatch x sequence / cp) are small: kernels"
        f" reach less of the peak below about {FEW_TOKENS} tokens, so this is too fast"
    ]


def above_peak(r: StepResult) -> list[str]:
    """A sentence for an MFU above 100 % under a set whose step has no vocabulary."""
    job = r.job
    # only such a set is worth computing the step for a note
    if job.how.count.vocabulary or r.mfu <= 1.0:
        return []
    layers = replace(MODEL_FLOPS, vocabulary=False)
    timed = executed_flops(job.model, job.T, layers, "unfused", "none")
    left_out = 1.0 - timed / (model_flops(job.model, job.T) * job.T)
    return [
        f"MFU is above 100 % since assumptions {job.assumptions.name} time no embedding, output"
        f" head and loss, {100 * left_out:.1f} % of the model FLOPs that MFU counts"
    ]


def too_large(r: StepResult) -> list[str]:
    """A sentence for what does not fit."""
    if r.fits:
        return []
    return [room.too_big(r.job, r.memory_bytes["allocated"])]


MOST = 0.5
"""Of a step: traffic beyond it is named."""


def scans(r: StepResult) -> list[str]:
    """A sentence for a step that waits for memory, of a model whose states are mixed by PyTorch
    operations one by one.
    """
    traced = r.job.model.traced
    if not traced or not traced.states:
        return []
    seconds = r.time_s
    share = seconds["memory"] / sum(seconds.values())
    if share <= MOST:
        return []
    return [
        f"memory traffic is {100 * share:.0f} % of the step: states are counted operation by"
        " operation, as the model's PyTorch code runs; a fused kernel of them would be faster"
    ]


def chip_unmeasured(job: Job) -> bool:
    """The share of the chip's peak is neither the set's nor measured, and its kernels were not
    measured either.
    """
    chip, how = job.cluster.chip, job.how.chip
    if law := by_law(job):
        return law.estimated and chip.sustained is None
    measured_kernels = how.model == "calibrated" and chip.kernels
    return (
        how.matrix_efficiency is None
        and chip.sustained is None
        and not measured_kernels
    )


def by_law(job: Job) -> Kernels | None:
    """The laws of the chip's kernels, where they are what is timed."""
    chip = job.cluster.chip
    how = job.how.chip
    timed = (
        how.model == "by-shape"
        and how.matrix_efficiency is None
        and chip.kernel_law
    )
    return kernels(chip.kernel_law) if timed else None
