"""Orders as their authors' programs run them, action by action."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.schedule import get
from meshwright.schedule.schedule import Schedule

FILE = json.loads(
    (Path(__file__).parents[1] / "published/schedule_orders.json").read_text()
)


def named(key: str) -> tuple[Schedule, int, int, int]:
    """schedule p m [v group g] -> (schedule, p, m, v)."""
    name, p, m, *more = key.split()
    schedule, v = get(name), int(more[0]) if more else 2
    if more and schedule.grouped:
        schedule = schedule.grouped(int(more[-1]))
    return schedule, int(p), int(m), v


def written(schedule: Schedule, p: int, m: int, v: int) -> list[str]:
    rows = schedule.order(p, m, v)
    return [
        " ".join(f"{a.kind}{a.chunk}.{a.microbatch}" for a in row)
        for row in rows
    ]


@pytest.mark.parametrize("key", FILE["orders"])
def test_orders_are_those_of_the_authors(key: str) -> None:
    schedule, p, m, v = named(key)
    assert schedule.legal(p, m, v) and not schedule.rules(p, m, v)
    assert written(schedule, p, m, v) == FILE["orders"][key]


@pytest.mark.parametrize("key", FILE["refused_by_megatron"])
def test_a_last_group_of_fewer_microbatches_than_ranks_is_refused(
    key: str,
) -> None:
    schedule, p, m, v = named(key)
    assert not schedule.legal(p, m, v)
    assert f"at least pp ({p})" in schedule.rules(p, m, v)[0]
    assert written(schedule, p, m, v) == FILE["refused_by_megatron"][key]
