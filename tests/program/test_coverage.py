"""Notes on collectives beyond what was measured of them."""

from __future__ import annotations

from dataclasses import replace

from by_hand import SET, by_hand
from meshwright import Dim, Job, Layout, Network
from meshwright.count.model import count_microbatch
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.measured import MeasuredTable
from meshwright.layout.placement import placed
from meshwright.program.coverage import beyond
from meshwright.step import clock_of

HIDDEN = 128 * 64 * 2
"""Bytes of the hidden states of a microbatch: 128 tokens of width 64 in 16 bits."""


def job_on(layout: Layout, *bytes_: float) -> Job:
    """All-gathers of two ranks were measured with messages of so many bytes."""
    table = MeasuredTable(
        ("ranks", "bytes"), ((2.0,), bytes_), (1e-3,) * len(bytes_)
    )
    dim = Dim("switch", 1e9, 0.0, collectives={"all_gather": table})
    job = by_hand(layout).job
    cluster = replace(job.cluster, network=Network("measured", (dim,)))
    how = replace(SET, network=NetworkTime("measured"))
    return replace(job, cluster=cluster, assumptions=how)


def test_collectives_beyond_what_was_measured_are_said() -> None:
    """tp 2 gathers hidden states; what is measured on both sides of them, or is not asked for
    its measurements, or has no group, is not said."""
    layout = placed(Layout(tp=2, dp=1), (2,))

    def said(job: Job, at: Layout = layout) -> list[str]:
        rates = clock_of(job).rates
        return beyond(count_microbatch(job, at), rates)

    small = job_on(layout, 1.0, HIDDEN / 2)
    assert {*said(small)} == {
        f"all_gather is used outside its measured range: bytes {HIDDEN}"
        f" (measured 1 to {HIDDEN // 2})"
    }
    assert said(job_on(layout, 1.0, 2.0 * HIDDEN)) == []
    assert said(replace(small, assumptions=SET)) == []
    alone = placed(Layout(dp=1), (1,))
    assert said(job_on(alone, 1.0, 2.0), alone) == []
