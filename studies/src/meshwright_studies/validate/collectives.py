"""Measured collectives (NCCL tests) against the network model.

Columns: collective, nodes, gpus_per_node, size_bytes (the full vector), time_mean_s; # starts a
remark.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from meshwright import catalog
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import Assumptions
from meshwright.describe.read import brief
from meshwright.errors import BadInput
from meshwright.formats import nccl_tests

from .result import RowComparison
from .rows import (
    MOST_ROWS,
    Row,
    demand_whole,
    lines_without_remarks,
    plain,
    positive_number,
)

KINDS = {
    name: kind for name, kind in nccl_tests.KINDS.items() if kind != "send"
}
COLUMNS = ("collective", "nodes", "gpus_per_node", "size_bytes", "time_mean_s")


def is_table(text: str) -> bool:
    """Does the text look like such a table (its first line that is no remark is the header)?"""
    header = next(iter(lines_without_remarks(text[:10_000])), "").split(",")
    return {"collective", "size_bytes"} <= set(header)


class MeasuredCollective(NamedTuple):
    """One line of such a table."""

    collective: str
    """As the table has it, in small letters without dashes."""
    nodes: int
    per_node: int
    bytes: float
    """The full vector."""
    seconds: float

    @property
    def kind(self) -> str:
        """The collective as the network model calls it."""
        return KINDS[self.collective]

    @property
    def gpus(self) -> int:
        return self.nodes * self.per_node

    def predicted_s(self, fabric: Fabric) -> float:
        """Seconds by the network model."""
        group = float(self.per_node), float(self.nodes)
        return float(fabric.time(self.kind, self.bytes, group))


def lines_of_table(text: str) -> list[Row]:
    """The lines of a table by column; BadInput for one that is too long or has not all columns."""
    lines = lines_without_remarks(text)
    if len(lines) > MOST_ROWS:
        raise BadInput(
            f"a table of collectives may have at most {MOST_ROWS} lines, not {len(lines)}"
        )
    reader = csv.DictReader(lines)
    if missing := [c for c in COLUMNS if c not in (reader.fieldnames or ())]:
        raise BadInput(
            f"the table of collectives has no column {', '.join(missing)}"
        )
    return list(reader)


def name_of_collective(row: Row) -> str:
    """In small letters without dashes."""
    return re.sub("[_-]", "", plain(row, "collective")[:40].lower())


def measured_collective(row: Row) -> MeasuredCollective:
    """A line that makes sense; BadInput says why another does not."""
    name = name_of_collective(row)
    if name not in KINDS:
        raise BadInput(
            f"collective {brief(row['collective'])} is not modelled"
        )
    size = positive_number(row, "size_bytes")
    seconds = positive_number(row, "time_mean_s")
    if size is None or seconds is None:
        raise BadInput("size or time is not a positive number")
    return MeasuredCollective(
        name,
        nodes=demand_whole(row, "nodes"),
        per_node=demand_whole(row, "gpus_per_node"),
        bytes=size,
        seconds=seconds,
    )


def compare_collectives(
    text: str, network: str, assumptions: Assumptions
) -> Iterator[RowComparison]:
    """Each line beside its prediction, or with the reason why it is skipped."""
    fabric = Fabric.from_network(catalog.network(network), assumptions.network)
    for i, row in enumerate(lines_of_table(text), 1):
        name = name_of_collective(row)
        compared = RowComparison(
            f"{name}-{i}", f"{network} {name}", "collective_time", chip=network
        )
        try:
            line = measured_collective(row)
            if line.gpus == 1:
                raise BadInput("one rank sends nothing")
            predicted = line.predicted_s(fabric)
        except BadInput as error:
            yield replace(compared, quantity=None, skipped=str(error), chip="")
        else:
            yield replace(compared, predicted=predicted, measured=line.seconds)
