"""What reproduce and validate print."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console, RenderableType

from meshwright_studies.report.results import (
    reproduced,
    reproduced_card,
    validated,
)
from meshwright_studies.reproduce import STATUSES
from meshwright_studies.validate import RowComparison, Validation


def printed(part: RenderableType) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(part)
    return console.export_text()


def test_reproduced_shows_the_worst_first() -> None:
    checks = [
        {
            "id": "fine",
            "published": 1.0,
            "computed": 1.001,
            "rel_diff": 1e-3,
            "status": "match",
            "note": "",
        },
        {
            "id": "bad",
            "published": 1.0,
            "computed": 2.0,
            "rel_diff": 1.0,
            "status": "mismatch",
            "note": "why",
        },
        {
            "id": "odd",
            "published": None,
            "computed": None,
            "rel_diff": None,
            "status": "erratum",
            "note": "misprint",
        },
    ]
    data = {"paper": "lbl", "checks": checks, "notes": ["a note"]}
    text = printed(reproduced(data))
    assert text.index("bad") < text.index("odd") < text.index("fine")
    assert all(words in text for words in ("+100 %", "misprint", "a note"))


def test_a_statement_reads_yes_or_no_and_a_count_as_a_number() -> None:
    one = {"status": "mismatch", "note": "", "rel_diff": -1.0, "computed": 0.0}
    checks = [
        {**one, "id": "said", "published": 1.0},
        {**one, "id": "counted", "published": 1},
    ]
    summary = dict.fromkeys(STATUSES, 0) | {"mismatch": 2, "match": 3}
    summary |= {"worst_match": 0.0, "by_source": {"printed": 5}}
    data = {"paper": "lbl", "checks": checks, "summary": summary}
    card = printed(reproduced_card(data))
    assert "against 5 printed in the paper" in " ".join(card.split())
    (said,) = (line for line in card.splitlines() if " said " in line)
    (counted,) = (line for line in card.splitlines() if " counted " in line)
    assert said.split() == ["said", "yes", "no", "mismatch"]
    assert counted.split()[:3] == ["counted", "1", "0"]
    assert card.count("2 mismatch") == 1
    # where to begin stands, whatever gives way
    written = {
        "figures": ["lbl-fig-4a", "lbl-fig-5a"],
        "tables": [],
        "notes": ["one", "two", "three", "four", "five"],
        "checks": checks * 3,
    }
    card = printed(reproduced_card(data | written, "results"))
    assert "begin with lbl-fig-4a.png" in card


def test_validated_shows_every_table_and_what_was_skipped() -> None:
    """A run at 1.1 times what it measured, a run that ran out, and one of no chip."""
    run = RowComparison("a", "someone", "step_time", 1.1, 1.0, (1.0, 1.2))
    text = printed(
        validated(
            Validation(
                (
                    run,
                    replace(run, quantity="out_of_memory", predicted=0.75),
                    replace(run, quantity=None, skipped="no chip"),
                )
            )
        )
    )
    for title, *words in (
        ("Time, by source", "someone", "10.0%", "+10.0%"),
        ("Out of memory", "someone", "1", "0"),
        ("Skipped rows", "no chip", "1"),
    ):
        below = text.partition(f"{title}\n")[2].partition("\n\n")[0]
        assert all(word in below for word in words), title
