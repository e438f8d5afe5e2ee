"""Layouts of published runs can be written and predicted, and hold on each device what their
reports say.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from meshwright import Job, Layout, predict
from meshwright.layout.placement import placed
from meshwright.layout.rules import broken
from meshwright.layout.stages import (
    stage_count,
    stage_layers,
    stage_numbers,
)
from meshwright.prediction.replay import replay

RUNS = {
    # Llama 3 405B, arXiv 2407.21783, section 3.3: a layer a stage, embedding and head fill the
    # first and the last
    "llama3-405b": (
        "16384xh100-sxm",
        2048,
        Layout(
            tp=8, pp=16, dp=128, schedule="interleaved", interleave=8, zero=1
        ),
    ),
    # DeepSeek-V3, arXiv 2412.19437, sections 3.2 and 3.4: norms and MLA up-projections are
    # recomputed
    "deepseek-v3": (
        "2048xh800",
        15360,
        Layout(
            pp=16,
            dp=128,
            ep=64,
            schedule="dualpipe",
            zero=1,
            recompute="layernorm+mla_up_proj",
        ),
    ),
    # OLMo-core, src/scripts/official/OLMo2: HSDP, activations of whole blocks recomputed
    "olmo2-32b": (
        "1024xh100-sxm",
        2048,
        Layout(
            dp=1024, dp_replicate=4, zero=3, recompute="full", microbatch=2
        ),
    ),
    # PaLM 540B, arXiv 2204.02311, section 4: two pods of 12 x 256, weights sharded inside a pod,
    # copies across; one activation of each layer stays, cut over both axes (and no microbatches are
    # named: all four sequences of a replica at once)
    "palm-540b": (
        "6144xtpu-v4",
        2048,
        Layout(
            tp=12,
            dp=512,
            dp_replicate=2,
            zero=3,
            recompute="full",
            microbatch=4,
            scheme="gspmd",
        ),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_it_is_accepted_and_predicted(name: str) -> None:
    on, batch, layout = RUNS[name]
    job = Job(name, on, batch)
    assert broken(job, placed(layout, job.cluster.sizes)) == []
    p = predict(job, layout)
    assert 0.05 < p.mfu < 0.7


def test_deepseek_v3_holds_every_stage_twice() -> None:
    """61 layers in 16 stages: four in most, three in three of them, the last, the first and the
    one before the last. Rank 0 holds stages 0 and 15 and so does rank 15; gradients are added up over 128 replicas and both
    copies, and those of an expert over 2 x 2."""
    on, batch, layout = RUNS["deepseek-v3"]
    stages = [len(one) for one in stage_layers(61, 16)]
    assert stages == [3, *[4] * 13, 3, 3]
    assert stage_numbers(layout, 0) == [0, 15]
    assert stage_numbers(layout, 15) == [15, 0]
    assert stage_count(layout) == 16
    p = predict(Job("deepseek-v3", on, batch), layout)
    assert math.prod(p.layout.group("replicas")) == 256 == layout.replicas
    assert math.prod(p.layout.group("edp")) == 4 == layout.expert_replicas
    assert math.prod(p.layout.group("ep")) == 64
    # as much as DualPipeV on half the ranks, whose turn needs no send
    folded = replace(layout, schedule="dualpipev", pp=8, dp=256)
    other = predict(p.job, folded)
    assert p.memory_bytes == other.memory_bytes
    assert 0 <= p.step_time_s / other.step_time_s - 1 < 2e-4
    assert p.replayed_s >= p.step_time_s * (1 - 1e-9)


def test_who_runs_dualpipe_is_told_how_to_hide_the_all_to_all() -> None:
    """Its authors run two microbatches at once for that; the default framework does not by
    itself, and with the all-to-all hidden there is nothing to say."""
    on, batch, layout = RUNS["deepseek-v3"]
    job = Job("deepseek-v3", on, batch)
    said = "--ep-overlap true"
    alone = predict(job, layout)
    assert any(said in note for note in alone.notes)
    hidden = predict(
        replace(job, software=replace(job.software, ep_overlap=True)), layout
    )
    assert not any(said in note for note in hidden.notes)
    assert hidden.time_s["ep_comm"] < alone.time_s["ep_comm"]
    plain = predict(job, replace(layout, schedule="1f1b"))
    assert not any(said in note for note in plain.notes)


def test_palm_fits_only_with_its_activations_cut() -> None:
    """12 chips cannot cut 4 x 2,048 tokens, and whole activations of 118 layers, 4 x 2,048 x 18,432
    numbers each, take 33 GiB of the 32 GB of a chip; cut along the hidden size a twelfth of that.
    A step of 4 Mi tokens took 17.6 s (238.3 thousand tokens/s, table 3; MFU 46.2 %), with 57.8 % of
    the peak in all that ran: a quarter more, where a whole layer again were a third."""
    on, batch, layout = RUNS["palm-540b"]
    job = Job("palm-540b", on, batch)
    along = replace(layout, scheme="megatron")
    (why,) = broken(job, placed(along, job.cluster.sizes))
    assert "4 x 2048 tokens cannot be split over cp 1 and tp 12" in why
    p = predict(job, layout)
    whole = predict(job, replace(along, sequence_parallel=False))
    between = 118 * 4 * 2048 * 18432 * 2
    assert whole.memory_bytes["activations"] > between
    assert not whole.fits and p.fits
    gain = whole.memory_bytes["activations"] - p.memory_bytes["activations"]
    assert gain > between * 11 / 12
    assert 0.75 < p.step_time_s / (batch * 2048 / 238.3e3) < 1.0
    assert p.hfu / p.mfu == pytest.approx(57.8 / 46.2, rel=0.04)


def test_405_billion_replayed_exactly() -> None:
    """As Megatron writes it, embedding and loss as layers: the closed form is the longest path."""
    on, batch, layout = RUNS["llama3-405b"]
    job = Job("llama3-405b", on, batch)
    seconds = {
        how: replay(predict(job, replace(layout, stages=how)))
        for how in ("even", "slots", "E|(t|)*126L")
    }
    for one in seconds.values():
        assert one.closed_s == pytest.approx(one.exact_s, rel=1e-9)
    assert len({round(one.exact_s, 9) for one in seconds.values()}) == 1
