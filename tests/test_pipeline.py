"""The closed form of a pipeline's time against its exact timeline, where sends are slow."""

from __future__ import annotations

import pytest

from meshwright import catalog, predict
from meshwright.replay import replay
from meshwright.spec.job import Job
from meshwright.spec.layout import Layout


@pytest.mark.parametrize("network", ["dgx-h100", "ethernet-100g"])
@pytest.mark.parametrize(("schedule", "v"), [("1f1b", 1), ("interleaved", 2), ("interleaved", 4)])
def test_sends_hide_only_behind_what_there_is(network: str, schedule: str, v: int) -> None:
    layout = Layout(tp=8, pp=8, dp=1, interleave=v, schedule=schedule)
    prediction = predict(Job(catalog.model("llama3-8b"), catalog.cluster("64xh100-sxm", network), 64, layout))
    found = replay(prediction)
    closed, exact = float(prediction._step.pipeline.total), found.timeline.makespan_s
    assert closed > 0.85 * exact, (closed, exact)
