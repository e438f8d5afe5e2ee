"""Every axis is taken through its step once for all tests: four processes start for it."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def sound() -> list[Any]:
    from meshwright.study.check import study

    return [*study()]
