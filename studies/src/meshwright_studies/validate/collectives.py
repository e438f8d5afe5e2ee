"""Measured collectives (the CSV of `formats.nccl_tests`) against the network model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from meshwright import catalog
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import Assumptions
from meshwright.formats.nccl_tests import Sample, load_samples

from .comparison import RowComparison
from .rows import lines_without_remarks, text_of_rows

UNREAD = "not a collective that is modelled, of two ranks or more, with a size and a time"


def is_table(text: str) -> bool:
    """Does the text look like such a table (its first line that is no remark is the header)?"""
    header = next(iter(lines_without_remarks(text[:10_000])), "").split(",")
    return {"collective", "size_bytes"} <= set(header)


def read_collectives(file: str | Path) -> tuple[tuple[Sample, ...], int]:
    """The collectives of a table, and how many of its lines are none."""
    samples = tuple(s for s in load_samples(file) if s.kind != "send")
    lines = lines_without_remarks(text_of_rows(file))
    return samples, len(lines) - 1 - len(samples)


def collective_name(sample: Sample) -> str:
    """As tables have it."""
    return sample.kind.replace("_", "")


def predicted_s(sample: Sample, fabric: Fabric) -> float:
    """Seconds by the network model."""
    group = float(sample.per_node), float(sample.nodes)
    return float(fabric.time(sample.kind, sample.bytes, group))


def compare_collectives(
    file: str | Path, network: str, assumptions: Assumptions
) -> Iterator[RowComparison]:
    """Each line beside its prediction, or skipped."""
    fabric = Fabric.from_network(catalog.network(network), assumptions.network)
    samples, unread = read_collectives(file)
    for i, sample in enumerate(samples, 1):
        name = collective_name(sample)
        yield RowComparison(
            f"{name}-{i}",
            f"{network} {name}",
            "collective_time",
            predicted=predicted_s(sample, fabric),
            measured=sample.seconds,
            chip=network,
        )
    for _ in range(unread):
        yield RowComparison("", network, None, skipped=UNREAD)
