"""What a prediction says about itself: how sure it is, what follows from its step time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import by_hand
from meshwright.describe.layout import Layout


def test_utilisation_is_work_over_time_and_peak() -> None:
    """One chip, one sequence, two layers: 3 s each at the peak; the model's FLOPs count attention
    once, uncut.
    """
    p = by_hand(Layout())
    assert p.step_time_s == pytest.approx(6.0)
    assert p.mfu == pytest.approx(1.0)
    # 8 s, a third more work
    assert by_hand(Layout(recompute="full")).hfu == pytest.approx(1.0)
    assert by_hand(Layout(recompute="full")).mfu == pytest.approx(6 / 8)
    assert p.tokens_per_s == pytest.approx(128 / 6)


def test_energy_and_days_need_a_length() -> None:
    p = by_hand(Layout())
    assert (p.train_time_s, p.energy_j, p.chip_hours, p.cost_usd) == (
        None,
    ) * 4
    assert replace(
        p, job=replace(p.job, tokens=256.0)
    ).train_time_s == pytest.approx(12.0)
