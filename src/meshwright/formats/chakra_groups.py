"""Who talks to whom, rank by rank: the communicators of a layout, as a simulator numbers ranks."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from ..describe.layout import GRIDS, Layout
from ..errors import BadInput
from ..layout.ranks import OUTER_FIRST

Rank = dict[str, int]
"""Axis -> the place of a rank on it; of experts too."""


def demand_groups(layout: Layout) -> None:
    """BadInput for groups that no list of ranks says."""
    if layout.scheme in GRIDS or layout.copies > 1:
        what = (
            f"scheme {layout.scheme}"
            if layout.scheme in GRIDS
            else f"schedule {layout.schedule}, which holds each stage twice"
        )
        raise BadInput(
            f"a Chakra trace has no {what}: --scheme megatron with 1f1b, interleaved or zbv"
        )


def ranks(layout: Layout, numbers: NDArray[np.int64]) -> list[Rank]:
    """Where each rank stands on every axis, by its number. numbers: `layout.ranks.grid`.

    etp, ep and edp take the ranks of a stage from the nearest on (`Layout.group`).
    """
    etp, ep = int(layout.etp), int(layout.ep)
    places = {
        int(number): dict(zip(OUTER_FIRST, at, strict=True))
        for at, number in np.ndenumerate(numbers)
    }
    for stage in numbers:
        for i, number in enumerate(sorted(stage.flat)):
            places[number] |= {
                "etp": i % etp,
                "ep": i // etp % ep,
                "edp": i // (etp * ep),
            }
    return [places[number] for number in range(len(places))]


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
