"""The papers' equations: what a rank sends in a step, what it holds of a weight, how long it idles.

Each stands in the text of its axis, which says why. All tensors are fp32: `m.stream` is 4 b s h
bytes, the residual stream of the whole batch.
"""

from __future__ import annotations

from .ep import EXPERTS
from .model import Shape


def passes(n: int) -> float:
    """What a rank sends of a tensor in one pass round a ring of n."""
    return (n - 1) / n


def tp_bytes(m: Shape, t: int) -> float:
    return m.layers * 8 * passes(t) * m.stream


def sp_bytes(m: Shape, t: int) -> float:
    return tp_bytes(m, t) + 2 * passes(t) * 4 * m.rest


def cp_bytes(m: Shape, c: int) -> float:
    layers = m.layers * 4 * passes(c) * m.stream
    return layers + 2 * passes(c) * 4 * (m.matrices + m.rest)


def ep_bytes(m: Shape, n: int) -> float:
    layers = m.layers * 4 * passes(n) * m.stream / n
    replicated = m.layers * (4 * m.hidden**2 + EXPERTS * m.hidden) + m.rest
    return layers + 2 * passes(n) * 4 * replicated


def zero_bytes(m: Shape, n: int, stage: int) -> float:
    rounds = 3 if stage == 3 else 2
    return rounds * passes(n) * 4 * (m.matrices + m.rest)


def zero_held(n: int, stage: int) -> float:
    """Bytes a weight."""
    weight, gradient, moments = (
        cost / (n if stage >= cut else 1)
        for cost, cut in ((4, 3), (4, 2), (8, 1))
    )
    return weight + gradient + moments


def pp_bytes(m: Shape, p: int, v: int) -> float:
    return 2 * (p * v - 1) / p * m.stream


def bubble(p: int, m: int, v: int) -> float:
    return (p - 1) / (v * m)


def scatter_gather_bytes(m: Shape, p: int, t: int) -> tuple[float, float]:
    """To other stages, and inside the stage."""
    hops = pp_bytes(m, p, v=1)
    return hops / t, hops * passes(t) + tp_bytes(m, t) / p
