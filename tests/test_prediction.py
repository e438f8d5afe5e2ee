"""What a prediction says about itself: how sure it is, what follows from its step time."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest

from by_hand import FREE, MODEL, by_hand
from meshwright import Job, Layout, MoE, predict
from meshwright.describe.assumptions import REALISTIC, Assumptions

MODULES = [
    importlib.import_module(f"meshwright.prediction.{name}")
    for name in ("prediction", "result")
]


def test_utilisation_is_work_over_time_and_peak() -> None:
    """One chip, one sequence, two layers: 3 s each at the peak; the model's FLOPs count attention
    once, uncut.
    """
    p = by_hand(Layout())
    assert p.step_time_s == pytest.approx(6.0)
    assert p.mfu == pytest.approx(1.0)
    # 8 s, a third more work
    assert by_hand(Layout(recompute="full")).hfu == pytest.approx(1.0)
    assert by_hand(Layout(recompute="full")).mfu == pytest.approx(6 / 8)
    assert p.tokens_per_s == pytest.approx(128 / 6)


def test_a_token_passes_the_active_parameters() -> None:
    """Of four experts two, and the router of all."""
    p = by_hand(Layout(), model=replace(MODEL, moe=MoE(4, 2, 64)))
    said = p.to_dict()
    for name, experts in (("parameters", 4), ("active_parameters", 2)):
        layer = 4 * 64 * 64 + 64 * 4 + experts * 2 * 64 * 64
        assert said[name] == 2 * layer


def test_energy_and_days_need_a_length() -> None:
    p = by_hand(Layout())
    assert (p.train_time_s, p.energy_j, p.chip_hours, p.cost_usd) == (
        None,
    ) * 4
    assert replace(
        p, job=replace(p.job, tokens=256.0)
    ).train_time_s == pytest.approx(12.0)


def test_a_step_is_counted_once_whether_it_fits_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The note on what does not fit changes nothing that was computed."""
    counted = []
    count = MODULES[0].count_microbatch

    def once(*args: Any, **how: Any) -> Any:
        counted.append(args)
        return count(*args, **how)

    for module in MODULES:
        monkeypatch.setattr(module, "count_microbatch", once)
    for zero, fits in ((3, True), (0, False)):
        layout = Layout(dp=64, zero=zero, recompute="full")
        p = predict(Job("llama3-8b", "64xh100-sxm", 64), layout)
        other = replace(p)
        assert p.fits is fits and p.replayed_s > 0 and len(counted) == 1
        assert any("runs out" in note for note in p.notes) is not fits
        assert other.to_dict() == p.to_dict() and len(counted) == 2
        counted.clear()


def test_chunks_of_a_device_that_is_alone_are_said_to_change_nothing() -> None:
    job = Job("llama3-70b", "64xh100-sxm", 128)
    alone = Layout(tp=8, dp=8, zero=1)
    chunks = {"interleave": 4, "schedule": "interleaved"}
    plain, named = predict(job, alone), predict(job, replace(alone, **chunks))
    assert (named.time_s, named.memory_bytes) == (
        plain.time_s,
        plain.memory_bytes,
    )
    [note] = {*named.notes} - {*plain.notes}
    assert note.startswith("interleave 4 has no effect on time with pp 1")
    piped = predict(job, replace(alone, dp=4, pp=2, **chunks))
    assert not [note for note in piped.notes if "interleave" in note]


def test_an_mfu_above_the_peak_says_what_the_set_does_not_time() -> None:
    """Olmo 2 7B: of a token's FLOPs 6 V D are the head's, 6 L (4 D^2 + 3 D F) those of the layers'
    matrices, 12 L T D those of attention.
    """
    layout = Layout(tp=4, cp=2, microbatch=4, zero=3)
    job = Job("olmo2-7b", "8xa100-80", 64, layout, seq=4096)
    p = predict(replace(job, assumptions="scaling-book-sum"))
    V, L, D, F, T = 100_352, 32, 4096, 11_008, 4096
    head = 6 * V * D
    layers = 6 * L * (4 * D * D + 3 * D * F) + 12 * L * T * D
    share = f"{100 * head / (head + layers):.1f} %"
    (note,) = (n for n in p.notes if n.startswith("MFU is above 100 %"))
    assert p.mfu > 1 and "scaling-book-sum do not time embedding" in note
    assert share in note
    assert not any("MFU" in note for note in predict(job).notes)


def test_an_optimizer_on_the_host_that_nobody_times_is_said() -> None:
    layout = Layout(tp=4, dp=16, zero=1, offload="optimizer")
    job = Job("llama3-8b", "64xh100-sxm", 64, layout)
    free = "do not time the optimizer step"
    said = predict(replace(job, assumptions="lbl-2024")).notes
    assert any(free in note for note in said)
    assert not any(free in note for note in predict(job).notes)
    here = replace(job, layout=replace(layout, offload="none"))
    said = predict(replace(here, assumptions="lbl-2024")).notes
    assert not any(free in note for note in said)


def test_a_set_without_communication_is_no_advice_on_where_degrees_go() -> (
    None
):
    """Tensor parallelism across nodes costs what it costs inside one."""

    def asked(how: Assumptions, **layout: Any) -> list[str]:
        job = Job("gpt3-175b", "64xselene", 64, assumptions=how)
        return [
            note
            for note in predict(job, Layout(**layout)).notes
            if "cannot say where to place" in note
        ]

    wide = {"tp": 32, "pp": 2, "sequence_parallel": False}
    (said,) = asked(FREE, **wide)
    assert "free have no communication" in said and "tp 32" in said
    assert not asked(FREE, tp=1, pp=8, dp=8)
    assert not asked(REALISTIC, **wide)
