"""What a prediction says beside its numbers: rates that nobody measured, choices of this model,
corners where it is too fast.
"""

from __future__ import annotations

from dataclasses import replace

from ..count.model import MODEL_FLOPS, executed_flops, groups, model_flops
from ..count.optimizer import orthogonal_flops
from ..describe.assumptions import REALISTIC, unsearched
from ..describe.assumptions import UNMEASURED as CHIP_SHARE
from ..describe.job import Job
from ..describe.kernels import Kernels, kernels
from ..describe.layout import Layout
from ..describe.network import UNMEASURED as LINK_SHARE
from ..describe.offload import offload
from ..layout import practice, rules
from ..layout.sequence import length, padding
from ..step import room
from ..units import show
from .result import StepResult

WORST_CHIP = (
    ", the lowest measured share of the catalogue (H100 PCIe; Erdil & Schneider-Joseph 2024, arXiv"
    " 2411.01137)"
)
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
PAIRED = ("dualpipe", "dualpipev")
"""Schedules whose authors run a forward pass and a backward pass of two microbatches at once."""


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
    return (*above_peak(r), *too_large(r))


def unmeasured(job: Job) -> list[str]:
    """A sentence for the chip, and one for the links, whose rates are assumed because no
    measurement is in their data.
    """
    chip = job.cluster.chip
    how = job.how.chip
    network = job.how.network
    found = []
    if chip_unmeasured(job):
        share = how.sustained
        if of := by_law(job):
            share = of.share * of.clock
        found.append(
            f"chip {chip.name} is unmeasured: {share:g} of its peak is assumed"
            f"{WORST_CHIP if share == CHIP_SHARE else ''}"
        )
    if network.efficiency is None and network.collective != "free":
        dims = zip(job.cluster.network.dims, job.cluster.sizes, strict=True)
        tables = network.collective == "measured"
        if links := [
            dim.name
            for dim, size in dims
            if size > 1
            and dim.efficiency is None
            and not (tables and dim.collectives)
        ]:
            are = (
                f"network dimension {links[0]} is"
                if len(links) == 1
                else f"network dimensions {', '.join(links)} are"
            )
            found.append(
                f"{are} unmeasured: {LINK_SHARE:g} of the bandwidth is assumed{WORST_LINK}"
            )
    return found


def choices(r: StepResult) -> list[str]:
    """A sentence for each choice of this model of a step that costs or saves something only here,
    and is not in its terms.
    """
    job, layout = r.job, r.layout
    found = [*filter(None, [padding(job, layout)])]
    if not job.framework and job.profile and job.assumptions.framework:
        found.append(
            f"assumptions {job.assumptions.name} are {REALISTIC.name} with framework"
            f" {job.profile.name}, kernels and collectives as measured where the machine has them"
        )
    if job.how.network.collective == "free" and layout.tp > 1:
        found.append(
            f"assumptions {job.assumptions.name} have no communication in them: tp {layout.tp:g}"
            " costs the same wherever it lies, so that they are no advice on where degrees go"
        )
    if offload(layout.offload).optimizer and not job.how.count.optimizer_step:
        found.append(
            f"assumptions {job.assumptions.name} time no optimizer step: what the host updates, and"
            " copies for that, is free here"
        )
    if job.optimizer.iterations:
        work = orthogonal_flops(job.model, job.optimizer.iterations)
        seconds = work / r.clock.rates.matrix / layout.chips
        found.append(
            f"optimizer {job.optimizer.name} is timed without its {job.optimizer.iterations}"
            f" Newton-Schulz iterations ({work:.3g} FLOPs a step, {show(float(seconds), 's')} if"
            " all chips share them evenly) and without gathering whole matrices; it keeps"
            f" {job.state_bytes:g} B of state for every parameter, where AdamW for embedding, head"
            " and norms would keep more"
        )
    windows = [
        kind.window
        for part in groups(job.model)
        for kind, _ in part
        if kind.window
    ]
    if windows and layout.cp > 1 and layout.scheme != "summa":
        found.append(
            f"cp {layout.cp:g} gathers the keys and values of all {job.T:,} tokens in layers with a"
            f" window of {min(windows):,} too, as Transformer Engine's all-gather does: a choice,"
            " not a need"
        )
    if (
        layout.schedule in PAIRED
        and job.model.moe
        and layout.ep > 1
        and job.profile
        and not job.profile.ep_overlap
    ):
        found.append(
            f"{layout.schedule} was made to hide the experts' all-to-all of one microbatch behind"
            f" another's compute, which {job.profile.name} by itself does not: --ep-overlap true"
            " predicts it hidden"
        )
    return found + mixers(job)


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
    """Of models whose layers differ: what is timed without a measurement."""
    found = []
    lead_and_body = groups(job.model)
    states = {
        w for part in lead_and_body for kind, _ in part for w in kind.mixers
    } & SCANS.keys()
    if states and job.how.chip.model != "peak":
        found.append(
            f"{' and '.join(SCANS[word] for word in sorted(states))} are timed by the products and"
            " bytes of their kernels, at the rate of large products: none of them was measured"
        )
    return found


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
    found = []
    tokens = layout.microbatch * length(job, layout) / layout.cp
    if job.how.chip.model == "roofline" and tokens < FEW_TOKENS:
        found.append(
            f"matrix products of {tokens:,.0f} tokens (microbatch x sequence / cp) are small:"
            f" kernels reach less of the peak below about {FEW_TOKENS} tokens, so this is too fast"
        )
    return found


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


def chip_unmeasured(job: Job) -> bool:
    """The share of the chip's peak is neither the set's nor measured, and its kernels were not
    measured either.
    """
    chip = job.cluster.chip
    how = job.how.chip
    if of := by_law(job):
        return of.estimated and chip.sustained is None
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
