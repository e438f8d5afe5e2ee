"""Parts that lie in a folder, one a file or several: what is there is known, and no list names
it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol, TypeVar


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def module_names(package: str) -> list[str]:
    """Names of the modules of a package ("cost.collectives"), by the alphabet; none is loaded."""
    inside = package.replace(".", "/")
    roots = sys.modules[__package__].__path__
    return [
        module.name
        for module in iter_modules([f"{r}/{inside}" for r in roots])
    ]


def parts(
    package: str, kind: type[T], place: Callable[[T], Any] | None = None
) -> dict[str, T]:
    """name -> what modules of a package hold of a kind: by their place, which they say themselves,
    else file by file, in a file as they stand.

    Raises ValueError for two of one name, such as a copied file that kept it.
    """
    found: dict[str, T] = {}
    for file in module_names(package):
        module = import_module(f"{__package__}.{package}.{file}")
        for part in vars(module).values():
            if not isinstance(part, kind):
                continue
            if found.setdefault(part.name, part) is not part:
                raise ValueError(
                    f"{package}/{file}.py: another {kind.__name__} is called {part.name}"
                )
    if place is None:
        return found
    return {part.name: part for part in sorted(found.values(), key=place)}
