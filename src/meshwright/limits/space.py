"""Ways to spread a step over N = E 2^k chips: all powers of two for DP, TP along D and F, PP, and
the microbatches that go with them.

EP is E (every expert on chips of its own). TP_ff lies between the root of TP and four times that.
1F1B takes the four smallest divisors of the batch of a replica that are at least PP, interleaved as
far as the depth allows; ZB-H2 the smallest that is at least 2 PP. Source: the search behind Erdil &
Schneider-Joseph 2024, arXiv 2411.01137, section 4.4.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..num import divisors
from .laws import LawShape
from .simulate import Degrees, Machine, bytes_needed

Column = NDArray[np.float64]
CANDIDATES = 4
"""Numbers of microbatches tried with 1F1B."""


class Cells(NamedTuple):
    """Ways to spread several models: one row each."""

    model: NDArray[np.int64]
    """Which of the models."""
    shape: LawShape
    degrees: Degrees


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
    values = np.full(CANDIDATES, np.nan)
    if replica:
        (even,) = twos(replica)
        powers = 2.0 ** np.arange(even + 1)
        every = np.outer(divisors(replica >> int(even)), powers)
        values = np.concatenate([np.sort(every.ravel()), values])
    least = 2.0 ** np.arange(deepest + 1)
    once, twice = (np.searchsorted(values, least * k) for k in (1, 2))
    columns = [*(once + i for i in range(CANDIDATES)), twice]
    last = len(values) - 1
    return np.stack([values[np.minimum(c, last)] for c in columns], axis=1)


def cells(
    s: LawShape,
    chips: Column,
    on: Machine,
    schedules: tuple[str, ...],
    whole: bool,
) -> Cells:
    """Ways to spread each model on its number of chips that fit into memory.

    s, chips: columns, one row a model, chips = E 2^k.  whole: everything divides; else k, E, L, b
    and DP are real numbers, TP and PP still powers of two, and 1F1B takes 1, 2, 4 or 8 microbatches
    a stage.
    """
    k = np.log2(chips / s.E)
    most = {
        name: _models(twos(column) if whole else np.log2(column))
        for name, column in s._asdict().items()
        if name in ("D", "F", "L", "batch")
    }
    # axes of the arrays: model, tensor degrees, PP, schedule and microbatches
    up, ff = (x[:, None, None] for x in tensor_splits(int(np.rint(k.max()))))
    pp = np.arange(int(most["L"].max()) + 1)[:, None]
    dp = _models(np.rint(k) if whole else k) - up - ff - pp
    rows = LawShape(*map(_models, s))
    if whole:
        # rows whose other degrees take all chips are dropped later; 2^dp must be whole until then
        m = _microbatches(s, np.clip(dp, 0, None).astype(np.int64), len(pp))
    else:
        m = 2.0**pp * np.array([*(2.0 ** np.arange(CANDIDATES)), 2.0])
        m = np.where(m <= rows.batch / rows.E / 2.0**dp, m, np.nan)
    zero_bubble = np.array([0.0] * CANDIDATES + [1.0])
    chunks = np.where((zero_bubble > 0) | (pp == 0), 1.0, rows.L / 2.0**pp)
    degrees = Degrees(
        2.0**dp,
        2.0**up,
        2.0**ff,
        pp=2.0**pp,
        ep=rows.E,
        microbatches=m,
        interleave=chunks,
        zero_bubble=zero_bubble,
    )
    allowed = ["1f1b" in schedules] * CANDIDATES + ["zb-h2" in schedules]
    fits = (
        (dp >= 0)
        & (dp <= most["batch"])
        & (up <= most["D"])
        & (ff <= most["F"])
        & (pp <= most["L"])
        & (on.memory >= bytes_needed(rows, degrees, on.precision))
        & np.array(allowed)
        & ~np.isnan(m)
    )

    def flat(x: Any) -> Column:
        column: Column = np.broadcast_to(x, fits.shape)[fits]
        return column

    return Cells(
        np.nonzero(fits)[0],
        LawShape(*map(flat, rows)),
        Degrees(*map(flat, degrees)),
    )


def _models(x: Any) -> Any:
    """A column of models on the first of four axes."""
    return np.asarray(x).reshape(-1, 1, 1, 1)


def _microbatches(s: LawShape, dp: Any, depths: int) -> Column:
    """Microbatches of every cell (model, tensor degrees, PP, 5) from those of the few distinct
    replica batches.  dp: exponents;  depths: how many PP.
    """
    replica = np.floor(_models(s.batch / s.E) / 2.0**dp)[..., 0]
    values, number = np.unique(replica, return_inverse=True)
    table = np.stack([microbatches(int(v), depths - 1) for v in values])
    cell: Column = table[number.reshape(replica.shape), np.arange(depths)]
    return cell
