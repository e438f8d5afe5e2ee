"""The search against brute force."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from by_hand import switched
from meshwright.describe.assumptions import EPOCH, NOT_HIDDEN, Hide, HidePass
from meshwright.describe.frozen import put
from meshwright.limits.curve import first_guess
from meshwright.limits.laws import LawShape, shape
from meshwright.limits.scenario import SCHEDULES, Scenario, preset
from meshwright.limits.search import fastest
from meshwright.limits.space import cells

from .brute import brute

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
        model = LawShape(*(float(x[i]) for x in s))
        seconds, traffic = brute(scenario, model, int(n))
        assert (i in best) == np.isfinite(seconds)
        assert (i in limited) == (seconds < budget[i])
        if i in best:
            step = best[i].step
            assert step.total == pytest.approx(seconds, rel=1e-12)
            assert step.traffic == pytest.approx(traffic, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("name", "schedules", "widths"),
    [
        ("v100", SCHEDULES, WIDTHS),
        ("h100/sparse", SCHEDULES, WIDTHS),
        ("h100-global-nvlink-low-latency/sparse", SCHEDULES, WIDTHS),
        # three levels
        ("h100-superpod", SCHEDULES, (1024.0, 2048.0, 3072.0)),
        ("a100/sparse", ("1f1b",), (16384.0,)),
        ("a100/sparse", ("zb-h2",), (16384.0,)),
    ],
)
def test_equals_brute_force(
    name: str, schedules: tuple[str, ...], widths: tuple[float, ...]
) -> None:
    same_as_brute(replace(preset(name), schedules=schedules), widths)


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
    other = put(
        f"assumptions.{joint}", switched(getattr(EPOCH, joint), **choice)
    )
    same_as_brute(other(preset("h100/sparse")), (16384.0,))


@pytest.mark.parametrize("name", ["h100", "h100/sparse"])
def test_where_latency_binds(name: str) -> None:
    """Far too many chips for small models: the fastest step waits for messages, and 1F1B may
    win.
    """
    scenario = replace(preset(name), schedules=("1f1b",))
    widths = (2048.0, 4096.0)
    experts = shape(scenario.law, np.array(widths)).E
    same_as_brute(scenario, widths, experts * 2.0**20)


def test_a_cluster_smaller_than_a_node() -> None:
    same_as_brute(preset("h100"), (2048.0,) * 3, np.array([1.0, 2.0, 4.0]))


@pytest.mark.parametrize("whole", [True, False])
def test_each_replica_may_take_a_single_microbatch(whole: bool) -> None:
    """A model of one block and width 1, which nothing but data parallelism splits: eight replicas
    of a batch of eight have one microbatch each; ZB-H2, which wants two, has none.
    """
    one = np.ones(1)
    s = LawShape(one, one, one, one, one, one, 8 * one, one)
    on = preset("h100").machine
    rows = cells(s, 8 * one, on, ("1f1b", "zb-h2"), whole)
    d = rows.degrees
    assert [*zip(d.dp, d.pp, d.microbatches, d.zero_bubble, strict=True)] == [
        (8.0, 1.0, 1.0, 0.0)
    ]
