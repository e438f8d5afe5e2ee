"""Ranks killed at any moment: nothing is lost beyond the newest complete checkpoint, nothing is
corrupt, the losses stay the same bits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
from kills import LAYOUTS, Scene, play  # noqa: E402


def test_three_kills(tmp_path: Path) -> None:
    """One while ranks train, two while checkpoints are written."""
    scene = Scene(
        "pp2 microbatch2 zbv",
        kills=3,
        seed=4,
        in_writes=0.7,
        in_starts=0,
        window_s=0.3,
    )
    kills = play(scene, tmp_path)
    assert len(kills) == 3 and any(kill.writing for kill in kills)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_fifty_kills(name: str, tmp_path: Path) -> None:
    kills = play(Scene(LAYOUTS[name], kills=50, launchers=3), tmp_path)
    assert (
        sum(kill.writing for kill in kills) >= 15
        and sum(kill.torn for kill in kills) >= 10
    )
