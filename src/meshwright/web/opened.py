"""What stands behind a number of the page: its formula, values, source and parts, as
`predict --explain` prints them; and the machine that a layout is placed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..describe.cluster import Cluster
from ..num import product
from ..prediction.prediction import Prediction
from ..report import explain as tree
from ..report.console import envelope
from ..search import Progress
from .answers import Answer, Body, prediction_of

GROUPS = ("tp", "cp", "ep", "dp", "pp")
"""Axes whose ranks send messages to each other."""


def explain(body: Body, progress: Progress) -> Answer:
    """The terms of a prediction that a path names, each with its parts, one level deep."""
    terms = tree.explanation_to_dict(
        prediction_of(body, []), body.get("term") or "step_time"
    )
    for term in terms:
        for part in term["parts"]:
            part["inside"] = len(part.pop("parts"))
    return envelope("explain", {"terms": terms})


def machine(body: Body, progress: Progress) -> Answer:
    """Chip and network of a layout, and where its groups lie: who sends what over which links."""
    p = prediction_of(body, [])
    cluster = p.job.cluster
    return envelope(
        "machine",
        {
            "chips": cluster.chips,
            "chip": chip_fields(p),
            "dims": dims(cluster),
            "groups": list(group_rows(p)),
        },
    )


def chip_fields(p: Prediction) -> dict[str, Any]:
    """What a chip can do, in the precision of the job."""
    chip = p.job.cluster.chip
    compute = p.job.precision.compute
    return {
        "name": chip.name,
        "precision": compute,
        "peak_flops": chip.peak(compute),
        "memory_bytes": chip.hbm_bytes,
        "memory_bytes_per_s": chip.hbm_bandwidth,
    }


def dims(cluster: Cluster) -> list[dict[str, Any]]:
    """The dimensions of the network, nearest first, with the members that the chips fill."""
    return [
        {
            "name": dim.name,
            "kind": dim.kind,
            "bytes_per_s": dim.bandwidth,
            "members": size,
        }
        for dim, size in zip(cluster.network.dims, cluster.sizes, strict=True)
    ]


def group_rows(p: Prediction) -> Iterator[dict[str, Any]]:
    """The groups of more than one rank: ranks in each dimension, the farthest link that a group
    needs, and the seconds of a step that its messages take, of which some hide.
    """
    names = [dim.name for dim in p.job.cluster.network.dims]
    for axis in GROUPS:
        ranks = p.layout.group(axis)
        if product(ranks) <= 1:
            continue
        cause = f"{axis}_comm"
        term = p.term.find(cause)
        sent = [part.value for part in term.parts] if term else []
        far = max(i for i, n in enumerate(ranks) if n > 1)
        yield {
            "axis": axis,
            "ranks": list(ranks),
            "link": names[far],
            "exposed_s": p.time_s[cause],
            "sent_s": sum(value for value in sent if value > 0),
        }
