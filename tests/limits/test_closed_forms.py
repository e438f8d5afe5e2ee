"""Closed forms against each other; the printed values are in tests/reproduce/test_epoch.py."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from meshwright import chip, network
from meshwright.describe.assumptions import HidePass
from meshwright.describe.frozen import put
from meshwright.limits import closed_forms as cf
from meshwright.limits.answer import limits
from meshwright.limits.laws import LAWS
from meshwright.limits.scenario import Scenario, preset, presets
from meshwright.prediction.failures import Failures
from refusals import refusal

RUN = cf.Setting()
H100 = cf.node(chip("epoch-h100"), network("epoch-h100"))


def test_node_is_eight_chips() -> None:
    one = chip("epoch-h100")
    assert H100.macs_per_s == 8 * one.peak("fp16") / 2
    assert H100.network_words_per_s == 8 * 50e9 / 2
    assert H100.memory_words_per_s == 8 * 3352e9 / 2 / 2
    assert H100.sram_words == 8 * (50 * 2**20 + 132 * 512 * 2**10) / 2


def test_growth_is_counted_from_t0_in_one_unit_or_in_two() -> None:
    """Appendix 8.3: T0 in FLOPs where T is in multiply-adds is 2^-a in the base, (2^(2a))^(1/(1 -
    2a)) in T; at exponent 0 nothing.
    """
    x = cf.latency_reach(RUN)
    for a, factor in ((0.0, 1.0), (0.2, 2 ** (0.4 / 0.6))):
        assert cf.scaled_flops(RUN, x, a, macs=True) == pytest.approx(
            cf.scaled_flops(RUN, x, a) * factor
        )


@pytest.mark.parametrize("a", [0.0, 0.1, 0.3])
def test_a_batch_that_grows_is_at_the_end_the_batch_that_it_has_grown_to(
    a: float,
) -> None:
    """T0 is counted in FLOPs, T in multiply-adds."""
    x = cf.latency_reach(RUN)
    T = cf.scaled_flops(RUN, x, a)
    grown = RUN.batch * (T / 2 / cf.FIRST_FLOPS) ** a
    assert (a > 0) == (grown > RUN.batch)
    there = replace(RUN, batch=grown)
    assert cf.scaled_flops(there, x, 0.0) == pytest.approx(T)


def test_low_latency_is_a_tenth_of_a_launch() -> None:
    usual = preset("h100").assumptions.chip.launch_s
    low = [name for name in presets() if "low-latency" in name]
    assert low
    for name in low:
        launch = preset(name).assumptions.chip.launch_s
        assert launch == pytest.approx(usual / 10)


def test_largest_model_and_largest_run_agree() -> None:
    """T = 60 N^2/E multiply-adds at the N of equation 17, b/L t / (80 t_L), is equation 18's T:
    nine times that where latency begins to bind.
    """
    N = RUN.batch / RUN.layers * RUN.duration_s / RUN.layer_latency_s / 80
    x = cf.latency_reach(RUN)
    limit = cf.scaled_flops(RUN, x, 0.0, cf.LATENCY_CONSTANT)
    assert limit == pytest.approx(2 * 60 * N**2)
    assert limit == pytest.approx(9 * cf.scaled_flops(RUN, x, 0.0))


def test_directions() -> None:
    base = cf.closed_forms(H100, RUN)
    sparse = cf.closed_forms(H100, replace(RUN, experts=4))
    assert sparse.critical_flops == pytest.approx(base.critical_flops / 4)
    longer = cf.closed_forms(H100, replace(RUN, duration_s=2 * RUN.duration_s))
    assert longer.limit_flops == pytest.approx(4 * base.limit_flops)


def test_without_memories() -> None:
    bare = replace(chip("epoch-h100"), hierarchy=None)
    with refusal("memory hierarchy"):
        cf.node(bare, network("epoch-h100"))


def test_growth_of_a_law_follows_from_its_exponents() -> None:
    """b ~ T^(1/6) and L ~ T^(d/(2 + 2 d)): constant b/L in the paper's words, 0.2 for DeepSeek's."""
    smooth = replace(LAWS["baseline"], stated_growth=None)
    assert smooth.growth == pytest.approx(1 / 6 - 0.3751 / (2 * 1.3751))
    assert LAWS["baseline"].growth == 0.0
    deepseek = replace(LAWS["deepseek"], stated_growth=None)
    assert deepseek.growth == pytest.approx(LAWS["deepseek"].growth, abs=0.01)
    assert LAWS["fixed"].growth < 0


@pytest.mark.parametrize("name", ["h100", "h100-deepseek", "h100-fixed"])
def test_each_law_has_its_own_closed_form(name: str) -> None:
    """Within a factor of two of what the search finds for that law (`limits h100-deepseek`)."""
    (line,) = limits(name, smooth=False).lines
    assert line.closed
    assert 0.5 < line.closed.critical_flops / line.crossing.first_flops < 2


@pytest.mark.parametrize(
    "change",
    [
        put("linear", 0.5),
        put("failures", Failures()),
        put("law.depth.coefficient", 1.0),
        put("assumptions.overlap.dp", HidePass("step")),
        put("assumptions.network.collective", "ring"),
    ],
)
def test_no_closed_form_stands_beside_what_it_does_not_count(
    change: Callable[[Scenario], Scenario],
) -> None:
    (usual,) = limits("h100", smooth=False).lines
    (other,) = limits(change(preset("h100")), smooth=False).lines
    assert usual.closed and other.closed is None
