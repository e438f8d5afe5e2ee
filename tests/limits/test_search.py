"""The search against brute force, and its pieces."""

from collections.abc import Sequence
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
    scenario: Scenario, widths: Sequence[float], chips: Any = None
) -> None:
    """The fastest step of each model, of any length and within the scenario's time.  chips: of
    each; None = as few as arithmetic needs.
    """
    s = shape(scenario.law, np.array(widths))
    if chips is None:
        chips = first_guess(scenario.machine, s, scenario.duration_s)
    best = fastest(scenario, s, chips, np.full(len(widths), np.inf))
    budget = scenario.duration_s / s.steps
    limited = fastest(scenario, s, chips, budget)
    for i, n in enumerate(chips):
        model = Shape(*(float(x[i]) for x in s))
        seconds, traffic = brute(scenario, model, int(n))
        assert (i in best) == np.isfinite(seconds)
        assert (i in limited) == (seconds < budget[i])
        if i in best:
            step = best[i].step
            assert step.total == pytest.approx(seconds, rel=1e-12)
            assert step.traffic == pytest.approx(traffic, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    "name", ["v100", "h100/sparse", "h100-global-nvlink-low-latency/sparse"]
)
def test_equals_brute_force(name: str) -> None:
    same_as_brute(preset(name), WIDTHS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in presets() if "superpod" not in n])
def test_equals_brute_force_everywhere(name: str) -> None:
    same_as_brute(preset(name), WIDTHS)


CHOICES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("network", {"collective": "ring"}),
    ("network", {"collective": "best", "hop": "slowest"}),
    ("network", {"collective": "free"}),
    ("overlap", {"dp": HidePass("step")}),
    (
        "overlap",
        {"tp": NOT_HIDDEN, "ep": Hide("step", 0.5, 0.25), "pp": "interleaved"},
    ),
    (
        "overlap",
        {
            "dp": HidePass("step", links="serial"),
            "step_barrier": "global norm",
            "pp": "none",
        },
    ),
)


@pytest.mark.parametrize(("joint", "choice"), CHOICES)
def test_equals_brute_force_under_other_choices(
    joint: str, choice: dict[str, Any]
) -> None:
    """Bounds hold for every algorithm, and whatever hides behind what."""
    other = {joint: switched(getattr(EPOCH, joint), **choice)}
    scenario = put_set(preset("h100/sparse"), **other)
    same_as_brute(scenario, (16384.0,))


def put_set(scenario: Scenario, **joints: Any) -> Scenario:
    """The scenario under the paper's set with other joints."""
    return replace(scenario, assumptions=replace(EPOCH, **joints))


def test_equals_brute_force_on_three_levels() -> None:
    same_as_brute(preset("h100-superpod"), (1024.0, 2048.0, 3072.0))


@pytest.mark.parametrize("schedules", [("1f1b",), ("zb-h2",)])
def test_one_schedule(schedules: tuple[str, ...]) -> None:
    scenario = replace(preset("a100/sparse"), schedules=schedules)
    same_as_brute(scenario, (16384.0,))


@pytest.mark.parametrize("name", ["h100", "h100/sparse"])
def test_where_latency_binds(name: str) -> None:
    """Far too many chips for small models: the fastest step waits for messages, and 1F1B may
    win.
    """
    scenario = replace(preset(name), schedules=("1f1b",))
    widths = (2048.0, 4096.0)
    experts = shape(scenario.law, np.array(widths)).E
    same_as_brute(scenario, widths, experts * 2.0**20)


@pytest.mark.parametrize("chips", [1.0, 2.0, 4.0])
def test_a_cluster_smaller_than_a_node(chips: float) -> None:
    same_as_brute(preset("h100"), (2048.0,), np.array([chips]))


def test_microbatches_are_the_next_divisors() -> None:
    for replica in (1, 2, 7, 12, 3 * 2**20, 9 * 2**11, 2**30):
        divisors = all_divisors(replica)
        for k, row in enumerate(microbatches(replica, 12).tolist()):
            plain = [d for d in divisors if d >= 2**k][:4]
            assert [m for m in row[:4] if m == m] == plain
            zero_bubble = [d for d in divisors if d >= 2 ** (k + 1)][:1]
            assert [m for m in row[4:] if m == m] == zero_bubble
    assert np.isnan(microbatches(0, 3)).all()


@pytest.mark.parametrize(
    ("sizes", "ways"), [((), 1), ((8,), 35), ((8, 32), 35 * 126)]
)
def test_placings_are_all_factorisations(
    sizes: tuple[int, ...], ways: int
) -> None:
    """Axes have few places of their own, each once, and every placement knows which it has."""
    places = placings(sizes)
    assert len(places.ranks) == ways
    for axes, (first, which) in places.parts.items():
        own = places.ranks[:, :, [AXES.index(axis) for axis in axes]]
        assert np.array_equal(own[first][which], own)
        assert len({place.tobytes() for place in own}) == len(first)


def test_numbers_are_taken_apart() -> None:
    assert sorted(factorisations(6, 2)) == [(1, 6), (2, 3), (3, 2), (6, 1)]
    assert twos([1, 12, 2**40]).tolist() == [0, 2, 40]
