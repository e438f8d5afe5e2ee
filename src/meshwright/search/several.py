"""Several spaces searched as one: each within the limits of what was found in those before it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from ..describe.job import Job
from .best import Best, reach
from .cascade import search
from .evaluate import Progress
from .families import split_of
from .space import Space
from .split import SHARDED


def several(
    job: Job,
    spaces: Sequence[Space],
    k: int,
    relaxed: bool,
    progress: Progress | None = None,
    slack: float = 0.0,
    by_family: bool = False,
    within: float = np.inf,
) -> list[tuple[Space, Best]]:
    """The k best layouts of all spaces together, and those that the first beats by no more than
    `slack`; by_family: the first of each family in any case.
    """
    found: list[tuple[Space, Best]] = []
    for space, whole in joined(spaces):
        best = search(
            job,
            space,
            k,
            relaxed,
            progress,
            split_of(whole, by_family),
            within=within,
            slack=slack,
            sure=by_family,
        )
        found.append((space, best))
        merits = sorted(row.merit for _, each in found for row in each.rows)
        if len(merits) >= k:
            within = min(within, reach(merits[k - 1], merits[0], slack))
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
