"""What a prediction takes from beyond what `calibrate` measured: features of the engine, sizes
outside of a table.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..cost import measured
from ..cost.chip import ChipRates
from ..count.microbatch import DeviceMicrobatch
from ..count.model import Counts
from ..num import product
from .cpu import features, why_no_cpu_time

MOST = 4
"""Sentences; the rest is counted."""


def beyond(counts: Counts, rates: ChipRates) -> list[str]:
    """A sentence for each measured feature of the engine, kernel or collective that a microbatch of
    a (placed) layout of numbers uses outside of its range. rates: of its chip.
    """
    sentences = list(
        dict.fromkeys(
            [
                *_engine(counts.microbatch),
                *_kernels(counts, rates),
                *_messages(counts),
            ]
        )
    )
    more = [
        f"{len(sentences) - MOST} more kernels and collectives are outside their measured ranges"
    ]
    return sentences[:MOST] + (more if len(sentences) > MOST else [])


def _engine(microbatch: DeviceMicrobatch) -> Iterator[str]:
    """Of the engine, where measurements are asked for."""
    job, layout = microbatch.job, microbatch.layout
    if not job.cluster.engine or job.how.chip.model != "calibrated":
        return
    if why := why_no_cpu_time(job, layout):
        yield f"CPU seconds are not predicted: {why}"
        return
    for name, ranks in features(layout).items():
        known = job.cluster.engine[name].ranks
        if not known[0] <= ranks <= known[-1]:
            measured_at = (
                f"{known[0]:g} to {known[-1]:g}"
                if len(known) > 1
                else f"{known[0]:g}"
            )
            yield (
                f"engine {name} is used outside its measured range: ranks {ranks:g} (measured"
                f" {measured_at})"
            )


def _kernels(counts: Counts, rates: ChipRates) -> Iterator[str]:
    """Of the chip."""
    if counts.microbatch.job.how.chip.model != "calibrated":
        return
    tables = rates.kernels
    for op in counts.operations:
        for work in (op.forward, op.backward):
            table = tables.get(work.kernel)
            if table and (
                phrase := measured.axes_outside(
                    table, [float(x) for x in work.sizes]
                )
            ):
                yield f"{work.kernel} is used outside its measured range: {phrase}"


def _messages(counts: Counts) -> Iterator[str]:
    """Of the network."""
    job, layout = counts.microbatch.job, counts.microbatch.layout
    if job.how.network.collective != "measured":
        return
    for op in counts.operations:
        for message in (*op.forward.comm, *op.backward.comm):
            group = layout.group(message.axis)
            for g, dim in zip(group, job.cluster.network.dims, strict=True):
                table = dim.collectives.get(message.kind)
                n = float(product(group))
                if (
                    table
                    and g == n > 1
                    and (
                        phrase := measured.axes_outside(
                            table, (n, float(message.bytes))
                        )
                    )
                ):
                    yield f"{message.kind} is used outside its measured range: {phrase}"
