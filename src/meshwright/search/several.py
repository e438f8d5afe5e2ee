"""Several spaces searched as one: each within the limits of what was found in those before it; and
the families of each in one search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ..describe.job import Job
from .best import Best, reach
from .cascade import search
from .evaluate import Progress
from .families import parts, split_of
from .options import options
from .space import Space
from .split import SHARDED

Found = list[tuple[Space, Best]]


def several(
    job: Job,
    spaces: Sequence[Space],
    k: int,
    relaxed: bool,
    progress: Progress | None = None,
    slack: float = 0.0,
    split: bool = False,
    within: float = np.inf,
) -> Found:
    """The k best layouts of all spaces together, and those that the first beats by no more than
    `slack`; split: each of their families as a space of its own (`families.parts`), with its first
    in any case.
    """
    found: Found = []
    for space, whole in joined(spaces):
        each = [part for _, part in parts(job, whole, split)]
        best = search(
            job,
            space,
            k,
            relaxed,
            progress,
            split_of(each),
            within=within,
            slack=slack,
            sure=split,
        )
        one = len(each) == 1
        found += [(space, best)] if one else parted(job, each, best)
        merits = sorted(row[0] for _, best in found for row in best.rows)
        if len(merits) >= k:
            within = min(within, reach(merits[k - 1], merits[0], slack))
    return found


def parted(job: Job, each: Sequence[Space], best: Best) -> Found:
    """What one search found of each part, as if that had been searched; what was counted of all
    stands with the first.
    """
    found = [
        (
            space,
            replace(
                best,
                choice=options(job, space),
                within=best.common,
                rows=best.of(number),
            ),
        )
        for number, space in enumerate(each)
    ]
    for _, one in found[1:]:
        one.searched = one.feasible = one.too_big = 0
    return found


def joined(spaces: Sequence[Space]) -> list[tuple[Space, list[Space]]]:
    """Spaces that one search can look at, with those that each stands for."""
    found: list[tuple[Space, list[Space]]] = []
    for space in spaces:
        last = _joined([*found[-1][1], space]) if found else None
        if last:
            found[-1] = last, [*found[-1][1], space]
        else:
            found.append((space, [space]))
    return found


def _joined(spaces: Sequence[Space]) -> Space | None:
    """The space that holds these and nothing else, if no two of them have pipelines (or none) and
    ZeRO stages of one side in common, and they differ in nothing besides.
    """
    held: list[tuple[bool, bool]] = []
    depths, stages = set[Any](), dict[bool, set[Any]]()
    for space in spaces:
        pp = space.values("pp")
        deep = None if pp is None else tuple(n for n in pp if n > 1)
        pipes = {True, False} if pp is None else {n > 1 for n in pp}
        depths |= {deep} if True in pipes else set()
        sides = {zero >= SHARDED for zero in space.values("zero")}
        held += product(pipes, sides)
        for side in sides:
            mine = (z for z in space.values("zero") if (z >= SHARDED) == side)
            stages.setdefault(side, set()).add(tuple(mine))
    rest = {space.but(pp=None, zero=None) for space in spaces}
    one_each = (rest, depths or {()}, *stages.values())
    if len({*held}) < len(held) or any(len(each) > 1 for each in one_each):
        return None
    pp = [space.values("pp") for space in spaces]
    zero = [z for space in spaces for z in space.values("zero")]
    return spaces[0].but(
        pp=None if None in pp else tuple({n: 0 for each in pp for n in each}),
        zero=tuple(dict.fromkeys(zero)),
    )
