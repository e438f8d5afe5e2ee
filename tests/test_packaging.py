"""What a package index, a citation and an old Python meet."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import meshwright
from meshwright.cli import main

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "project"
]


def test_the_citation_knows_the_version_and_the_licence() -> None:
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"version: {meshwright.__version__}\n" in text
    assert f"license: {PROJECT['license']}\n" in text


def test_studies_are_of_the_same_version() -> None:
    studies = tomllib.loads((ROOT / "studies/pyproject.toml").read_text())
    version = meshwright.__version__
    assert studies["project"]["version"] == version
    assert studies["project"]["dependencies"] == [
        f"meshwright[plot]=={version}"
    ]
    extra = PROJECT["optional-dependencies"]["studies"]
    assert extra == [f"meshwright-studies=={version}"]


def test_the_product_never_imports_studies() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        assert "meshwright_studies" not in file.read_text("utf-8"), file


def test_a_verb_of_studies_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "VERBS", ["plan"])
    assert main.main(["reproduce"]) == 2
    assert "meshwright[studies]" in capsys.readouterr().err


def test_an_old_python_is_told_kindly() -> None:
    """Python 3.10 has no tomllib: one sentence, no traceback."""
    code = (
        "import sys, runpy; sys.modules['tomllib'] = None;"
        f"sys.argv = ['run.py', 'plan']; runpy.run_path({str(ROOT / 'run.py')!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert (
        "needs Python 3.11" in done.stderr and "Traceback" not in done.stderr
    )


def test_only_what_runs_pytorch_waits_for_it() -> None:
    """A script for another tool is text; PyTorch takes minutes to install."""
    import runpy

    needs = runpy.run_path(str(ROOT / "run.py"), run_name="run")["needs_torch"]
    assert needs(["train", "a.toml"]) and needs(["validate", "--oracle"])
    assert needs(["export", "run", "--to", "safetensors"])
    assert not needs(["export", "plan.toml", "--to", "megatron"])
    assert not needs(["plan", "llama3-8b"]) and not needs([])


def test_extras_are_what_the_sentences_name() -> None:
    """Every `pip install 'meshwright[x]'` in the source is an extra of the project."""
    named: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        named |= set(
            re.findall(r"meshwright\[(\w+)\]", file.read_text("utf-8"))
        )
    assert named and named <= set(PROJECT["optional-dependencies"])


def test_data_of_the_catalogue_is_in_the_package() -> None:
    """Files that are opened at run time lie below the package, with suffixes that hatch takes."""
    home = ROOT / "src" / "meshwright" / "catalog"
    assert (home / "bridges.toml").is_file()
    ignored = (ROOT / ".gitignore").read_text("utf-8").split()
    assert not [p for p in ignored if p.endswith((".toml", ".json", ".csv"))]


def test_planning_needs_nothing_of_posix(tmp_path: Path) -> None:
    """Without the modules that Windows lacks a plan is made, exported and predicted, and the page's
    server is imported.
    """
    lacking = ("fcntl", "resource", "termios", "pwd", "grp", "tty", "pty")
    code = f"""
import os, sys
sys.modules.update(dict.fromkeys({lacking!r}))
for name in ("fork", "getuid", "getpgid", "killpg", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
from meshwright.cli.main import run
import meshwright.web.app, meshwright.web.workers
plan = {str(tmp_path / "plan.toml")!r}
assert run(["plan", "llama3-8b", "--on", "64xh100-sxm", "--batch", "1Mi", "-o", plan]) == 0
assert run(["export", plan, "--to", "megatron"]) == 0
assert run(["predict", plan]) == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
