"""Closed forms against each other; the printed values are in tests/reproduce/test_epoch.py."""

from dataclasses import replace

import pytest

from meshwright import BadInput, chip, network
from meshwright.limits import closed_forms as cf
from meshwright.limits.answer import limits
from meshwright.limits.laws import LAWS

RUN = cf.Setting()
H100 = cf.node(chip("epoch-h100"), network("epoch-h100"))


def test_node_is_eight_chips() -> None:
    one = chip("epoch-h100")
    assert H100.macs_per_s == 8 * one.peak("fp16") / 2
    assert H100.network_words_per_s == 8 * 50e9 / 2
    assert H100.memory_words_per_s == 8 * 3352e9 / 2 / 2
    assert H100.sram_words == 8 * (50 * 2**20 + 132 * 512 * 2**10) / 2


def test_no_growth_is_the_plain_formula() -> None:
    """Appendix 8.3 at exponent 0 is equations 13 and 18, whatever the units of T0."""
    x = cf.latency_reach(RUN)
    for macs in (False, True):
        assert cf.scaled_flops(RUN, x, 0.0, macs=macs) == pytest.approx(
            cf.scaled_flops(RUN, x, 0.0)
        )
    assert cf.scaled_flops(RUN, x, 0.2, macs=True) == pytest.approx(
        cf.scaled_flops(RUN, x, 0.2) * 2 ** (0.4 / 0.6)
    )


def test_nine_times() -> None:
    """The largest run is nine times the one where latency begins to bind."""
    x = cf.latency_reach(RUN)
    assert cf.scaled_flops(RUN, x, 0.0, cf.LATENCY_CONSTANT) == pytest.approx(
        9 * cf.scaled_flops(RUN, x, 0.0)
    )


def test_largest_model_and_largest_run_agree() -> None:
    """T = 60 N^2/E multiply-adds at the N of equation 17, b/L t / (80 t_L), is equation 18's T."""
    N = RUN.batch / RUN.layers * RUN.duration_s / RUN.layer_latency_s / 80
    assert cf.scaled_flops(
        RUN, cf.latency_reach(RUN), 0.0, cf.LATENCY_CONSTANT
    ) == pytest.approx(2 * 60 * N**2)


def test_directions() -> None:
    base = cf.closed_forms(H100, RUN)
    assert (
        cf.closed_forms(
            replace(H100, network_words_per_s=2 * H100.network_words_per_s),
            RUN,
        ).critical_flops
        > base.critical_flops
    )
    assert cf.closed_forms(
        H100, replace(RUN, experts=4)
    ).critical_flops == pytest.approx(base.critical_flops / 4)
    assert cf.closed_forms(
        H100, replace(RUN, duration_s=2 * RUN.duration_s)
    ).limit_flops == pytest.approx(4 * base.limit_flops)
    assert cf.closed_forms(replace(H100, sram_words=1e12), RUN).nanobatch == 16


def test_without_memories() -> None:
    with pytest.raises(BadInput, match="memory hierarchy"):
        cf.node(
            replace(chip("epoch-h100"), hierarchy=None), network("epoch-h100")
        )


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
    (found,) = limits(name, smooth=False).lines
    assert found.closed
    assert 0.5 < found.closed.critical_flops / found.crossing.first_flops < 2
