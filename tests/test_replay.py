"""The replay of a predicted pipeline: exact where stages are equal, complete where they are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from by_hand import FREE
from meshwright import Job, Layout, predict
from meshwright.catalog import cluster, model
from meshwright.describe.assumptions import SETS, Assumptions
from meshwright.layout.placement import placed
from meshwright.prediction import exact
from meshwright.prediction import replay as module
from meshwright.prediction.exact import passes_of_stages
from meshwright.prediction.replay import replay, timeline
from meshwright.schedule import SCHEDULES
from meshwright.schedule import get as schedule_named
from meshwright.step import StepCosts, clock_of, model_cost, whole_step
from refusals import refusal

LAYERS_ONLY = replace(FREE, count=replace(FREE.count, vocabulary=False))


def job(assumptions: Assumptions = LAYERS_ONLY) -> Job:
    """GPT-3 on a network that takes no time."""
    machine = cluster("64xa100-80")
    dims = tuple(
        replace(dim, bandwidth=1e30, latency=0.0)
        for dim in machine.network.dims
    )
    machine = replace(machine, network=replace(machine.network, dims=dims))
    return Job("gpt3-175b", machine, 64, assumptions=assumptions)


OVERLAPPED = replace(
    LAYERS_ONLY, overlap=replace(LAYERS_ONLY.overlap, step_barrier="none")
)


@pytest.mark.parametrize("batch", [24, 64])
def test_zero_bubble_alone_and_in_a_run(batch: int) -> None:
    """ZB-H2 without a barrier between steps, Qi et al. 2024, table 2: of equal stages (7 hops of
    F + I - 2 W) as its closed form says; a step by itself takes longer, and that is said.
    """
    layout = Layout(tp=8, pp=8, dp=1, schedule="zb-h2")
    alone, in_run = (
        replay(predict(replace(job(a), batch=batch), layout))
        for a in (LAYERS_ONLY, OVERLAPPED)
    )
    assert in_run.exact_s == pytest.approx(in_run.closed_s, rel=1e-9)
    assert (
        alone.exact_s
        == alone.timeline.makespan_s
        == in_run.timeline.makespan_s
        >= in_run.exact_s * (1 - 1e-9)
    )
    f, i, w = in_run.stages[0]
    assert in_run.exact_s == pytest.approx(
        batch * (f + i + w) + max(0, 7 * (f + i - 2 * w))
    )
    assert in_run.bubble_fraction == pytest.approx(
        1 - batch * (f + i + w) / in_run.exact_s
    )
    assert "a step by itself takes" in in_run.notes[0] and not alone.notes


@pytest.mark.parametrize(
    ("pp", "schedule"),
    [(16, "1f1b"), (4, "dualpipev"), (1, "1f1b"), (1, "zbv")],
)
def test_stages_add_up_to_the_model(pp: int, schedule: str) -> None:
    j = Job("deepseek-v3", "64xh100-sxm", 64, assumptions=FREE)
    layout = Layout(pp=pp, dp=64 // pp, schedule=schedule)
    full = placed(layout, j.cluster.sizes)
    parts = model_cost(j, full)
    whole = (
        (58 + 1) * parts.layers[0].forward  # and that of further tokens
        + 3 * parts.layers[1].forward
        + parts.embedding.forward
        + parts.head.forward
    )
    costs = StepCosts(j, full, parts, clock_of(j))
    passes = passes_of_stages(costs)
    assert len(passes) == schedule_named(schedule).stage_count(pp, 1)
    assert passes[:, 0].sum() == pytest.approx(whole)


def test_too_long_a_timeline_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_ACTIONS", 1000)
    p = predict(job(), Layout(tp=8, pp=8, dp=1))
    with refusal("1,024 actions"):
        replay(p)


def test_a_long_order_is_replayed_where_it_repeats_and_said_where_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """96 layers on 64 stages: the bound of 400 microbatches is below their replay."""
    on = Job("gpt3-175b", "512xh100-sxm", batch=400)
    layouts = [
        Layout(tp=8, pp=64, schedule=name) for name in ("1f1b", "gpipe")
    ]
    whole = [predict(on, layout) for layout in layouts]
    assert all(p.replayed for p in whole)
    monkeypatch.setattr(exact, "MOST_ACTIONS", 40_000)
    repeated, long = (predict(on, layout) for layout in layouts)
    assert repeated.replayed and not long.replayed
    assert repeated.step_time_s == pytest.approx(whole[0].step_time_s)
    monkeypatch.setattr(exact, "MOST_ACTIONS", 30_000)
    bound = predict(on, layouts[0])
    assert not bound.replayed
    assert bound.step_time_s < whole[0].step_time_s * (1 - 1e-3)
    said = [
        any("to be replayed" in note for note in p.notes)
        for p in (repeated, long, bound)
    ]
    assert said == [False, True, True]


def test_the_closed_form_is_the_step_without_what_comes_after() -> None:
    p = predict(
        Job("gpt3-175b", "64xa100-80", 64),
        Layout(tp=4, pp=8, dp=2),
    )
    assert p.time_s["pp_comm"] > 0 and p.time_s["dp_comm"] > 0
    after = sum(
        p.time_s[cause]
        for cause in ("dp_comm", "overlap_slowdown", "optimizer", "other")
    )
    assert replay(p).closed_s == pytest.approx(p.step_time_s - after)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h2", "zbv", "dualpipev"])
def test_the_fields_of_a_timeline_follow_from_each_other(
    schedule: str,
) -> None:
    """A rank is busy or idle; idle time over all time and over useful time; microbatches pass every
    rank.
    """
    p = predict(job(OVERLAPPED), Layout(tp=8, pp=8, schedule=schedule))
    said, one = replay(p).to_dict(), replay(p)
    m, ranks = said["microbatches"], said["ranks"]
    assert (m, ranks, said["schedule"]) == (64, 8, schedule)
    for busy, idle in zip(said["busy_s"], said["idle_s"], strict=True):
        assert busy + idle == pytest.approx(said["makespan_s"])
    useful, every = sum(said["busy_s"]), said["exact_s"] * ranks
    stages = [sum(stage.values()) for stage in said["stage_s"]]
    assert useful == pytest.approx(m * sum(stages))
    assert said["bubble_fraction"] == pytest.approx(1 - useful / every)
    assert said["bubble_over_useful"] == pytest.approx(every / useful - 1)
    assert said["exact_s"] <= said["makespan_s"] * (1 + 1e-9)
    assert said["difference"] == pytest.approx(
        said["closed_form_s"] / said["exact_s"] - 1
    )
    assert said["send_s"] == max(one.sends_s)
    assert len(said["in_flight_microbatches"]) == ranks
    assert said["bubble_of_equal_stages"] == pytest.approx(
        said["bubble_over_useful"], abs=2e-3
    )
    assert said["notes"] == [*one.notes, *p.notes]


@pytest.mark.parametrize("barrier", ["global norm", "none"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_prediction_replays_stages_that_differ(
    schedule: str, barrier: str
) -> None:
    """Two layers in some stages and one in others: what the search takes for it is at most the
    longest path, what a prediction says is the longest path."""
    kind = schedule_named(schedule)
    interleave = next(v for v in (3, 1, 2) if kind.legal(4, 8, v))
    stages = int(kind.stage_count(4, interleave))
    sets = SETS["realistic"]
    sets = replace(sets, overlap=replace(sets.overlap, step_barrier=barrier))
    one = Job(
        replace(model("llama3-8b"), layers=stages + 3, vocab=0),
        "4xh100-sxm",
        8,
        assumptions=sets,
    )
    p = predict(one, Layout(pp=4, schedule=schedule, interleave=interleave))
    exact = replay(p)
    assert exact.closed_s == pytest.approx(exact.exact_s, rel=1e-9)
    assert kind.split_backward or not exact.notes
    assert min(p.time_s.values()) >= -1e-9
    assert sum(p.time_s.values()) == pytest.approx(p.step_time_s, rel=1e-12)
    bound = whole_step(
        p.job, p.layout, model_cost(p.job, p.layout)
    ).pipeline.total
    assert bound <= (1 + 1e-9) * exact.exact_s
    assert p.term.value == pytest.approx(p.step_time_s, rel=1e-9)


def test_one_device_is_never_less_than_idle() -> None:
    """A device that waits for nobody is busy all the time, whatever sums of its actions round
    to."""
    on = cluster("64xh100-sxm")
    for sequences in (2, 3, 5, 7, 11, 64):
        layout = Layout(dp=64, zero=2)
        job = Job("llama3-8b", on, 64 * sequences, layout)
        idle = replay(predict(job)).bubble_fraction
        assert 0 <= idle < 1e-9


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ({"pp": 8}, 7 / 24),
        ({"pp": 8, "interleave": 3}, 7 / (3 * 24)),
        ({"pp": 4, "schedule": "gpipe"}, 3 / 24),
    ],
)
def test_the_bubble_of_equal_stages_is_the_papers(
    words: dict[str, Any], share: float
) -> None:
    """(p - 1) / (v m), Narayanan et al. 2021, section 2.2; a real pipeline has no less."""
    job = Job("gpt3-175b", "64xa100-80", batch=24)
    exact = timeline(job, tp=8, dp=1, **words)
    assert exact.bubble_of_equal_stages == pytest.approx(share)
    assert exact.bubble >= share * 0.999
