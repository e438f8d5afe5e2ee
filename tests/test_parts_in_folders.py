"""What lies in a folder is known, and no list names it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from meshwright import parts
from meshwright.exchange import EXCHANGES, Exchange

PACKAGE = Path(parts.__file__).parent
PRINTED = """
from meshwright import Job, Layout, predict
from meshwright.cost.network import NAMED
from meshwright.exchange import DISPATCHERS, EXCHANGES
from meshwright.schedule import SCHEDULES
print(*NAMED, *SCHEDULES, *EXCHANGES, *DISPATCHERS)
"""


def printed(*path: Path) -> str:
    """What is known there, in order."""
    return subprocess.run(
        [sys.executable, "-c", PRINTED],
        env={"PYTHONPATH": ":".join(map(str, path))},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_zip_has_the_same_parts_in_the_same_order(tmp_path: Path) -> None:
    archive = tmp_path / "meshwright.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file in sorted(PACKAGE.rglob("*")):
            if "__pycache__" not in file.parts:
                out.write(file, file.relative_to(PACKAGE.parent))
    assert printed(archive) == printed(PACKAGE.parent)


def test_a_copied_file_that_kept_its_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "meshwright" / "exchange"
    copied.mkdir(parents=True)
    shutil.copy(PACKAGE / "exchange" / "ring.py", copied / "usp.py")
    monkeypatch.setattr(
        sys.modules["meshwright"],
        "__path__",
        [str(PACKAGE), str(copied.parent)],
    )
    monkeypatch.setattr(
        sys.modules["meshwright.exchange"],
        "__path__",
        [str(PACKAGE / "exchange"), str(copied)],
    )
    assert {*parts.module_names("exchange")} >= {"ring", "usp"}
    with pytest.raises(ValueError, match="another Exchange is called ring"):
        parts.parts("exchange", Exchange)
    assert [*EXCHANGES] == ["gather", "ring", "all-to-all"]
