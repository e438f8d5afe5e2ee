"""Bars and words."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from meshwright import Job, Layout, Prediction, Term, predict
from meshwright.catalog import cluster, model
from meshwright.describe.assumptions import MEGATRON
from meshwright.describe.cluster import Installation
from meshwright.report.explain import value
from meshwright.report.limits import flops_text
from meshwright.report.machine import percent as share
from meshwright.report.predict import details
from meshwright.report.roofline import _tokens as tokens
from meshwright.report.run_card import binding, step_rows, verdict
from meshwright.report.text import (
    CAUSES,
    Bar,
    beside_words,
    chip_hours,
    interruptions,
    layout_words,
    percent,
    priced_run,
    range_text,
    risk_words,
    run_words,
    seconds,
    short_words,
    signed,
    step_words,
)
from meshwright.units import count, show

JOB = Job(
    "llama3-8b",
    "64xh100-sxm",
    batch=128,
    layout=Layout(tp=2, dp=32, zero=1),
    tokens=1e12,
)


def test_bars() -> None:
    said = [str(Bar(share)) for share in (0.5, 0, 1, 0.375, 7, -1)]
    assert said == ["██████", "", "█" * 12, "████▌", "█" * 12, ""]
    for encoding, mark in (("ascii", "#"), ("utf-8", "█")):
        file = io.TextIOWrapper(io.BytesIO(), encoding)
        Console(file=file, width=40).print(Bar(0.5))
        file.seek(0)
        assert file.read() == mark * 6 + "\n"


def test_numbers() -> None:
    assert [count(n) for n in (7, 983_000, 1.5e6, 70.6e9, 15e12)] == [
        "7",
        "983 k",
        "1.5 M",
        "70.6 B",
        "15 T",
    ]
    assert [seconds(s) for s in (0.02, 4.27, 65.3, 599, 7200)] == [
        "20 ms",
        "4.27 s",
        "65.3 s",
        "599 s",
        "2 h",
    ]


ANY = st.floats() | st.integers(-(10**30), 10**30)
FORMATTERS = [
    count,
    percent,
    seconds,
    signed,
    flops_text,
    share,
    tokens,
    lambda x: str(Bar(x)),
    lambda x: value(Term("x", x, "B", "", "")),
    lambda x: value(Term("x", x, "s", "", "")),
    *(
        partial(show, unit=unit)
        for unit in (
            "B",
            "B/s",
            "FLOP/s",
            "s",
            "W",
            "Wh",
            "USD",
            "GiB",
            "MB",
            "",
        )
    ),
]


@pytest.mark.parametrize("formatter", FORMATTERS, ids=range(len(FORMATTERS)))
@given(number=ANY)
@example(number=0.0)
@example(number=-1.0)
@example(number=math.inf)
@example(number=-math.inf)
@example(number=math.nan)
@example(number=5e-324)
def test_every_number_can_be_written(
    formatter: Callable[[float], str], number: float
) -> None:
    text = formatter(number)
    assert isinstance(text, str) and "\n" not in text


@given(
    st.floats(1e-3, 1e15),
    st.sampled_from(
        [
            count,
            percent,
            seconds,
            partial(show, unit="B/s"),
            partial(show, unit="s"),
        ]
    ),
)
def test_below_zero_a_number_has_a_sign_more(
    number: float, formatter: Callable[[float], str]
) -> None:
    assert formatter(-number) == "-" + formatter(number)


@given(st.floats(1, 9e14))
def test_counts_are_never_a_thousand_of_a_prefix(number: float) -> None:
    assert not count(number).startswith("1,000 ")
    assert count(999_999) == "1 M" and count(-2e6) == "-2 M"


def test_a_layout_in_words() -> None:
    words = layout_words(
        Layout(tp=8, pp=4, dp=2, interleave=2, schedule="interleaved", zero=1),
        16,
    )
    assert (
        words
        == "tp 8 · pp 4 · dp 2 · interleaved, 2 chunks · microbatch 1 (16 a step) · ZeRO-1 · no"
        " recomputation"
    )
    for worded in (layout_words, short_words):
        assert "no sequence parallelism" in worded(
            Layout(tp=2, sequence_parallel=False)
        )
        assert "sequence" not in worded(Layout(sequence_parallel=False))
        assert "sequence" not in worded(
            Layout(tp=2, cp=2, sequence_parallel=False, scheme="summa")
        )
    assert "ep 8" in layout_words(Layout(ep=8)) and "cp 4" in layout_words(
        Layout(cp=4)
    )


def test_another_layout_is_named_by_what_it_has_instead() -> None:
    mine = Layout(tp=4, pp=4, dp=32, interleave=5, schedule="interleaved")
    other = replace(mine, interleave=8, stages="slots")
    words = "the same with 8 chunks · embedding and loss as layers"
    assert beside_words(mine, other) == words
    sharded = replace(mine, zero=3, microbatch=2)
    assert beside_words(mine, sharded) == "the same with microbatch 2 · ZeRO-3"
    flushed = replace(mine, schedule="1f1b", interleave=1)
    assert beside_words(mine, flushed) == "the same with 1f1b"
    # it lacks microbatch 2, which the words would not say; and what is all different is whole
    assert beside_words(sharded, mine) == short_words(mine)
    far = Layout(dp=64, cp=2)
    assert beside_words(Layout(tp=2, dp=32), far) == short_words(far)


def lines_of(p: Prediction) -> str:
    """What stands behind the card of a prediction, before its tables."""
    return "\n".join(str(line) for line in details(p))


def test_details_say_what_was_predicted_and_how_sure_it_is() -> None:
    p = predict(JOB)
    text = lines_of(p)
    assert f"{p.tokens_per_s_per_chip:,.0f} tokens/s" in text
    assert f"MFU {100 * p.mfu:.1f} %, HFU {100 * p.hfu:.1f} %" in text
    assert p.chip_hours is not None
    assert f"{count(p.chip_hours)} (" in chip_hours(p)
    assert chip_hours(p) in text
    assert f"microbatch 1 ({p.microbatches} a step)" in text
    assert "90 % interval from published runs" in text
    assert "nearest runs: " in text
    unproved = predict(replace(JOB, assumptions=MEGATRON))
    assert unproved.interval_s is None
    assert "published runs" not in lines_of(unproved)


def test_a_step_is_said_with_its_interval() -> None:
    p = predict(JOB)
    assert p.interval_s is not None
    low, high = p.interval_s
    assert low < p.step_time_s < high
    ends = range_text(low, high, seconds)
    assert step_words(p) == f"{seconds(p.step_time_s)} (90 %: {ends})"
    assert range_text(7.25, 8.6, seconds) == "7.25-8.6 s"
    assert range_text(0.5, 1.5, seconds) == "500 ms-1.5 s"


def test_every_cause_is_explained() -> None:
    assert set(CAUSES) == set(predict(JOB).time_s)


@pytest.mark.parametrize("chips", [1, 8])
def test_a_run_without_length_has_no_costs(chips: int) -> None:
    p = predict(Job("llama3-8b", f"{chips}xh100-sxm", 8))
    assert chip_hours(p) == run_words(p) == interruptions(p) == ""


@pytest.mark.parametrize(
    ("on", "unverified"), [("8xtpu-v5e", True), ("8xh100-sxm", False)]
)
def test_a_price_that_nobody_could_look_up_is_said_to_be_so(
    on: str, unverified: bool
) -> None:
    """Of what a run costs; the catalogue notes it beside the number."""
    job = Job("gpt2", on, batch=64, tokens=1e9)
    said = priced_run(predict(job, Layout(dp=8)))
    assert re.search(r" USD \(.*\) at (AWS|Google)'s ", said)
    assert said.count(", an unverified price") == int(unverified)


def test_what_most_probably_runs_is_not_said_not_to_fit() -> None:
    """Less memory needed than there is, at a risk that is not accepted: the sentence says the
    risk, and what is accepted.
    """
    job = Job("llama3-8b", "8xmi300x", batch=64, layout=Layout(dp=8))
    p = predict(job)
    assert 0.1 < p.risk_of_oom < 0.5 and not p.fits
    needed = p.memory_bytes["needed"]
    assert needed < p.memory_bytes["capacity"]
    words = verdict(p).text
    assert words.startswith("may not fit: ") and "NOT" not in words
    risk = risk_words(p.risk_of_oom)
    assert words.endswith(f"risk {risk}, above the 10 % accepted")
    near = predict(replace(job, headroom=p.risk_of_oom - 1e-6))
    said = f"risk {risk}, just above the {risk} accepted"
    assert verdict(near).text.endswith(said)
    asked = verdict(predict(replace(job, headroom=0.5)))
    assert (asked.label, asked.text[:4]) == ("yes", "fits")
    assert "accepted" not in asked.text
    assert repr(p).splitlines()[2].endswith(f"MFU {p.mfu:.1%}, if it fits")
    large = predict(replace(job, model=model("llama3-70b")))
    short = verdict(large).text
    assert short.startswith("does NOT fit: needs") and "short" in short
    (row,), (ran,) = step_rows(large), step_rows(large, ran=True)
    assert row.text == f"{ran.text}, if it fitted"


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_what_binds_is_never_more_than_the_step(scale: float) -> None:
    """On machines faster than the laws, causes are shares of what the laws say."""
    plain = cluster("8xh100-sxm")
    on = replace(plain, installation=Installation(scale, 9))
    job = Job("llama3-8b", on, 64, Layout(tp=2, dp=4, zero=1))
    (row,) = binding(predict(job))
    shares = [float(each) for each in re.findall(r"(\d+) %", row.text)]
    assert 50.0 < sum(shares) <= 100.0
