"""The search against brute force, and its pieces."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from by_hand import switched
from meshwright.describe.assumptions import EPOCH, NOT_HIDDEN, Hide, HidePass
from meshwright.limits.curve import first_guess
from meshwright.limits.laws import Shape, shape
from meshwright.limits.placing import factorisations, placings
from meshwright.limits.scenario import Scenario, preset, presets
from meshwright.limits.search import fastest
from meshwright.limits.simulate import AXES
from meshwright.limits.space import microbatches, twos

from .brute import all_divisors, brute

WIDTHS = (12288.0, 53248.0, 131072.0)


def same_as_brute(
    name: str | Scenario, widths: tuple[float, ...], doublings: int
) -> None:
    scenario = preset(name) if isinstance(name, str) else name
    s = shape(scenario.law, np.array(widths))
    for double in range(doublings):
        chips = (
            first_guess(scenario.machine, s, scenario.duration_s) * 2.0**double
        )
        found = fastest(scenario, s, chips, np.full(len(widths), np.inf))
        budget = scenario.duration_s / s.steps
        limited = fastest(scenario, s, chips, budget)
        for i, n in enumerate(chips):
            seconds, traffic = brute(
                scenario, Shape(*(float(x[i]) for x in s)), int(n)
            )
            assert (i in found) == np.isfinite(seconds)
            if np.isfinite(seconds):
                step = found[i].step
                assert step.total == pytest.approx(seconds, rel=1e-12)
                assert step.traffic == pytest.approx(
                    traffic, rel=1e-9, abs=1e-15
                )
            assert (i in limited) == (seconds < budget[i])


@pytest.mark.parametrize(
    "name", ["v100", "h100/sparse", "h100-global-nvlink-low-latency/sparse"]
)
def test_equals_brute_force(name: str) -> None:
    same_as_brute(name, WIDTHS, 1)


@pytest.mark.parametrize("joint", ["network", "overlap"])
@pytest.mark.parametrize("choice", range(3))
def test_equals_brute_force_under_other_choices(
    joint: str, choice: int
) -> None:
    """Bounds hold for every algorithm, and whatever hides behind what."""
    options: dict[str, tuple[dict[str, Any], ...]] = {
        "network": (
            {"collective": "ring"},
            {"collective": "best", "hop": "slowest"},
            {"collective": "free"},
        ),
        "overlap": (
            {"dp": HidePass("step")},
            {
                "tp": NOT_HIDDEN,
                "ep": Hide("step", 0.5, 0.25),
                "pp": "interleaved",
            },
            {
                "dp": HidePass("step", links="serial"),
                "step_barrier": "global norm",
                "pp": "none",
            },
        ),
    }
    how = replace(
        EPOCH,
        **{joint: switched(getattr(EPOCH, joint), **options[joint][choice])},
    )
    same_as_brute(
        replace(preset("h100/sparse"), assumptions=how), (16384.0,), 1
    )


def test_equals_brute_force_on_three_levels() -> None:
    same_as_brute("h100-superpod", (1024.0, 2048.0, 3072.0), 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in presets() if "superpod" not in n])
def test_equals_brute_force_everywhere(name: str) -> None:
    same_as_brute(name, WIDTHS, 1)


@pytest.mark.parametrize("schedules", [("1f1b",), ("zb-h2",)])
def test_one_schedule(schedules: tuple[str, ...]) -> None:
    scenario = replace(preset("a100/sparse"), schedules=schedules)
    s = shape(scenario.law, np.array([16384.0]))
    chips = first_guess(scenario.machine, s, scenario.duration_s) * 4
    seconds, _ = brute(
        scenario, Shape(*(float(x[0]) for x in s)), int(chips[0])
    )
    (best,) = fastest(scenario, s, chips, np.array([np.inf])).values()
    assert best.step.total == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("name", ["h100", "h100/sparse"])
def test_where_latency_binds(name: str) -> None:
    """Far too many chips for small models: the fastest step waits for messages, and 1F1B may
    win.
    """
    scenario = replace(preset(name), schedules=("1f1b",))
    s = shape(scenario.law, np.array([2048.0, 4096.0]))
    chips = s.E * 2.0**20
    found = fastest(scenario, s, chips, np.full(2, np.inf))
    for i in range(2):
        seconds, traffic = brute(
            scenario, Shape(*(float(x[i]) for x in s)), int(chips[i])
        )
        step = found[i].step
        assert step.total == pytest.approx(seconds, rel=1e-12)
        assert step.traffic == pytest.approx(traffic, rel=1e-9)


def test_a_cluster_smaller_than_a_node() -> None:
    scenario = preset("h100")
    s = shape(scenario.law, np.array([2048.0]))
    for n in (1.0, 2.0, 4.0):
        seconds, _ = brute(scenario, Shape(*(float(x[0]) for x in s)), int(n))
        (best,) = fastest(
            scenario, s, np.array([n]), np.array([np.inf])
        ).values()
        assert best.step.total == pytest.approx(seconds, rel=1e-12)


def test_microbatches_are_the_next_divisors() -> None:
    for replica in (1, 2, 7, 12, 3 * 2**20, 9 * 2**11, 2**30):
        every = all_divisors(replica)
        table = microbatches(replica, 12)
        for k, row in enumerate(table):
            plain = [d for d in every if d >= 2**k][:4]
            assert row[:4][~np.isnan(row[:4])].tolist() == plain
            zero_bubble = [d for d in every if d >= 2 ** (k + 1)][:1]
            assert [x for x in row[4:].tolist() if x == x] == zero_bubble
    assert np.isnan(microbatches(0, 3)).all()


def test_placings_are_all_factorisations() -> None:
    assert len(placings((8,)).ranks) == 35
    assert len(placings((8, 32)).ranks) == 35 * 126
    assert len(placings(()).ranks) == 1
    assert sorted(factorisations(6, 2)) == [(1, 6), (2, 3), (3, 2), (6, 1)]


@pytest.mark.parametrize("sizes", [(), (8,), (8, 32)])
def test_axes_have_few_places_of_their_own(sizes: tuple[int, ...]) -> None:
    """Each once, and every placement knows which of them it has."""
    places = placings(sizes)
    for axes, (first, which) in places.parts.items():
        own = places.ranks[:, :, [AXES.index(axis) for axis in axes]]
        assert np.array_equal(own[first][which], own)
        assert len({each.tobytes() for each in own}) == len(first)


def test_twos() -> None:
    assert twos([1, 12, 2**40]).tolist() == [0, 2, 40]
