"""The only place that knows a float from an array.

Every formula of the library is written once and called with Python numbers (one layout) or with
NumPy arrays (a table of a million layouts). Formulas use `+ - * /`, comparisons and the functions
below; never `if a > b`, `max()` or `//` on a quantity. Counts are float64: exact up to 9e15, where
int64 totals of FLOPs would overflow silently.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, reduce, wraps
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Num: TypeAlias = float | NDArray[np.float64]
else:
    Num = Any

SCALARS = (float, bool, int)  # the likeliest first; np.float64 is a float
BY_VALUE = (*SCALARS, str)
FLOATS = frozenset((float,))


class Same:
    """An array as part of a cache key: equal only to itself. The key holds the array, so its
    identity stays its own.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.array is other.array

    def __hash__(self) -> int:
        return id(self.array)


def cache_key(*values: Any) -> tuple[Any, ...]:
    """What a cache knows these numbers by: scalars (and texts) by value, arrays by identity
    (comparing them costs as much as the formula).
    """
    return tuple(v if isinstance(v, BY_VALUE) else Same(v) for v in values)


def content_key(value: Any) -> Any:
    """What a cache knows one value by, arrays by what they hold: for formulas that cost more than
    reading the array once."""
    return (
        value
        if isinstance(value, BY_VALUE)
        else (value.shape, value.tobytes())
    )


MANY = 64
"""Rows from which sorting pays."""
WEIGHTS = (1.0, math.pi, math.e, math.sqrt(2.0))
"""Of columns in a key: whole numbers with different ones have different sums, but for rounding."""


def maximum(a: Num, b: Num) -> Num:
    """The larger of a and b, element by element."""
    if isinstance(a, SCALARS) and isinstance(b, SCALARS):
        return a if a >= b else b
    import numpy as np

    return np.maximum(a, b)


def largest(values: Iterable[Num]) -> Num:
    """The largest of several numbers that are not negative; 0 if there are none."""
    most: Num = 0.0
    for value in values:
        most = maximum(most, value)
    return most


def minimum(a: Num, b: Num) -> Num:
    """The smaller of a and b, element by element."""
    if isinstance(a, SCALARS) and isinstance(b, SCALARS):
        return a if a <= b else b
    import numpy as np

    return np.minimum(a, b)


def where(condition: Any, a: Num, b: Num) -> Num:
    """a where the condition holds, else b. Both are evaluated: neither may divide by zero."""
    if isinstance(condition, SCALARS):
        return a if condition else b
    import numpy as np

    if isinstance(condition, np.bool_):
        return a if condition else b
    return np.where(condition, a, b)


def anywhere(condition: Any) -> bool:
    """Whether a condition holds, for an array in any place."""
    return bool(
        condition if isinstance(condition, SCALARS) else condition.any()
    )


def ceil(x: Num) -> Num:
    """The smallest whole number not below x, forgiving 1e-9 of rounding."""
    if isinstance(x, SCALARS):
        return float(math.ceil(x - 1e-9))
    import numpy as np

    return np.ceil(x - 1e-9)


def floor(x: Num) -> Num:
    """The largest whole number not above x, forgiving 1e-9 of rounding."""
    if isinstance(x, SCALARS):
        return float(math.floor(x + 1e-9))
    import numpy as np

    return np.floor(x + 1e-9)


def ceil_div(a: Num, b: Num) -> Num:
    """a / b rounded up to a whole number."""
    return ceil(a / b)


def log2(x: Num) -> Num:
    """Binary logarithm of x > 0."""
    if isinstance(x, SCALARS):
        return math.log2(x)
    import numpy as np

    return np.log2(x)


def sqrt(x: Num) -> Num:
    """Square root of x >= 0."""
    if isinstance(x, SCALARS):
        return math.sqrt(x)
    import numpy as np

    return np.sqrt(x)


def option_columns(
    options: tuple[tuple[float, ...], ...], beside: Num
) -> NDArray[np.float64]:
    """Columns of options, each an array whose first axis lies in front of those of `beside`."""
    return _option_columns(options, getattr(beside, "ndim", 0))


@cache
def _option_columns(
    options: tuple[tuple[float, ...], ...], axes: int
) -> NDArray[np.float64]:
    import numpy as np

    return np.reshape(
        np.transpose(options), (len(options[0]), len(options), *(1,) * axes)
    )


def smallest(options: Any) -> Num:
    """The smallest along the first axis."""
    smallest: Num = options.min(axis=0)
    return smallest


def power(x: Num, times: int) -> Num:
    """x to a whole power, multiplied out: the same for numbers and arrays to the last bit."""
    product: Num = 1.0
    while times:
        if times % 2:
            product = product * x
        x, times = x * x, times // 2
    return product


def on_distinct(law: Callable[..., Num], *columns: Num) -> Num:
    """A law of columns, asked once for each combination of their values: for laws that cost more
    than sorting.
    """
    import numpy as np

    same = np.broadcast_arrays(*columns)
    if same[0].size < MANY:
        return law(*columns)
    flat = [column.ravel() for column in same]
    key = reduce(
        np.add,
        [
            column * weight
            for column, weight in zip(flat, WEIGHTS, strict=False)
        ],
    )
    values, number = np.unique(key, return_inverse=True)
    # asked for places too, it would sort stably, which takes five times as long
    place = np.empty(len(values), dtype=np.intp)
    place[number] = np.arange(len(key))
    few = [column[place] for column in flat]
    if not all(
        np.array_equal(one[number], column)
        for one, column in zip(few, flat, strict=True)
    ):
        return law(*columns)  # two combinations with the same key
    whole: Num = np.asarray(law(*few))[number].reshape(same[0].shape)
    return whole


def row_by_row(law: Callable[..., Any]) -> Callable[..., Any]:
    """A law of numbers or columns: columns are asked row by row where the law is of numbers alone,
    as one with `min`, `if` or `range` is, which NumPy answers with these errors.
    """
    if hasattr(law, "__wrapped__"):
        return law

    @wraps(law)
    def asked(*columns: Any) -> Any:
        try:
            return law(*columns)
        except (TypeError, ValueError):
            import numpy as np

            rows = np.broadcast(*columns)
            if not rows.shape:
                raise
            plain = (
                [int(x) if x % 1 == 0 else float(x) for x in row]
                for row in rows
            )
            values = np.array([law(*row) for row in plain])
            values = values.reshape(rows.shape + values.shape[1:])
            alone = values.ndim == len(rows.shape)
            return values if alone else tuple(np.moveaxis(values, -1, 0))

    return asked


def cell(x: Num, points: Sequence[float]) -> tuple[Any, Num]:
    """(i, w) with x = points[i] + w (points[i+1] - points[i]), for ascending points.

    Below the first point w = 0; beyond the last w > 1 in the last cell; with a single point i = w =
    0.
    """
    if len(points) == 1:
        return 0, 0.0
    if isinstance(x, SCALARS):
        i = min(max(bisect_right(points, x) - 1, 0), len(points) - 2)
        return i, max((x - points[i]) / (points[i + 1] - points[i]), 0.0)
    import numpy as np

    grid = np.asarray(points)
    j = np.clip(np.searchsorted(grid, x, side="right") - 1, 0, len(points) - 2)
    return j, np.maximum((x - grid[j]) / (grid[j + 1] - grid[j]), 0.0)


def at(values: Sequence[float], index: Any) -> Num:
    """values[index], for one whole number or an array of them."""
    if isinstance(index, int):
        return values[index]
    import numpy as np

    entries: Num = np.asarray(values)[index]
    return entries


def total(values: Collection[Num]) -> Num:
    """The sum of several numbers, in order; 0 if there are none. (`sum` rounds numbers otherwise
    than columns from Python 3.12 on.)
    """
    if FLOATS.issuperset(map(type, values)):
        return reduce(add, values, 0.0)
    # adding 0 to a column costs as much as adding another column
    some = [v for v in values if not (isinstance(v, float) and v == 0.0)]
    return reduce(add, some) if some else 0.0


def sum_of(terms: Iterable[tuple[Num, Any]], nothing: Any = 0.0) -> Any:
    """Sum of factor x value, leaving out where one is 0; nothing: where there is no other."""
    result: Any = None
    for factor, value in terms:
        if isinstance(factor, float) and factor == 0.0:
            continue
        if isinstance(value, float) and value == 0.0:
            continue
        result = value * factor if result is None else result + value * factor
    return nothing if result is None else result


def totals(rows: Collection[Sequence[Num]]) -> list[Num]:
    """The `total` of each column."""
    columns = zip(*rows, strict=True)
    if FLOATS.issuperset(map(type, chain.from_iterable(rows))):
        return [reduce(add, column, 0.0) for column in columns]
    return [total(column) for column in columns]


def product(values: Any) -> Num:
    """Product of a sequence of numbers or arrays (1 if it is empty)."""
    return reduce(lambda a, b: a * b, values, 1)


def crossing(
    gap: Callable[[float], float], low: float = 1.0, high: float = 1e13
) -> float | None:
    """Where a gap that grows with its argument turns positive, by bisection; None if it never does
    before `high`.
    """
    if gap(high) <= 0:
        return None
    if gap(low) > 0:
        return low
    for _ in range(200):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        low, high = (low, middle) if gap(middle) > 0 else (middle, high)
    return high


def largest_divisor(n: Num, most: Num) -> Num:
    """The largest divisor of n that is at most `most`; both are at least 1."""
    if isinstance(n, SCALARS) and isinstance(most, SCALARS):
        return next(d for d in range(int(min(n, most)), 0, -1) if n % d == 0)
    import numpy as np

    largest = np.ones_like(n)
    for d in range(2, int(np.max(most, initial=1)) + 1):
        largest = np.where((n % d == 0) & (d <= most), float(d), largest)
    return largest


def common_divisor(a: Num, b: Num) -> Num:
    """The largest number that divides both; of what is no whole number, that of its whole part."""
    if isinstance(a, SCALARS) and isinstance(b, SCALARS):
        return float(math.gcd(int(a), int(b)))
    import numpy as np

    whole = np.gcd(np.asarray(a).astype(int), np.asarray(b).astype(int))
    return np.asarray(whole.astype(float))


def divisors(n: int) -> list[int]:
    """All divisors of n >= 1, ascending."""
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return low + [n // d for d in reversed(low) if d * d != n]


Naming: TypeAlias = Callable[[str, Num], Any]
"""What makes a number one that has a name in an explanation."""


def naming(x: Any) -> Naming | None:
    """How numbers beside x are named: as its kind does (`called`); None of plain ones."""
    return getattr(type(x), "called", None)


def with_names(numbers: Mapping[str, Num], beside: Any) -> Collection[Num]:
    """Numbers by their names, where the numbers beside them have names: `beside`, any number of the
    same step, tells whether this is a run that records its operations."""
    called = naming(beside)
    if called is None:
        return numbers.values()
    return [called(name, x) if x else x for name, x in numbers.items()]


def with_name(x: Num, name: str, beside: Any) -> Num:
    """One number by its name (`with_names`)."""
    (number,) = with_names({name: x}, beside)
    return number
