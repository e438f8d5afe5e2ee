"""Stages of models whose layers are of several kinds, counted by hand: what each holds, how long it
takes, what it sends.

Layers of `by_hand`: A, full attention and a feed-forward, 1 s and 49,152 parameters; B, a
feed-forward alone, 2 x 32,768 x 128 FLOPs, 0.5 s; C, full attention alone, 2 x 16,384 x 128 + 4 x
128^2 x 64 FLOPs, 0.5 s too. The backward pass takes twice as long.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from by_hand import MODEL, SET, by_hand
from meshwright import Layout, Model, Prediction
from meshwright.describe.assumptions import HidePass

WORDS = {"A": "full+dense", "B": "none+dense", "C": "full+none"}
ORDER = replace(SET.overlap, pp="interleaved")


def of(pattern: str) -> Model:
    """A model of these layers."""
    return replace(
        MODEL, layers=len(pattern), pattern=tuple(WORDS[k] for k in pattern)
    )


def predicted(pattern: str, microbatches: int, **fields: Any) -> Prediction:
    return by_hand(
        Layout(**{"dp": 1, **fields}),
        microbatches,
        model=of(pattern),
        overlap=ORDER,
    )


@pytest.mark.parametrize("pattern", ["BBBBAABB", "BBAABBBB"])
def test_the_slowest_may_be_any_rank_in_the_middle(pattern: str) -> None:
    """Two layers a stage: the rank with AA takes 2 s and 4 s, the others 1 s and 2 s. Down to it,
    its microbatches, and up again; and for each rank below it waits 3 s for the first to come back,
    in which it runs a forward of 2 s ahead."""
    found = predicted(pattern, 8, pp=4)
    rank = pattern.index("A") // 2
    assert found.time_s["compute"] == pytest.approx(8 * 6.0)
    assert found.step_time_s == pytest.approx(
        8 * 6.0 + rank * 3.0 + (3 - rank) * (3.0 - 2.0)
    )
    assert found.step_time_s == pytest.approx(found.replayed_s)


def test_the_device_with_most_gradients_ends_the_step() -> None:
    """BB | AA of two replicas, ZeRO 0, nothing hidden, at 2^16 B/s: the last rank all-reduces 2 x
    49,152 gradients of 4 bytes in 6 s, after 2 x 6 s of its own, and the way down to it and up: 1 s
    and 2 s and two sends of 2 x 64 x 128 bytes."""
    apart = replace(ORDER, dp=HidePass("none"))
    model = of("BBAA")
    found = by_hand(Layout(pp=2, dp=2), 2, 2.0**16, model, overlap=apart)
    ends = 2 * 6.0 + 6.0 + (1.0 + 2.0 + 2 * 0.25)
    assert found.step.device_ends[-1] == pytest.approx(ends)
    assert found.step_time_s == pytest.approx(ends)
