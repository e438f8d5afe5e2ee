"""Laws fitted to measurements: few numbers for people, with the error that is left."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple


class LatencyAndRate(NamedTuple):
    """seconds = latency + bytes / rate."""

    latency: float
    """Seconds."""
    rate: float
    """Bytes per second."""
    error: float
    """Median of |fitted / measured - 1|."""


def alpha_beta(
    sizes: Sequence[float], seconds: Sequence[float]
) -> LatencyAndRate:
    """The line with the least sum of squared relative errors: minimise sum_i ((a + b x_i) / t_i -
    1)^2, with a and b not negative.

    sizes [B], seconds: at least two points of different sizes, all positive. Source of the law:
    Hockney 1994.
    """
    w = [1 / t for t in seconds]
    u = [x / t for x, t in zip(sizes, seconds, strict=True)]
    ww = _dot(w, w)
    uu = _dot(u, u)
    wu = _dot(w, u)
    sw, su = sum(w), sum(u)
    determinant = ww * uu - wu * wu
    if determinant <= 0:
        raise ValueError("a line needs at least two different sizes")
    a = (sw * uu - su * wu) / determinant
    b = (su * ww - sw * wu) / determinant
    if a < 0:
        a, b = 0.0, su / uu
    elif b <= 0:
        a, b = sw / ww, 0.0
    errors = [
        abs((a + b * x) / t - 1) for x, t in zip(sizes, seconds, strict=True)
    ]
    return LatencyAndRate(a, 1 / b if b else float("inf"), median(errors))


def bilinear(
    rows: Sequence[tuple[float, float, float]],
) -> tuple[tuple[float, float, float, float], float]:
    """((c, by m, by l, by l m), error) of seconds = c + m c_m + l c_l + l m c_lm, for rows (l, m,
    seconds) of at least four (l, m).

    Least squares; a number that would be negative is 0, the others fitted again. error: largest
    miss over the largest seconds.
    """
    import numpy as np

    l, m, t = (np.array(column) for column in zip(*rows, strict=True))
    columns = np.stack([np.ones_like(l), m, l, l * m], axis=1)
    kept = [0, 1, 2, 3]
    factors = np.zeros(4)
    while kept:
        part = np.linalg.lstsq(columns[:, kept], t, rcond=None)[0]
        factors[:] = 0.0
        factors[kept] = part
        if part.min() >= 0:
            break
        kept.pop(int(part.argmin()))
    # rounding alone can leave -0.0: negative factors were taken out above
    factors = np.maximum(factors, 0.0)
    error = float(
        np.abs(columns @ factors - t).max()
        # a table of zeros is met exactly, not divided by
        / max(float(np.abs(t).max()), 1e-30)
    )
    return (
        float(factors[0]),
        float(factors[1]),
        float(factors[2]),
        float(factors[3]),
    ), error


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
