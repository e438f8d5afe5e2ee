"""Every public name says by an example that is run how it is used."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import meshwright

NAMES = [name for name in meshwright.__all__ if not name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_name_runs(name: str, elsewhere: Path) -> None:
    text = inspect.getdoc(getattr(meshwright, name)) or ""
    if "import torch" in text:
        pytest.importorskip("torch")
    case = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert any(name in example.source for example in case.examples)
    assert doctest.DocTestRunner().run(case).failed == 0


def test_a_room_does_not_hide_the_function_of_its_name() -> None:
    import meshwright.limits.curve
    import meshwright.sweep  # noqa: F401

    for name in ("sweep", "limits", "roofline", "compare"):
        assert callable(getattr(meshwright, name)), name
