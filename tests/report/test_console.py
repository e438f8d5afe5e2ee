"""Where output goes, and that nothing of a table is lost on the way."""

from __future__ import annotations

import io
import json

import pytest

from meshwright.report.console import (
    envelope,
    needed,
    progress,
    show,
    show_json,
)
from meshwright.report.tables import text_table

LONG = "words that may be folded, and folded again, until they fit"


class Terminal(io.StringIO):
    """A terminal that records."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def table() -> object:
    t = text_table(["name", *(f"number {i}" for i in range(12)), "note"])
    t.add_row("first", *(f"{i}.123456 GiB" for i in range(12)), LONG)
    return t


def test_texts_stand_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets and colons are letters: a model may write them, and a file's keys have them."""
    words = "a [b] of [/b] :smile: [bold]"
    table = text_table(["[key]"])
    table.add_row(words)
    show(words, table)
    told = capsys.readouterr().out
    assert told.count(words) == 2 and "[key]" in told


@pytest.mark.parametrize("columns", [20, 80, 300])
def test_numbers_are_never_cut(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    show(table())  # type: ignore[arg-type]
    text = terminal.getvalue()
    assert (
        all(
            f"{i}.123456 GiB" in text and f"number {i}" in text
            for i in range(12)
        )
        and "…" not in text
    )
    assert (LONG in text) == (columns == 300), "only text folds"


def test_what_a_table_needs() -> None:
    t = text_table("ab | c | note")
    t.add_row("abcd", "x", "y" * 50)
    assert needed(t) == (4 + 2) + (1 + 2) + (20 + 2)


def test_json_has_one_schema(capsys: pytest.CaptureFixture[str]) -> None:
    show_json(envelope("predict", {"schema": 1, "step_time_s": 2.5}))
    assert json.loads(capsys.readouterr().out) == {
        "schema": "meshwright/4",
        "verb": "predict",
        "step_time_s": 2.5,
    }
    with pytest.raises(ValueError):
        show_json({"x": float("nan")})


def test_a_bar_needs_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress() as told:
        told("soon", 0.5)
    assert capsys.readouterr().err == ""  # a line comes after a while
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress() as told:
        assert told is not None
        told("working", 0.5)
    assert "working" in terminal.getvalue()
