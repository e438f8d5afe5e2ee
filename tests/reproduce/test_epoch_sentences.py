"""Epoch's table 1, exponents, calendar, noise scale, energy; degrees of curves in files."""

import math
from dataclasses import replace

import pytest

from meshwright.limits.calendar import year_of, years_until
from meshwright_studies.reproduce.epoch import (
    degrees,
    golden,
    observations,
    sentences,
    shipped,
)
from meshwright_studies.reproduce.epoch.sentences import gain
from shell import Shell


def test_table_1_is_what_we_count() -> None:
    found = {c.id: c for c in sentences.traffic()}
    assert {c.status for c in found.values()} == {"match"}
    s, d = sentences.example()
    # by hand: a ring all-reduce of n ranks sends 2 (n - 1) / n of what each holds
    assert found["table 1/dp, words a step"].computed == pytest.approx(
        2 * s.parameters * (d.dp - 1)
    )
    twice = d._replace(pp=2 * d.pp, dp=d.dp / 2)
    more = (
        sentences.words_sent(s, twice)["pp"] / sentences.words_sent(s, d)["pp"]
    )
    assert more == pytest.approx((2 * d.pp - 1) / (d.pp - 1))


def test_what_is_slow_decides_which_axis_is_used() -> None:
    found = {
        c.id.removeprefix("section 6.2/"): c
        for c in observations.phenomenon_checks()
    }
    assert len(found) == 5 and {c.status for c in found.values()} == {"match"}
    # shares of an axis are what its logarithm is of that of all chips
    for p in golden.ours("h100").points:
        share = observations.shares_of_chips(p)
        assert sum(share.values()) == pytest.approx(1.0)  # dense: no experts
        d = p.degrees
        assert p.chips ** share["tp"] == pytest.approx(d.tp_model * d.tp_ff)
    slow = observations.slow_memories(golden.ours("h100").scenario)
    assert slow.chip.hbm_bandwidth * observations.FACTOR == pytest.approx(
        golden.ours("h100").scenario.chip.hbm_bandwidth
    )


def test_the_optimum_grows_as_printed() -> None:
    slopes = sentences.exponents()
    assert slopes == pytest.approx(
        {"dp": 0.25, "pp": 0.25, "tp": 0.5}, abs=0.01
    )
    assert sum(slopes.values()) == pytest.approx(1.0)


def test_the_law_of_depth_is_an_erratum_with_both_limits() -> None:
    (one,) = sentences.depths()
    assert one.status == "erratum" and 2.0 < float(one.computed) < 2.15
    assert "198 layers" in one.note and "2.0e+28" in one.note


def test_three_and_seven_years_do_not_go_together() -> None:
    three, seven = sentences.calendar()
    assert three.status == "match" and seven.status == "erratum"
    assert years_until(4.2e26) == pytest.approx(1.0)
    assert year_of(1e26, growth=2.0) == year_of(1e26, growth=9.0)
    # a thousandfold at 4.2 a year, whatever the start
    apart = years_until(1e31) - years_until(1e28)
    assert apart == pytest.approx(3 * math.log(10) / math.log(4.2))


def test_the_noise_scale_is_the_critical_batch() -> None:
    assert gain(3.0, 3.0) == 0.5
    for b in (
        0.1,
        1.0,
        7.0,
    ):  # tokens to the same loss: 1 + b / noise of those of a small batch
        assert b / gain(b, 2.0) == pytest.approx(2.0 * (1 + b / 2.0))


def test_the_largest_run_of_all_takes_more_than_the_worlds_energy() -> None:
    (c,) = sentences.energy()
    assert c.status == "match"
    # the paper prints no joules: what is printed is the statement
    assert (c.published, c.computed) == (1.0, 1.0)
    assert "3.0e+24 J" in c.note  # 700 W x 3e36 FLOP / 692.6 TFLOP/s


@pytest.mark.parametrize("curve", shipped(), ids=lambda g: g.name)
def test_degrees_are_those_of_the_files_or_as_fast(
    curve: golden.Golden,
) -> None:
    (c,) = golden.degrees_of_points(curve)
    assert c.status in ("match", "explained")
    assert c.computed and c.published == len(curve.rows)
    assert c.computed >= 0.8 * c.published
    assert c.note.count(" for ") == c.published - c.computed  # each tie named


def test_slower_degrees_are_a_mismatch() -> None:
    curve = next(g for g in shipped() if g.name == "fig6_h100_dense")
    row = curve.rows[0]
    assert row.spread
    slow = row.spread.degrees._replace(pp=row.spread.degrees.pp / 2, dp=2.0)
    other = replace(row, spread=degrees.DegreesRow(slow, row.spread.lower))
    (c,) = golden.degrees_of_points(
        replace(curve, rows=(other, *curve.rows[1:]))
    )
    assert c.status == "mismatch" and "others" in c.note


def test_when(shell: Shell) -> None:
    """By hand: ln(1,104)/ln(4.2) = 4.88 and ln(463,000)/ln(4.2) = 9.09 years after 2024.9."""
    words = " ".join(shell("limits h100 --growth 4.2").out.split())
    ends = "linear scaling ends in 2029, the largest run is due in 2033"
    assert ends in words
    shell("limits h100 --growth 1", ends=2)
