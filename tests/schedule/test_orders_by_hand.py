"""Orders of few microbatches word by word, and the building blocks of those that are squeezed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.schedule import SCHEDULES, get

PUBLISHED = Path(__file__).parents[1] / "published/schedule_orders.json"
WRITTEN = {
    # the first and the last rank: kind, chunk, microbatch
    "gpipe 2 2 1": ("F0.0 F0.1 B0.0 B0.1", "F0.0 F0.1 B0.0 B0.1"),
    "1f1b 3 4 1": (
        "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3",
        "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3",
    ),
    "zb-h1 2 3 1": (
        "F0.0 F0.1 I0.0 W0.0 F0.2 I0.1 W0.1 I0.2 W0.2",
        "F0.0 I0.0 F0.1 I0.1 W0.0 F0.2 I0.2 W0.1 W0.2",
    ),
    "zb-h2 2 4 1": (
        "F0.0 F0.1 F0.2 I0.0 W0.0 F0.3 I0.1 W0.1 I0.2 W0.2 I0.3 W0.3",
        "F0.0 I0.0 F0.1 I0.1 F0.2 I0.2 W0.0 F0.3 I0.3 W0.1 W0.2 W0.3",
    ),
    "interleaved 2 2 2": (
        "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1",
        "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1",
    ),
    "interleaved-zb 2 2 2": (
        "F0.0 F0.1 F1.0 F1.1 I1.0 W1.0 I1.1 W1.1 I0.0 W0.0 I0.1 W0.1",
        "F0.0 F0.1 F1.0 I1.0 F1.1 I1.1 W1.0 I0.0 W1.1 I0.1 W0.0 W0.1",
    ),
    "breadth-first 2 2 2": (
        "F0.0 F0.1 F1.0 F1.1 B1.1 B1.0 B0.1 B0.0",
        "F0.0 F0.1 F1.0 F1.1 B1.1 B1.0 B0.1 B0.0",
    ),
    "zbv 2 3 2": (
        "F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 I1.1 W1.1 I0.0 W0.0 F1.2 I1.2 W1.2"
        " I0.1 W0.1 I0.2 W0.2",
        "F0.0 F1.0 F0.1 F1.1 I1.0 W1.0 F0.2 I0.0 W0.0 F1.2 I1.1 W1.1 I0.1 I1.2"
        " I0.2 W0.1 W1.2 W0.2",
    ),
}
"""By the rules of each module's docstring."""


@pytest.mark.parametrize("case", WRITTEN)
def test_orders_word_by_word(case: str) -> None:
    name, p, m, *v = case.split()
    rows = get(name).order(int(p), int(m), int(*v))
    found = [
        " ".join(f"{a.kind}{a.chunk}.{a.microbatch}" for a in row)
        for row in rows
    ]
    wanted = WRITTEN[case]
    assert len(rows) == int(p)
    assert [found[0], found[-1]] == [wanted[0], wanted[-1]]


@pytest.mark.parametrize("name", ["zb-1p", "zb-2p"])
def test_weight_gradients_fill_what_the_next_gradient_leaves(
    name: str,
) -> None:
    """The middle one of three ranks, passes of 1: its gradients come at 4, 6 and 8, each one later
    than it is done with the one before, which is just a weight gradient."""
    _, middle, _ = get(name).order(3, 3, 1)
    words = [f"{a.kind}{a.microbatch}" for a in middle]
    assert words == ["F0", "F1", "F2", "I0", "W0", "I1", "W1", "I2", "W2"]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_order_stands_somewhere_word_by_word(name: str) -> None:
    """Here, or as its authors' program runs it; those by costs: `test_cost_aware.py`."""
    published = json.loads(PUBLISHED.read_text("utf-8"))["orders"]
    written = {case.split()[0] for case in (*WRITTEN, *published)}
    assert name in written or SCHEDULES[name].costed


@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 2), (3, 4), (4, 2)])
def test_few_microbatches_of_a_v_go_in_the_order_of_more(
    p: int, m: int
) -> None:
    """That of 2 p - 1, without those that do not exist."""
    order = get("zbv").order
    some = [
        [a for a in row if a.microbatch < m] for row in order(p, 2 * p - 1, 2)
    ]
    assert order(p, m, 2) == some
