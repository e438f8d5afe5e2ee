"""The page as a folder: the same program without a server, and its first answers without it."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from hashlib import sha256
from importlib import resources
from pathlib import Path

import pytest
from asking import FEW, told

from meshwright.web import alone, answers, page, prerendered, pyodide, site
from refusals import refusal

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
from meshwright.web.alone import json_answer
assert not {"torch", "starlette", "uvicorn", "cyclopts"} & {*sys.modules}
for job in json.load(sys.stdin):
    print(json_answer("plan", json.dumps({"question": job, "families": False, "top": 1})))
"""


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
        here = answers.answer_plan(
            {"question": job, "families": False, "top": 1}, told
        )
        assert json.loads(line)["best"] == json.loads(json.dumps(here["best"]))


def test_the_worker_asks_for_what_there_is() -> None:
    """The Python that a text of the worker's script holds."""
    script = resources.files("meshwright.web").joinpath("static/worker.js")
    (names,) = re.findall(
        r"from meshwright\.web\.alone import ([\w, ]+)",
        script.read_text("utf-8"),
    )
    assert len(names.split(", ")) == 2
    assert all(hasattr(alone, name) for name in names.split(", "))


def test_what_is_wrong_is_a_sentence() -> None:
    for name, body in (
        ("nothing", "{}"),
        ("plan", '{"question": 1}'),
        ("plan", "[]"),
    ):
        assert set(json.loads(alone.json_answer(name, body))) == {"error"}
    (line,) = alone.lines(
        "clusters", json.dumps({"question": JOBS[0], "clusters": []})
    )
    assert "clusters must be a list" in json.loads(line)["error"]


def test_a_folder_opens_with_its_first_answers(
    tmp_path: Path, stand_in: Path
) -> None:
    folder = tmp_path / "out"
    names = site.write_site(folder, stand_in, told, FEW)
    assert {
        "index.html",
        "page.js",
        "worker.js",
        "style.css",
        "pyodide",
        "meshwright.zip",
        "answers.gz",
    } <= {*names}
    assert {file.name for file in (folder / "pyodide").iterdir()} == {
        *pyodide.CORE,
        "numpy.whl",
        "rich.whl",
    }
    html = (folder / "index.html").read_text("utf-8")
    assert "content-security-policy" in html
    found = re.search(r'id="first">(.*?)</script>', html, re.S)
    assert found
    held = json.loads(found[1])
    best = next(v for k, v in held["answers"].items() if k.startswith("plan"))[
        "best"
    ]
    here = answers.answer_plan({"question": site.OPENING}, told)["best"]
    assert best["step_time_s"] == here["step_time_s"]
    assert page.key("catalogue", {}) in held["answers"]
    (stand_in / "numpy.whl").unlink()
    with refusal(r"it has no numpy\.whl"):
        site.write_site(tmp_path / "none", stand_in, told, FEW)
    site.write_site(tmp_path / "alone", None, told)
    alone = (tmp_path / "alone" / "index.html").read_text("utf-8")
    assert 'id="recorded"' in alone, "without the program: these only"


def test_a_folder_that_is_not_pyodides(tmp_path: Path) -> None:
    with refusal("is not a folder of Pyodide"):
        site.write_site(tmp_path / "out", tmp_path, told, FEW)
    assert not (tmp_path / "out").exists()


def test_what_is_worked_out_beforehand_is_what_a_plan_says() -> None:
    """In seven digits; what fits nowhere has no row."""
    over = prerendered.KeyRange(["llama3-8b"], ["h100-sxm"], [1, 64])
    told_rows = json.loads(gzip.decompress(prerendered.compressed(over, told)))
    assert (told_rows["batch"], told_rows["tokens"]) == ("4Mi", "15T")
    (size, row), *more = told_rows["rows"]["llama3-8b"]["h100-sxm"].items()
    assert size == "64" and not more
    question = {**site.OPENING, "model": "llama3-8b", "on": "64xh100-sxm"}
    best = answers.answer_plan({"question": question, "top": 1}, told)["best"]
    assert row["best"]["step_time_s"] == pytest.approx(
        best["step_time_s"], rel=1e-6
    )
    assert row["best"]["layout"] == best["layout"]
    assert row["best"]["layout_words"] == best["layout_words"]


def test_files_are_taken_by_their_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another hash has is refused; what lies there already is not asked for."""
    lock = {n: {"file_name": f"{n}.whl"} for n in pyodide.WHEELS}
    content = {
        name: name.encode()
        for name in (*pyodide.CORE, "numpy.whl", "rich.whl")
    }
    content[pyodide.LOCK] = json.dumps({"packages": lock}).encode()
    digests = {
        name: sha256(data).hexdigest() for name, data in content.items()
    }
    monkeypatch.setattr(pyodide, "CORE", {n: digests[n] for n in pyodide.CORE})
    wheels = {n: digests[f"{n}.whl"] for n in pyodide.WHEELS}
    monkeypatch.setattr(pyodide, "WHEELS", wheels)
    asked = []

    def read(address: str) -> bytes:
        asked.append(address)
        return content[address.rpartition("/")[2]]

    pyodide.fetch(tmp_path, read)
    assert len(asked) == len(content) == len(pyodide.files(tmp_path))
    assert all(address.startswith("https://") for address in asked)
    pyodide.fetch(tmp_path, read)
    assert len(asked) == len(content)
    (tmp_path / "numpy.whl").write_bytes(b"another")
    with refusal(r"numpy\.whl is not the file that is pinned"):
        pyodide.fetch(tmp_path, read)

    def offline(address: str) -> bytes:
        raise OSError("no network")

    with refusal("cannot be fetched: no network"):
        pyodide.fetch(tmp_path / "empty", offline)


def test_a_hash_has_its_length() -> None:
    for digest in (*pyodide.CORE.values(), *pyodide.WHEELS.values()):
        assert re.fullmatch("[0-9a-f]{64}", digest)
