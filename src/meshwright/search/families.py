"""Families of layouts: what people choose between before they choose numbers.

The families of a space are spaces themselves, without a layout in common, and hold it whole. So a
search of each, with the limits of what was found in the others, is a search of the space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..describe.frozen import shown
from ..describe.job import Job
from ..num import divisors
from ..prediction.prediction import Prediction
from .space import Space
from .split import NONE, SHARDED, WHOLE, Split

NAMES = {
    (True, None, False): "pipelines, ZeRO-0 or 1",
    (True, None, True): "pipelines, ZeRO-2 or 3",
    (False, True, True): "FSDP with tp",
    (False, False, True): "FSDP only",
    (False, None, False): "no pipelines, ZeRO-0 or 1",
}
"""(pipelines, tp, gradients sharded) -> what they are called; None: with and without."""


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


def families(job: Job, space: Space) -> dict[str, Space]:
    """Name -> the part of a space that it is; parts that no layout can be in are left out."""
    found = {}
    for (pipes, tensors, sharded), name in NAMES.items():
        ways = {
            "pp": _split(space, "pp", range(1, job.model.layers + 1), pipes),
            "tp": _split(space, "tp", divisors(job.model.heads), tensors),
            "zero": tuple(
                z for z in space.values("zero") if (z >= SHARDED) == sharded
            ),
        }
        if all(values is None or len(values) for values in ways.values()):
            found[name] = space.but(**ways)
    return found


def _split(
    space: Space,
    axis: str,
    every: Any,
    several: bool | None,
) -> tuple[int, ...] | None:
    """The values of a degree that are 1, or more; None: any that the space has."""
    values = space.values(axis)
    if several is None:
        return values  # type: ignore[no-any-return]
    return tuple(
        n for n in (every if values is None else values) if (n > 1) == several
    )


def parts(
    job: Job, spaces: list[Space], split: bool
) -> list[tuple[str, Space]]:
    """(name, space) of every family of some spaces; not split: the spaces, without names."""
    if not split:
        return [("", space) for space in spaces]
    return [each for space in spaces for each in families(job, space).items()]


def split_of(parts: Sequence[Space]) -> Split:
    """Spaces that have no layout in common, numbered in this order."""
    # its sides are none: where no ZeRO stage differs from another, one stands for all
    if len(parts) == 1:
        return WHOLE

    def number(tensors: bool, pipes: bool, sharded: bool) -> int:
        asked = {"tp": tensors, "pp": pipes}
        for number, space in enumerate(parts):
            stages = {zero >= SHARDED for zero in space.values("zero")}
            if sharded in stages and all(
                space.values(axis) is None
                or any((n > 1) == several for n in space.values(axis))
                for axis, several in asked.items()
            ):
                return number
        return NONE

    either = (False, True)
    return Split(
        tuple(
            tuple(number(tensors, pipes, sharded) for sharded in either)
            for pipes in either
            for tensors in either
        )
    )
