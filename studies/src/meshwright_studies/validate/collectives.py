"""Measured collectives (NCCL tests) against the network model.

Columns: collective, nodes, gpus_per_node, size_bytes (the full vector), time_mean_s; # starts a
remark.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace

from meshwright import catalog
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import REALISTIC, Assumptions
from meshwright.describe.read import brief
from meshwright.errors import BadInput
from meshwright.formats import nccl_tests

from .result import RowComparison
from .rows import MOST_ROWS, Row, demand_whole, plain, positive_number

KINDS = {
    name: kind for name, kind in nccl_tests.KINDS.items() if kind != "send"
}
COLUMNS = ("collective", "nodes", "gpus_per_node", "size_bytes", "time_mean_s")


def is_table(text: str) -> bool:
    """Does the text look like such a table (its first line that is no remark is the header)?"""
    header = next(iter(_lines(text[:10_000])), "").split(",")
    return {"collective", "size_bytes"} <= set(header)


def compare_collectives(
    text: str, network: str, assumptions: Assumptions = REALISTIC
) -> Iterator[RowComparison]:
    """Each line beside its prediction, or with the reason why it is skipped."""
    fabric = Fabric.of(catalog.network(network), assumptions.network)
    lines = _lines(text)
    if len(lines) > MOST_ROWS:
        raise BadInput(
            f"a table of collectives may have at most {MOST_ROWS} lines, not {len(lines)}"
        )
    reader = csv.DictReader(lines)
    if missing := [c for c in COLUMNS if c not in (reader.fieldnames or ())]:
        raise BadInput(
            f"the table of collectives has no column {', '.join(missing)}"
        )
    for i, row in enumerate(reader):
        name = re.sub("[_-]", "", plain(row, "collective")[:40].lower())
        compared = RowComparison(
            f"{name}-{i + 1}",
            f"{network} {name}",
            "collective_time",
            chip=network,
        )
        try:
            predicted, measured = _seconds(row, name, fabric)
        except BadInput as error:
            yield replace(compared, quantity=None, skipped=str(error), chip="")
        else:
            yield replace(compared, predicted=predicted, measured=measured)


def _seconds(row: Row, name: str, fabric: Fabric) -> tuple[float, float]:
    """(predicted, measured) seconds of a line; BadInput says why there are none."""
    group = demand_whole(row, "gpus_per_node"), demand_whole(row, "nodes")
    size = positive_number(row, "size_bytes")
    seconds = positive_number(row, "time_mean_s")
    if name not in KINDS:
        raise BadInput(
            f"collective {brief(row['collective'])} is not modelled"
        )
    if size is None or seconds is None:
        raise BadInput("size or time is not a positive number")
    if group == (1, 1):
        raise BadInput("one rank sends nothing")
    return float(fabric.time(KINDS[name], size, group)), seconds


def _lines(text: str) -> list[str]:
    return [
        line
        for line in text.splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
