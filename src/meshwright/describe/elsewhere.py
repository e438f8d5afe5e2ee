"""Assumption sets of rooms that stand after this one; a file of its own, so that who adds a name
need not load the sets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ELSEWHERE: dict[str, Callable[[], Any]] = {}
"""Name -> what makes the set (`assumptions.Assumptions`)."""
