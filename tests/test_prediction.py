"""What a prediction says about itself: how sure it is, what follows from its step time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import by_hand
from meshwright import assumptions
from meshwright.describe.layout import Layout
from meshwright.prediction import prediction
from meshwright.validate import Checked, Validation, evidence


def test_the_interval_spans_what_runs_measured_over_what_was_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 6 s step of a set whose runs took 0.9 to 1.5 times their predictions: 5.4 to 9 s."""
    monkeypatch.setattr(prediction, "evidence", lambda: {"by hand": {"low": 0.9, "high": 1.5}})
    assert by_hand(Layout()).interval_s == pytest.approx((5.4, 9.0))


def test_no_runs_no_interval() -> None:
    assert by_hand(Layout()).interval_s is None


def test_eight_of_ten_runs_lie_within_the_evidence() -> None:
    """Eleven runs that took 1.0, 1.1, ... 2.0 times what was predicted: one below 1.1, one above 1.9."""
    rows = [Checked(str(i), "here", "step_time", 1.0, 1.0 + i / 10) for i in range(11)]
    text = evidence(Validation(tuple(rows)), "by hand")
    assert "low = 1.100\n" in text and "high = 1.900\n" in text


def test_utilisation_is_work_over_time_and_peak() -> None:
    """One chip, one sequence, two layers: 3 s each at the peak; the model's FLOPs count attention once, uncut."""
    p = by_hand(Layout())
    assert p.step_time_s == pytest.approx(6.0)
    assert p.mfu == pytest.approx(1.0)
    assert by_hand(Layout(recompute="full")).hfu == pytest.approx(1.0)  # 8 s, a third more work
    assert by_hand(Layout(recompute="full")).mfu == pytest.approx(6 / 8)
    assert p.tokens_per_s == pytest.approx(128 / 6)


def test_energy_and_days_need_a_length() -> None:
    p = by_hand(Layout())
    assert (p.train_time_s, p.energy_j, p.chip_hours, p.cost_usd) == (None,) * 4
    assert replace(p, job=replace(p.job, tokens=256.0)).train_time_s == pytest.approx(12.0)
    assert assumptions("realistic").name in prediction.evidence()
