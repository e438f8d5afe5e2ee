"""PyTorch's schedule CSV: round trips, and what the reader and the writer refuse."""

from __future__ import annotations

import pytest

from meshwright.formats import schedule_csv
from meshwright.schedule import SCHEDULES, Action, get
from refusals import refusal


@pytest.mark.parametrize(
    "name", [name for name, s in SCHEDULES.items() if s.copies == 1]
)
def test_what_is_written_is_read_back(name: str) -> None:
    schedule, v = get(name), 3 if get(name).chunks(7) == 7 else 1
    order = schedule.order(4, 8, v)
    placement = [
        [schedule.stage_of(r, c, 4, v) for c in range(int(schedule.chunks(v)))]
        for r in range(4)
    ]
    assert schedule_csv.read_order(
        schedule_csv.write_order(order, schedule.placement(4, v))
    ) == (
        order,
        placement,
    )


def test_stages_that_lie_twice_are_refused() -> None:
    at = get("dualpipe")
    with refusal(r"chunks out of order: rank 2 has .*"):
        schedule_csv.write_order(at.order(4, 8, 2), at.placement(4, 2))


def test_cells() -> None:
    assert (
        schedule_csv.write_order(
            get("1f1b").order(2, 2, 1), lambda rank, chunk: rank
        )
        == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    )
    order, placement = schedule_csv.read_order(
        "0F0,,3F0,(0F1;3B0)OVERLAP_F_B\n,1I3, 2W1\n"
    )
    assert order[0] == [
        Action("F", 0, 0),
        Action("F", 1, 0),
        Action("F", 0, 1),
        Action("B", 1, 0),
    ]
    assert order[1] == [Action("I", 0, 3), Action("W", 1, 1)]
    assert placement == [[0, 3], [1, 2]]


@pytest.mark.parametrize(
    "cell",
    [
        "1UNSHARD",
        "3SEND_F1",
        "0F",
        "F0",
        "0X1",
        "-1F0",
        "(0F1;4B0)",
        "(0F1;4Q0)OVERLAP_F_B",
    ],
)
def test_communication_and_nonsense_are_refused(cell: str) -> None:
    with refusal("row 2 of the schedule CSV has"):
        schedule_csv.read_order(f"0F0\n{cell}\n")


def test_the_writer_refuses_what_the_format_cannot_say() -> None:
    both = [[Action("F", 0, 0), Action("F", 1, 1)]] * 2
    # two copies of the model, one in each direction
    with refusal("stage 0 is on 0 and 1"):
        schedule_csv.write_order(both, lambda rank, chunk: chunk)
    with refusal(r"chunks out of order: rank 0 has stages \[1, 0\]"):
        schedule_csv.write_order(both[:1], lambda rank, chunk: 1 - chunk)
