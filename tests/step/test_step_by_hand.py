"""Small pieces of the sum of a step, with numbers for which every sign and factor shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import MODEL, SET, by_hand
from meshwright.catalog import cluster
from meshwright.catalog import model as catalogue
from meshwright.cost.load import Busy, Load
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.layout.placement import placed
from meshwright.schedule import get as schedule_named
from meshwright.step import model_cost, step
from meshwright.step.pipeline import carried
from meshwright.step.shares import ModelShare


def test_layers_that_recompute_are_a_share_of_their_chunk() -> None:
    """ "full:2" of chunks of 8 layers is a quarter; of chunks of one layer all; without a number
    all.
    """
    eight, one = (ModelShare((8.0,), 0.0, 0.0, chunk) for chunk in (8.0, 1.0))
    assert eight.again("full:2") == 0.25
    assert one.again("full:2") == 1.0
    assert eight.again("full") == 1.0


@pytest.mark.parametrize(
    ("schedule", "v", "chunks"), [("1f1b", 1, 1), ("interleaved", 4, 4)]
)
def test_each_chunk_sends_forward_and_backward(
    schedule: str, v: int, chunks: int
) -> None:
    """10 microbatches, a message keeps a link for 3 s: 2 x 10 x chunks of them."""
    send = Load(3.0, 0.0, Busy((3.0,)))
    assert (
        carried(10.0, send, schedule_named(schedule), v)[0]
        == 2 * 10 * chunks * 3.0
    )


def test_a_bound_is_what_the_slowest_device_computes_and_its_pauses() -> None:
    """Eight microbatches of 3 s on four devices, 1F1B: 3 of them more, and no sends."""
    order = replace(SET.overlap, pp="interleaved")
    layout = Layout(pp=4, dp=1)
    at = by_hand(layout, 8, model=replace(MODEL, layers=4), overlap=order).job
    layout = placed(layout, at.cluster.sizes)
    bound = step(at, layout, model_cost(at, layout))
    assert (bound.pipeline.busy, bound.pipeline.bubble) == (24.0, 9.0)
    assert bound.total == pytest.approx(33.0)


def test_a_step_is_the_closed_form_unless_a_replay_is_asked_for() -> None:
    """Seventeen layers on the eight stages of a V: its order takes longer than the bound."""
    layout = Layout(pp=4, dp=1, schedule="dualpipev", interleave=2)
    at = Job(
        replace(catalogue("llama3-8b"), layers=17),
        cluster("4xh100-sxm"),
        24,
        layout=layout,
    )
    layout = placed(layout, at.cluster.sizes)
    parts = model_cost(at, layout)
    plain = step(at, layout, parts).total
    closed, replay = (
        step(at, layout, parts, replay=how).total for how in (False, True)
    )
    assert plain == closed < replay
