"""The tool that shows what a change moves (`tests/tools/corpus.py`): it is quiet where nothing moved
and speaks where something did.

Whether today's answers are those that were frozen is no test: works change numbers on purpose.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("tools") / "corpus.py"
ASKS = (
    "predict llama3-8b --on 16xh100-sxm --batch 64seq --tp 2 --pp 2 --dp 4 --zero 1",
    "predict llama3-8b --on 16xh100-sxm --batch 64seq --tp 3",
    "plan llama3.2-1b --on 4xh100-sxm --batch 64seq",
    "roofline llama3-8b --on 64xtpu-v5e --batch 1M",
    "predict llama3-8b --on 16xh100-sxm --batch 64seq --tp 2 --dp 8 --zero 2 --dp-replicate 2",
)


def run(corpus: Path, *words: str) -> str:
    """What the tool prints."""
    words = (sys.executable, str(SCRIPT), *words, "--corpus", str(corpus))
    return subprocess.run(
        words, check=True, capture_output=True, text=True, env={**os.environ}
    ).stdout


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five questions, answered by this tree."""
    file = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    file.write_text(
        "".join(json.dumps({"ask": ask, "answer": {}}) + "\n" for ask in ASKS),
        "utf-8",
    )
    run(file, "write", "--reason", "a test")
    return file


def test_the_same_tree_gives_the_same_answers(corpus: Path) -> None:
    assert run(corpus, "diff") == "none of 5 answers changed\n"
    head, *rows = map(json.loads, corpus.read_text("utf-8").splitlines())
    assert head["reason"] == "a test" and [row["ask"] for row in rows] == list(
        ASKS
    )
    assert {
        "step_time_s",
        "time_s.compute",
        "memory_bytes.weights",
    } <= set(rows[0]["answer"])
    assert "heads 32 cannot be split 3 ways" in rows[1]["answer"]["refused"]
    assert (
        "1.layout" in rows[2]["answer"] and "hbm_tokens" in rows[3]["answer"]
    )


def test_what_changed_is_shown_by_row_and_summed_up(
    corpus: Path, tmp_path: Path
) -> None:
    """A frozen answer 2 % too small, one that was legal before, and a layout that was another
    one.
    """
    head, *rows = map(json.loads, corpus.read_text("utf-8").splitlines())
    rows[0]["answer"]["time_s.compute"] /= 1.02
    rows[1]["answer"] = {"step_time_s": 1.0}
    rows[2]["answer"]["1.layout"] = "another"
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(map(json.dumps, (head, *rows))), "utf-8")
    text = run(other, "diff")
    assert "3 of 5 answers changed: 2 predict, 1 plan" in text
    assert "(+2 %)" in text and "1 rows: +2 % .. +2 %, median +2 %" in text
    assert (
        "'answered' -> 'meshwright: tp = 3 is invalid" in text
        and "1.layout: 'another' ->" in text
    )
    assert "time_s.compute" not in run(
        other, "diff", "--tolerance", "0.03", "--only", "zero 1"
    )
