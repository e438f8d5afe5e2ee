"""The real program of single ranks beside what was counted for it, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..units import show
from .card import Card, CardRow, CardTable
from .predict import empty_table

LARGEST = 8
"""Tensors that are listed where memory disagrees."""


def oracle_card(data: Mapping[str, Any]) -> Card:
    """Whether the program does what was counted, and where it does not."""
    word, style = (
        ("yes", "bold green") if data["agrees"] else ("no", "bold red")
    )
    wrong = [
        (
            f"rank {r['rank']}",
            row["quantity"],
            value(row["predicted"], row["unit"]),
            value(row["counted"], row["unit"]),
            difference(row["predicted"], row["counted"]),
        )
        for r in data["ranks"]
        for row in r["rows"]
        if not row["agrees"]
    ]
    names = ("rank", "quantity", "predicted", "counted", "difference")
    return Card(
        f"Does the trainer's program do what was counted? {data['title']}",
        (
            CardRow(word, _sentence(data["ranks"]), style),
            *([CardTable(names, wrong)] if wrong else []),
        ),
        "--all: FLOPs, collectives and peak memory of each rank",
    )


def oracle_report(data: Mapping[str, Any]) -> RenderableType:
    """Everything `compare --oracle` prints. data: of its JSON."""
    parts: list[RenderableType] = [Text(data["title"], "bold")]
    for of_rank in data["ranks"]:
        stages = ", ".join(map(str, of_rank["stages"]))
        parts += [
            Text(),
            Text(f"rank {of_rank['rank']}, stage {stages}", "bold"),
            quantity_table(of_rank["rows"]),
        ]
        if terms := of_rank["predicted_memory_bytes"]:
            parts += [Text(), _memory(terms)]
        if not of_rank["rows"][-1]["agrees"]:
            parts += [Text(), live(of_rank["live_at_peak"][:LARGEST])]
    return Group(*parts, Text(), Text(_sentence(data["ranks"])))


def quantity_table(quantities: list[Mapping[str, Any]]) -> Table:
    """One quantity a line."""
    table = empty_table("quantity", "predicted", "counted", "difference", "")
    for row in quantities:
        a = row["predicted"]
        b = row["counted"]
        table.add_row(
            row["quantity"],
            value(a, row["unit"]),
            value(b, row["unit"]),
            difference(a, b),
            "" if row["agrees"] else "differs",
        )
    return table


def value(number: float, unit: str) -> str:
    """With as many digits as show an exact count to be exact, as far as a table can."""
    if unit == "B":
        return show(number, "GiB", 5)
    return f"{number:.6e} {unit}" if unit else f"{number:,.0f}"


def difference(predicted: float, counted: float) -> str:
    """Share of what was counted."""
    if predicted == counted:
        return "0"
    return f"{predicted / counted - 1:+.2%}" if counted else "not counted"


def _memory(terms: Mapping[str, float]) -> Table:
    """What the predicted peak is made of."""
    table = empty_table("predicted peak", "bytes")
    for term, size in sorted(terms.items(), key=lambda item: -item[1]):
        table.add_row(term, show(size, "GiB", 4))
    return table


def live(tensors: list[Mapping[str, Any]]) -> Table:
    """What lived at the counted peak."""
    table = empty_table(
        "live at the counted peak, made by", "shape", "", "bytes"
    )
    for x in tensors:
        table.add_row(
            x["made_by"],
            " x ".join(map(str, x["shape"])),
            x["dtype"],
            show(x["bytes"], "GiB", 4),
        )
    return table


def _sentence(ranks: list[Mapping[str, Any]]) -> str:
    """What it comes to."""
    wrong = [
        f"{row['quantity']} of rank {r['rank']}"
        for r in ranks
        for row in r["rows"]
        if not row["agrees"]
    ]
    if not wrong:
        return (
            "the program does what was predicted: FLOPs and collectives exactly, the peak of memory"
            " within 5 %"
        )
    return f"the program differs from the prediction in {', '.join(wrong)}"
