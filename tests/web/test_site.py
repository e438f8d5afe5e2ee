"""The page as a folder: the same program without a server, and its first answers without it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from meshwright.errors import BadInput
from meshwright.search import selectors
from meshwright.web import alone, answers, page, recorded, site

JOBS = [
    {
        "model": "llama3-8b",
        "on": "8xh100-sxm",
        "batch": "64seq",
        "tokens": "1T",
    },
    {"model": "gpt2-xl", "on": "16xa100-80", "batch": "128seq", "tp": "1,2"},
    {"model": "llama3-8b", "on": "16xtpu-v5p", "batch": "64seq"},
]
ASK = """
import json, sys
from meshwright.web.alone import answer
assert not {"torch", "starlette", "uvicorn", "cyclopts"} & {*sys.modules}
for job in json.load(sys.stdin):
    print(answer("plan", json.dumps({"question": job, "families": False, "top": 1})))
"""


def told(*_: object) -> None:
    """Nobody listens."""


def test_the_program_of_the_folder_gives_the_numbers_of_this_one(
    tmp_path: Path,
) -> None:
    """Unpacked as the worker unpacks it, alone in another process."""
    with zipfile.ZipFile(io.BytesIO(site.package())) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path)
    assert not [name for name in names if "/train/" in name or "/cli/" in name]
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        input=json.dumps(JOBS),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for job, line in zip(JOBS, done.stdout.splitlines(), strict=True):
        here = answers.plan(
            {"question": job, "families": False, "top": 1}, told
        )
        assert json.loads(line)["best"] == json.loads(json.dumps(here["best"]))


def test_what_is_wrong_is_a_sentence() -> None:
    for name, body in (
        ("nothing", "{}"),
        ("plan", '{"question": 1}'),
        ("plan", "[]"),
    ):
        assert set(json.loads(alone.answer(name, body))) == {"error"}
    (line,) = alone.lines(
        "clusters", json.dumps({"question": JOBS[0], "clusters": []})
    )
    assert "clusters must be a list" in json.loads(line)["error"]


def test_a_folder_opens_with_its_first_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "CHIPS", ["h100-sxm"])
    monkeypatch.setattr(recorded, "SCENARIOS", ["h100"])
    monkeypatch.setattr(
        selectors, "choices_of", lambda job, layout: {"tp": (1, 2)}
    )
    monkeypatch.setattr(answers, "changes_of", lambda job: ())
    question = {"model": "llama3-8b", "on": "8xh100-sxm", "batch": "4Mi"}
    monkeypatch.setattr(site, "OPENING", question)
    engine = tmp_path / "pyodide"
    engine.mkdir()
    (engine / "pyodide.mjs").write_text("")
    lock = {n: {"file_name": f"{n}.whl"} for n in site.PACKAGES}
    (engine / "pyodide-lock.json").write_text(json.dumps({"packages": lock}))
    with pytest.raises(BadInput, match=r"it has no numpy\.whl"):
        site.write(tmp_path / "out", engine, told)
    for name in site.PACKAGES:
        (engine / f"{name}.whl").write_text("")
    folder = tmp_path / "out"
    names = site.write(folder, engine, told)
    assert {
        "index.html",
        "page.js",
        "worker.js",
        "style.css",
        "pyodide",
        "meshwright.zip",
    } <= {*names}
    html = (folder / "index.html").read_text("utf-8")
    assert "content-security-policy" in html
    found = re.search(r'id="first">(.*?)</script>', html, re.S)
    assert found
    held = json.loads(found[1])
    best = next(v for k, v in held["answers"].items() if k.startswith("plan"))[
        "best"
    ]
    here = answers.plan({"question": question}, told)["best"]
    assert best["step_time_s"] == here["step_time_s"]
    assert page.key("catalogue", {}) in held["answers"]
    site.write(tmp_path / "alone", None, told)
    alone = (tmp_path / "alone" / "index.html").read_text("utf-8")
    assert 'id="recorded"' in alone, "without the program: these only"


def test_a_folder_that_is_not_pyodides(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no folder of Pyodide"):
        site.write(tmp_path / "out", tmp_path, told)
    assert not (tmp_path / "out").exists()
