"""What the measured memory of each source is off by: catalog/memory.toml, from which the width of
the risk of running out comes (`meshwright.describe.memory_error`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from meshwright.describe.memory_error import SourceError

from .comparison import RowComparison
from .layouts import mean_square
from .measured import CALCULATED
from .result import Validation
from .stats import by

HEAD = """\
# What measured memory is off by. Written by `python benchmarks/memory_risk.py --errors`; a test
# compares. error: root mean square of ln(measured / predicted) over the layouts of a source, rows
# that differ in their batch alone being one layout; formulas and rows that are held out do not
# count.
"""


def source_errors(validation: Validation) -> dict[str, SourceError]:
    """Source -> its error."""
    rows = [
        r for r in validation.having("memory") if CALCULATED not in r.notes
    ]
    return {
        name: _error(own) for name, own in by(rows, lambda r: r.source).items()
    }


def _error(rows: list[RowComparison]) -> SourceError:
    (framework,) = {r.framework for r in rows}
    layouts, square = mean_square(rows)
    return SourceError(framework, layouts, sqrt(square))


def errors_text(errors: Mapping[str, SourceError]) -> str:
    """The text of catalog/memory.toml."""
    tables = (
        f"\n[sources.{name}]\n"
        f'framework = "{source.framework}"\n'
        f"layouts = {source.layouts}\n"
        f"error = {source.error:.3g}\n"
        for name, source in errors.items()
    )
    return HEAD + "".join(tables)
