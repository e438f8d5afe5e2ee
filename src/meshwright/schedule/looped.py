"""The one order behind 1F1B, interleaved 1F1B and the zero-bubble schedules: run ahead, then one
forward, one backward.

Rank r of p, with v chunks, runs three phases:

    warm up     the first (v-1) p + hop (p-1-r) forwards, `hop` more for each rank below
    steady      one forward, one backward, until the forwards are used up
    cool down   the backwards that remain

Forwards go round the chunks in groups of p microbatches (0..p-1 through chunk 0, the same through
chunk 1, ...), backwards the same with the chunks in reverse. With a split backward the k-th W comes
right after the (k + hop r)-th I, the last ones at the end: a rank that warmed up less holds back as
many weight gradients, so that all ranks hold the same number of activations, and the held-back W
fill the idle time of the cool down.

Sources: Narayanan et al. 2021 (arXiv 2104.04473) section 2.2 for v and B; Qi et al. 2024 (arXiv
2401.10241) section 2.3 for W.
"""

from __future__ import annotations

from .types import Action, Order


def looped_order(p: int, m: int, v: int, hop: int, split: bool) -> Order:
    """The actions of each rank; with v > 1, m must be a multiple of p."""
    return [
        _rank_order(p, m, v, min((v - 1) * p + hop * (p - 1 - rank), m * v), hop * rank, split)
        for rank in range(p)
    ]


def _rank_order(p: int, m: int, v: int, warm_up: int, lag: int, split: bool) -> list[Action]:
    """One rank: `warm_up` forwards first; with a split backward, W runs `lag` passes behind I."""
    total = m * v
    actions = [_forward(k, p, v) for k in range(warm_up)]
    for k in range(total):
        if warm_up + k < total:
            actions.append(_forward(warm_up + k, p, v))
        actions.append(_backward("I" if split else "B", k, p, v))
        if split and k >= lag:
            actions.append(_backward("W", k - lag, p, v))
    if split:
        actions.extend(_backward("W", k, p, v) for k in range(max(total - lag, 0), total))
    return actions


def _forward(k: int, p: int, v: int) -> Action:
    """The k-th forward of a rank."""
    return Action("F", k // p % v, k // (p * v) * p + k % p)


def _backward(kind: str, k: int, p: int, v: int) -> Action:
    """The k-th backward of a rank."""
    return Action(kind, v - 1 - k // p % v, k // (p * v) * p + k % p)
