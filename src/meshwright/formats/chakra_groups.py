"""Who talks to whom, rank by rank: the communicators of a layout, as a simulator numbers ranks, and
what replicas send each other for their weights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from math import prod

from ..count.work import Message
from ..describe.job import Job
from ..describe.layout import AXES, GRIDS, Layout
from ..errors import BadInput
from ..layout.placement import lies
from ..step.weights import Parameters
from ..step.zero import cuts

Rank = dict[str, int]
"""Axis -> the place of a rank on it; of experts too."""


def axes_in_order(job: Job, layout: Layout) -> tuple[str, ...]:
    """The axes, nearest first, in which the ranks of the layout are numbered.  Raises BadInput for
    a placement that is no such order, and for groups that no list of ranks says.
    """
    sizes = job.cluster.sizes
    if layout.scheme in GRIDS or layout.copies > 1:
        what = (
            f"scheme {layout.scheme}"
            if layout.scheme in GRIDS
            else f"schedule {layout.schedule}, which holds each stage twice"
        )
        raise BadInput(
            f"a Chakra trace has no {what}: --scheme megatron with 1f1b, interleaved or zbv"
        )
    orders = [AXES, *permutations(AXES)]
    order = next((o for o in orders if bool(lies(layout, sizes, o))), None)
    if order is None:
        raise BadInput(
            "layout.placement is no order of the axes, by which ranks could be numbered:"
            f" --placement {'-'.join(AXES)} is one"
        )
    return order


def ranks(layout: Layout, order: tuple[str, ...]) -> list[Rank]:
    """Where each rank stands on every axis, by its number.

    etp, ep and edp take the ranks of a stage from the nearest on (`Layout.group`).
    """
    degrees = {axis: int(getattr(layout, axis)) for axis in order}
    places = []
    for number in range(prod(degrees.values())):
        rank: Rank = {}
        left, stage, width = number, 0, 1
        for axis, degree in degrees.items():
            rank[axis] = left % degree
            left //= degree
            if axis != "pp":
                stage += rank[axis] * width
                width *= degree
        etp, ep = int(layout.etp), int(layout.ep)
        rank |= {
            "etp": stage % etp,
            "ep": stage // etp % ep,
            "edp": stage // (etp * ep),
        }
        places.append(rank)
    return places


class Groups:
    """Communicators by number, from 1 on, and which of them each rank is in."""

    def __init__(self, layout: Layout, places: list[Rank]) -> None:
        self.layout, self.places = layout, places
        self.members: dict[int, list[int]] = {}
        self._of: dict[str, list[int]] = {}

    def numbers(self, axis: str) -> list[int]:
        """The communicator of each rank for an axis of a message, or a part of it."""
        if axis not in self._of:
            self._of[axis] = self._numbered(axis)
        return self._of[axis]

    def _numbered(self, axis: str) -> list[int]:
        same: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for number, rank in enumerate(self.places):
            same[self._key(axis, rank)].append(number)
        numbers = [0] * len(self.places)
        for group in same.values():
            if len(group) > 1:
                name = len(self.members) + 1
                self.members[name] = group
                for number in group:
                    numbers[number] = name
        return numbers

    def _key(self, axis: str, rank: Rank) -> tuple[int, ...]:
        """What the ranks of a communicator have in common."""
        layout = self.layout
        shards = int(layout.dp) // int(layout.dp_replicate)
        experts = int(layout.expert_replicas) // int(layout.dp_replicate)
        tp, cp, pp, dp = (rank[a] for a in ("tp", "cp", "pp", "dp"))
        etp, ep, edp = (rank[a] for a in ("etp", "ep", "edp"))
        return {
            "tp": (cp, dp, pp),
            "cp": (tp, dp, pp),
            "replicas": (tp, pp),
            "shards": (tp, pp, dp // shards),
            "copies": (tp, cp, pp, dp % shards),
            "etp": (pp, ep, edp),
            "ep": (pp, etp, edp),
            "edp": (pp, etp, ep),
            "edp shards": (pp, etp, ep, edp // experts),
            "edp copies": (pp, etp, ep, edp % experts),
        }[axis]


def gathers(job: Job, weights: Parameters) -> Iterator[Message]:
    """A gather of sharded weights."""
    size = job.precision.gather_bytes
    for axis, n in shared_parameters(job, weights, "shards"):
        yield Message("all_gather", axis, n * size)


def reductions(job: Job, weights: Parameters) -> Iterator[Message]:
    """A reduction of the gradients of weights (`step.weights.weight_sync`)."""
    layout, size = job.layout, job.precision.gradient_bytes
    if not cuts(layout.zero, "optimizer"):
        for axis, n in shared_parameters(job, weights, ""):
            yield Message("all_reduce", axis, n * size)
        return
    summed = job.how.overlap.weights.gradients == "all-reduce"
    kind = "all_reduce" if summed else "reduce_scatter"
    for axis, n in shared_parameters(job, weights, "shards"):
        yield Message(kind, axis, n * size)
    if layout.dp_replicate > 1:
        shards = (layout.shards, layout.expert_shards)
        every = zip(
            shared_parameters(job, weights, "copies"), shards, strict=False
        )
        for (axis, n), cut in every:
            yield Message("all_reduce", axis, n * size / cut)


def shared_parameters(
    job: Job, weights: Parameters, part: str
) -> Iterator[tuple[str, float]]:
    """(group, parameters) of the weights of a device.  part: of the group, where copies of the
    model are apart: its shards, or the copies of one."""
    apart = job.layout.dp_replicate > 1 and part
    yield (part if apart else "replicas"), float(weights.dense)
    if job.model.moe:
        yield (f"edp {part}" if apart else "edp"), float(weights.expert)
