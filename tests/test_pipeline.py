"""Stages of a model that has few layers, or whose layers do not divide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout, catalog, predict
from meshwright.layout.stages import stage_layers
from refusals import refusal


def test_too_few_layers_are_told_in_the_chunks_of_the_schedule() -> None:
    """dualpipev cuts a device's layers in two, whatever interleave says."""
    job = Job(
        replace(catalog.model("llama3-8b"), layers=4),
        "8xh100-sxm",
        64,
    )
    with refusal(r"4 layers are too few for pp 4 x 2 chunks \(dualpipev\)"):
        predict(job, Layout(pp=4, dp=2, schedule="dualpipev"))
    with refusal("4 layers are too few for pp 8: a chunk needs a layer"):
        predict(job, Layout(pp=8))


@pytest.mark.parametrize("v", range(2, 9))
def test_devices_hold_the_layers_of_their_chunks(v: int) -> None:
    """Llama 3 405B, 126 layers on 16 ranks: 8 layers on most ranks whatever v, and 128 chunks with
    embedding and head as two of them (Llama Team 2024, arXiv 2407.21783, section 3.3.2)."""
    layout = Layout(
        tp=8, pp=16, dp=128, interleave=v, schedule="interleaved", zero=0
    )
    found = predict(
        Job(
            "llama3-405b",
            "16384xh100-sxm",
            2048,
        ),
        layout,
    )
    of = stage_layers(126, 16 * v)
    held = {
        rank: sum(len(of[rank + 16 * chunk]) for chunk in range(v))
        for rank in (0, 1, 15)
    }
    layer, ends = (
        found.cost.typical.weights,
        {
            0: found.cost.embedding.weights,
            1: 0.0,
            15: found.cost.head.weights,
        },
    )
    for end, rank in (("first", 0), ("second", 1), ("last", 15)):
        weights = held[rank] * layer + ends[rank]
        assert found.memory_by_stage[end].weights == pytest.approx(
            weights * found.job.precision.weight_bytes
        )
    slowest = max(held.values()) * 3 * found.microbatches
    assert (
        found.time_s["compute"]
        < 1.2 * slowest * found.cost.typical.causes.forward.compute
    ), "nothing is padded"


def test_no_more_chunks_than_layers_and_ends() -> None:
    job = Job("llama3-405b", "16384xh100-sxm", 2048)
    with refusal(
        r"126 layers are too few for pp 16 x 9 chunks .*embedding and head"
    ):
        predict(
            job,
            Layout(tp=8, pp=16, dp=128, interleave=9, schedule="interleaved"),
        )
