"""The layouts nearest to one that cannot run: one degree changed to a power of two beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..describe.layout import Layout

DEGREES = ("tp", "pp", "cp", "ep", "etp", "dp", "microbatch")
RANKS = ("tp", "pp", "cp")
"""Degrees whose change moves dp, so that all chips stay used."""


def nearest_mend(
    layout: Layout, runs: Callable[[Layout], bool]
) -> tuple[str, list[int]] | None:
    """The first degree that one change of mends everything, and the values beside it that do; None
    if none does. runs: whether a layout can run.
    """
    for name in DEGREES:
        values = [
            value
            for value in _beside(int(getattr(layout, name)))
            if (other := _changed(layout, name, value)) and runs(other)
        ]
        if values:
            return name, values
    return None


def _beside(value: int) -> Iterator[int]:
    """The powers of two below and above."""
    if value > 1:
        yield 1 << ((value - 1).bit_length() - 1)
    yield 1 << value.bit_length()


def _changed(layout: Layout, name: str, value: int) -> Layout | None:
    """With as many chips at most, dp taking what is left; None if none is."""
    change: dict[str, Any] = {name: value}
    if name not in RANKS:
        return replace(layout, **change)
    other = replace(layout, **change).refilling(int(layout.chips))
    return other if other.chips <= layout.chips else None


def sentence(
    layout: Layout, why: list[str], runs: Callable[[Layout], bool]
) -> str:
    """What is wrong, in one sentence; of several reasons the first, after the change that would
    mend them all."""
    if len(why) == 1:
        return why[0]
    if (would := nearest_mend(layout, runs)) is None:
        return _first(why, 3)
    name, values = would
    several = " or ".join(map(str, values))
    return (
        f"{name} = {getattr(layout, name)} is invalid; nearest: {several}:"
        f" {_first(why, 2)}"
    )


def _first(why: list[str], count: int) -> str:
    more = [f"and {len(why) - count} more"] if len(why) > count else []
    return "; ".join([*why[:count], *more])
