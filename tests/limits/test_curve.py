"""Curves and their ends: the golden tables, and what moves the limits."""

from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest

from meshwright import NoLayout
from meshwright.describe.assumptions import HidePass
from meshwright.describe.frozen import put
from meshwright.formats.scenario import load_scenario
from meshwright.limits import (
    bill,
    curve,
    largest_run,
    limits,
    parallelism_split,
    preset,
    sensitivity,
    smallest_cluster,
)
from meshwright.limits.crossing import crossing
from meshwright.limits.curve import first_guess, in_time
from meshwright.limits.ends import utilisation_losses
from meshwright.limits.laws import SPARSE, shape
from meshwright.limits.scenario import MONTH_S
from meshwright.limits.sensitivity import CHANGES, Change
from meshwright.prediction.failures import Failures
from refusals import refusal

H100 = preset("h100")
FEW = 2.0 ** np.arange(14, 19, 0.5)


def test_crossings() -> None:
    found = crossing([1e1, 1e2, 1e3, 1e4], [0.9, 0.5, 0.8, 0.4], 0.6)
    assert found.first_flops == 1e2
    assert found.last_flops == pytest.approx(1e3 * 10**0.5)
    assert crossing([1.0, 2.0], [0.1, 0.2], 0.5).never
    assert crossing([1.0, 2.0], [0.8, 0.7], 0.5) == crossing([], [], 0.5)


def test_every_point_is_in_time_and_half_the_chips_are_not() -> None:
    for p in curve(H100).points:
        assert 0 < p.duration_s < H100.duration_s
        assert p.degrees.chips == p.chips
        assert p.utilisation == pytest.approx(
            p.flops / (H100.machine.peak * p.chips * p.duration_s)
        )


def test_smooth_runs_lie_between_the_two_steps_around_the_duration() -> None:
    """Of 8 steps to a doubling the last one that is in time, and the next, which is late: log time
    goes with log chips.
    """
    real = H100.smooth
    duration = real.duration_s
    points = curve(real, FEW).points
    s = shape(real.law, FEW[: len(points)])
    chips = np.array([p.chips for p in points])
    guess = first_guess(real.machine, s, duration)
    steps = np.floor(8 * np.log2(chips / guess) + 1e-9)
    below, above = (guess * 2.0 ** ((steps + k) / 8) for k in (0, 1))
    late, early = (in_time(real, s, n, 8.0) for n in (below, above))
    for i, p in enumerate(points):
        assert p.duration_s == duration
        work = H100.machine.peak * p.chips * duration
        assert p.utilisation == pytest.approx(p.flops / work)
        slow, fast = late[i].duration_s, early[i].duration_s
        assert fast < duration <= slow
        share = np.log(duration / slow) / np.log(fast / slow)
        assert p.chips == pytest.approx(below[i] * 2 ** (share / 8), rel=1e-9)


def test_smallest_cluster_and_largest_run_are_inverse() -> None:
    p = smallest_cluster(H100, 1e27)
    assert p.flops == pytest.approx(1e27, rel=1e-6)
    assert largest_run(H100, p.chips).flops == pytest.approx(1e27, rel=0.05)
    # of few chips a narrow model, half as wide as GPT-3
    few = largest_run(H100, 64.0)
    assert few.chips <= 64 and few.hidden == pytest.approx(7140, rel=0.01)
    with pytest.raises(NoLayout, match="no number of chips"):
        smallest_cluster(H100, 1e33)
    with refusal("scaling law"):
        smallest_cluster(H100, 1e9)


def test_the_largest_run_is_the_last_that_can_be_trained() -> None:
    (line,) = limits("h100", smooth=False).lines
    assert line.largest
    assert line.largest.flops == max(p.flops for p in line.curve.points)


def test_the_shares_of_figure_7() -> None:
    """H100 dense: pipeline gives way to data parallelism, tensor parallelism stays between 0.33 and
    0.46.
    """
    shares = [parallelism_split(p) for p in curve(H100).points]
    assert all(sum(s.values()) == pytest.approx(1) for s in shares)
    assert all(0.33 <= s["tp"] <= 0.46 for s in shares)
    assert shares[0]["pp"] > 0.5 > 0.2 > shares[-1]["pp"]
    assert shares[0]["dp"] == 0 and shares[-1]["dp"] > 0.4


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s,
        lambda s: load_scenario("book-tpu-v5p"),
        put("law.experts", SPARSE),
        put("assumptions.overlap.dp", HidePass("step")),
        put("schedules", ("1f1b",)),
        put("failures", Failures()),
    ],
)
def test_what_a_run_loses_is_what_it_lacks_of_the_rate_chips_sustain(
    change: Change,
) -> None:
    """On a torus, too, where two kinds of messages run at once; nothing is done above that rate."""
    s = change(H100)
    for p in curve(s, FEW).points:
        lost = utilisation_losses(p, s)
        assert min(lost.values()) > -1e-12
        assert sum(lost.values()) == pytest.approx(
            1 - p.utilisation / s.sustained, abs=1e-12
        )
    # a width at which the batch of a replica is no whole number of tokens
    for p in curve(s.smooth, [18950.7]).points:
        assert min(utilisation_losses(p, s).values()) > -1e-12
        assert p.utilisation < s.sustained


def test_the_end_without_grids_is_doubted_by_the_others() -> None:
    """As far as the farthest of them lies from it; without any of them nothing is said."""
    (line,) = limits("h100").lines
    assert line.main is line.smooth and line.linear_run and line.closed
    closed = line.linear_run.flops / line.closed.linear_flops
    assert line.doubt == pytest.approx(closed)
    assert line.wall and line.wall.flops == max(
        p.flops for p in line.main.points
    )
    assert line.linear_run.flops / 2.05e28 == pytest.approx(5.4, rel=0.01)
    small = replace(line.curve, points=line.curve.points[:9])
    assert replace(line, curve=small, closed=None).doubt is None


@pytest.mark.parametrize("name", ["h100", "a100/sparse", "v100"])
def test_the_fields_of_limits_follow_from_each_other(name: str) -> None:
    """Runs by the law and by the machine; the paper's grids and real numbers alike. A run takes its
    steps, each of them its stages and what is exposed beside them.
    """
    (line,) = limits(name).lines
    s, said = line.scenario, line.to_dict()
    assert (said["scenario"], said["duration_s"]) == (name, s.duration_s)
    last = said["points"][-1]
    for size in ("flops", "parameters"):
        assert said[f"largest_{size}"] == last[size]
    assert said["sustained_utilisation"] == s.sustained
    for law, points, end in (
        (s.law, said["points"], said["crossing"]),
        (s.smooth.law, said["smooth_points"], said["smooth_crossing"]),
    ):
        sizes = [p["flops"] for p in points]
        used = [p["utilisation"] for p in points]
        assert sizes == sorted(sizes) and max(used) <= s.sustained
        again = crossing(sizes, used, s.threshold)
        assert end == again.to_dict() and end["threshold"] == said["threshold"]
        for p in points:
            work = p["chips"] * p["duration_s"] * s.machine.peak
            assert p["utilisation"] == pytest.approx(p["flops"] / work)
            model = shape(law, p["hidden"])
            sizes = p["layers"], p["experts"], p["parameters"]
            assert sizes == pytest.approx((model.L, model.E, model.parameters))
            degrees, step = p["degrees"], p["step"]
            wide = {k: degrees[k] for k in p["lower"]}
            assert wide.keys() == {"dp", "tp_model", "tp_ff", "pp", "ep"}
            for axis, ranks in p["lower"].items():
                assert len(ranks) == len(s.network.dims) - 1
                assert np.prod(ranks) <= wide[axis] * (1 + 1e-9)
            share = step["busy_s"] / (1 - step["bubble_share"])
            assert step["matmul_s"] <= step["busy_s"] <= share
            assert share <= step["total_s"] * (1 + 1e-9)
            if degrees["pp"] == 1:
                assert not step["bubble_share"] and not step["p2p_s"]
            if points is said["points"]:
                assert np.prod([*wide.values()]) == p["chips"]
                steps = p["duration_s"] / step["total_s"]
                assert steps == pytest.approx(model.steps)
    for p, asked in zip(said["points"], said["bills"], strict=True):
        hours = p["chips"] * p["duration_s"] / 3600
        watts, price = s.chip.power_w, s.chip.usd_per_hour
        assert asked["chip_hours"] == pytest.approx(hours)
        assert asked["energy_j"] == pytest.approx(watts * 3600 * hours)
        rent = pytest.approx(price * hours) if price else None
        assert asked["cost_usd"] == rent
    closed = said["closed_forms"]
    assert bool(closed) == (s.law.experts is None)


def test_bills() -> None:
    p = curve(H100, np.array([12288.0])).points[0]
    hours = 2048 * p.duration_s / 3600
    assert list(bill(p, H100).values()) == pytest.approx(
        [hours, 3.5 * hours, 700 * 3600 * hours]
    )
    free = replace(H100, chip=replace(H100.chip, usd_per_hour=0.0))
    assert bill(p, free)["cost_usd"] is None
    assert p.duration_s / MONTH_S == pytest.approx(1.733884, rel=1e-6)


def test_sensitivity_to_what_decides() -> None:
    """The four choices the published numbers rest on, to the digits of the study of them."""
    ends = {
        "base": (2.0e28, 6.7e28),
        "data-parallel traffic overlapped": (2.0e29, 1.8e29),
        "no zero bubble": (2.0e28, 1.6e28),
        "no memory hierarchy": (2.0e28, 1.8e29),
    }
    never = "shared-memory bandwidth x 0.5"
    some = {name: CHANGES[name] for name in (*ends, never)}
    rows = {n: c for n, (c,) in sensitivity([H100], some).rows}
    assert rows.pop(never).never
    for name, c in rows.items():
        assert (c.first_flops, c.last_flops) == pytest.approx(
            ends[name], rel=0.03
        )


@pytest.mark.parametrize(
    ("name", "number", "share"),
    [
        ("no throttling (sustained = boost clock)", "chip.sustained", 1.0),
        ("HBM bandwidth x 0.5", "chip.hbm_bandwidth", 0.5),
        ("HBM bandwidth x 2", "chip.hbm_bandwidth", 2.0),
        ("1 month", "duration_s", 1 / 3),
        ("6 months", "duration_s", 2.0),
        ("L2 bandwidth x 0.5", "chip.hierarchy.l2_bandwidth", 0.5),
        ("L2 bandwidth x 2", "chip.hierarchy.l2_bandwidth", 2.0),
        (
            "shared-memory bandwidth x 0.5",
            "chip.hierarchy.smem_bytes_per_clock",
            0.5,
        ),
        ("kernel latency 0", "assumptions.chip.launch_s", 0.0),
        ("half the layers", "law.depth.coefficient", 0.5),
        ("200 tokens a parameter", "law.tokens_per_parameter", 10.0),
    ],
)
def test_a_change_is_what_its_words_say(
    name: str, number: str, share: float
) -> None:
    """Beside runs of three months on chips that hold their boost clock."""
    boost = replace(H100, chip=replace(H100.chip, sustained=1.0))
    before, after = map(attrgetter(number), (boost, CHANGES[name](H100)))
    assert after == pytest.approx(share * before)


def test_no_scenario_an_unknown_one_and_schedules_of_others() -> None:
    with refusal("at least one"):
        limits([])
    with refusal("not known"):
        limits("h101")
    with refusal("schedules"):
        curve(replace(H100, schedules=("gpipe",)))


def test_a_scenario_under_another_name_is_the_same_line() -> None:
    """It is searched once, and keeps its name; a refusal has the name, too."""
    usual = curve(preset("v100"))
    other = curve(replace(preset("v100"), name="mine"))
    assert other.points is usual.points and other.ends == usual.ends
    assert (usual.scenario.name, other.scenario.name) == ("v100", "mine")
    assert curve(put("duration_s", MONTH_S)(preset("v100"))).points != (
        usual.points
    )
    with refusal("scenario mine"):
        curve(replace(preset("v100"), name="mine", schedules=()))
