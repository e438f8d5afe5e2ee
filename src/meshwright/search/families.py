"""Families of layouts: what people choose between before they choose numbers.

A family is a part of a space, and a space itself; no two have a layout in common, and together they
hold it whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..describe.frozen import short_repr
from ..describe.job import Job
from ..prediction.prediction import Prediction
from .degrees import values_above_one
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
    note: str = ""
    ran: bool = False
    """A run shows that it fits, whatever its predicted risk."""

    __repr__ = short_repr


def families(job: Job, space: Space) -> Iterator[tuple[str, Space]]:
    """(name, its part of the space) of every family that the space has layouts of."""
    stages = space.values("zero")
    for (pipes, sharded, tensors), name in NAMES.items():
        part = space.part(
            pp=values_above_one(job, space, "pp") if pipes else (1,),
            zero=[z for z in stages if (z >= SHARDED) == sharded],
            tp=None
            if tensors is None
            else values_above_one(job, space, "tp")
            if tensors
            else (1,),
        )
        if part:
            yield name, part
