"""Stages, sends and bubbles of small pipelines, in seconds worked out by hand: a layer takes 1 s
forward and 2 s backward.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import MODEL, SET, TOKENS, WIDTH, by_hand
from meshwright import Layout

HOP = 2.0 * TOKENS * WIDTH
"""Bytes of the activation of one sequence, in 2 bytes."""


@pytest.mark.parametrize(
    ("rate", "policy", "seconds"),
    [
        (HOP, "none", 2 * 1.0),  # a hop of 1 s forward and one backward
        (HOP, "all", 0.0),  # behind 2 s forward and 4 s backward of two layers
        # 3 s: one more than the forward of two layers, less than the backward
        (HOP / 3, "all", 3.0 - 2.0),
        (HOP / 5, "all", (5.0 - 2.0) + (5.0 - 4.0)),
    ],
)
def test_sends_of_every_microbatch(
    rate: float, policy: str, seconds: float
) -> None:
    """Two stages of two layers, four microbatches."""
    m, overlap = 4, replace(SET.overlap, pp=policy)
    found = by_hand(
        Layout(pp=2, dp=1), m, rate, replace(MODEL, layers=4), overlap=overlap
    )
    assert found.time_s["pp_comm"] == pytest.approx(m * seconds)
    # the other stage's, and the way there and back
    bubble = 2 * 3 + 2 * HOP / rate
    assert found.time_s["bubble"] == pytest.approx(bubble)
    assert found.step.total == pytest.approx(m * (6 + seconds) + bubble)


ORDER = replace(SET.overlap, pp="interleaved")


def test_the_first_microbatch_goes_through_all_chunks() -> None:
    """Interleaved, two stages of two chunks of one layer, two microbatches: four stages down and up
    again, 3 sends each way.
    """
    layout = Layout(pp=2, dp=1, interleave=2, schedule="interleaved")
    found = by_hand(
        layout, 2, HOP / 0.5, replace(MODEL, layers=4), overlap=ORDER
    ).time_s
    assert found["pp_comm"] == pytest.approx(2 * 3 * 0.5)
    assert found["bubble"] == pytest.approx((2 - 1) * 3)
