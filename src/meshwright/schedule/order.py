"""What can be read off an order of actions without a clock: what each action waits for, and what
ranks hold in memory.

An action waits for the one before it on its rank and for at most one on another stage: F for the F
of the stage before, B or I for that of the stage after. Its own F, and the I of a W, have to lie
before it on its own rank. So actions fall into levels, those of one level need none of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..errors import BadInput
from .types import Order

if TYPE_CHECKING:  # names of schedules do without
    import numpy as np
    from numpy.typing import NDArray

    Index: TypeAlias = NDArray[np.intp]
StageOf: TypeAlias = Callable[[int, int], int]
"""(rank, chunk) -> stage."""
KINDS = "FIWB"
"""Kinds of actions, in the order of a program's durations."""
MAKERS = ("F", "IB", "WB")
"""Kinds of actions that make the output of a stage, the gradient of its input, of its weights."""
NOTHING = -1
"""No action."""
ROUNDS = 4
"""Microbatches for each rank (or groups of them) after which most orders only repeat, and hold no
more at once."""


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


class Dependencies(NamedTuple):
    """What the actions of an order are and wait for: columns, rank by rank."""

    first: Index
    """The first action of each rank, and how many there are."""
    rank: Index
    kind: Index
    """Position in `KINDS`."""
    stage: Index
    microbatch: Index
    needs: Index
    """The action of another stage that it waits for, or `NOTHING`."""
    boundary: Index
    """Between which stages that one is sent: 0 the first two; `NOTHING`: on the same rank."""
    level: Index
    """One more than the highest of what it waits for, the action before it on its rank included."""


def dependencies(order: Order, stage_of: StageOf) -> Dependencies:
    """What each action of an order is and waits for. stage_of: the stage of a chunk of a rank.

    Raises BadInput if ranks wait for each other for ever, an input is never made, or an action
    comes twice.
    """
    import numpy as np

    first = np.cumsum([0, *map(len, order)])
    here = np.arange(first[-1])
    rank = np.repeat(np.arange(len(order)), np.diff(first))
    columns = [*zip(*chain(*order), strict=True)] or [()] * 3
    places = [*zip(rank.tolist(), columns[1], strict=True)]
    known = {place: stage_of(*place) for place in {*places}}
    kind, stage, number = (
        np.array(values, dtype=np.intp)
        for values in (
            [*map(KINDS.index, columns[0])],
            [known[place] for place in places],
            columns[2],
        )
    )
    last = stage.max(initial=NOTHING)
    made = _makers(kind, stage, number, rank)
    f, w = kind == KINDS.index("F"), kind == KINDS.index("W")
    # what has to lie before it on its own rank: of B and I the F, of W the I, of F itself
    own = made[w.astype(int), stage, number]
    present = (own <= here) & (own >= first[rank])
    # what it waits for (a position in MAKERS): the output or the gradient of a neighbouring stage
    # or, where what has to lie before it does not, that
    part = np.where(present, ~f, w).astype(int)
    source = stage + np.where(present, np.where(f, -1, 1), 0)
    maker = made[part, source, number]
    # W, the F of the first stage and the B or I of the last one need nothing of other stages
    alone = present & (w | np.where(f, stage == 0, stage == last))
    # what lacks an input waits for itself, for ever
    needs = np.where(present & (maker >= 0), maker, here)
    needs = np.where(alone, NOTHING, needs)
    sent = (needs >= 0) & (rank[needs] != rank)
    boundary = np.where(sent, np.where(f, stage - 1, stage), NOTHING)
    level = np.array(_levels(first.tolist(), needs.tolist()), dtype=np.intp)
    stuck = here[level == NOTHING]
    if stuck.size:
        # of each rank the first; an input that nobody makes is named first
        _, stops = np.unique(rank[stuck], return_index=True)
        k = min(
            stuck[stops],
            key=lambda k: (maker[k] >= 0, part[k], source[k], number[k]),
        )
        why = f"comes later on rank {rank[maker[k]]}"
        raise BadInput(
            f"the order is a deadlock: rank {rank[k]} cannot run"
            f" {_words(kind[k], stage[k], number[k])}: it needs"
            f" {_words(part[k], source[k], number[k])}, which"
            f" {why if maker[k] >= 0 else 'no rank runs'}"
        )
    return Dependencies(
        first,
        rank,
        kind,
        stage,
        microbatch=number,
        needs=needs,
        boundary=boundary,
        level=level,
    )


def _makers(kind: Index, stage: Index, number: Index, rank: Index) -> Index:
    """(part, stage, microbatch) -> the action that makes the output of a stage, the gradient of its
    input or that of its weights. There is one stage more, which makes nothing: it is that after the
    last and, at -1, before the first.
    """
    import numpy as np

    size = stage.max(initial=NOTHING) + 2, number.max(initial=0) + 1
    made = np.full((len(MAKERS), *size), NOTHING)
    for part, makers in enumerate(MAKERS):
        some = np.flatnonzero(np.isin(kind, [*map(KINDS.index, makers)]))
        at = part, stage[some], number[some]
        made[at] = some
        for k in some[made[at] != some]:
            again = rank[made[part, stage[k], number[k]]]
            raise BadInput(
                f"the order runs {_words(part, stage[k], number[k])}, twice, the second time on"
                f" rank {again}"
            )
    return made


def _words(kind: int, stage: int, microbatch: int) -> str:
    """An action; kind: a position in KINDS, or in MAKERS, whose first letters are the same."""
    return f"{KINDS[kind]} of stage {stage}, microbatch {microbatch}"


def _levels(first: list[int], needs: list[int]) -> list[int]:
    """The level of each action; `NOTHING` of those that never run. A rank goes on until it lacks an
    input, then waits to be woken by the rank that makes it: each action is looked at once or twice.
    """
    level = [NOTHING] * first[-1]
    waiting: dict[int, int] = {}  # action -> the rank that waits for it
    at = first[:-1]
    ready = list(range(len(at)))[::-1]
    while ready:
        rank = ready.pop()
        k = at[rank]
        depth = level[k - 1] + 1 if k > first[rank] else 0
        while k < first[rank + 1]:
            need = needs[k]
            if need >= 0:
                if level[need] < 0:
                    waiting[need] = rank
                    break
                depth = max(depth, level[need] + 1)
            level[k] = depth
            if k in waiting:
                ready.append(waiting.pop(k))
            depth += 1
            k += 1
        at[rank] = k
    return level
