"""Ways to spread a step over N = E 2^k chips: all powers of two for DP, TP along D and F, PP, and
the microbatches that go with them.

EP is E (every expert on chips of its own). TP_ff lies between the root of TP and four times that.
1F1B takes the four smallest divisors of the batch of a replica that are at least PP, interleaved as
far as the depth allows; ZB-H2 the smallest that is at least 2 PP. A grid has axes (model, tensor
degrees, PP, schedule and microbatches): what depends on few of them is computed once. Source: the
search behind Erdil & Schneider-Joseph 2024, arXiv 2411.01137, section 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..num import divisors
from .laws import Shape
from .simulate import Degrees, Machine, bytes_needed

Column = NDArray[np.float64]
CANDIDATES = 4
"""Numbers of microbatches tried with 1F1B."""


@dataclass(frozen=True)
class Grid:
    """All ways to spread each of several models, as broadcast columns; `valid` says which exist."""

    shape: Shape
    """Columns of shape (models, 1, 1, 1)."""
    degrees: Degrees
    valid: NDArray[np.bool_]


@cache
def tensor_splits(most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Exponents (of TP_model, of TP_ff) with TP up to 2^most and sqrt(TP) <= TP_ff <= 4 sqrt(TP),
    roots rounded down."""
    pairs = [
        (a - j, j)
        for a in range(most + 1)
        for j in range(a + 1)
        if isqrt(2**a) <= 2**j <= 4 * isqrt(2**a)
    ]
    both = np.array(pairs, dtype=np.int64)
    return both[:, 0], both[:, 1]


def twos(x: Any) -> NDArray[np.int64]:
    """How often 2 divides each whole number."""
    return np.array(
        [(int(n) & -int(n)).bit_length() - 1 for n in np.ravel(x)],
        dtype=np.int64,
    )


@lru_cache(maxsize=65536)
def microbatches(replica: int, deepest: int) -> Column:
    """Numbers of microbatches for PP = 2^0 ... 2^deepest: columns 0..3 for 1F1B, 4 for ZB-H2; nan
    where there is none.

    replica: tokens an expert of one replica gets in a step.
    """
    odd = replica >> int(twos(replica)[0]) if replica else 0
    powers = (
        2.0 ** np.arange(int(twos(replica)[0]) + 1) if replica else np.empty(0)
    )
    found = (
        np.sort(np.outer(divisors(odd), powers).ravel())
        if replica
        else np.empty(0)
    )
    found = np.concatenate([found, np.full(CANDIDATES, np.nan)])
    least = 2.0 ** np.arange(deepest + 1)
    here, twice = (np.searchsorted(found, least * k) for k in (1, 2))
    last = len(found) - 1
    columns = [*(here + i for i in range(CANDIDATES)), twice]
    return np.stack([found[np.minimum(c, last)] for c in columns], axis=1)


def grid(
    s: Shape,
    chips: Column,
    on: Machine,
    schedules: tuple[str, ...],
    whole: bool,
) -> Grid:
    """All ways to spread each model on its number of chips.

    s, chips: columns, one row a model, chips = E 2^k.  whole: everything divides; else k, E, L, b
    and DP are real numbers, TP and PP still powers of two, and 1F1B takes 1, 2, 4 or 8 microbatches
    a stage.
    """
    k = np.log2(chips / s.E)
    k = np.rint(k) if whole else k
    most = {
        name: twos(getattr(s, name)) if whole else np.log2(getattr(s, name))
        for name in ("D", "F", "L", "batch")
    }
    up, ff = tensor_splits(int(k.max()))
    pp = np.arange(int(most["L"].max()) + 1)
    up = up[:, None, None]
    ff = ff[:, None, None]
    pp = pp[:, None]
    dp = _models(k) - up - ff - pp
    fits = (
        (dp >= 0)
        & (dp <= _models(most["batch"]))
        & (up <= _models(most["D"]))
        & (ff <= _models(most["F"]))
    )
    fits = fits & (pp <= _models(most["L"]))
    rows = Shape(*(_models(np.broadcast_to(x, k.shape)) for x in s))
    if whole:
        m = _microbatches(s, np.clip(dp, 0, None).astype(np.int64), pp.ravel())
    else:
        m = 2.0**pp * np.array([*(2.0 ** np.arange(CANDIDATES)), 2.0])
        m = np.where(m <= rows.batch / rows.E / 2.0**dp, m, np.nan)
    zero_bubble = np.array([0.0] * CANDIDATES + [1.0])
    chunks = np.where((zero_bubble > 0) | (pp == 0), 1.0, rows.L / 2.0**pp)
    degrees = Degrees(
        2.0**dp, 2.0**up, 2.0**ff, 2.0**pp, rows.E, m, chunks, zero_bubble
    )
    allowed = np.array(
        ["1f1b" in schedules] * CANDIDATES + ["zb-h2" in schedules]
    )
    roomy = on.memory >= bytes_needed(rows, degrees, on.precision)
    return Grid(rows, degrees, fits & roomy & allowed & ~np.isnan(m))


def _models(x: Any) -> Any:
    """A column of models on the first of four axes."""
    return np.asarray(x).reshape(-1, 1, 1, 1)


def _microbatches(s: Shape, dp: Any, pp: Any) -> Column:
    """Microbatches of every cell (model, tensor degrees, PP, 5) from those of the few distinct
    replica batches.
    """
    expert = np.broadcast_to(s.batch / s.E, (len(dp),))
    wide = np.arange(int(dp.max()) + 1)
    replica = np.floor(expert[:, None] / 2.0**wide).astype(np.int64)
    values, number = np.unique(replica, return_inverse=True)
    table = np.stack([microbatches(int(v), len(pp) - 1) for v in values])
    number = number.reshape(replica.shape)
    cell = np.take_along_axis(
        number, dp[..., 0].reshape(len(dp), -1), axis=1
    ).reshape(dp.shape[:3])
    found: Column = table[cell, np.broadcast_to(pp, cell.shape)]
    return found
