"""CPU seconds of messages, and which engine is paid for, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshwright import Dim, Layout, Network
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.measured import MeasuredTable
from meshwright.program import cpu


def measured(**seconds: float) -> Fabric:
    tables = {
        kind: MeasuredTable(
            ("ranks", "bytes"), ((1.0, 64.0), (1.0, 1e9)), (s,) * 4
        )
        for kind, s in seconds.items()
    }
    dim = Dim("switch", 1e9, 0.0, collectives=tables)
    return Fabric.from_network(Network("n", (dim,)), NetworkTime("ring"))


def test_a_message_costs_sender_and_receiver() -> None:
    assert cpu.send(measured(send=3.0), 100.0) == pytest.approx(6.0)
    column: Any = np.array([1.0, 2.0])
    assert cpu.send(measured(), column).tolist() == [0.0, 0.0]


def test_an_engine_is_paid_for_what_a_layout_uses() -> None:
    """Feature -> ranks of its group."""
    assert cpu.features(Layout(dp=1, schedule="1f1b")) == {"plain": 1.0}
    used = cpu.features(
        Layout(tp=2, cp=3, pp=4, dp=5, zero=2, schedule="gpipe", recompute="full")
    )  # fmt: skip
    assert used == {
        "plain": 1.0, "tp": 2, "cp": 3, "zero2": 15, "gpipe": 4, "recompute full": 1.0,
    }  # fmt: skip
    assert cpu.features(Layout(cp=2, dp=1)) == {
        "plain": 1.0,
        "cp": 2,
        "zero0": 2,
    }
