"""Tables: dicts of equally long float64 columns, one row a combination of degrees."""

from __future__ import annotations

from operator import is_
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..describe.frozen import FrozenDict, with_values
from ..describe.layout import Layout
from .space import DEGREES

Column: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]
Grid: TypeAlias = NDArray[np.float64]
"""Several columns, with the rows on the last axis; or a number for each combination of options."""


Table: TypeAlias = dict[str, Column]


BLOCK = 4096
"""Rows that are computed at once: few enough that their columns stay in cache."""


def cross(table: Table, **values: Column) -> Table:
    """Every row with every value (or every row of several columns of equal length)."""
    rows = len(next(iter(table.values()))) if table else 1
    times = len(next(iter(values.values())))
    return {k: np.repeat(c, times) for k, c in table.items()} | {
        k: np.tile(c, rows) for k, c in values.items()
    }


def keep(table: Table, mask: NDArray[np.bool_]) -> Table:
    """The rows where the mask holds."""
    index = np.flatnonzero(mask)
    return {k: c[index] for k, c in table.items()}


SINGLE = frozenset((float, int, bool, str, type(None)))
"""Types of what is one number or word for all rows; most of what a layer costs is."""


def pick(rows: Any, index: Any) -> Any:
    """The rows at `index` of a column, or of all columns in a tuple, table or layout; what is one
    value for all rows stays as it is. index: row numbers, a mask or a slice.
    """
    if isinstance(rows, np.ndarray):
        return rows[index]
    if isinstance(rows, tuple):
        values = [x if type(x) in SINGLE else pick(x, index) for x in rows]
        if all(map(is_, values, rows)):
            return rows
        cls: Any = type(rows)
        return cls._make(values) if hasattr(rows, "_fields") else cls(values)
    if isinstance(rows, dict):
        return type(rows)({k: pick(x, index) for k, x in rows.items()})
    if isinstance(rows, Layout):
        columns: dict[str, Any] = {
            k: pick(getattr(rows, k), index)
            for k in (*DEGREES, "dp_replicate")
        }
        placement = FrozenDict(
            {a: pick(shares, index) for a, shares in rows.placement.items()}
        )
        return with_values(rows, **columns, placement=placement)
    return rows


def stack_rows(*tables: Table) -> Table:
    """The rows of all, one behind the other."""
    return {k: np.concatenate([t[k] for t in tables]) for k in tables[0]}


def distinct(columns: list[Any]) -> tuple[Index, Index]:
    """(index of the first row of each distinct combination, its number for every row), in
    ascending order: of sorted rows those that differ from the one before begin another.
    """
    rows = np.broadcast_arrays(*columns)
    order = np.lexsort(rows[::-1])
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = np.any([c[order[1:]] != c[order[:-1]] for c in rows], axis=0)
    number = np.empty(len(order), dtype=np.intp)
    number[order] = np.cumsum(begins) - 1
    return order[begins], number


def length(table: Table) -> int:
    """Number of rows."""
    return len(next(iter(table.values())))
