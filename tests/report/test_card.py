"""A card: at most 14 lines that fit, whatever is said; commands that can be copied."""

from __future__ import annotations

import io
import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from meshwright import Job, Layout
from meshwright.formats.bridge import read_file
from meshwright.report.card import (
    LEAST,
    MOST,
    NARROW,
    WIDE,
    Card,
    CardRow,
    CardTable,
    Commands,
)
from meshwright.report.read import reading_card
from meshwright.report.sweep import sweep_card
from meshwright.sweep import sweep

WORDS = st.text("abc ;:,(", min_size=1, max_size=300)
ROWS = st.builds(
    CardRow,
    st.text("abc", min_size=1, max_size=7),
    WORDS,
    st.just(""),
    st.integers(1, 9),
    st.integers(1, 3),
)


def printed(card: Card, **console: object) -> list[str]:
    """The lines of a card as a console prints them."""
    out = io.StringIO()
    Console(file=out, highlight=False, **console).print(card)  # type: ignore[arg-type]
    return out.getvalue().splitlines()


@settings(max_examples=200, deadline=None)
@given(st.lists(ROWS, max_size=20), st.integers(LEAST + 10, WIDE))
def test_a_card_has_at_most_14_lines_that_fit(
    rows: list[CardRow], width: int
) -> None:
    lines = Card("a question", tuple(rows), "--why: more").lines(width)
    assert len(lines) <= MOST
    assert all(len(line) <= max(width, max_word(rows) + 12) for line in lines)
    assert lines[0].plain == "a question" and "--why" in lines[-1].plain


def max_word(rows: list[CardRow]) -> int:
    """Characters of the longest word: words are never broken."""
    return max(
        (len(word) for row in rows for word in row.text.split()), default=0
    )


def test_rows_of_the_highest_rank_give_way_first() -> None:
    rows = [CardRow(f"r{rank}", "words", rank=rank) for rank in range(20)]
    labels = [
        line.plain.split()[0] for line in Card("q", tuple(rows)).lines(80)[1:]
    ]
    assert labels == [f"r{rank}" for rank in range(MOST - 1)]


def test_room_that_a_long_row_leaves_is_filled_by_a_short_one() -> None:
    """Of 14 lines the question takes one and twelve rows twelve: two lines do not fit, one does."""
    first = [CardRow("a", "words") for _ in range(12)]
    rows = (
        *first,
        CardRow("long", "word " * 20, rank=1),
        CardRow("b", "w", rank=2),
    )
    labels = [x.plain.split()[0] for x in Card("q", rows).lines(80)[1:]]
    assert labels == [*"a" * 12, "b"]


def test_what_has_no_rank_stays_even_where_the_card_is_full() -> None:
    rows = tuple(CardRow("r", "words") for _ in range(20))
    assert len(Card("q", rows).lines(80)) == 21


def test_a_pipe_has_80_columns_and_a_terminal_at_most_100() -> None:
    card = Card("q", (CardRow("row", "word " * 60, most=9),))
    assert max(map(len, printed(card, width=240))) <= NARROW
    for columns, most in ((60, 60), (90, 90), (300, WIDE)):
        lines = printed(
            card, width=columns, force_terminal=True, no_color=True
        )
        assert most - 8 <= max(len(plain(line)) for line in lines) <= most


def plain(line: str) -> str:
    """Without the codes of bold letters."""
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def test_a_long_command_goes_on_behind_a_backslash() -> None:
    words = ["meshwright", "sweep", "--over", "a=100 Gbit/s,400 Gbit/s"]
    words += [w for i in range(9) for w in (f"--flag-{i}", "value of it")]
    lines = printed(Card("q", (Commands((shlex.join(words),)),)))
    assert len(lines) > 3 and all(len(line) <= NARROW for line in lines)
    text = "\n".join(lines[1:]).replace("  next ", "", 1)
    assert shlex.split(text.replace("\\\n", " ")) == words


def test_a_sentence_that_is_too_long_ends_at_a_clause() -> None:
    text = "eight nodes of the cluster do nothing at all here; since " + (
        "a long reason " * 20
    )
    (_, line) = printed(Card("q", (CardRow("note", text, most=1),)))
    assert line == (
        "  note    eight nodes of the cluster do nothing at all here ..."
    )


@pytest.mark.parametrize("width", [50, 80, 100])
def test_a_table_shows_the_columns_that_fit(width: int) -> None:
    names = ("name", *(f"number {i}" for i in range(9)), "words")
    row = ("a", *(f"{i}.25" for i in range(9)), "some words that are many")
    lines = [line.plain for line in CardTable(names, [row] * 3).lines(width)]
    assert all(len(line) <= width for line in lines)
    shown = lines[0].count("number")
    assert 1 <= shown < 9 and lines[1].count(".25") == shown
    assert lines[0].split()[-1] == "words" and "some words" in lines[1]


def test_of_many_rows_a_table_shows_the_ends_and_some_between() -> None:
    rows = [(str(i), f"{i * i}", "") for i in range(100)]
    lines = [
        line.plain.split()
        for line in CardTable(("n", "sq", ""), rows).lines(80)
    ]
    assert [line[0] for line in lines[1:]] == [
        "0",
        *lines_between(lines),
        "99",
    ]
    assert len(lines) == 8


def lines_between(lines: list[list[str]]) -> list[str]:
    """First cells of the rows that are neither first nor last."""
    return [line[0] for line in lines[2:-1]]


def test_no_unicode_where_there_is_none() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    card = Card("tp 8 · pp 4", (CardRow("layout", "tp 8 · ZeRO-1"),))
    Console(file=out, highlight=False).print(card)
    out.flush()
    assert out.buffer.getvalue() == (  # type: ignore[attr-defined]
        b"tp 8, pp 4\n  layout  tp 8, ZeRO-1\n"
    )


def test_a_file_that_leaves_much_open_has_a_card_of_14_lines() -> None:
    """Five needs of three lines each, as scripts have them that take all by position."""
    text = "torchrun pretrain_gpt.py --num-layers $1 --bf16"
    reading = read_file("a.sh", text)
    needs = [f"leaves this {n} to how it is called " * 6 for n in range(5)]
    lines = reading_card(reading, "a.sh", None, needs, {}).lines(NARROW)
    assert len(lines) <= MOST
    said = [line.plain for line in lines]
    assert all(any(f"this {n} " in line for line in said) for n in range(5))


def test_notes_above_a_sweep_take_their_lines_from_its_table() -> None:
    """The first and the last value stay."""
    job = Job("llama3-8b", "64xh100-sxm", 512, tokens=1e12)
    job = replace(job, layout=Layout(dp=64, zero=3))
    found = sweep(job, "chips", ["8..512"], fixed=True)
    note = "batch: 4,000,000 tokens rounded to 488 sequences"
    lines = [line.plain for line in sweep_card(found, (note,)).lines(80)]
    assert len(lines) == MOST
    assert any(line.startswith("  batch   4,000,000") for line in lines)
    assert {"8", "512"} <= {line.split()[0] for line in lines}
