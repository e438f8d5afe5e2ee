"""What lives on devices where every tensor of the trainer's program is counted, for one layout: by
a walk through the program (`memory`). A table has what no walk undercuts (`least`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import schedule_of
from ..step import model_shares
from ..step.memory import MemoryUse
from ..units import show
from .memory import peak
from .operations import carried_out
from .units import Units

NAMED = 3
"""Largest terms of memory that a sentence names."""
KINDS = {
    "weights": "weights",
    "gradients": "gradients",
    "vocabulary gradient": "gradients",
    "optimizer": "optimizer",
    "gathered weights": "buffers",
    "reduction": "buffers",
}
"""Term of a walk -> its kind; all others are activations."""
Terms = dict[str, float]
"""Name of a term of `memory.TERMS` -> bytes."""


def whole_program(job: Job) -> bool:
    """Every tensor of the trainer's program is counted."""
    return job.how.memory.resident == "program"


def peaks(job: Job, layout: Layout) -> dict[int, Terms]:
    """Rank -> bytes by term at its peak, of the devices that may be the fullest, and of another one
    where that is fuller.

    layout: one that is placed.
    """
    wanted = carried_out(replace(job, layout=layout))
    schedule = schedule_of(layout)
    by = model_shares(wanted.model, layout.pp, schedule, layout.interleave)
    chosen = dict.fromkeys(int(share.rank) for share in by.full)
    units = Units(wanted, 0)
    # a rank of a folded pipeline has an early and a late stage: how many microbatches wait at each
    # depends on the rank, so that of uneven stages any may be the fullest
    ranks = range(int(layout.pp)) if schedule.folded else chosen
    by_rank = {rank: peak(wanted, rank, units=units).peak for rank in ranks}
    size = {rank: sum(terms.values()) for rank, terms in by_rank.items()}
    most = max(size, key=lambda rank: size[rank])
    if size[most] > max(size[rank] for rank in chosen):
        chosen[most] = None
    return {
        rank: {term: size for term, size in by_rank[rank].items() if size}
        for rank in chosen
    }


def fullest(devices: Mapping[int, Terms]) -> Terms:
    """Of the fullest device."""
    return max(devices.values(), key=lambda terms: sum(terms.values()))


def by_kind(terms: Mapping[str, float]) -> MemoryUse:
    """The bytes of a device by kind."""
    use = dict.fromkeys(MemoryUse._fields, 0.0)
    for term, size in terms.items():
        use[KINDS.get(term, "activations")] += size
    return MemoryUse(**use)


def largest_terms(terms: Mapping[str, float]) -> str:
    """The largest terms of a peak, for people."""
    largest = sorted(terms.items(), key=lambda term: -term[1])[:NAMED]
    return ", ".join(f"{show(size, 'GiB')} {name}" for name, size in largest)
