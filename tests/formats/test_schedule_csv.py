"""PyTorch's schedule CSV: its cells, and what the writer refuses (PyTorch reads it in oracles)."""

from __future__ import annotations

from meshwright.formats import schedule_csv
from meshwright.schedule import Action, get
from refusals import refusal


def test_stages_that_lie_twice_are_refused() -> None:
    at = get("dualpipe")
    with refusal(r"chunks out of order: rank 2 has .*"):
        schedule_csv.write_order(at.order(4, 8, 2), at.placement(4, 2))


def test_cells_of_a_schedule() -> None:
    assert (
        schedule_csv.write_order(
            get("1f1b").order(2, 2, 1), lambda rank, chunk: rank
        )
        == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    )


def test_the_writer_refuses_what_the_format_cannot_say() -> None:
    both = [[Action("F", 0, 0), Action("F", 1, 1)]] * 2
    # two copies of the model, one in each direction
    with refusal("stage 0 is on 0 and 1"):
        schedule_csv.write_order(both, lambda rank, chunk: chunk)
    with refusal(r"chunks out of order: rank 0 has stages \[1, 0\]"):
        schedule_csv.write_order(both[:1], lambda rank, chunk: 1 - chunk)
