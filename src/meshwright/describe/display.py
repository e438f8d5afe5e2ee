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

    def explain(self, term: str = "") -> str:
        """The card of the command line: the answer in at most 14 lines of text; of a prediction
        with the name of a term, that term in full, as `predict --explain` prints it.

        >>> from meshwright import Job, Layout, cluster, model, predict
        >>> job = Job(model("llama3-8b"), cluster("64xh100-sxm"), batch=512)
        >>> p = predict(job, Layout(dp=64, zero=3))
        >>> print(p.explain().splitlines()[0])
        Predict llama3-8b on 64 x h100-sxm, batch 4.19 M tokens (512 x 8,192)
        >>> print(p.explain("mfu").partition(" = ")[0])
        mfu
        """
        return str(_shower().text(self, term))

    def _repr_html_(self) -> str:
        """What a notebook shows: the tables of the command line."""
        return str(_shower().html(self))


def _shower() -> Any:
    if not LOADERS:
        raise BadInput("results are shown by the package: import meshwright")
    return LOADERS[0]()
