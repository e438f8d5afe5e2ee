"""Any chip on any network of the catalogue, in any numbers."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright import Dim, Network, catalog
from meshwright.describe.frozen import put
from meshwright.describe.job import PRECISIONS
from meshwright.formats.scenario import load_scenario
from meshwright.limits.curve import curve
from meshwright.limits.laws import shape
from meshwright.limits.placing import placings
from meshwright.limits.scenario import preset
from meshwright.limits.search import (
    exchangeable,
    fastest,
    levels_of,
)
from refusals import refusal

from .test_search import same_as_brute

H100 = preset("h100")


def torus(*sizes: int) -> Network:
    """Axes that wrap, alike but for their lengths, and a slow network between pods."""
    axes = (
        Dim(str(i), 90e9, 1e-6, n, "ring", 1.0, wrap=1)
        for i, n in enumerate(sizes)
    )
    return Network("torus", (*axes, Dim("dcn", 6e9, 5e-6)))


@pytest.mark.parametrize(
    ("law", "sizes"),
    [("h100", (4, 4)), ("h100/sparse", (2, 2)), ("h100", (2, 2, 4))],
)
def test_tori_equal_brute_force(law: str, sizes: tuple[int, ...]) -> None:
    """Axes that are alike are tried in one order only; brute force tries all."""
    same_as_brute(replace(preset(law), network=torus(*sizes)), (12288.0,))


def test_only_axes_of_a_torus_are_alike() -> None:
    assert exchangeable(torus(4, 4, 2)) == (0, 0, 2)
    near, far = H100.network.dims[0], Dim("far", 1e9, 1e-6)
    switches = Network("s", (near, replace(near, name="nearer"), far))
    assert exchangeable(switches) == (0, 1)


def test_levels_that_axes_can_fill_in_too_many_ways_are_refused() -> None:
    """8 = 2^3 lies on five axes in C(7, 4) ways, on four (no experts) in C(6, 3)."""
    assert len(placings((8, 1024)).ranks) == 35 * 1001
    assert len(placings((8,), experts=False).ranks) == 20
    with refusal("in 1,002,001 ways"):
        placings((1024, 1024))


def test_of_72_chips_those_are_used_that_divide() -> None:
    rack = load_scenario("gb200-nvl72")
    near, far = rack.network.dims
    of_64 = put("network.dims", (replace(near, size=64), far))(rack)
    for chips, used in (
        (2**12, 64),
        (9 * 2**9, 72),
        (3 * 2**9, 64),
        (16, 16),
        (75, 25),
    ):
        assert levels_of(rack, float(chips)) == (used,)
    s = shape(rack.law, np.array([12288.0, 53248.0]))
    chips, endless = np.array([2.0**12, 2.0**13]), np.full(2, np.inf)
    best = fastest(of_64, s, chips, endless)
    assert fastest(rack, s, chips, endless) == best


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("tpu-v5p-pod", (16, 16, 32)),
        ("tpu-v4-pod", (16, 16, 16)),
        ("tpu-v5e-pod", (16, 16)),
        ("h100", (8,)),
    ],
)
def test_a_pod_is_filled_by_its_largest_slice_of_powers_of_two(
    name: str, sides: tuple[int, ...]
) -> None:
    dims = load_scenario(name).joined.dims[:-1]
    assert tuple(d.size for d in dims) == sides


@pytest.mark.parametrize("name", catalog.names("networks"))
def test_every_network_can_be_asked(name: str) -> None:
    """With its usual chip, dense and sparse; few enough placements."""
    chip = "" if catalog.network(name).chip else "h100-sxm@"
    for kind in ("", "/sparse"):
        scenario = load_scenario(f"{chip}{name}{kind}")
        assert scenario.machine.peak > 0
        alike = exchangeable(scenario.joined)
        for chips in (2.0**13, 9 * 2.0**10):
            sizes = levels_of(scenario, chips)
            experts = bool(scenario.law.experts)
            assert len(placings(sizes, alike, experts).ranks)
            assert (chips / np.prod(sizes)).is_integer()


def test_narrow_numbers_have_narrow_operands() -> None:
    """FP8 at twice the peak through memories that carry half the bytes: where arithmetic binds, the
    same share of twice the peak."""
    wide, narrow = (
        replace(H100, precision=PRECISIONS[p]) for p in ("fp16-pure", "fp8")
    )
    assert narrow.machine.peak == pytest.approx(
        2 * wide.machine.peak, rel=1e-3
    )
    first, second = (curve(s, [12288.0]).points[0] for s in (wide, narrow))
    assert second.utilisation == pytest.approx(first.utilisation, rel=0.02)
