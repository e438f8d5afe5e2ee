"""ZB-1p and ZB-2p: orders that follow from what passes take."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.schedule import get
from meshwright.schedule.board import order_for
from meshwright.schedule.timeline import timeline_of_order
from meshwright.schedule.types import Costs, Order

FOUND = json.loads(
    (
        Path(__file__).parents[1] / "published/zero_bubble_orders.json"
    ).read_text()
)["cases"]


def place(rank: int, chunk: int) -> int:
    return rank


def of_case(case: dict[str, Any], unit: float) -> Costs:
    passes = case["passes"] * (case["p"] // len(case["passes"]))
    return Costs(
        tuple((f * unit, i * unit, w * unit) for f, i, w in passes),
        (case["send"] * unit,) * (case["p"] - 1),
    )


@pytest.mark.parametrize("unit", [1.0, 1.7e-5])
@pytest.mark.parametrize("case", FOUND, ids=range(len(FOUND)))
def test_orders_are_those_of_the_authors(
    case: dict[str, Any], unit: float
) -> None:
    """In whatever unit the costs are: rounding decides nothing."""
    costs = of_case(case, unit)
    order = order_for(costs, case["m"], case["limit"])
    written = [
        " ".join(f"{a.kind}{a.microbatch}" for a in row) for row in order
    ]
    assert written == case["order"]
    found = timeline_of_order(order, place, costs.passes, costs.sends)
    ranks = [
        ends[-1] - starts[0]
        for starts, ends in zip(found.start_s, found.end_s, strict=True)
    ]
    assert max(ranks) == pytest.approx(case["longest"] * unit)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[Costs, int, float]:
    """Any costs, pass by pass and stage by stage, and any limit of one microbatch or more."""
    seconds = st.floats(1e-3, 1.0)
    p, m = draw(st.integers(1, 6)), draw(st.integers(1, 14))
    own = draw(
        st.lists(st.tuples(seconds, seconds, seconds), min_size=p, max_size=p)
    )
    passes = own if draw(st.booleans()) else own[:1] * p
    send = draw(st.floats(0.0, 1.0))
    return (
        Costs(tuple(passes), (send,) * (p - 1)),
        m,
        draw(st.floats(1.0, 3.0 * p)),
    )


def check(order: Order, m: int, limit: float) -> None:
    """Each microbatch once, F before I before W, and no rank above the limit."""
    for row in order:
        for kind in "FIW":
            of_kind = [a.microbatch for a in row if a.kind == kind]
            assert of_kind == list(range(m))
        at = {(a.kind, a.microbatch): k for k, a in enumerate(row)}
        for k in range(m):
            assert at["F", k] < at["I", k] < at["W", k]
        held = max(accumulate((a.kind == "F") - (a.kind == "W") for a in row))
        assert held <= limit * (1 + 1e-6)


@settings(deadline=None, max_examples=150)
@given(pipelines())
def test_dependencies_and_the_limit_hold(
    drawn: tuple[Costs, int, float],
) -> None:
    costs, m, limit = drawn
    order = order_for(costs, m, limit)
    check(order, m, limit)
    timeline_of_order(order, place, costs.passes, costs.sends)  # no deadlock


@pytest.mark.parametrize(("name", "times"), [("zb-1p", 1), ("zb-2p", 2)])
def test_the_limit_is_that_of_the_name(name: str, times: int) -> None:
    for p, m in ((1, 1), (4, 3), (4, 20), (6, 9)):
        assert get(name).in_flight(p, m, 1) == min(times * p, m)


def test_no_rank_runs_ahead_of_the_one_before() -> None:
    """Where the second rank could run all forwards before its first gradient, and the first has not
    run as many: the authors' program stops there."""
    f = (274, 274, 366, 154, 429, 274, 274, 274)
    passes = tuple((float(x), 4.0, 3.0) for x in f)
    order = order_for(Costs(passes, (0.0,) * (len(passes) - 1)), 9, 16.0)
    check(order, 9, 16.0)
    timeline_of_order(order, place, passes)


@pytest.mark.parametrize("name", ["zb-1p", "zb-2p"])
def test_without_seconds_all_passes_take_as_long(name: str) -> None:
    """The order of equal passes is that of equal ones of any length."""
    schedule = get(name)
    for p, m in ((2, 3), (3, 7), (4, 8)):
        equal = Costs(((3.0, 3.0, 3.0),) * p, (0.0,) * (p - 1))
        assert schedule.timed(equal).order(p, m, 1) == schedule.order(p, m, 1)


def test_one_microbatch_by_hand() -> None:
    """Down four ranks and up again, then the weight gradient of the first."""
    for w in (0.5, 9.0):
        found = get("zb-1p").bubble(4, 1, 1, 1.0, 2.0, w)
        assert found == pytest.approx(4 * (1.0 + 2.0) + w - (1.0 + 2.0 + w))
