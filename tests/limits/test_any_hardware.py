"""Any chip on any network of the catalogue, in any numbers."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright import BadInput, catalog
from meshwright.describe.assumptions import EPOCH
from meshwright.describe.job import PRECISIONS
from meshwright.describe.network import Dim, Network
from meshwright.formats.scenario import load_scenario
from meshwright.limits.curve import curve
from meshwright.limits.laws import shape
from meshwright.limits.placing import factorisations, placings
from meshwright.limits.scenario import Scenario, preset
from meshwright.limits.search import exchangeable, fastest, levels_of

from .test_search import same_as_brute

H100 = preset("h100")


def ring(name: str, size: int, rate: float = 90e9) -> Dim:
    return Dim(name, rate, 1e-6, size, "ring", 1.0, wrap=1)


def torus(*sizes: int, rate: float = 90e9) -> Network:
    dims = [ring(str(i), n, rate) for i, n in enumerate(sizes)]
    return Network("torus", (*dims, Dim("dcn", 6e9, 5e-6)))


@pytest.mark.parametrize(
    ("law", "sizes"),
    [("h100", (4, 4)), ("h100/sparse", (2, 2)), ("h100", (2, 2, 4))],
)
def test_tori_equal_brute_force(law: str, sizes: tuple[int, ...]) -> None:
    """Axes that are alike are tried in one order only; brute force tries all."""
    same_as_brute(replace(preset(law), network=torus(*sizes)), (12288.0,))


def test_alike_axes_may_be_exchanged_and_others_not() -> None:
    assert exchangeable(torus(4, 4, 2)) == (0, 0, 2)
    assert exchangeable(H100.network) == (0,)
    near, far = H100.network.dims[0], Dim("far", 1e9, 1e-6)
    switches = Network("s", (near, replace(near, name="nearer"), far))
    assert exchangeable(switches) == (0, 1)


def test_every_placement_is_there_once() -> None:
    """Of two alike axes of 4: the multisets of two of all ways to fill one."""
    ways = factorisations(4, 5)
    both = placings((4, 4), (0, 0))
    found = [both.lower(i) for i in range(len(both.ranks))]
    assert len(found) == len(set(found)) == len(ways) * (len(ways) + 1) // 2
    as_sets = {tuple(sorted(zip(*place, strict=True))) for place in found}
    assert as_sets == {tuple(sorted((a, b))) for a in ways for b in ways}
    dense = placings((4, 4), (0, 0), experts=False)
    assert len(dense.ranks) < len(both.ranks)
    assert all(dense.lower(i)[4] == (1, 1) for i in range(len(dense.ranks)))


def on_nvl72(size: int) -> Scenario:
    found = load_scenario("gb200-nvl72")
    near, far = found.network.dims
    return replace(
        found,
        network=replace(found.network, dims=(replace(near, size=size), far)),
    )


def test_of_72_chips_those_are_used_that_divide() -> None:
    rack = on_nvl72(72)
    assert levels_of(rack, 2.0**12) == (64,)
    assert levels_of(rack, 9 * 2.0**9) == (72,)
    assert levels_of(rack, 3 * 2.0**9) == (64,)
    assert levels_of(rack, 16.0) == (16,)
    s = shape(rack.law, np.array([12288.0, 53248.0]))
    chips, endless = np.array([2.0**12, 2.0**13]), np.full(2, np.inf)
    assert fastest(rack, s, chips, endless) == fastest(
        on_nvl72(64), s, chips, endless
    )


def test_a_pod_is_filled_by_its_largest_slice_of_powers_of_two() -> None:
    sides = {
        name: tuple(d.size for d in load_scenario(name).joined.dims[:-1])
        for name in ("tpu-v5p-pod", "tpu-v4-pod", "tpu-v5e-pod", "h100")
    }
    assert sides == {
        "tpu-v5p-pod": (16, 16, 32),
        "tpu-v4-pod": (16, 16, 16),
        "tpu-v5e-pod": (16, 16),
        "h100": (8,),
    }


@pytest.mark.parametrize("name", catalog.names("networks"))
def test_every_network_can_be_asked(name: str) -> None:
    """With its usual chip, dense and sparse; few enough placements."""
    network = catalog.network(name)
    text = name if network.chip else f"h100-sxm@{name}"
    for kind in ("", "/sparse"):
        found = load_scenario(text + kind)
        assert found.machine.peak > 0
        for chips in (2.0**13, 9 * 2.0**10):
            sizes = levels_of(found, chips)
            assert placings(
                sizes, exchangeable(found.joined), bool(found.law.experts)
            ).parts
            assert (chips / np.prod(sizes)).is_integer()


def test_a_network_without_a_chip_says_so() -> None:
    bare = [
        n for n in catalog.names("networks") if not catalog.network(n).chip
    ]
    for name in bare[:1]:
        with pytest.raises(BadInput, match=f"h100-sxm@{name}"):
            load_scenario(name)


def test_narrow_numbers_have_narrow_operands() -> None:
    """FP8 at twice the peak through memories that carry half the bytes: where arithmetic binds, the
    same share of twice the peak."""
    wide, narrow = (
        replace(H100, precision=PRECISIONS[p]) for p in ("fp16-pure", "fp8")
    )
    assert narrow.machine.peak == pytest.approx(
        2 * wide.machine.peak, rel=1e-3
    )
    levels = narrow.machine.rates.levels
    assert levels and levels.element_bytes < 1.1
    small = np.array([12288.0, 16384.0])
    first, second = (
        curve(s, small).points[0].utilisation for s in (wide, narrow)
    )
    assert second == pytest.approx(first, rel=0.02)


def test_closed_forms_are_those_of_the_paper_alone() -> None:
    from meshwright.limits.answer import limits

    other = replace(
        H100,
        assumptions=replace(
            EPOCH, network=replace(EPOCH.network, collective="ring")
        ),
    )
    lines = limits([H100, other], smooth=False).lines
    assert lines[0].closed and not lines[1].closed
