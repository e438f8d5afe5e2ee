"""The real program of single ranks beside what was counted for it, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..units import show
from .card import Card, CardTable, answer_row
from .tables import text_table

LARGEST = 8
"""Tensors that are listed where memory disagrees."""


def oracle_card(data: Mapping[str, Any]) -> Card:
    """Whether the program does what was counted, and where it does not."""
    wrong = [
        (f"rank {rank}", *_cells(row))
        for rank, row in _differing(data["ranks"])
    ]
    names = ("rank", "quantity", "predicted", "counted", "difference")
    return Card(
        f"Does the trainer's program do what was counted? {data['title']}",
        (
            answer_row(data["agrees"], _sentence(data["ranks"])),
            *([CardTable(names, wrong)] if wrong else []),
        ),
        "--all: FLOPs, collectives and peak memory of each rank",
    )


def oracle_report(data: Mapping[str, Any]) -> Iterator[RenderableType]:
    """What stands behind the card, rank by rank. data: of the JSON of `compare --oracle`."""
    for of_rank in data["ranks"]:
        stages = ", ".join(map(str, of_rank["stages"]))
        yield Text(f"rank {of_rank['rank']}, stage {stages}", "bold")
        yield quantity_table(of_rank["rows"])
        if terms := of_rank["predicted_memory_bytes"]:
            yield from (Text(), _memory(terms))
        if not of_rank["rows"][-1]["agrees"]:
            yield from (Text(), live(of_rank["live_at_peak"][:LARGEST]))
        yield Text()


def quantity_table(quantities: list[Mapping[str, Any]]) -> Table:
    """One quantity a line."""
    return text_table(
        "quantity | predicted | counted | difference | ",
        [
            (*_cells(row), "" if row["agrees"] else "differs")
            for row in quantities
        ],
    )


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A quantity, predicted, counted, and their difference."""
    ends = row["predicted"], row["counted"]
    shown = (value(end, row["unit"]) for end in ends)
    return row["quantity"], *shown, difference(*ends)


def _differing(
    ranks: list[Mapping[str, Any]],
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(rank, row) of what disagrees."""
    for of_rank in ranks:
        for row in of_rank["rows"]:
            if not row["agrees"]:
                yield of_rank["rank"], row


def value(number: float, unit: str) -> str:
    """With as many digits as show an exact count to be exact, as far as a table can."""
    if unit == "B":
        return show(number, "GiB", 5)
    return f"{number:.6e} {unit}" if unit else f"{number:,.0f}"


def difference(predicted: float, counted: float) -> str:
    """Share of what was counted."""
    if predicted == counted:
        return "0"
    return (
        f"{100 * (predicted / counted - 1):+.2f} %"
        if counted
        else "not counted"
    )


def _memory(terms: Mapping[str, float]) -> Table:
    """What the predicted peak is made of."""
    ranked = sorted(terms.items(), key=lambda item: -item[1])
    return text_table(
        "predicted peak | bytes",
        [(term, show(size, "GiB", 4)) for term, size in ranked],
    )


def live(tensors: list[Mapping[str, Any]]) -> Table:
    """What lived at the counted peak."""
    return text_table(
        "live at the counted peak, made by | shape |  | bytes",
        [
            (
                x["made_by"],
                " x ".join(map(str, x["shape"])),
                x["dtype"],
                show(x["bytes"], "GiB", 4),
            )
            for x in tensors
        ],
    )


def _sentence(ranks: list[Mapping[str, Any]]) -> str:
    """What it comes to."""
    wrong = [
        f"{row['quantity']} of rank {rank}" for rank, row in _differing(ranks)
    ]
    if not wrong:
        return (
            "the program does what was predicted: FLOPs and collectives exactly, the peak of memory"
            " within 5 %"
        )
    return f"the program differs from the prediction in {', '.join(wrong)}"
