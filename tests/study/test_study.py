"""The study trainer: every axis is the whole model's step, and sends what its equation says."""

from __future__ import annotations

from math import inf, isnan, nan
from pathlib import Path

import pytest

pytest.importorskip("torch")

from meshwright.study import equations, picture, pp  # noqa: E402
from meshwright.study.__main__ import called  # noqa: E402
from meshwright.study.check import BOUND, Row, largest, study  # noqa: E402
from meshwright.study.model import Shape  # noqa: E402


def test_every_axis_is_the_step_of_one_process(sound: list[Row]) -> None:
    """Losses, gradients, and weights after Adam under ZeRO."""
    assert len(sound) == 12
    for row in sound:
        assert row.error < BOUND and row.loss_error < BOUND, row


def test_bytes_sent_are_those_of_the_equations(sound: list[Row]) -> None:
    for row in sound:
        assert row.sent[0] == row.sent[1] > 0, row


def test_bytes_by_hand(sound: list[Row]) -> None:
    """b s h = 8 * 16 * 32 numbers of 4 bytes are 16 KiB; 12 * 4 * 32^2 weights in matrices."""
    sent = {row.axis: row.sent[1] for row in sound}
    stream, weights = 16_384, 49_152 + 32 * (9 + 2 * 64 + 16)
    assert sent["tp"] == 4 * 8 * 3 / 4 * stream
    assert sent["dp, ZeRO-1"] == 2 * 3 / 4 * 4 * weights
    assert sent["dp, ZeRO-3"] == 3 * 3 / 4 * 4 * weights
    assert sent["pp 4, 1F1B"] == 6 / 4 * stream
    assert sent["pp 2, interleaved"] == 3 * stream
    assert sent["pp 2 x tp 2, between stages"] == stream / 2


def test_calls_by_hand(sound: list[Row]) -> None:
    """Two pairs a layer, f and g, each an all-reduce forward or backward: sequence parallelism calls
    the same, and sums its 9 norms, embeddings and head, 12 weights. A boundary is crossed twice.
    """
    calls = {row.axis: row.calls for row in sound}
    assert calls["tp"] == {"RS": 16, "AG": 16}
    assert calls["tp and sp"] == {"RS": 16 + 12, "AG": 16 + 12}
    weights = 4 * 8 + 4
    assert calls["dp, ZeRO-1"] == {"RS": weights, "AG": weights}
    assert calls["dp, ZeRO-3"] == {"RS": weights, "AG": 2 * weights}
    assert calls["pp 4, 1F1B"] == {"P2P": 3 * 8 * 2 / 4}


def test_the_page_shows_what_is_called(sound: list[Row]) -> None:
    page = Path(__file__).parents[2] / "docs" / "study.md"
    text = page.read_text("utf-8")
    assert picture.picture(4, 4, 1) in text
    for row in sound:
        shown = [
            line for line in text.splitlines() if line.startswith(called(row))
        ]
        assert shown or "RS" not in row.calls, called(row)


def test_a_pipeline_drawn_by_hand() -> None:
    """Two stages, two microbatches: one waits at the begin, the other at the end."""
    assert picture.picture(p=2, m=2, v=1) == (
        "rank 0  F0  F1   .   .  B0 ----  .  B1 ----\n"
        "rank 1   .  F0  B0 ---- F1  B1 ----  .   ."
    )


def test_bytes_held_are_zeros(sound: list[Row]) -> None:
    held = {row.axis[-1]: row.held for row in sound if row.held}
    assert held == {"0": (16, 16), "1": (10, 10), "2": (7, 7), "3": (4, 4)}
    assert equations.zero_held(64, 3) == 0.25


def test_a_gradient_that_is_no_number_is_no_match() -> None:
    """`max` would drop a NaN behind any number."""
    assert isnan(largest([0.0, nan, 1e-7])) and isnan(largest([nan, 0.0]))
    assert not largest([0.0, nan]) < BOUND


def test_a_lost_message_is_seen_on_every_axis() -> None:
    for row in study(lose=1):
        assert BOUND * 100 < row.error <= inf, row


@pytest.mark.parametrize(
    ("p", "m", "v"), [(2, 2, 1), (4, 8, 1), (4, 3, 1), (4, 8, 2), (8, 16, 3)]
)
def test_the_bubble_of_an_order_is_that_of_the_paper(
    p: int, m: int, v: int
) -> None:
    assert picture.pp_idle(p, m, v) == pytest.approx(
        equations.bubble(p, m, v), abs=1e-12
    )


def test_1f1b_keeps_at_most_as_many_microbatches_as_ranks_follow() -> None:
    for rank in range(4):
        kept = most = 0
        for action in pp.order(rank, p=4, m=8, v=1):
            kept += 1 if action.kind == "F" else -1
            most = max(most, kept)
        assert (kept, most) == (0, 4 - rank)


def test_first_actions_by_hand() -> None:
    """The figure of the paper: rank 0 of 4 warms up with four; interleaved goes 0 to 3 of each chunk."""
    words = [f"{a.kind}{a.microbatch}" for a in pp.order(0, p=4, m=8, v=1)]
    assert words[:8] == ["F0", "F1", "F2", "F3", "B0", "F4", "B1", "F5"]
    chunks = [a.chunk for a in pp.order(0, p=4, m=8, v=2)[:10]]
    assert chunks == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]


def test_shape_counts_its_weights() -> None:
    from meshwright.study.model import decoder

    m = Shape()
    total = sum(w.numel() for w in decoder(m).parameters())
    assert total == m.matrices + m.rest
