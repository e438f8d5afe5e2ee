"""Errors of predictions, and how well they rank layouts. A ratio is predicted / measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from statistics import median
from typing import Any, TypeVar

import numpy as np

DIFFERENT = 0.05
"""Measured values further apart than this have an order: repeated runs of one configuration lie 1
to 3 % about their mean.
"""


One = TypeVar("One")
Key = TypeVar("Key", bound=Hashable)


def grouped(
    every: Iterable[One], key: Callable[[One], Key]
) -> dict[Key, list[One]]:
    """What has the same key together, in the order in which the keys appear."""
    groups: dict[Key, list[One]] = {}
    for one in every:
        groups.setdefault(key(one), []).append(one)
    return groups


def by(
    every: Iterable[One], key: Callable[[One], str]
) -> dict[str, list[One]]:
    """What has the same key together, in the order of the keys."""
    return dict(sorted(grouped(every, key).items()))


FIGURES = (
    *("median_abs_error", "mean_abs_error", "p90_abs_error"),
    *("bias", "coverage"),
)


def stats(
    ratios: Sequence[float], inside: Sequence[bool] = ()
) -> dict[str, Any]:
    """Errors as fractions of the measured value; bias = median ratio - 1; coverage = share inside
    the stated interval.

    None where there is nothing to say (no rows; no intervals).
    """
    if not ratios:
        return {"rows": 0, **dict.fromkeys(FIGURES)}
    errors = sorted(abs(r - 1) for r in ratios)
    return {
        "rows": len(ratios),
        "median_abs_error": median(errors),
        "mean_abs_error": sum(errors) / len(errors),
        "p90_abs_error": quantile(errors, 0.9),
        "bias": median(ratios) - 1,
        "coverage": sum(inside) / len(inside) if inside else None,
    }


def quantile(
    ordered: Sequence[float], q: float, weights: Sequence[float] = ()
) -> float:
    """The q-quantile of ascending values, interpolated between neighbours. weights: how often each
    counts; () = alike.

    A value stands in the middle of its own weight, q is the share of the way from the first value
    to the last.
    """
    weight = np.array(weights or (1.0,) * len(ordered))
    places = weight.cumsum() - weight / 2
    at = places[0] + q * (places[-1] - places[0])
    return float(np.interp(at, places, ordered))


def fractional_ranks(values: Sequence[float]) -> list[float]:
    """Rank of each value from 1; equal values share the mean of their ranks."""
    _, place, count = np.unique(
        values, return_inverse=True, return_counts=True
    )
    shared = count.cumsum() - (count - 1) / 2
    return [float(rank) for rank in shared[place]]


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's rank correlation: Pearson's of the ranks; None if one side does not vary."""
    if min(len({*a}), len({*b})) < 2:
        return None
    return float(np.corrcoef(fractional_ranks(a), fractional_ranks(b))[0, 1])


def regret(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """What taking the predicted best costs: its measured value over the best measured one, - 1; the
    mean of ties.
    """
    best = min(predicted)
    chosen = [m for p, m in zip(predicted, measured, strict=True) if p == best]
    return sum(chosen) / len(chosen) / min(measured) - 1


def ranking(
    groups: Iterable[Sequence[tuple[float, float]]], least: int = 3
) -> dict[str, Any]:
    """Over groups of (predicted, measured) with at least `least` members: median Spearman, mean
    regret, and the pairs whose measured values differ by more than DIFFERENT, with the share of
    them in the right order.
    """
    members = [list(g) for g in groups if len(g) >= least]
    kept = [tuple(zip(*g, strict=True)) for g in members]
    coefficients = [s for p, m in kept if (s := spearman(p, m)) is not None]
    right = [order for g in members for order in pair_orders(g)]
    return {
        "groups": len(kept),
        "spearman_median": median(coefficients) if coefficients else None,
        "regret_mean": sum(regret(p, m) for p, m in kept) / len(kept)
        if kept
        else None,
        "pairs": len(right),
        "pairs_in_order": sum(right) / len(right) if right else None,
    }


def pair_orders(group: Sequence[tuple[float, float]]) -> Iterator[bool]:
    """Of each pair of (predicted, measured) whose measured values differ clearly: is the prediction
    in the same order?
    """
    for (here, m), (there, n) in combinations(group, 2):
        if max(m, n) > (1 + DIFFERENT) * min(m, n):
            yield (here - there) * (m - n) > 0


EVEN = 0.5
"""A run is foreseen to run out of memory above this risk: what it needs is more than there is."""
STEPS = (0.02, 0.1, 0.3, 0.7, 0.9)
"""Risks at which the table of reliability is cut."""


def confusion(pairs: Iterable[tuple[float | None, bool]]) -> dict[str, Any]:
    """(risk, happened) counted: positive = out of memory, risk None = unknown, which no share
    counts.

    balanced_accuracy: mean of the shares of those that ran out, and of those that ran, that were
    foreseen; brier: mean of (risk - happened)^2.
    """
    every = list(pairs)
    known = [(risk, ran_out) for risk, ran_out in every if risk is not None]
    counts = Counter((risk > EVEN, ran_out) for risk, ran_out in known)
    yes, no = counts[True, True], counts[False, False]
    alarms, missed = counts[True, False], counts[False, True]
    out, ran = yes + missed, no + alarms
    squares = [(risk - ran_out) ** 2 for risk, ran_out in known]
    return {
        "rows": len(every),
        "true_positives": yes,
        "false_positives": alarms,
        "false_negatives": missed,
        "true_negatives": no,
        "unknown": len(every) - len(known),
        "accuracy": (yes + no) / len(known) if known else None,
        "balanced_accuracy": (yes / out + no / ran) / 2
        if out and ran
        else None,
        "specificity": no / ran if ran else None,
        "brier": sum(squares) / len(squares) if squares else None,
    }


def reliability(
    pairs: Iterable[tuple[float | None, bool]],
) -> list[dict[str, Any]]:
    """How many of the runs within each range of risk ran out of memory: a sound risk is its
    range.
    """
    groups: list[list[bool]] = [[] for _ in (*STEPS, 1.0)]
    for risk, happened in pairs:
        if risk is not None:
            groups[sum(risk >= step for step in STEPS)].append(happened)
    edges = pairwise((0.0, *STEPS, 1.0))
    return [
        {
            "risk": edge,
            "rows": len(ran),
            "ran_out": sum(ran) / len(ran) if ran else None,
        }
        for edge, ran in zip(edges, groups, strict=True)
    ]
