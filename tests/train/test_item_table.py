"""The table of docs/train.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "train.md"
SECTION = "## Requirements for many GPUs"
NAMED = re.compile(r"`([\w./]+)::(test_\w+)`")


def test_every_item_names_a_test_that_is_there() -> None:
    table = DOCS.read_text("utf-8").split(SECTION)[1].split("\n## ")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if "|" in line]
    assert len(rows) > 50
    for asked, answer, tests in rows[2:]:
        named = NAMED.findall(tests)
        assert named, asked
        assert answer.strip().startswith(
            ("works", "refused", "noted", "not yet")
        ), asked
        for file, test in named:
            folder = HERE if "/" not in file else HERE.parent
            path = folder / f"{file.removeprefix('../')}.py"
            assert f"def {test}(" in path.read_text("utf-8"), (file, test)
