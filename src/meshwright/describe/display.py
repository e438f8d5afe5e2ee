"""Results as tables, pictures and rich cells of a notebook.

The rooms that draw stand below those that compute: the package root says who draws
(`meshwright.report.display`), and is asked when something is first shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import BadInput

LOADERS: list[Callable[[], Any]] = []
"""What loads the module that shows results; the package root adds it."""


class Displayed:
    """A result with rows, a picture and a table for notebooks."""

    def to_frame(self) -> Any:
        """A pandas DataFrame: one row a layout or point, SI units, one number a cell."""
        return _shower().frame(self)

    def plot(self, file: str | None = None) -> Any:
        """The picture of the command line as a matplotlib Figure; file: written there too."""
        return _shower().plot(self, file)

    def _repr_html_(self) -> str:
        """What a notebook shows: the tables of the command line."""
        return str(_shower().html(self))


def _shower() -> Any:
    if not LOADERS:
        raise BadInput("results are shown by the package: import meshwright")
    return LOADERS[0]()
