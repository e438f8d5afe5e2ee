"""Intervals from left-out predictions: how unsure each part of a prediction is, what nine of ten
runs lie within, and whether that holds for a laboratory that neither has seen.

Split conformal prediction with a scale: z = error / s, s the width of a prediction
(`prediction.certainty`); the interval is between two quantiles of z, runs of one source weighing
as much as they tell beside each other, and is widened as for a draw from laboratories of which so
many are known. Source: Lei et al. 2018, arXiv 1604.04173, section 5.2 (locally weighted); here the
scale is a sum of named parts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.compare.installation import LEAST, scale
from meshwright.prediction.certainty import PARTS

from ..validate.stats import by, grouped, quantile
from .fit import NOISE
from .seen import Column, Seen, log_errors, rows_by_part, source_weights

SHARE = 0.9
"""Of all runs, what an interval is to hold."""
ENDS = ((1.0 - SHARE) / 2, (1.0 + SHARE) / 2)
POOLED = (0.03, 0.97)
"""Of the one pooled interval that ours are compared with: at the ends of 5 % it holds 84 % of the
runs of laboratories that it has not seen, at those of 3 % 90 %."""
DECLARED: Mapping[str, tuple[float, str]] = {
    "step": (NOISE, "what a fit takes for unexplained in any run"),
    "host": (0.2, "seconds of a launch: the width of their prior"),
    "overhead": (
        1.0,
        "seconds of a step beside all layers: a factor of e (estimate)",
    ),
    "fp4": (0.2, "FP4 products in training: the width of their prior"),
}
"""Part -> how unsure it is, and why; priors: catalog/fitted.toml. Nothing here is fitted: widths
that runs tell, by part or by class, say less of a further laboratory's runs than one width of all
steps does (docs/accuracy.md)."""
BEYOND: Mapping[str, tuple[float, str]] = {
    "chip": (
        0.20,
        "a new family of measured kernels: 15 runs on AMD and Intel chips took 0.88 to 1.42 of it",
    ),
    "share": (
        0.30,
        "its share of the peak is assumed: such runs took 0.53 (Gaudi 2) to 1.85 (MI300X) of it",
    ),
    "framework": (
        0.10,
        "element-wise passes and overlap of frameworks differ by so much",
    ),
    "class": (
        0.10,
        "its chips and its framework are known, but not together: as a framework",
    ),
    "experts": (
        0.12,
        "experts that fewer than three sources ran so: exchange, balance and host are their own",
    ),
    "numbers": (
        0.10,
        "the same chips and programs in other numbers: clocks and casts differ by so much",
    ),
    "sharding": (
        0.15,
        "gathers of a sharding that no run shows: a tenth to a fifth of a step (estimate)",
    ),
    "chips": (0.03, "a doubling of chips beyond any run's (estimate)"),
    "tokens": (0.04, "a doubling of the longest sequence (estimate)"),
}
"""Distance from evidence -> what it adds; no run can tell."""
DRAWS = 20
"""Seeds of the rows that a scale is from."""
GAPS = (0.01, 0.02, 0.03, 0.06, 0.10, 0.15)
"""Differences of predicted times that may be the resolution."""
ORDERED = 0.85
"""Share of pairs in the right order from the resolution on: below it one in seven is wrong."""


LEAST_LABORATORIES = 5
"""With fewer the ends are as far as with so many: no class is judged by them."""


class Ends(NamedTuple):
    """Quantiles of z."""

    low: float
    high: float


def correlation(of: Sequence[Seen]) -> float:
    """Of the errors of two runs of one source: tau^2 / (tau^2 + sigma^2), of the variances between
    and within sources (one-way random effects: Searle, Casella & McCulloch 1992, Variance
    Components, section 3.6).
    """
    e = log_errors(of)
    names = np.array([one.source for one in of])
    groups = [e[names == name] for name in sorted({*names})]
    k, n = len(groups), len(e)
    if k < 2 or n == k:
        return 1.0
    within = sum(((g - g.mean()) ** 2).sum() for g in groups) / (n - k)
    between = sum(len(g) * (g.mean() - e.mean()) ** 2 for g in groups) / (
        k - 1
    )
    typical = (n - sum(len(g) ** 2 for g in groups) / n) / (k - 1)
    shared = max(0.0, float(between - within) / typical)
    return shared / (shared + float(within)) if shared else 0.0


def run_weights(of: Sequence[Seen], shared: float | None = None) -> Column:
    """Weights of runs: n of one source, whose errors have this correlation, tell as much as
    n / (1 + (n - 1) shared) that share nothing (Kish 1965, Survey Sampling, section 5.4).

    shared: that of a larger set; default: their own.
    """
    rho = correlation(of) if shared is None else shared
    count = Counter(one.source for one in of)
    return np.array([1 / (1 + (count[one.source] - 1) * rho) for one in of])


def widths(of: Sequence[Seen]) -> Column:
    """s of each run."""
    by = np.array([DECLARED[name][0] for name in PARTS])
    wide: Column = np.sqrt(((rows_by_part(of) * by) ** 2).sum(axis=1))
    return wide


def standard(of: Sequence[Seen]) -> Column:
    """z of each run."""
    return log_errors(of) / widths(of)


def middle_nine_tenths(
    z: Column, weight: Column, at: tuple[float, float] = ENDS
) -> Ends:
    """What nine of ten of the weight lie between. at: its shares below each end."""
    order = np.argsort(z, kind="stable")
    values = list(z[order])
    weights = list(weight[order])
    return Ends(*(float(quantile(values, q, weights)) for q in at))


def for_a_new_laboratory(of: Ends, laboratories: int) -> Ends:
    """What nine of ten runs of a further laboratory lie between, where those of n lie between
    these.

    As of a mean and a deviation known from n draws: t / z sqrt(1 + 1/n), t and z the 95 %
    quantiles of Student's distribution with n - 1 degrees of freedom and of the normal one
    (Geisser 1993, Predictive Inference, section 2.1); 1.17 for ten.
    """
    n = max(laboratories, LEAST_LABORATORIES)
    wider = student(n - 1) / student(math.inf) * math.sqrt(1.0 + 1.0 / n)
    return Ends(of.low * wider, of.high * wider)


def student(freedom: float) -> float:
    """The 95 % quantile of Student's distribution (Abramowitz & Stegun 1964, 26.7.5; within 0.2 %
    from four degrees of freedom on).
    """
    z = NormalDist().inv_cdf(ENDS[1])
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def ends(of: Sequence[Seen]) -> Ends:
    """What nine of ten runs of a further laboratory lie between, by these."""
    interval = middle_nine_tenths(standard(of), run_weights(of))
    return for_a_new_laboratory(interval, len({one.laboratory for one in of}))


def after_scale(of: Sequence[Seen]) -> Ends:
    """What nine of ten of a source's other runs lie between after one scale from a few of them."""
    return middle_nine_tenths(*_scaled(of))


def inside_after_scale(of: Sequence[Seen]) -> float:
    """Share of a source's other runs between the ends that the other laboratories' runs give."""
    within, weight = [], []
    for name in sorted({one.laboratory for one in of}):
        z, mine = _scaled([one for one in of if one.laboratory == name])
        at = after_scale([one for one in of if one.laboratory != name])
        within.append((at.low <= z) & (z <= at.high))
        weight.append(mine)
    return float(
        np.average(np.concatenate(within), weights=np.concatenate(weight))
    )


def scaled(of: Sequence[Seen]) -> Iterator[tuple[int, Column, Column]]:
    """(seed, errors, widths) of a source's other runs after one scale from a few of them, of each
    source and of DRAWS seeds.
    """
    for mine in by(of, lambda one: one.source).values():
        error, wide = log_errors(mine), widths(mine)
        for seed in range(DRAWS):
            taken = drawn(len(mine), seed)
            centre = np.log(scale(list(np.exp(error[taken]))))
            yield (
                seed,
                np.delete(error - centre, taken),
                np.delete(wide, taken),
            )


def _scaled(of: Sequence[Seen]) -> tuple[Column, Column]:
    """z of these, and their weights: each source and draw weighs as much."""
    rests = [rest / wide for _, rest, wide in scaled(of)]
    weight = [np.full(len(z), 1.0 / max(len(z), 1)) for z in rests]
    return np.concatenate(rests), np.concatenate(weight)


def drawn(rows: int, seed: int) -> NDArray[np.int64]:
    """Rows of a source that an installation's scale is from."""
    draws: NDArray[np.int64] = np.random.default_rng(seed).choice(
        rows, min(LEAST, rows), replace=False
    )
    return draws


class UnseenIntervals(NamedTuple):
    """Intervals of runs whose laboratory they have not seen, as logarithms."""

    low: Column
    high: Column
    inside: NDArray[np.bool_]
    score: Column
    """Winkler's interval score: width, and what lies outside, 2 / (1 - 0.9) times."""


def coverage_and_score(
    error: Column, low: Column, high: Column
) -> UnseenIntervals:
    """Coverage and score (Gneiting & Raftery 2007, equation 43)."""
    outside = np.maximum(low - error, 0.0) + np.maximum(error - high, 0.0)
    score = high - low + 2.0 / (1.0 - SHARE) * outside
    return UnseenIntervals(low, high, (low <= error) & (error <= high), score)


def nested(of: Sequence[Seen]) -> UnseenIntervals:
    """Each laboratory's intervals from the runs of the others alone."""
    return _from_others(of, widths(of), ends)


def one_for_all(
    of: Sequence[Seen], at: tuple[float, float] = POOLED
) -> UnseenIntervals:
    """One interval for the runs of all laboratories, from those of the others each time, to compare
    with `nested`. at: the weight below each of its ends.
    """

    def between(rest: Sequence[Seen]) -> Ends:
        return middle_nine_tenths(log_errors(rest), source_weights(rest), at)

    return _from_others(of, np.ones(len(of)), between)


def _from_others(
    of: Sequence[Seen], wide: Column, between: Callable[[Sequence[Seen]], Ends]
) -> UnseenIntervals:
    """wide: s of each run;  between: the ends that other laboratories' runs give."""
    low, high = np.zeros((2, len(of)))
    for name in sorted({one.laboratory for one in of}):
        mine = np.array([one.laboratory == name for one in of])
        interval = between([one for one in of if one.laboratory != name])
        low[mine], high[mine] = np.outer(interval, wide[mine])
    return coverage_and_score(log_errors(of), low, high)


def pairs(of: Sequence[Seen]) -> Iterator[tuple[Seen, Seen, float]]:
    """Layouts of one workload two by two, with weights by which a group counts as its rows do."""
    for group in grouped(of, lambda one: one.workload).values():
        for a, b in combinations(group, 2):
            yield a, b, 2 / (len(group) - 1)


def pair(of: Sequence[Seen], z: Ends) -> float:
    """How unsure the ratio of two layouts of one workload is: nine of ten lie within it times the
    larger end."""
    ordered = sorted(
        (abs(a.error - b.error), weight) for a, b, weight in pairs(of)
    )
    values = [v for v, _ in ordered]
    weights = [w for _, w in ordered]
    return (
        quantile(values, SHARE, weights) / max(-z.low, z.high)
        if ordered
        else 0.0
    )


def resolution(of: Sequence[Seen]) -> float:
    """The smallest of GAPS from which (to the next of them) a share ORDERED of the pairs of layouts
    is in the measured order."""
    gaps = [
        (
            abs(np.log(a.predicted_s) - np.log(b.predicted_s)),
            a,
            b,
            w,
        )
        for a, b, w in pairs(of)
    ]
    for gap, wider in zip(GAPS, (*GAPS[1:], np.inf), strict=True):
        near = [(a, b, w) for g, a, b, w in gaps if gap <= g < wider]
        right = sum(w for a, b, w in near if order_predicted(a, b))
        if near and right >= ORDERED * sum(w for *_, w in near):
            return gap
    return GAPS[-1]


def order_predicted(a: Seen, b: Seen) -> bool:
    """Is the layout that is predicted to be the faster one of two the one that was?"""
    measured = a.run.step_s - b.run.step_s
    return measured * (a.predicted_s - b.predicted_s) > 0
