"""The closed forms of Narayanan et al. 2021. l layers, h hidden, s sequence, V vocabulary, B batch;
p, t, d degrees.
"""

from __future__ import annotations

from meshwright.describe.model import Model
from meshwright.units import DAY_S

PEAK = 312e12
"""A100, FLOP/s in fp16."""


def parameters(m: Model) -> float:
    """P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)). Section 5.1, eq. 2."""
    l, h = m.layers, m.hidden
    return (
        12.0
        * l
        * h
        * h
        * (1 + 13 / (12 * h) + (m.vocab + m.seq) / (12 * l * h))
    )


def flops(m: Model, B: float) -> float:
    """F = 96 B s l h^2 (1 + s/(6 h) + V/(16 l h)), a step with full recomputation. Section 5.1, eq.
    3.
    """
    l = m.layers
    h = m.hidden
    s = m.seq
    return (
        96.0 * B * s * l * h * h * (1 + s / (6 * h) + m.vocab / (16 * l * h))
    )


def training_days(m: Model, tokens: float, gpus: float, rate: float) -> float:
    """Tokens / (B s) steps of F / (n X) seconds each; rate: X, FLOP/s a GPU."""
    return tokens / m.seq * flops(m, 1) / (gpus * rate) / DAY_S


def rough_days(
    parameters: float, tokens: float, gpus: float, rate: float
) -> float:
    """8 T P / (n X): the approximation of section 5.1, eq. 4, for 6 h >> s, 16 l h >> V + s, 12 l h
    >> V + s.
    """
    return 8 * tokens * parameters / (gpus * rate) / DAY_S


def bubble_share(n: float, d: float, ratio: float, v: float = 1.0) -> float:
    """(p - 1)/(v m) = (n/d - 1) / (v b'/d) = (n - d)/(v b'), t = 1; ratio: b' = B/b. Sections 2.2,
    3.3.1, figure 6.
    """
    return (n - d) / (v * ratio)


def batch_time(
    ratio: float, p: float, forward: float, backward: float
) -> float:
    """(b'/b + p - 1)(t_f + t_b), eq. 1, with b'/b = `ratio` microbatches."""
    return (ratio + p - 1) * (forward + backward)


def best_checkpoints(layers: float, inside: float, entrance: float) -> float:
    """c = sqrt(l A_int / A_in) checkpoints minimise c A_in + (l/c) A_int. Section 3.5."""
    return float((layers * inside / entrance) ** 0.5)
