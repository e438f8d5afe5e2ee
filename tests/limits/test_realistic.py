"""Whole transformers under the same lens."""

import math
from dataclasses import replace

import pytest

from meshwright.count.model import model_flops, parameters
from meshwright.limits import preset
from meshwright.limits.ends import utilisation_losses
from meshwright.limits.realistic import (
    OMISSIONS,
    RealCurve,
    Realism,
    ladder,
    numbers_of_chips,
    real_curve,
    run_of,
    run_on,
    smallest_real_cluster,
    transformer,
)
from meshwright.prediction.failures import Failures

H100 = preset("h100")
WIDTHS = (4096.0, 8192.0, 16384.0)


@pytest.fixture(scope="module")
def everything() -> RealCurve:
    """Three transformers with everything counted."""
    return real_curve(H100, Realism(), WIDTHS)


def test_a_transformer_of_a_law() -> None:
    model = transformer(H100.law, 12288.0, Realism())
    shape = (model.layers, model.hidden, model.heads, model.ffn)
    assert shape == (192, 12288, 96, 49152)
    flops, tokens, batch = run_of(H100.law, model)
    assert tokens == 20 * parameters(model)
    assert flops == model_flops(model) * tokens
    # a block has 12 D^2 parameters, of which the paper counts the 8 D^2 of the MLP
    assert parameters(model) == pytest.approx(12 * 12288**2 * 192, rel=0.02)
    by_law = 2**22 * (flops / 3e23) ** (1 / 6) / 2048
    assert batch == pytest.approx(by_law, rel=0.2)
    assert model.moe is None
    sparse = transformer(preset("h100/sparse").law, 12288.0, Realism())
    assert sparse.moe and (sparse.moe.experts, sparse.moe.top_k) == (8, 1)


@pytest.mark.parametrize("chips", [0.5, 1, 3, 64, 100])
def test_numbers_of_chips_are_small_odd_multiples_of_powers_of_two(
    chips: float,
) -> None:
    """With the number asked for, if it is one."""
    found = numbers_of_chips(H100, chips)
    odd = H100.law.mantissas or (1,)
    every = range(1, math.floor(chips) + 1)
    assert found == [n for n in every if n // (n & -n) in odd]


def test_every_omission_changes_what_is_counted() -> None:
    """Endless memory is no share of a chip's: a question of what if, not a set."""
    whole = Realism()
    for name, change in OMISSIONS.items():
        assert (change(whole) == whole) == (name == "everything counted")


def test_real_points_add_up(everything: RealCurve) -> None:
    for p in everything.points:
        assert p.loss and p.prediction.fits and p.duration_s < H100.duration_s
        steps = 20 * p.parameters / p.batch_tokens
        took = steps * p.prediction.step_time_s / p.loss.goodput
        assert p.duration_s == pytest.approx(took)
        useful = p.prediction.mfu * p.loss.goodput
        assert p.utilisation == pytest.approx(useful, rel=1e-6)
        lost = utilisation_losses(p, H100)
        busy = p.prediction.time_s["compute"] / p.prediction.step_time_s
        assert sum(lost.values()) == pytest.approx(1 - busy * p.loss.goodput)
        assert [*lost.values()] == sorted(lost.values(), reverse=True)
        said = p.to_dict()
        assert said["prediction"] == p.prediction.to_dict()
        assert said["failures"]["goodput"] == p.loss.goodput
        assert said["chips"] == said["prediction"]["chips"]
        assert said["batch_tokens"] == said["prediction"]["batch_tokens"]
    said = everything.to_dict()
    assert said["largest_flops"] == said["points"][-1]["flops"]
    assert (said["name"], said["reason"]) == ("realistic", "")


def test_a_late_run_says_what_it_waits_for_most(everything: RealCurve) -> None:
    """Beside its arithmetic."""
    p = everything.points[0]
    late = replace(H100, duration_s=p.duration_s / 2)
    said = run_on(late, Realism(), WIDTHS[0], p.chips)
    waits = {c: s for c, s in p.prediction.time_s.items() if c != "compute"}
    assert str(said).startswith(f"{max(waits, key=waits.__getitem__)} takes ")


def test_the_end_where_chips_fail_is_found_between_two_widths() -> None:
    """The last run is larger than all before, by less than an octave of the width's sixth power."""
    sizes = [p.flops for p in next(ladder(H100)).points]
    assert sizes == sorted({*sizes}) and len(sizes) > 5
    assert sizes[-1] < 2**6 * sizes[-2]


def test_no_number_of_chunks_is_better(
    everything: RealCurve,
) -> None:
    """Than those that are looked at: with all of them each point takes as long."""
    wide = Realism().space.but(interleave=None)
    every = real_curve(H100, Realism(space=wide), WIDTHS[:2])
    for one, other in zip(every.points, everything.points, strict=False):
        assert one.prediction.step_time_s == pytest.approx(
            other.prediction.step_time_s, rel=1e-9
        )


def test_without_attention_scores_and_vocabulary() -> None:
    """6 N FLOPs a token where only products with weights are left."""
    full, bare = (
        transformer(H100.law, 8192.0, r)
        for r in (Realism(), Realism(attention=False, vocabulary=0))
    )
    size = parameters(bare)
    assert size < parameters(full)
    flops, tokens, _ = run_of(H100.law, bare)
    assert flops / tokens == pytest.approx(6 * size, rel=2e-3)
    flops, tokens, _ = run_of(H100.law, full)
    assert flops / tokens > 6.1 * size


def test_failures_end_it_where_twice_the_chips_have_less_than_half_the_time() -> (
    None
):
    """Nearly e^(-0.9) of the time on the chips that arithmetic needs, e^(-1.8) on twice as many."""
    real = Realism()
    flops, *_ = run_of(H100.law, transformer(H100.law, 4096.0, real))
    rate = H100.duration_s * H100.machine.peak * H100.sustained
    chips = 2 ** math.ceil(math.log2(flops / rate))
    failures = Failures(restart_s=0.9 * Failures.chip_mtbf_s / chips)
    reason = smallest_real_cluster(
        H100, replace(real, failures=failures), 4096.0
    )
    assert reason == (
        f"failures leave 40.5 % of the time of {chips:,} chips, and more chips fail more"
    )
