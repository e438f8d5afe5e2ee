"""Latencies of trees and all-to-alls, by hand: 1 byte, so that waiting is all that counts."""

from __future__ import annotations

import pytest

from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import NetworkTime

NEAR, FAR = 1e-6, 10e-6
RATE = 1e9
BYTE = 1 / RATE
BEST = Fabric((RATE, RATE), (NEAR, FAR), (False, False), NetworkTime("best"))


@pytest.mark.parametrize(
    ("group", "wait"),
    [
        ((8, 1), NEAR),
        ((1, 8), FAR),
        ((8, 8), FAR),
        ((2, 1), NEAR),
        ((1, 1), 0.0),
    ],
)
def test_an_all_to_all_starts_all_messages_at_once(
    group: tuple[int, int], wait: float
) -> None:
    """One latency, that of the farthest message, however many ranks there are."""
    found = BEST.time("all_to_all", 1.0, group)
    n = group[0] * group[1]
    crossing = (group[0] - 1) / n + group[0] * (group[1] - 1) / n
    assert found == pytest.approx(wait + crossing * BYTE)


def test_bytes_of_an_all_to_all_that_stay_near_do_not_cross() -> None:
    """Four ranks in each of two nodes, 8 MB each: 3 of 8 parts stay in the node, and each of four
    sends 4 parts out.
    """
    free = Fabric(
        (RATE, RATE), (0.0, 0.0), (False, False), NetworkTime("ring")
    )
    assert free.time("all_to_all", 8e6, (4, 2)) == pytest.approx(
        3e6 / RATE + 4e6 / RATE
    )
