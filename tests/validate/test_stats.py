"""Errors, ranks and counts against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright_studies.validate.stats import (
    confusion,
    fractional_ranks,
    pair_orders,
    quantile,
    ranking,
    regret,
    reliability,
    spearman,
    stats,
)


def test_errors_are_fractions_of_the_measured_value() -> None:
    s = stats([0.5, 0.9, 1.2])
    assert s["rows"] == 3
    assert s["median_abs_error"] == pytest.approx(0.2)
    assert s["mean_abs_error"] == pytest.approx((0.5 + 0.1 + 0.2) / 3)
    assert s["bias"] == pytest.approx(-0.1)
    assert s["coverage"] is None


def test_nothing_measured_has_no_error() -> None:
    assert stats([])["rows"] == 0
    assert stats([])["bias"] is None


def test_coverage_is_the_share_inside() -> None:
    assert stats([1.0, 1.0], [True, False])["coverage"] == 0.5


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 1))
def test_quantile_is_numpys(values: list[float], q: float) -> None:
    assert quantile(sorted(values), q) == pytest.approx(
        float(np.quantile(values, q)), abs=1e-6
    )


def test_equal_values_share_their_mean_rank() -> None:
    assert fractional_ranks([3.0, 1.0, 3.0, 2.0]) == [3.5, 1.0, 3.5, 2.0]


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9)),
        min_size=3,
        max_size=20,
    )
)
def test_spearman_is_the_correlation_of_ranks(
    pairs: list[tuple[int, int]],
) -> None:
    a, b = (list(map(float, side)) for side in zip(*pairs, strict=True))
    found = spearman(a, b)
    if found is None:
        assert len(set(a)) == 1 or len(set(b)) == 1
    else:
        assert found == pytest.approx(
            np.corrcoef(fractional_ranks(a), fractional_ranks(b))[0, 1]
        )


def test_regret_is_what_the_predicted_best_costs() -> None:
    assert regret([1.0, 2.0, 3.0], [12.0, 10.0, 20.0]) == pytest.approx(0.2)
    # a tie: the mean of the tied
    assert regret([1.0, 1.0, 3.0], [12.0, 10.0, 20.0]) == pytest.approx(0.1)


def test_small_groups_are_not_ranked() -> None:
    r = ranking(
        [[(1.0, 1.0), (2.0, 2.0)], [(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]]
    )
    assert r["groups"] == 1
    assert r["spearman_median"] == pytest.approx(0.5)


def test_out_of_memory_is_the_positive() -> None:
    c = confusion(
        [(0.9, True), (0.6, False), (0.5, True), (0.1, False), (0.0, False)]
    )
    assert c == {
        "true_positives": 1,
        "false_positives": 1,
        "false_negatives": 1,
        "true_negatives": 2,
        "unknown": 0,
        "rows": 5,
        "accuracy": 0.6,
        "balanced_accuracy": pytest.approx((1 / 2 + 2 / 3) / 2),
        "specificity": pytest.approx(2 / 3),
        "brier": pytest.approx((0.1**2 + 0.6**2 + 0.5**2 + 0.1**2) / 5),
    }


def test_a_sound_risk_is_the_share_that_runs_out() -> None:
    """Of ten runs at 60 % six, of four at 5 % none; those whose risk is not known are in no
    range.
    """
    runs = [
        *[(0.6, True)] * 6,
        *[(0.6, False)] * 4,
        *[(0.05, False)] * 4,
        (None, True),
    ]
    assert {
        tuple(r["risk"]): (r["rows"], r["ran_out"])
        for r in reliability(runs)
        if r["rows"]
    } == {
        (0.3, 0.7): (10, 0.6),
        (0.02, 0.1): (4, 0.0),
    }


def test_what_is_not_known_is_neither_right_nor_wrong() -> None:
    c = confusion([(None, True), (None, False), (0.9, True), (0.1, False)])
    assert (
        c["rows"],
        c["unknown"],
        c["accuracy"],
        c["balanced_accuracy"],
    ) == (4, 2, 1.0, 1.0)
    assert confusion([(None, False)])["accuracy"] is None


def test_pairs_count_where_their_measured_times_differ_clearly() -> None:
    """Measured 1, 1.04, 2: the first two are the same run within its noise; of the other two pairs
    one is right.
    """
    found = ranking([[(3.0, 1.0), (1.0, 1.04), (2.0, 2.0)]])
    assert found["pairs"] == 2
    assert found["pairs_in_order"] == 0.5


def test_equal_predictions_order_nothing() -> None:
    assert list(pair_orders([(1.0, 1.0), (1.0, 2.0)])) == [False]
