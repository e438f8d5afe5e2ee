"""A run of tests that is asked to end (by `timeout`, by a machine that goes down) ends."""

from __future__ import annotations

from typing import Any

import pytest

SIGTERM = 143
"""Exit code of a process that ended by it, as shells say it."""


def pytest_exception_interact(call: Any) -> None:
    """Who forks ranks hands SIGTERM on to them and lives, so that it came out as the failure of
    whichever test was under way, and all others ran.
    """
    if "asked to end (SIGTERM)" in str(call.excinfo.value):
        pytest.exit("asked to end (SIGTERM)", returncode=SIGTERM)
