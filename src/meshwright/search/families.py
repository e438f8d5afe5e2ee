"""Families of layouts: what people choose between before they choose numbers.

A family is a part of a space, and a space itself; no two have a layout in common, and together they
hold it whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..describe.frozen import shown
from ..describe.job import Job
from ..prediction.prediction import Prediction
from .degrees import several
from .options import SHARDED
from .space import Space

NAMES = {
    (True, False, None): "pipelines, ZeRO-0 or 1",
    (True, True, None): "pipelines, ZeRO-2 or 3",
    (False, True, True): "FSDP with tp",
    (False, True, False): "FSDP only",
    (False, False, None): "no pipelines, ZeRO-0 or 1",
}
"""(with pipelines, gradients sharded, with tp where it tells FSDP from FSDP) -> name."""


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

    def to_dict(self) -> dict[str, object]:
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


def families(job: Job, space: Space) -> Iterator[tuple[str, Space]]:
    """(name, its part of the space) of every family that the space has layouts of."""
    stages = space.values("zero")
    for (pipes, sharded, tensors), name in NAMES.items():
        part = space.part(
            pp=several(job, space, "pp") if pipes else (1,),
            zero=[z for z in stages if (z >= SHARDED) == sharded],
            tp=None
            if tensors is None
            else several(job, space, "tp")
            if tensors
            else (1,),
        )
        if part:
            yield name, part
