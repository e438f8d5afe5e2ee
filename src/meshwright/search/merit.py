"""What ranks layouts: the expected time over the chance that they fit, and among ties simplicity.

    merit = seconds / (1 - risk)

A run that runs out of memory is tried again with another layout: of layouts that take t and fit
with probability 1 - r, the one with the least t / (1 - r) takes least until a step is done.
"""

from __future__ import annotations

from functools import partial
from math import log2
from typing import Any, NamedTuple

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import stage_count
from ..num import Num
from ..prediction.certainty import has_precedent
from ..step import oom
from .recipes import published_fields, recipe_fields
from .state import RankedRow, Weigh

PLAIN = ("gpipe", "1f1b", "interleaved")
"""Schedules that all frameworks have."""


def weigh(job: Job) -> Weigh | None:
    """What ranks a job's layouts; None: seconds do, since its set knows no risk."""
    return partial(merit, job) if job.how.memory.risk_width else None


def merit(job: Job, seconds: Num, allocated: Num) -> Any:
    """Expected seconds over the chance to fit of layouts that hold so many bytes of tensors;
    the less the better.
    """
    return seconds / (1.0 - oom.risk(job, allocated))


def seconds_of(job: Job, row: RankedRow) -> float:
    """The seconds of a row of a `SearchState`."""
    by = weigh(job)
    return float(row.merit / by(1.0, row.bytes)) if by else row.merit


class Complexity(NamedTuple):
    """What speaks against a layout that ties with others, compared from left to right: that nobody
    ran or published it, then how involved it is.
    """

    unseen: int
    """No published run by such software shards so: of ties the one with evidence wins."""
    unpublished: int
    """Not what a published recipe of the model trains it with."""
    axes: int
    """Axes that are used."""
    tp_leaves_switch: int
    """tp leaves the nearest dimension."""
    rare_schedule: int
    """A schedule that few frameworks have."""
    zero: int
    """ZeRO stage; 0 and 1 are as simple."""
    whole_sequences: int
    """tp without sequence parallelism."""
    named_stages: int
    """Layers dealt in a way that has to be named."""
    odd_microbatch: int
    """Microbatches that are no power of two."""
    unlike_stages: int
    """Pieces that do not divide the layers."""
    pieces: int
    """Stages times chunks: what a microbatch passes through, with messages between them."""


SIMPLER = {
    "unseen": "a sharding that published runs have",
    "unpublished": "the layout of a published recipe",
    "axes": "fewer axes of parallelism",
    "tp_leaves_switch": "tp inside the nearest switch",
    "rare_schedule": "a schedule that all frameworks have",
    "zero": "a lower ZeRO stage",
    "whole_sequences": "sequence parallelism with tp",
    "named_stages": "layers dealt evenly",
    "odd_microbatch": "a microbatch that is a power of two",
    "unlike_stages": "the same number of layers in every stage",
    "pieces": "fewer pieces of the pipeline",
}
"""What the less involved of two layouts has, in words."""


def complexity(job: Job, layout: Layout) -> Complexity:
    """How involved a (scalar, placed) layout of a job is."""
    l = layout
    axes = sum(
        int(n > 1) for n in (l.tp, l.cp, l.pp, l.ep, l.etp, l.dp_replicate)
    )
    tp_leaves_switch = bool(l.placement) and l.placement["tp"][0] < l.tp
    rare_schedule = l.pp > 1 and l.schedule not in PLAIN
    whole_sequences = l.tp > 1 and not l.sequence_parallel
    named_stages = l.stages != "even"
    odd_microbatch = log2(l.microbatch) % 1 > 0
    # ZeRO-0 is no simpler than ZeRO-1: the same collectives, more memory
    zero = max(int(l.zero), 1)
    pieces = stage_count(l)
    unlike_stages = (job.model.layers + 2 * (l.stages == "slots")) % pieces > 0
    return Complexity(
        int(not has_precedent(job, layout)),
        int(recipe_fields(layout) not in published_fields(job)),
        axes,
        tp_leaves_switch=int(tp_leaves_switch),
        rare_schedule=int(rare_schedule),
        zero=zero,
        whole_sequences=int(whole_sequences),
        named_stages=int(named_stages),
        odd_microbatch=int(odd_microbatch),
        unlike_stages=int(unlike_stages),
        pieces=pieces,
    )


def why_simpler(job: Job, layout: Layout, other: Layout) -> str:
    """What makes a layout simpler than another one, in words; "": it is not."""
    for name, mine, its in zip(
        Complexity._fields,
        complexity(job, layout),
        complexity(job, other),
        strict=True,
    ):
        if mine != its:
            return SIMPLER[name] if mine < its else ""
    return ""
