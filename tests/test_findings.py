"""Pages that say what their commands print: docs/findings.md, docs/scaling-book.md."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from shell import Shell

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("findings.md", "scaling-book.md")
CELLS = re.compile(r"\s{2,}")


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def claims(name: str) -> list[tuple[str, str, str]]:
    """(page, command, what it prints) for everything behind a `#` of a command."""
    return [
        (name, command.strip(), claim.strip())
        for line in re.findall(r"^meshwright .* # .*$", page(name), re.M)
        for command, *told in [line.split(" # ")]
        for claim in told
    ]


CLAIMS = [claim for name in PAGES for claim in claims(name)]


def printed(output: str, claim: str) -> bool:
    """Whether it holds "ROW | COLUMN | CELL" of a table, or a text."""
    *place, cell = claim.split(" | ")
    if not place:
        return cell in " ".join(output.split())
    row, column = place
    header: list[str] = []
    for line in (CELLS.split(x.strip()) for x in output.splitlines()):
        if column in line:
            header = line
        elif (line[0], len(line)) == (row, len(header)) and (
            line[header.index(column)] == cell
        ):
            return True
    return False


@pytest.mark.parametrize("name", PAGES)
def test_the_text_tells_the_numbers_of_its_commands(name: str) -> None:
    """In the section of the command: the digits, their power may be told once for several."""
    for section in page(name).split("\n## "):
        prose = re.sub(r"^```.*?^```$", "", section, flags=re.M | re.S)
        for line in re.findall(r"^meshwright .* # .*$", section, re.M):
            for claim in line.split(" # ")[1:]:
                digits = re.findall(r"[\d.]+", claim.split(" | ")[-1])[0]
                assert re.search(rf"(?<![\d.]){digits}(?!\d)", prose), claim


OUTPUTS: dict[str, str] = {}
"""What a command printed, for its other claims."""


@pytest.mark.parametrize(
    ("name", "command", "claim"), CLAIMS, ids=[c for *_, c in CLAIMS]
)
def test_a_command_prints_the_number_of_the_page(
    name: str,
    command: str,
    claim: str,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    if command not in OUTPUTS:
        OUTPUTS[command] = shell(command.partition(" ")[2]).out
    assert printed(OUTPUTS[command], claim), OUTPUTS[command]


def cells(*start: str) -> list[str]:
    """Cells of the one row of a table of the findings that starts so."""
    begin = re.escape(" | ".join(start))
    (line,) = re.findall(
        rf"^\| {begin} \|(.*)\|$", page("findings.md"), re.MULTILINE
    )
    return [cell.strip() for cell in line.split("|")]


LEVERS = {
    "chips fail: restarts in 60 s, not 600": 7,
    "chips fail: an NVLink domain of 64, not 8": 5,
    "chips fail: links a quarter faster": 6,
    "chips never fail: an NVLink domain of 64": 1,
    "chips never fail: links a quarter faster": 3,
}
"""Row of the first answer -> column of the table of all conventions."""


@pytest.mark.parametrize("lever", LEVERS)
def test_what_a_lever_is_worth_by_set(lever: str) -> None:
    """The first answer has the cells of the table that `benchmarks/findings.py` makes."""
    sets = ("epoch-2024", "lbl-2024", "realistic")
    made = [cells(name, "as published")[LEVERS[lever]] for name in sets]
    assert cells(lever) == made


def test_the_worth_of_the_domain_is_that_of_all_rows() -> None:
    """ "2 to 173 times over the 21 rows": what the last two rows of the table say."""
    least, most = (cells("all", end)[1] for end in ("least", "most"))
    text = page("findings.md")
    rows = re.findall(
        r"^\| (?:epoch-2024|lbl-2024|realistic) \|(?: [^|]+ \|){9}$",
        text,
        re.M,
    )
    ends = (math.floor(float(end.rstrip("x")) + 0.5) for end in (least, most))
    low, high = ends
    text = " ".join(text.split())
    assert f"is {low} to {high} times over the {len(rows)} rows" in text
    assert f"{most.rstrip('x')} times under `realistic`" in text


def test_the_table_of_one_job_is_what_its_command_prints() -> None:
    text = page("findings.md")
    lines = re.findall(r"^\| lbl-2024 \| ([\d.]+ s) \|", text, re.M)
    assert len(lines) == 2 and {"24.5 s"} == set(lines)
    assert any(claim == "24.5 s" for *_, claim in CLAIMS)
