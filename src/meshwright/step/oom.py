"""Out of memory: from the bytes of live tensors to what the device must have, and the risk that it
has not.

    reserved = allocated (1 + phi)              held by the allocator at the peak
    device   = reserved + c                     as nvidia-smi shows: with context and communicators
    needed   = allocated (1 + phi_need) + c     what the device must have: the cache is freed before
                                                an allocation fails
    risk     = 1 / (1 + (capacity / needed)^(1/w))

A logistic in ln(needed / capacity), one half where they are equal; w = 0: what needs more runs out,
what needs no more does not. A layout fits while its risk is at most h (`headroom`), that is while
needed <= capacity (h / (1 - h))^w: a plain limit of bytes.
"""

from __future__ import annotations

from typing import Any

from ..describe.assumptions import MemoryCount
from ..describe.chip import Chip
from ..describe.frozen import put
from ..describe.holding import Holding
from ..describe.job import Job
from ..num import Num, maximum, minimum, where
from ..units import show

SURE = 0.9
"""Risk above which a layout is said not to fit: below it, it may."""
FARTHEST = 1e300
"""Odds of running out, or of not, which no need exceeds: beyond them a power overflows, and the
risk is 0 or 1 to the last digit of a float."""

LEAST_CHANCE = 1e-9
"""That anything fits."""


def reserved_bytes(job: Job, allocated: Num, new: Num) -> Num:
    """Bytes that the allocator holds. new: of a block larger than any cached
    (`memory.new_block`).
    """
    return (
        allocated * (1.0 + job.how.memory.framework_holding.allocator_share)
        + new
    )


def device_bytes(job: Job, allocated: Num, new: Num = 0.0) -> Num:
    """Bytes that nvidia-smi shows."""
    return reserved_bytes(job, allocated, new) + own_bytes(job)


def needed_bytes(job: Job, allocated: Num) -> Num:
    """Bytes that a device must have."""
    return allocated * (
        1.0 + job.how.memory.framework_holding.allocator_need
    ) + own_bytes(job)


def own_bytes(job: Job) -> float:
    """Bytes of the framework outside the allocator."""
    return context_bytes(job.cluster.chip, job.how.memory)


def context_bytes(chip: Chip, how: MemoryCount) -> float:
    """Bytes of a process outside the allocator, under an answered set: the chip's, where it says
    them and the set counts what software holds.
    """
    if chip.context_bytes is not None and how.resident != "layers":
        return chip.context_bytes
    return float(how.framework_bytes or 0.0)


def usable_bytes(chip: Chip, how: MemoryCount) -> float:
    """Bytes of a chip's memory that its runtime leaves to programs, where a set counts what
    software holds.
    """
    return chip.hbm_bytes - (
        chip.runtime_bytes if how.resident == "held" else 0.0
    )


def capacity(job: Job) -> float:
    """Bytes that a process can have on one chip."""
    how = job.how.memory
    return usable_bytes(job.cluster.chip, how) * how.capacity_share


def risk(job: Job, allocated: Num) -> Num:
    """Probability that a device runs out of memory. allocated: bytes of live tensors on its fullest
    device at the fullest moment (`StepCosts.bytes`); the formula is at the head of this file.
    """
    need = needed_bytes(job, allocated)
    size = capacity(job)
    width = job.how.memory.risk_width
    if not width:
        return where(need > size, 1.0, 0.0)
    most = FARTHEST**width
    ratio = minimum(
        maximum(size / maximum(need, size / most), 1.0 / most), most
    )
    return 1.0 / (1.0 + ratio ** (1.0 / width))


def risk_beside(risk: float, run: float) -> float:
    """Probability that a change of a run goes out of memory, once the run has not.

    Both are counted by the same laws, whose error is one factor of both. That the run had room
    leaves the share 1 - `run` of such factors, and under 1 - `risk` of all the change has room too:
    what needs no more than the run fits, and what needs more is less sure of it.
    """
    return max(0.0, 1.0 - (1.0 - risk) / max(1.0 - run, LEAST_CHANCE))


def limit(job: Job) -> float:
    """The most bytes of live tensors with which the risk is still accepted."""
    return most_bytes(job.cluster.chip, job.how.memory, job.headroom)


def most_bytes(
    chip: Chip, how: MemoryCount, headroom: float | None = None
) -> float:
    """The most bytes of tensors that fit a chip's memory, under an answered set. headroom: the risk
    that is accepted; None = the set's.
    """
    h = risk_limit(how, headroom)
    size = usable_bytes(chip, how) * how.capacity_share
    need = 1.0 + (how.holding or Holding()).allocator_need
    if how.risk_width:
        size = size * (h / (1.0 - h)) ** how.risk_width
    return (size - context_bytes(chip, how)) / need


def risk_limit(how: MemoryCount, headroom: float | None) -> float:
    """The risk of running out that is accepted: what was asked, else the set's."""
    return how.headroom if headroom is None else headroom


def fits(job: Job, allocated: Num) -> Any:
    """True (element by element) where that many bytes of tensors fit."""
    return allocated <= limit(job)


def with_room_for(job: Job, allocated: float) -> Job:
    """The job on chips that have room for exactly so many bytes of tensors."""
    share = (
        job.how.memory.capacity_share
        * needed_bytes(job, allocated)
        / needed_bytes(job, limit(job))
    )
    return put("assumptions.memory.capacity_share", float(share))(job)


def shortage(job: Job, allocated: float) -> str:
    """The sentence for a layout that does not fit."""
    chip = job.cluster.chip.name
    size = show(capacity(job), "GiB")
    words = (
        f"{show(float(needed_bytes(job, allocated)), 'GiB')} are needed on the fullest chip, but"
        f" one {chip} has {size}"
    )
    if job.how.memory.risk_width:
        odds = chance(float(risk(job, allocated)))
        words += f": it runs out of memory with a probability of {odds}"
    return words


def chance(risk: float) -> str:
    """A probability for people."""
    return (
        "less than 1 %"
        if risk < 0.01
        else "more than 99 %"
        if risk > 0.99
        else f"{100 * risk:.0f} %"
    )
