"""What describes a thing stays as it is: it is kept, shared and compared."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from types import ModuleType

import pytest

import meshwright
from meshwright import predict  # the rooms in their order

ROOMS = ("count", "cost", "step", "schedule", "search", "layout")
GROWS = {"SearchState", "Everything", "Smallest"}
"""What is found on the way: these alone change."""


def classes(module: ModuleType) -> set[type]:
    return {
        of
        for of in vars(module).values()
        if isinstance(of, type)
        and dataclasses.is_dataclass(of)
        and of.__module__ == module.__name__
    }


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_else_changes(room: str) -> None:
    assert predict
    package = importlib.import_module(f"{meshwright.__name__}.{room}")
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for of in classes(module):
            frozen = getattr(of, dataclasses._PARAMS).frozen  # type: ignore[attr-defined]
            assert frozen is (of.__name__ not in GROWS), of
