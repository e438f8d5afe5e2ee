"""The one order behind 1F1B, interleaved 1F1B and the zero-bubble schedules: run ahead, then one
forward, one backward.

Rank r of p, with v chunks, runs three phases:

    warm up     the first (v-1) g + hop (p-1-r) forwards, `hop` more for each rank still below
    steady      one forward, one backward, until the forwards are used up
    cool down   the backwards that remain

Forwards go round the chunks in groups of g microbatches (0..g-1 through chunk 0, the same through
chunk 1, ...; `groups`), backwards the same with the chunks in reverse. With a split backward the
k-th W comes right after the (k + hop r)-th I, the last ones at the end: a rank that warmed up less
holds back as many weight gradients, so that all ranks hold the same number of activations, and the
held-back W fill the idle time of the cool down.

Sources: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2 for v and B; Qi et al. 2024 (arXiv
2401.10241) section 2.3 for W.
"""

from __future__ import annotations

from . import groups
from .types import Action, Order


def looped_order(
    p: int, m: int, v: int, hop: int, split: bool, group: int = 0
) -> Order:
    """The actions of each rank; group: as in `groups`."""
    each = int(groups.size(p, m, group))
    forward = groups.table(m, v, each)
    backward = [(v - 1 - chunk, microbatch) for chunk, microbatch in forward]
    ahead = (v - 1) * each
    # every rank runs the same actions, in an order of its own
    forwards = [Action("F", *at) for at in forward]
    backwards = [Action("I" if split else "B", *at) for at in backward]
    weights = [Action("W", *at) for at in backward] if split else []
    return [
        _rank_order(
            forwards,
            backwards,
            weights,
            min(ahead + hop * (p - 1 - rank), m * v),
            hop * rank,
        )
        for rank in range(p)
    ]


def _rank_order(
    forwards: list[Action],
    backwards: list[Action],
    weights: list[Action],
    warm_up: int,
    lag: int,
) -> list[Action]:
    """One rank: `warm_up` forwards first; with a split backward, W runs `lag` passes behind I."""
    actions = forwards[:warm_up]
    for k, backward in enumerate(backwards):
        actions += forwards[warm_up + k : warm_up + k + 1]
        actions.append(backward)
        if k >= lag:
            actions += weights[k - lag : k - lag + 1]
    return actions + weights[max(len(backwards) - lag, 0) :]
