"""Families of layouts: what people choose between before they choose numbers.

They have no layout in common, and together hold a space whole: one search looks at all of them
(`split`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..describe.frozen import shown
from ..prediction.prediction import Prediction
from .space import Space
from .split import NONE, SHARDED, WHOLE, Split

NAMES = (
    "pipelines, ZeRO-0 or 1",
    "pipelines, ZeRO-2 or 3",
    "FSDP with tp",
    "FSDP only",
    "no pipelines, ZeRO-0 or 1",
)
"""By pipelines, tp where it tells FSDP from FSDP, and whether gradients are sharded."""


@dataclass(frozen=True)
class Family:
    """The best layout of a family beside the plan's."""

    name: str
    prediction: Prediction | None
    """None: none of its layouts fits."""
    slower: float | None
    """Its expected time over the chance to fit, over that of the plan's best, minus 1."""
    tie: bool = False
    """As good as the plan's best, as far as the model can tell."""
    note: str = ""

    __repr__ = shown

    def to_dict(self) -> dict[str, Any]:
        """The fields of one of `families` of `plan --json`."""
        return {
            "name": self.name,
            "prediction": self.prediction.to_dict()
            if self.prediction
            else None,
            "slower": self.slower,
            "tie": self.tie,
            "note": self.note,
        }


def split_of(spaces: Sequence[Space], by_family: bool) -> Split:
    """Spaces without a layout in common as the parts of their union; by_family: each family of each
    of them is a part.
    """
    cells = {
        cell: (number, NAMES.index(_family(*cell)) if by_family else 0)
        for number, space in enumerate(spaces)
        for cell in product((False, True), repeat=3)
        if _holds(space, *cell)
    }
    parts = sorted({*cells.values()})
    names = tuple(NAMES[family] if by_family else "" for _, family in parts)
    if len(parts) <= 1:
        return WHOLE._replace(names=names or WHOLE.names)
    numbers = {part: number for number, part in enumerate(parts)} | {
        None: NONE
    }
    either = (False, True)
    return Split(
        tuple(
            tuple(numbers[cells.get((pipes, tensors, s))] for s in either)
            for pipes, tensors in product(either, either)
        ),
        names,
    )


def _family(pipes: bool, tensors: bool, sharded: bool) -> str:
    """That of layouts with pipelines, with tp, whose gradients are sharded."""
    if pipes or not sharded:
        which = ("no pipelines", "pipelines")[pipes]
        return f"{which}, ZeRO-{('0 or 1', '2 or 3')[sharded]}"
    return "FSDP with tp" if tensors else "FSDP only"


def _holds(space: Space, pipes: bool, tensors: bool, sharded: bool) -> bool:
    """Whether a space may have such layouts."""
    return any(
        (zero >= SHARDED) == sharded for zero in space.values("zero")
    ) and all(
        (values := space.values(axis)) is None
        or any((n > 1) == several for n in values)
        for axis, several in (("pp", pipes), ("tp", tensors))
    )
