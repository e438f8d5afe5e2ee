"""The closed form of a pipeline's time against its exact timeline, where sends are slow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import catalog, predict
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.errors import BadInput
from meshwright.prediction.replay import replay


@pytest.mark.parametrize("network", ["dgx-h100", "ethernet-100g"])
@pytest.mark.parametrize(("schedule", "v"), [("1f1b", 1), ("interleaved", 2), ("interleaved", 4)])
def test_sends_hide_only_behind_what_there_is(network: str, schedule: str, v: int) -> None:
    layout = Layout(tp=8, pp=8, dp=1, interleave=v, schedule=schedule)
    prediction = predict(Job(catalog.model("llama3-8b"), catalog.cluster("64xh100-sxm", network), 64, layout))
    found = replay(prediction)
    closed, exact = float(prediction._step.pipeline.total), found.timeline.makespan_s
    assert closed > 0.85 * exact, (closed, exact)


def test_too_few_layers_are_told_in_the_chunks_of_the_schedule() -> None:
    """dualpipev cuts a device's layers in two, whatever interleave says."""
    job = Job(replace(catalog.model("llama3-8b"), layers=4), catalog.cluster("8xh100-sxm"), 64)
    with pytest.raises(BadInput, match=r"4 layers are too few for pp 4 x 2 chunks \(dualpipev\)"):
        predict(job, Layout(pp=4, dp=2, schedule="dualpipev"))
    with pytest.raises(BadInput, match="4 layers are too few for pp 8: a chunk needs a layer"):
        predict(job, Layout(pp=8))
