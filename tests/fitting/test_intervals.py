"""Widths, quantiles and nested intervals, on runs made by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meshwright.compare.installation import demand_enough, scale
from meshwright.prediction.certainty import PARTS, PublishedRun
from meshwright_studies.fitting import intervals
from meshwright_studies.fitting.seen import Seen
from refusals import refusal

STEP = {name: float(name == "step") for name in PARTS}


def timed(
    source: str,
    measured: float,
    predicted: float = 1.0,
    kind: str = "a",
    workload: str = "",
    **parts: float,
) -> Seen:
    """A run of so many seconds."""
    ratio = measured / predicted
    size = 8, 1e9, 2048
    of = source, source, "m", "c", "f", "s", kind, "bf16"
    run = PublishedRun(*of, *size, measured, ratio)
    share = {**STEP, **parts}
    return Seen(run, source, kind, math.log(ratio), share, (source, workload))


def one(source: str, error: float, **more: Any) -> Seen:
    """A run of 1 s times e^error."""
    return timed(source, math.exp(error), **more)


def test_runs_weigh_as_much_as_they_tell_beside_those_of_their_source() -> (
    None
):
    """Sources that are off as a whole weigh alike, however many runs they have; runs that share
    nothing weigh alike, whosever they are."""
    shift = math.log(2)
    of = [one("large", 0.0)] * 90 + [one("small", shift)] * 3
    assert intervals.correlation(of) == pytest.approx(1.0)
    weight = intervals.run_weights(of)
    assert weight[:90].sum() == pytest.approx(1) == weight[90:].sum()
    error = np.array([s.error for s in of])
    found = intervals.middle_nine_tenths(error, weight)
    assert found == pytest.approx((0.0, shift))
    apart = [one(name, e) for name in "abc" for e in (-0.1, 0.0, 0.1)]
    assert intervals.correlation(apart) == 0.0
    assert [*intervals.run_weights(apart)] == [1.0] * 9


def test_the_correlation_of_a_source_by_hand() -> None:
    """Two sources of two runs, at 0 and 2 and at 4 and 6: within 2, between (16 - 2) / 2 = 7 of
    the variance, so 7 / 9; three runs of a source then tell as much as 3 / (1 + 14 / 9)."""
    of = [one("a", 0.0), one("a", 2.0), one("b", 4.0), one("b", 6.0)]
    assert intervals.correlation(of) == pytest.approx(7 / 9)
    three = intervals.run_weights([one("c", 0.0)] * 3, 7 / 9)
    assert three.sum() == pytest.approx(3 / (1 + 14 / 9))


def test_the_ends_for_a_further_laboratory() -> None:
    """Student's t of nine degrees of freedom, 1.833, over 1.645, times the root of 11 / 10."""
    assert intervals.student(9) == pytest.approx(1.833, abs=1e-3)
    assert intervals.student(4) == pytest.approx(2.132, rel=2e-3)
    wider = 1.833 / 1.645 * math.sqrt(1.1)
    low, high = intervals.for_a_new_laboratory(intervals.Ends(-1, 2), 10)
    assert (low, high) == pytest.approx((-wider, 2 * wider), rel=1e-3)


def test_widths_by_share() -> None:
    """0.08 of any step; a fifth of what waits for the host: half of it is a tenth of the step."""
    of = [one("a", 0.1), one("a", 0.1, host=0.5)]
    wide = (0.08, math.hypot(0.08, 0.1))
    assert [*intervals.widths(of)] == pytest.approx(wide)
    assert [*intervals.standard(of)] == pytest.approx([0.1 / w for w in wide])


def test_the_ends_are_those_for_a_further_laboratory() -> None:
    """Errors of four laboratories over their width, 0.08, widened."""
    of = [
        one(name, e)
        for name, e in zip("abcd", (-0.16, 0.0, 0.0, 0.24), strict=True)
    ]
    found = intervals.middle_nine_tenths(
        intervals.log_errors(of) / 0.08, np.ones(4)
    )
    wider = intervals.for_a_new_laboratory(found, 4)
    assert intervals.ends(of) == pytest.approx(wider)
    assert wider.low < found.low < -1.0


def test_nested_intervals_do_not_know_the_laboratory_that_they_judge() -> None:
    """Three laboratories agree; the fourth lies far off: it is outside what the others span, and
    they are inside of what holds it."""
    of = [one(name, e) for name in "abc" for e in (-0.05, 0.0, 0.05)]
    of += [one("far", 0.9), one("far", 1.0)]
    found = intervals.nested(of)
    assert not found.inside[-2:].any() and found.inside[:9].all()
    width, beyond = found.high - found.low, of[-1].error - found.high
    assert found.score[-1] == pytest.approx(
        width[-1] + 2 / (1 - intervals.SHARE) * beyond[-1]
    )


def test_the_resolution_is_where_pairs_are_in_order() -> None:
    """Layouts of one workload: those 2 % apart come out in either order, those 10 % apart do not."""
    of = [one("s", 0.0, workload="w")]
    assert intervals.resolution(of) == intervals.GAPS[-1]
    far = [timed("s", s, s, workload="w") for s in (1.0, 1.1, 1.21)]
    assert intervals.resolution(far) == 0.06


def test_one_scale_of_an_installation() -> None:
    """Three steps at 1.2 times what is predicted, and one that came out as predicted: 1.2^(3/4); a
    lame one among five does not count."""
    assert scale([1.2, 1.2, 1.2]) == pytest.approx(1.2 ** (3 / 4))
    assert scale([1.1, 1.1, 1.1, 1.1, 9.0]) == pytest.approx(1.1 ** (5 / 6))
    with refusal("at least 3"):
        demand_enough([1.0, 1.0])


def test_a_scale_narrows_what_a_source_has_in_common() -> None:
    """Sources off as a whole by 30 %, rows of one within 2 %: after a scale the ends are close."""
    rng = (0.98, 1.0, 1.02, 0.99, 1.01, 1.0, 0.98, 1.02)
    of = [
        one(n, math.log(r * f))
        for n, f in (("a", 1.3), ("b", 0.75))
        for r in rng
    ]
    before = intervals.middle_nine_tenths(
        intervals.standard(of), intervals.run_weights(of)
    )
    after = intervals.after_scale(of)
    assert after.high - after.low < 0.5 * (before.high - before.low)
