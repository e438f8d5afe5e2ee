"""Failures, and whole transformers under the same lens."""

import math
from dataclasses import replace

import numpy as np
import pytest

from meshwright.count.model import model_flops, parameters
from meshwright.limits import curve, preset
from meshwright.limits.realistic import (
    OMISSIONS,
    Realism,
    real_curve,
    run_of,
    transformer,
)
from meshwright.prediction.failures import Failures, goodput, interval, loss

H100 = preset("h100")
WIDTHS = (4096.0, 8192.0, 16384.0)


def test_dalys_interval_is_best() -> None:
    for mtbf, delta in ((1e5, 40.0), (2000.0, 10.0), (300.0, 20.0)):
        tau = interval(delta, mtbf)
        best = min(
            -goodput(mtbf, delta, t, 600.0)
            for t in np.geomspace(tau / 5, tau * 5, 4001)
        )
        assert goodput(mtbf, delta, tau, 600.0) == pytest.approx(
            -best, rel=2e-3
        )
    # Young's rule is the limit of short checkpoints
    assert interval(1.0, 1e8) == pytest.approx(math.sqrt(2e8), rel=1e-3)


def test_goodput_by_simulation() -> None:
    """Exponential failures drawn one by one."""
    rng, mtbf, delta, tau, restart = (
        np.random.default_rng(3),
        1000.0,
        20.0,
        180.0,
        60.0,
    )
    clock, done = 0.0, 0
    while done < 20000:
        if (fail := rng.exponential(mtbf)) >= tau + delta:
            # memoryless: each segment may draw anew
            clock, done = clock + tau + delta, done + 1
            continue
        clock += fail
        while (again := rng.exponential(mtbf)) < restart:
            clock += again
        clock += restart
    assert goodput(mtbf, delta, tau, restart) == pytest.approx(
        done * tau / clock, rel=0.02
    )


def test_more_chips_fail_more() -> None:
    shares = [
        loss(Failures(), n, 1e12).goodput
        for n in (1e2, 1e3, 1e4, 1e5, 1e6, 1e9)
    ]
    assert all(
        0 <= b < a < 1 for a, b in zip(shares, shares[1:], strict=False)
    )
    assert (
        loss(replace(Failures(), restart_s=60.0), 1e5, 1e12).goodput
        > loss(Failures(), 1e5, 1e12).goodput
    )
    assert loss(Failures(), np.array([1e3, 1e5]), 1e12).goodput[
        1
    ] == pytest.approx(loss(Failures(), 1e5, 1e12).goodput)


def test_llama_3_loses_a_few_percent() -> None:
    """Grattafiori et al. 2024 report more than 90 % effective training time on 16,384 chips."""
    assert 0.9 < loss(Failures(), 16384, 405e9).goodput < 0.99


def test_failures_shrink_the_papers_limit() -> None:
    sure, mortal = curve(H100), curve(replace(H100, failures=Failures()))
    assert mortal.points[-1].flops < 1e-4 * sure.points[-1].flops
    for a, b in zip(sure.points, mortal.points, strict=False):
        assert b.utilisation < a.utilisation
        assert b.duration_s < H100.duration_s


def test_a_transformer_of_a_law() -> None:
    model = transformer(H100.law, 12288.0, Realism())
    assert (model.layers, model.hidden, model.heads, model.ffn) == (
        192,
        12288,
        96,
        49152,
    )
    flops, tokens, batch = run_of(H100.law, model)
    assert (
        tokens == 20 * parameters(model)
        and flops == model_flops(model) * tokens
    )
    # a block has 12 D^2 parameters, of which the paper counts the 8 D^2 of the MLP
    assert parameters(model) == pytest.approx(12 * 12288**2 * 192, rel=0.02)
    assert batch == pytest.approx(
        2**22 * (flops / 3e23) ** (1 / 6) / 2048, rel=0.2
    )
    sparse = transformer(preset("h100/sparse").law, 12288.0, Realism())
    assert sparse.moe and (sparse.moe.experts, sparse.moe.top_k) == (8, 1)


def test_what_is_left_out_moves_the_limit() -> None:
    base = real_curve(H100, Realism(), WIDTHS)
    assert len(base.points) == 3
    for name, better in (
        ("chips never fail", True),
        ("restart in 1 minute", True),
        ("data-parallel traffic not overlapped", False),
    ):
        other = real_curve(H100, OMISSIONS[name](Realism()), WIDTHS, name)
        for a, b in zip(base.points, other.points, strict=False):
            same = a.chips == b.chips
            assert not same or (
                b.utilisation >= a.utilisation
                if better
                else b.utilisation <= a.utilisation
            )


def test_real_points_add_up() -> None:
    for p in real_curve(H100, Realism(), WIDTHS).points:
        assert p.loss and p.prediction.fits and p.duration_s < H100.duration_s
        steps = 20 * p.parameters / p.batch_tokens
        assert p.duration_s == pytest.approx(
            steps * p.prediction.step_time_s / p.loss.goodput
        )
        assert p.utilisation == pytest.approx(
            p.prediction.mfu * p.loss.goodput, rel=1e-6
        )


def test_without_attention_scores_and_vocabulary() -> None:
    full, bare = (
        transformer(H100.law, 8192.0, r)
        for r in (Realism(), Realism(attention=False, vocabulary=0))
    )
    assert parameters(bare) < parameters(full)
    flops, tokens, _ = run_of(H100.law, bare)
    assert flops / tokens == pytest.approx(6 * parameters(bare), rel=2e-3)
    flops, tokens, _ = run_of(H100.law, full)
    assert flops / tokens > 6.1 * parameters(bare)


def test_what_is_left_out_may_leave_the_range_of_a_description() -> None:
    """Endless memory is no share of a chip's: a question of what if, not a set."""
    from meshwright.describe.assumptions import SETS
    from meshwright.describe.frozen import put

    endless = put("memory.capacity_share", 1e30)(SETS["realistic"])
    assert endless.memory.capacity_share == 1e30
    assert hash(endless) != hash(SETS["realistic"])
    at_peak = put("chip.model", "peak")(SETS["epoch-2024"])
    assert (
        at_peak.chip.memory_efficiency == type(at_peak.chip).memory_efficiency
    )
