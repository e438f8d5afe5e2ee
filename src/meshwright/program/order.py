"""What a rank of the pp axis holds and does in a step of the trainer, action by action, and whose
weights are whole meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..describe.job import Job
from ..layout.stages import (
    microbatches,
    schedule_of,
    stage_count,
    stage_layers,
    stage_numbers,
)
from ..schedule.schedule import Schedule
from ..schedule.types import Action, Order


@dataclass(frozen=True)
class Stage:
    """One stage of a rank."""

    number: int
    layers: range
    first: bool
    last: bool


def rank_stages(job: Job, rank: int) -> list[Stage]:
    """What a rank of the pp axis holds, by chunk."""
    count = stage_count(job.layout)
    cut = stage_layers(job.model.layers, count, job.layout.stages)
    return [
        Stage(n, cut[n], n == 0, n == count - 1)
        for n in stage_numbers(job.layout, rank)
    ]


def order(job: Job, rank: int) -> list[Action]:
    """What a rank of the pp axis does in a step, one after the other."""
    layout = job.layout
    m = int(microbatches(job, job.layout))
    if layout.pp == 1:
        return [Action(kind, 0, i) for i in range(m) for kind in "FB"]
    at = int(layout.pp), m, int(layout.interleave)
    return orders(schedule_of(layout), *at)[rank]


@lru_cache(maxsize=4)
def orders(schedule: Schedule, p: int, m: int, v: int) -> Order:
    """The order of all ranks, of which several are asked for one after the other."""
    return schedule.order(p, m, v)


ACTIVE = 3
"""Chunks that PyTorch's schedules keep gathered, or fetch ahead (schedules.py,
_add_unshard_reshard, max_active_stages).
"""


def gathered_again(actions: list[Action], sharded: bool) -> Counter[int]:
    """How often the weights of each chunk are gathered under a pipeline."""
    counts = Counter[int]()
    for _, fetched in weight_lifetimes(actions, sharded):
        counts.update(fetched)
    return counts


def weight_lifetimes(
    actions: list[Action], sharded: bool
) -> Iterator[tuple[set[int], set[int]]]:
    """Before each action: (chunks whose weights are let go, chunks whose weights are gathered).

    PyTorch 2.13 fetches the next `ACTIVE` chunks that the rank will work on, if they are not among
    the active ones, and lets go of active ones that are not among these, whatever the ZeRO stage.
    Sharded weights (ZeRO-3) go after a forward pass too, and stay after a backward pass.
    """
    active = set[int]()
    there = set[int]()
    for action, coming in zip(actions, ahead(actions), strict=True):
        gone = there & (active - coming)
        fetched = ((coming - active) | {action.chunk}) - (there - gone)
        active = coming
        there = (there - gone) | fetched
        yield gone, fetched
        if sharded and action.kind == "F":
            there.discard(action.chunk)


def ahead(actions: list[Action]) -> list[set[int]]:
    """The first `ACTIVE` different chunks from each action on."""
    steps = list[set[int]]()
    chunks = list[int]()
    for action in reversed(actions):
        others = (chunk for chunk in chunks if chunk != action.chunk)
        chunks = [action.chunk, *others][:ACTIVE]
        steps.append(set(chunks))
    return steps[::-1]


def piled_up(actions: list[Action], of: list[Stage]) -> set[int]:
    """Chunks whose gradients FSDP2 adds up in fp32 before it reduces them: it does so whenever the
    gradient of an input is through, with the gradients of weights that are there by then.
    """
    made = set[int]()
    chunks = set[int]()
    for action in actions:
        # the first stage has no gradient to hand on: all its work waits for W
        if action.kind == "B" or (
            action.kind == "W" and of[action.chunk].first
        ):
            chunks.add(action.chunk)
        elif action.kind == "W":
            made.add(action.chunk)
        elif action.kind == "I" and action.chunk in made:
            chunks.add(action.chunk)
    return chunks
