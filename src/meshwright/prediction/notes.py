"""What a prediction says beside its numbers: rates that nobody measured, choices of this model,
corners where it is too fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ..cost.chip import matrix_share
from ..cost.shapes import constants
from ..count.model import MODEL_FLOPS, executed_flops, kind_counts, model_flops
from ..count.optimizer import orthogonal_flops
from ..describe.assumptions import REALISTIC, changed, search_refusal
from ..describe.assumptions import UNMEASURED as CHIP_SHARE
from ..describe.choices import first_few
from ..describe.fields import fields_of
from ..describe.framework import OF_CODE, framework
from ..describe.kernels import Kernels
from ..describe.layout import AXES, Layout
from ..describe.network import UNMEASURED as LINK_SHARE
from ..describe.offload import offload
from ..describe.recompute import recompute
from ..describe.software import ATTENTION, Software
from ..exchange import EXCHANGES
from ..layout import practice, rules
from ..layout.placement import exceeds_last
from ..layout.rule import broken_sentences
from ..layout.sequence import CHUNKS, multiple
from ..layout.transformer_engine import exchanges
from ..num import product
from ..program.coverage import beyond
from ..step import oom
from ..units import show
from .certainty import chip_unmeasured, evidence
from .classes import untested_mixers
from .result import StepResult
from .runnable import not_there

WORST_CHIP = ", the lowest measured share of the catalogue (MI300X)"
WORST_LINK = (
    ", the lowest measured share of the catalogue (Perlmutter; Subramanian et al. 2024, arXiv"
    " 2410.00273)"
)
FEW_TOKENS = 512
"""Of a product on one device: with fewer, kernels reach less of the peak than the share that is
assumed for all shapes.
"""

PAIRED = ("dualpipe", "dualpipev")
"""Schedules whose authors run a forward pass and a backward pass of two microbatches at once."""
ALONE = ("1f1b", "interleaved", "gpipe")
"""Schedules that mean something on one device: the usual one, the one that interleave asks for, and
the one that keeps the activations of all microbatches."""


NO_SLOWER = "a smaller one are no slower"
"""Of chips that are no more than their units have: NCCL gives all ranks the channels and bandwidth
of the one with the least."""


def prediction_notes(r: StepResult) -> tuple[str, ...]:
    """What is to be said: of a job and its layout, of what was measured, of seconds and bytes."""
    job, layout = r.job, r.layout
    return (
        *job.model.notes,
        *filter(None, (r.idle, search_refusal(job.assumptions, layout))),
        *length_of_run(r),
        *broken_sentences(job, layout, rules.STRICT),
        *part_of_units(r),
        *not_there(job),
        *assumed_rates(r),
        *unread_fields(layout),
        *unreplayed(r),
        *whole_chunk(r),
        *idle_settings(r),
        *transformer_engine(r),
        *practice.not_proposed(job.profile, layout),
        *padding(r),
        *of_set(r),
        *orthogonal(r),
        *of_model(r),
        *corners(r),
        *beyond(r.counts, r.clock.rates),
        *of_answer(r),
    )


def part_of_units(r: StepResult) -> Iterator[str]:
    """A sentence for chips that run as a part of each unit of the nearest switch."""
    layout, on = r.layout, r.job.cluster
    near, chips = on.network.dims[0], layout.chips
    ports = near.size or chips
    each = int(product([shares[0] for shares in layout.placement.values()]))
    if near.kind == "switch" and chips > ports and chips % ports:
        units = chips // each
        # whole blocks that do not divide a unit do not lie so where units are full
        uneven = units > product(on.sizes[1:]) and (
            ports % each == 0 or exceeds_last(layout.placement, on.sizes)
        )
        # one group of all chips sends from as many everywhere as run in the smaller unit
        alone = chips in (getattr(layout, axis) for axis in AXES)
        own = all(dim.shared_by == 1 for dim in on.network.dims)
        fewest = chips % ports if alone and own else each
        last = f"one of {fewest} are faster" if fewest > each else NO_SLOWER
        yield (
            f"{chips:,} chips are taken as {each} of the {ports} in each of {units:,} units"
            f" ({near.name}){f'; full units and {last}' if uneven else ''}"
        )


def unreplayed(r: StepResult) -> Iterator[str]:
    """A sentence where the order of a pipeline is too long to be replayed."""
    if (
        r.layout.pp > 1
        and r.job.how.overlap.follows_schedule
        and not r.replayed
    ):
        yield (
            "the pipeline has too many actions to be replayed: the step takes at least as long as"
            " said, longer where stages differ; raise dp or microbatch, or lower pp"
        )


ALL_TEXT = 3.1e15
"""Tokens of the whole web (Villalobos et al. 2024, arXiv 2211.04325: 1,900 to 5,200 trillion)."""


def length_of_run(r: StepResult) -> Iterator[str]:
    """A sentence where the whole run is less than a step, or more than all text there is: a prefix
    has been left out, or one digit too many stands there.
    """
    job = r.job
    if 0 < job.tokens < job.batch_tokens:
        yield (
            f"the run of {job.tokens:,.0f} tokens is less than one step of {job.batch_tokens:,.0f}:"
            " for trillions say 15T"
        )
    if job.tokens > ALL_TEXT:
        yield (
            f"the run of {job.tokens:.3g} tokens is more than the whole web holds (about"
            f" {ALL_TEXT:.2g}): for trillions say 15T"
        )


def whole_chunk(r: StepResult) -> Iterator[str]:
    """A sentence where recomputation names more layers than a chunk of the model has."""
    job, layout = r.job, r.layout
    named = recompute(layout.recompute).layers
    chunk = job.model.layers / (layout.pp * layout.interleave)
    if named > math.ceil(chunk):
        word = layout.recompute.partition(":")[0]
        yield (
            f"recompute {layout.recompute} is {word}: a stage has"
            f" {math.ceil(chunk):,} layers"
            + (" in a chunk" if layout.interleave > 1 else "")
        )


def assumed_rates(r: StepResult) -> list[str]:
    """A sentence each for the chip, for the attention kernel that the job names and for the links,
    whose rates are assumed because no measurement is in their data.
    """
    sentences, job = [], r.job
    chip, law = job.cluster.chip, by_law(r)
    if chip_unmeasured(r.job):
        share = (
            law.share * law.held if law else matrix_share(chip, job.how.chip)
        )
        sentences.append(
            f"chip {chip.name} is unmeasured: {share:.3g} of its peak is assumed"
            f"{WORST_CHIP if share == CHIP_SHARE else ''}"
        )
    kernel = job.attention_kernel
    if law and kernel in ATTENTION and job.fused_attention:
        taken = law.runs_as(kernel)
        if taken != kernel:
            sentences.append(
                f"attention kernel {kernel} is unmeasured on {chip.name}: the rates of {taken} are"
                " taken"
            )
    if links := unmeasured_links(r):
        are = (
            f"network dimension {links[0]} is"
            if len(links) == 1
            else f"network dimensions {', '.join(links)} are"
        )
        sentences.append(
            f"{are} unmeasured: {LINK_SHARE:g} of the bandwidth is assumed{WORST_LINK}"
        )
    return sentences


def unmeasured_links(r: StepResult) -> list[str]:
    """Dimensions of the network whose reached share of the bandwidth is assumed."""
    how, on = r.job.how.network, r.job.cluster
    if how.efficiency is not None or how.collective == "free":
        return []
    return [
        dim.name
        for dim, size in zip(on.network.dims, on.sizes, strict=True)
        if size > 1
        and dim.efficiency is None
        and not (how.collective == "measured" and dim.collectives)
    ]


def of_set(r: StepResult) -> Iterator[str]:
    """A sentence for options that are not the set's own, for what a set given for a machine is, for
    the framework of a traced model, and for what a set does not time.
    """
    job, layout = r.job, r.layout
    how, by = job.assumptions, job.profile
    if other := changed(how):
        runs = ": no published run was compared with that, so no interval is given"
        known = runs if how.name in evidence() else ""
        yield f"{how.name} is changed in {first_few(other)}{known}"
    measured = how.network.collective == "measured"
    if by and how.framework and measured and not job.framework:
        yield (
            f"assumptions {how.name} are {REALISTIC.name} with framework {by.name}, kernels and"
            " collectives as measured where the machine has them"
        )
    tables = job.cluster.chip.kernels or any(
        dim.collectives for dim in job.cluster.network.dims
    )
    if tables and not measured:
        yield (
            "kernels and collectives that were measured on this machine are not read by"
            f" assumptions {how.name}: --assumptions pytorch reads them"
        )
    if by and job.model.traced and not job.framework and by.name in OF_CODE:
        yield (
            f"no framework is named: timed as {by.name}, which runs the model's own PyTorch code;"
            " Megatron would need its layers rewritten"
        )
    if job.how.network.collective == "free" and layout.tp > 1:
        yield (
            f"assumptions {how.name} have no communication: tp {layout.tp:g} costs the"
            " same wherever it lies, so they cannot say where to place it"
        )
    if offload(layout.offload).optimizer and not job.how.count.optimizer_step:
        yield (
            f"assumptions {how.name} do not time the optimizer step: updates on the host, and their"
            " copies, are free here"
        )


def of_model(r: StepResult) -> Iterator[str]:
    """A sentence for what is gathered though no window reaches it, for what a schedule hides in its
    authors' hands and not by itself, and for scans and indexers, which no measurement is known of.
    """
    job, layout, mixed = r.job, r.layout, kind_counts(r.job.model)
    every = [kind for part in mixed for kind, _ in part]
    windows = [kind.window for kind in every if kind.window]
    all_keys = EXCHANGES[layout.cp_exchange].all_keys
    if windows and all_keys and layout.cp > 1 and layout.scheme != "summa":
        yield (
            f"cp {layout.cp:g} sends each rank the keys and values of all {job.T:,} tokens"
            f" also in layers with a window of {min(windows):,}: a choice, not a need"
        )
    if (
        layout.schedule in PAIRED
        and job.model.moe
        and layout.ep > 1
        and job.profile
        and not job.profile.ep_overlap
    ):
        yield (
            f"{layout.schedule} was made to hide the experts' all-to-all of one microbatch behind"
            f" another's compute, which {job.profile.name} by itself does not: --ep-overlap true"
            " predicts it hidden"
        )
    scans = untested_mixers(job.model)
    if scans and job.how.chip.model != "peak":
        yield (
            f"{' and '.join(scans)} are timed by the products and"
            " bytes of their kernels, at the rate of large products: none of them was measured"
        )


def orthogonal(r: StepResult) -> Iterator[str]:
    """A sentence for the iterations of an optimizer, which are not timed."""
    job = r.job
    if job.optimizer.iterations:
        work = orthogonal_flops(job.model, job.optimizer.iterations)
        seconds = work / r.clock.rates.matrix / r.layout.chips
        yield (
            f"optimizer {job.optimizer.name} is timed without its {job.optimizer.iterations}"
            f" Newton-Schulz iterations ({work:.3g} FLOPs a step, {show(float(seconds), 's')} if"
            " all chips share them evenly) and without gathering whole matrices; it keeps"
            f" {job.state_bytes:g} B of state for every parameter, where AdamW for embedding, head"
            " and norms would keep more"
        )


def unread_fields(layout: Layout) -> Iterator[str]:
    """A sentence for what the layout names and its step never reads."""
    if layout.pp == 1:
        named = []
        if layout.schedule not in ALONE:
            named.append(f"schedule {layout.schedule}")
        if layout.interleave > 1:
            named.append(f"interleave {layout.interleave:g}")
        alone = "a device that is alone runs all its layers as one stage"
        for name in named:
            yield f"{name} has no effect on time with pp 1: {alone}"
    if layout.cp == 1 and layout.cp_exchange != Layout().cp_exchange:
        yield f"cp_exchange {layout.cp_exchange} {IDLE_SETTING}: cp is 1"
    if layout.scheme != "summa" and layout.panels != Layout().panels:
        yield (
            f"panels {layout.panels:g} {IDLE_SETTING}: it acts on scheme summa"
        )


IDLE_SETTING = "changes nothing here"
"""What a note says of a setting whose value moves neither seconds nor bytes."""


def idle_settings(r: StepResult) -> Iterator[str]:
    """A sentence for each setting that the job gives another value than the framework does, where
    the step is the same without it; and on what it would act.
    """
    job = r.job
    by = job.framework or framework(job.usual_framework)
    for name, value in job.software.given.items():
        if job.profile and value == getattr(by, name):
            continue
        without = replace(job, software=replace(job.software, **{name: None}))
        other = StepResult(without, r.layout)
        same_time = other.step_time_s == r.step_time_s
        if same_time and other.memory_bytes == r.memory_bytes:
            acts_on = fields_of(Software)[name].kind.acts_on
            on = f": it acts on {acts_on}" if acts_on else ""
            yield f"{name} {str(value).lower()} {IDLE_SETTING}{on}"


def transformer_engine(r: StepResult) -> Iterator[str]:
    """A sentence where Transformer Engine asserts that it has no such exchange of keys; published
    recipes name some that it refuses, so that the layout is timed all the same.
    """
    job, layout = r.job, r.layout
    if layout.cp == 1:
        return
    ways, of = exchanges(job)
    if layout.cp_exchange not in ways:
        yield (
            f"Transformer Engine refuses cp_exchange {layout.cp_exchange} for attention {of}:"
            f" --cp-exchange {' or '.join(ways)}"
        )


def padding(r: StepResult) -> Iterator[str]:
    """A sentence for sequences that the layout pads."""
    T, padded, cp = r.job.T, int(r.counts.microbatch.T), r.layout.cp
    if padded != T:
        more = f"{100 * (padded / T - 1):+.2f} %"
        yield (
            f"sequences of {T:,} tokens are padded to {padded:,}, a multiple of"
            f" {int(multiple(r.layout)):,} ({more}): cp {cp:g} splits each into"
            f" {CHUNKS * cp:g} chunks; padding takes time and memory, and tokens/s do not count it"
        )


def corners(r: StepResult) -> Iterator[str]:
    """A sentence for each corner of the space where what this model leaves out decides; a search
    finds them, people do not train there.
    """
    tokens = r.counts.microbatch.tokens
    if r.job.how.chip.model == "roofline" and tokens < FEW_TOKENS:
        yield (
            f"matrix products of {tokens:,.0f} tokens (microbatch x sequence / cp) are small:"
            f" kernels reach less of the peak below about {FEW_TOKENS} tokens, so this prediction"
            " is too fast"
        )


def of_answer(r: StepResult) -> Iterator[str]:
    """A sentence for an MFU above 100 % under a set whose step has no
    vocabulary, for what does not fit, and for a step that waits for memory, of a model whose states
    are mixed by PyTorch operations one by one.
    """
    job, traced = r.job, r.job.model.traced
    # only such a set is worth computing the step for a note
    if not job.how.count.vocabulary and r.mfu > 1.0:
        layers = replace(MODEL_FLOPS, vocabulary=False)
        timed = executed_flops(
            job.model, job.T, layers, kernel="unfused", recompute="none"
        )
        left_out = 1.0 - timed / (model_flops(job.model, job.T) * job.T)
        yield (
            f"MFU is above 100 % because assumptions {job.assumptions.name} do not time embedding,"
            f" output head and loss, {100 * left_out:.1f} % of the model FLOPs that MFU counts"
        )
    if not r.fits:
        yield oom.shortage(job, r.memory_bytes["allocated"])
    if traced and traced.states:
        share = r.time_s["memory"] / sum(r.time_s.values())
        if share > MOST:
            yield (
                f"memory traffic is {100 * share:.0f} % of the step: states are counted operation"
                " by operation, as the model's PyTorch code runs; a fused kernel of them would be"
                " faster"
            )


MOST = 0.5
"""Of a step: traffic beyond it is named."""


def by_law(r: StepResult) -> Kernels | None:
    """The laws of the chip's kernels, where they are what is timed."""
    chip, how = r.job.cluster.chip, r.job.how.chip
    timed = (
        how.model == "by-shape"
        and how.matrix_efficiency is None
        and chip.kernel_law
    )
    return constants(chip, how) if timed else None
