"""What can be read off an order of actions without a clock: what it may run when, and what it holds
in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ..errors import BadInput
from .types import Order

Key: TypeAlias = tuple[str, int, int]
"""What an action makes: (F, I or W, stage, microbatch)."""
ROUNDS = 4
"""Microbatches for each rank (or groups of them) after which most orders only repeat, and hold no
more at once."""
PARTS = {"F": "F", "I": "I", "W": "W", "B": "IW"}
"""kind of an action -> what it makes."""


def in_flight_rank(order: Order, rank: int) -> float:
    """The most microbatches whose activations a rank holds at once; 1 = one microbatch through all
    its chunks.

    A chunk's activations live from its F to the end of its B or, where the backward is split, of
    its W.
    """
    made = peak = 0
    for kind, _, _ in order[rank]:
        made += (kind == "F") - (kind in "BW")
        peak = max(peak, made)
    # a rank without actions holds nothing of one chunk
    return peak / max(len({action.chunk for action in order[rank]}), 1)


def runnable(
    order: Order, stages: list[list[int]]
) -> Iterator[tuple[int, int, list[Key]]]:
    """Actions as (rank, position, inputs), each after those it needs.

    order: the actions of each rank;  stages: the stage of each action, in the same shape.
    A rank goes on until it lacks an input, then waits to be woken by the rank that makes it, so
    every action is looked at once or twice. BadInput if that ends before all have run, or an action
    comes twice.
    """
    last = max((stage for row in stages for stage in row), default=-1)
    position = [0] * len(order)
    made: set[Key] = set()
    waiting: dict[Key, list[int]] = {}
    ready = list(range(len(order)))
    while ready:
        rank = ready.pop()
        for k in range(position[rank], len(order[rank])):
            (kind, _, microbatch) = order[rank][k]
            stage = stages[rank][k]
            inputs = _inputs(kind, stage, microbatch, last)
            missing = next((key for key in inputs if key not in made), None)
            if missing:
                waiting.setdefault(missing, []).append(rank)
                break
            yield rank, k, inputs
            position[rank] = k + 1
            for key in ((part, stage, microbatch) for part in PARTS[kind]):
                if key in made:
                    raise BadInput(
                        f"the order runs {_words(key)}, twice, the second time on rank {rank}"
                    )
                made.add(key)
                ready.extend(waiting.pop(key, ()))
    if waiting:
        raise BadInput(_deadlock(order, stages, position, waiting))


def _inputs(kind: str, stage: int, microbatch: int, last: int) -> list[Key]:
    """What an action needs, of a model whose last stage is `last`."""
    if kind == "F":
        return [("F", stage - 1, microbatch)] if stage else []
    if kind == "W":
        return [("I", stage, microbatch)]
    own: Key = ("F", stage, microbatch)
    return [own] if stage == last else [own, ("I", stage + 1, microbatch)]


def _deadlock(
    order: Order,
    stages: list[list[int]],
    position: list[int],
    waiting: dict[Key, list[int]],
) -> str:
    """Who waits for what, and why it never comes; an input that nobody makes is named first."""
    maker = {
        (part, stage, action.microbatch): rank
        for rank, actions in enumerate(order)
        for action, stage in zip(actions, stages[rank], strict=True)
        for part in PARTS[action.kind]
    }
    lacking = min(waiting, key=lambda key: (key in maker, key))
    rank = waiting[lacking][0]
    blocked = order[rank][position[rank]]
    action = _words(
        (blocked.kind, stages[rank][position[rank]], blocked.microbatch)
    )
    why = (
        f"comes later on rank {maker[lacking]}"
        if lacking in maker
        else "no rank runs"
    )
    return (
        f"the order is a deadlock: rank {rank} cannot run {action}: it needs {_words(lacking)},"
        f" which {why}"
    )


def _words(key: Key) -> str:
    kind, stage, microbatch = key
    return f"{kind} of stage {stage}, microbatch {microbatch}"
