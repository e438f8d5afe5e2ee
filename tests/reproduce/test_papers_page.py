"""docs/papers.md counts what it lists, and says what the checks say."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from meshwright_studies.report.results import FIRST
from meshwright_studies.reproduce.megatron import plans, tables

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "site"))

import snippets  # noqa: E402

PAGE = (DOCS / "papers.md").read_text("utf-8")
ITEMS = {"L": 60, "E": 50, "B": 40, "M": 51}
"""Items of each paper, by the letter of their names."""
STATES = ("works", "shown", "not here", "partly")
"""First words of a row's second cell, in the order of the columns of the table of counts."""


def rows() -> list[tuple[list[str], str]]:
    """(names of the items, state) of every row of the table of items."""
    lines = (line.split(" | ") for line in PAGE.splitlines())
    return [
        (re.findall(r"\b[LEBM]\d+", cells[0]), cells[1])
        for cells in lines
        if re.match(r"\| [LEBM]\d", cells[0])
    ]


def test_every_row_has_a_state_and_no_item_stands_twice() -> None:
    every = [name for names, _ in rows() for name in dict.fromkeys(names)]
    assert len(every) == len(set(every)) > 50
    assert all(state.startswith(STATES) for _, state in rows())


@pytest.mark.parametrize("letter", ITEMS)
def test_counts_are_those_of_the_rows(letter: str) -> None:
    """What is not listed works."""
    count = Counter(
        next(word for word in STATES if state.startswith(word))
        for names, state in rows()
        for name in dict.fromkeys(names)
        if name[0] == letter
    )
    others = sum(count[word] for word in STATES[1:])
    counts = [
        ITEMS[letter],
        ITEMS[letter] - others,
        *(count[word] for word in STATES[1:]),
    ]
    assert " | ".join(map(str, counts)) in PAGE


def test_the_last_row_is_the_sum_and_the_strict_count_takes_what_it_names() -> (
    None
):
    cells = re.findall(r"\| (?:\d+ \| ){4}\d+ \|", PAGE)
    *papers, total = (
        [int(n) for n in re.findall(r"\d+", row)] for row in cells
    )
    assert len(papers) == len(ITEMS)
    assert total == [sum(column) for column in zip(*papers, strict=True)]
    text = " ".join(PAGE.split())
    strict = text.partition("A strict reader may count three more")[2][:200]
    assert len(re.findall(r"[LEBM]\d+", strict)) == 3
    assert f"then {total[1] - 3} work and {total[2] + 3} are shown" in strict


def test_the_printed_degrees_are_counted_as_they_are_planned() -> None:
    same = sum(
        p.best.layout.tp == p.printed.tp for p in plans.planned_models()
    )
    (state,) = [state for names, state in rows() if names[0] == "M10"]
    assert f"is the printed one in {same} (" in state
    words = {3: "three", 4: "four", 5: "five", 6: "six"}
    text = " ".join((DOCS / "reproduce.md").read_text("utf-8").split())
    assert f"is the printed one for {words[same]}" in text


def test_zero_3_is_behind_without_a_number_of_its_own_rows() -> None:
    (state,) = [state for names, state in rows() if "M30" in names]
    pairs = tables.table_2_pairs()
    ahead = sum(pair.over > 1 for pair in pairs)
    assert state.startswith(f"shown: ahead in {ahead} of {len(pairs)} pairs")
    leads = [f"{pair.over - 1:.0%}".replace("%", " %") for pair in pairs]
    few, twice = leads[::3], leads[1::3]
    assert f"{' and '.join(few)}, then {' and '.join(twice)}" in state
    most = max(abs(p.zero3_predicted / p.zero3_printed - 1) for p in pairs)
    assert f"each within {100 * most:.0f} %" in state


EXAMPLES = [s.text for s in snippets.snippets(PAGE) if s.language == "console"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_prints_what_the_page_says(example: str) -> None:
    """Each line below a command, wherever the terminal wraps it."""
    command, *lines = example.splitlines()
    text = " ".join(snippets.output(command.removeprefix("$ ")).split())
    assert lines
    for line in lines:
        assert " ".join(line.split()) in text, line


def test_each_paper_has_an_example_and_a_command_for_its_figures() -> None:
    doors = PAGE.partition("## What works")[0].split("\n## ")[1:]
    assert len(doors) == len(ITEMS)
    for door, paper in zip(
        doors, ("megatron", "lbl", "epoch", "scaling-book"), strict=True
    ):
        assert "```console" in door, paper
        assert f"meshwright reproduce {paper} -o results" in door


def test_readme_terminal_and_page_begin_with_the_same_picture() -> None:
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    for paper, first in FIRST.items():
        command = f"`meshwright reproduce {paper} -o results`"
        assert f"{command} | {first}.png: " in readme
        begins = f"{command}; begin with `{first}`"
        assert begins in " ".join(PAGE.split()), paper
