"""DeepSpeed of today, by hand: what it holds of a parameter, and how it exchanges gradients."""

from __future__ import annotations

import pytest

from meshwright import Job, Layout, predict
from meshwright.describe.framework import framework
from meshwright.describe.software import Software
from meshwright.layout.practice import not_proposed
from meshwright.step.holding import parameter_bytes
from meshwright.step.memory import step_copies
from meshwright.step.zero import States

GIVEN = {"framework": "deepspeed"}
RANKS = 8


def job(model: str = "llama3-8b", **more: object) -> Job:
    return Job(model, f"{RANKS}xh200-sxm", 8, **{**GIVEN, **more})


def test_gradients_are_copied_for_the_step_a_group_at_a_time() -> None:
    """Flattened (2) and in fp32 (4): of ZeRO-3 at most 1e9 parameters at once."""
    some, layout = job("llama3-70b"), Layout(dp=RANKS, zero=3)
    each = parameter_bytes(some, 3)
    living = States(0.0, 0.0, 5e9 * some.state_bytes)
    assert step_copies(some, layout, living, each) == 6e9
    whole = step_copies(some, Layout(dp=RANKS, zero=2), living, each)
    assert whole == 5e9 * 6


def test_buckets_below_stage_3_are_summed_whole_on_every_rank() -> None:
    """runtime/zero/stage_1_and_2.py all-reduces them; stage 3 scatters: half of the bytes. An
    all-reduce of ZeRO-1 takes as long as that of ZeRO-0, and all weights are gathered after it."""
    how = framework("deepspeed").weights
    assert [how.summed_whole(zero) for zero in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    seconds = [
        predict(job(), Layout(dp=RANKS, zero=zero)).time_s["dp_comm"]
        for zero in (0, 1)
    ]
    assert seconds[1] == pytest.approx(1.5 * seconds[0], rel=0.15)


def test_collectives_hide_with_stage_3_or_where_they_are_told_to() -> None:
    def waits(zero: int, overlap: str | None) -> float:
        some = job(software=Software(dp_overlap=overlap))
        return predict(some, Layout(dp=RANKS, zero=zero)).time_s["dp_comm"]

    assert waits(3, None) == waits(3, "all") < waits(3, "off") / 3
    assert waits(2, None) == waits(2, "off") > 1.5 * waits(2, "all")
    # whole weights are gathered after the update, which hides nothing
    assert waits(2, "all") > waits(3, "all")


@pytest.mark.parametrize(
    ("zero", "overlap", "words"),
    [
        (1, None, "ranks, waited for:"),
        (1, "all", "exposed after overlapping 0.8 of the backward,"),
        (3, None, "exposed after overlapping 0.8 of the pass,"),
    ],
)
def test_an_explanation_says_what_hides_at_its_stage(
    zero: int, overlap: str | None, words: str
) -> None:
    some = job(software=Software(dp_overlap=overlap))
    p = predict(some, Layout(dp=RANKS, zero=zero))
    assert words in " ".join(p.explain("dp_comm").split())


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_file_alone_starts_every_stage(zero: int) -> None:
    """A model that is cut needs more than a file: a program, or autotp_size."""
    by = framework("deepspeed")
    assert not not_proposed(by, Layout(dp=RANKS, zero=zero))
    for more in ({"tp": 2}, {"pp": 2}, {"cp": 2}):
        assert not_proposed(by, Layout(dp=RANKS // 2, zero=zero, **more))
