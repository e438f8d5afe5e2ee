"""Settings of all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

from shell import Shell

# A loaded machine is no failure. The same cases each time, so that a commit is green or is not;
# `--hypothesis-profile anew` draws others.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("anew", deadline=None)
settings.load_profile("same")


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Runs command lines."""
    return Shell(capsys)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a test works in, which is its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
