"""The examples of docs/extend.md, added to a copy of the package as they are written: what they add
is predicted and planned with, and the tests that judge it pass.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extend.md").read_text("utf-8")
BLOCK = re.compile(r"^~~~\w+\n# (\S+?), (.+?)\n(.*?)^~~~$", re.M | re.S)


class Example(NamedTuple):
    """One block of the page."""

    file: str
    place: str
    """a new file; at its end; below: LINE, above: LINE."""
    text: str


def examples() -> Iterator[Example]:
    """All of the page, in order."""
    for found in BLOCK.finditer(PAGE):
        yield Example(*found.groups())


def add(example: Example, root: Path) -> None:
    """Write an example into a copy of the repository, unless whoever follows the page has already."""
    path = root / example.file
    if example.place == "a new file":
        if path.exists():
            assert path.read_text("utf-8") == example.text, path
        path.write_text(example.text, "utf-8")
        return
    text = path.read_text("utf-8")
    if example.text.strip() in text:
        return
    if example.place == "at its end":
        path.write_text(f"{text}\n{example.text}", "utf-8")
        return
    where, _, line = example.place.partition(": ")
    lines = text.splitlines()
    at = [i for i, one in enumerate(lines) if one.strip() == line]
    assert len(at) == 1, f"{example.file} has {len(at)} lines {line}"
    lines.insert(at[0] + (where == "below"), example.text.rstrip("\n"))
    path.write_text("\n".join(lines) + "\n", "utf-8")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, its tests and the documentation's makers, with all examples."""
    root = tmp_path_factory.mktemp("extended")
    drop = shutil.ignore_patterns("__pycache__")
    for folder in ("src", "docs", "tests"):
        shutil.copytree(ROOT / folder, root / folder, ignore=drop)
    shutil.copy(ROOT / "pyproject.toml", root)
    for example in examples():
        add(example, root)
    return root


def run(root: Path, *words: str) -> str:
    """What Python prints with the copy in place of the package."""
    folders = root / "src", root / "tests", ROOT / "studies" / "src"
    found = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    return found.stdout


def test_every_guide_has_an_example() -> None:
    files = [example.file.split("/")[-1] for example in examples()]
    assert files.count("nvidia.toml") == 2
    assert {"eager.py", "doubling.py", "assumptions.py", "my_ep.py"} <= {
        *files
    }
    assert len(files) == PAGE.count("\n~~~") // 2, "a block is not understood"


ASKED = """
import json, sys
from meshwright import Job, Layout, plan, predict
from meshwright.describe.assumptions import SETS, NetworkTime
from meshwright.describe.software import Software
from meshwright.search import Space
import dataclasses

def step(**words):
    layout = Layout(tp=2, pp=4, dp=2, microbatch=1, **words.pop("layout", {}))
    job = Job("llama3-8b", "16xmy-chip", 64, **words)
    return predict(job, layout)

usual = step()
eager = step(layout={"schedule": "eager-1f1b"})
mine = step(assumptions=SETS["my-paper"])
real = SETS["realistic"]
doubling = NetworkTime("doubling", efficiency=0.8, hop="mean")
experts = [
    predict(Job("qwen3-30b-a3b", "8xh100-sxm", 64, software=Software(dispatcher=name)),
            Layout(dp=8, ep=8, zero=1)).time_s["ep_comm"]
    for name in ("my-ep", "deepep")
]
rounds = step(assumptions=dataclasses.replace(real, name="rounds", network=doubling))
best = plan(Job("llama3-8b", "16xmy-chip", 64, assumptions=SETS["my-paper"])).best
found = plan(Job("llama3-8b", "16xmy-chip", 64), Space(schedule=("eager-1f1b",), pp=(4,))).best
sys.path.insert(0, "docs/site")
import formulas, sets
(law,) = sets.LAWS["network", "doubling"]
print(json.dumps({
    "equation": formulas.function(law)[2],
    "notes": usual.notes,
    "seconds": [p.step_time_s for p in (usual, eager, mine, rounds)],
    "bubble": [p.time_s["bubble"] for p in (usual, eager)],
    "memory": [p.memory_bytes["activations"] for p in (usual, eager)],
    "kept": [doubling.efficiency, doubling.hop],
    "experts": experts,
    "plan": [best.step_time_s, found.layout.schedule],
}))
"""


def test_what_is_added_is_predicted_and_planned_with(extended: Path) -> None:
    found = json.loads(run(extended, "-c", ASKED))
    assert any("my-chip" in note for note in found["notes"]), "unmeasured"
    usual, eager, mine, rounds = found["seconds"]
    assert 0 < mine < usual, "half of the peak is more than runs reach"
    assert rounds > 0
    # eager 1F1B fills as 1F1B does, and its first rank keeps 2 p - 1 = 7 microbatches for p = 4
    assert eager == pytest.approx(usual, rel=0.03)
    assert 1.4 < found["memory"][1] / found["memory"][0] <= 7 / 4
    assert found["equation"] == "src/meshwright/cost/collectives/doubling.py"
    assert found["kept"] == [0.8, "mean"]
    # 0.6 of a link's rate in place of DeepEP's 0.85, which it reaches or less
    assert 1.1 < found["experts"][0] / found["experts"][1] < 0.85 / 0.6
    assert found["plan"][0] > 0 and found["plan"][1] == "eager-1f1b"


JUDGES = (
    "tests/schedule",
    "tests/catalog/test_catalog.py",
    "tests/cost/test_collective_laws.py",
    "tests/count/test_exchange.py",
)
"""The tests that go over all chips and networks, algorithms, schedules, dispatchers."""
ADDED = ("my-chip", "my-node", "eager-1f1b", "doubling", "my-ep")


def test_the_tests_that_judge_them_pass(extended: Path) -> None:
    printed = run(
        extended,
        *("-m", "pytest", "-vv", "-p", "no:cacheprovider"),
        *("-k", " or ".join(ADDED), *JUDGES),
    )
    for name in ADDED:
        assert f"[{name}" in printed or f"-{name}" in printed, name
