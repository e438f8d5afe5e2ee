"""Cases of what published rows say, as data: a test with many of them reads them from the file
cases.toml of its folder, where they stand under its file and its name (without "test_"). Each is a
list of the values of the first parameters, in their order; one value alone may stand bare.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from layouts import cut


@cache
def tables(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """The cases of a folder, by the file and the name of the test."""
    return tomllib.loads((folder / "cases.toml").read_text("utf-8"))


KINDS: dict[str, Callable[[Any], Any]] = {"Layout": cut, "tuple": tuple}
"""Type that a parameter names -> the value that a case means; of others it is itself."""


def cases(test: Callable[..., None]) -> Callable[..., None]:
    """The test, once for each of its cases."""
    name = test.__name__.removeprefix("test_")
    file = Path(test.__code__.co_filename)
    rows = tables(file.parent)[file.stem][name]
    rows = [row if isinstance(row, list) else [row] for row in rows]
    parameters = list(inspect.signature(test).parameters.values())
    taken = parameters[: len(rows[0])]
    kinds = [str(p.annotation).partition("[")[0] for p in taken]
    values = [
        [
            KINDS.get(kind, lambda v: v)(v)
            for kind, v in zip(kinds, row, strict=True)
        ]
        for row in rows
    ]
    return pytest.mark.parametrize([p.name for p in taken], values)(test)
