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

from meshwright import Job, Layout, Term, predict
from meshwright.catalog import cluster, model
from meshwright.describe.assumptions import MEGATRON
from meshwright.describe.cluster import Installation
from meshwright.report.explain import value
from meshwright.report.limits import flops_text
from meshwright.report.machine import percent as share
from meshwright.report.roofline import _tokens as tokens
from meshwright.report.run_card import binding
from meshwright.report.text import (
    CAUSES,
    Bar,
    beside_words,
    chance,
    count,
    evidence,
    headline,
    layout_words,
    percent,
    range_text,
    room,
    seconds,
    short_words,
    signed,
    whole_run,
)
from meshwright.units import show

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


def test_the_headline_says_what_was_predicted() -> None:
    p = predict(JOB)
    text = " ".join(headline(p))
    assert (
        seconds(p.step_time_s) in text
        and f"{p.tokens_per_s_per_chip:,.0f} per chip" in text
    )
    assert f"{100 * p.mfu:.1f} %" in text and "fits" in text
    days = p.train_time_s
    assert days is not None and f"{days / 86400:.3g}" in whole_run(p)


def test_the_headline_says_how_sure_it_is() -> None:
    p = predict(JOB)
    assert p.interval_s is not None
    low, high = p.interval_s
    text = " ".join(headline(p))
    assert low < p.step_time_s < high
    assert (
        f"{seconds(p.step_time_s)} (90 %: {range_text(low, high, seconds)})"
        in text
    )
    assert range_text(7.25, 8.6, seconds) == "7.25-8.6 s"
    assert range_text(0.5, 1.5, seconds) == "500 ms-1.5 s"
    assert any(
        run in " ".join(evidence(p))
        for run in ("nearest runs", "megatron-bridge")
    )
    unproved = predict(
        Job(
            "llama3-8b",
            "64xh100-sxm",
            128,
            JOB.layout,
            assumptions=MEGATRON,
        )
    )
    assert unproved.interval_s is None and "published runs" not in " ".join(
        headline(unproved)
    )


def test_every_cause_is_explained() -> None:
    assert set(CAUSES) == set(predict(JOB).time_s)


@pytest.mark.parametrize("chips", [1, 8])
def test_a_run_without_length_has_no_costs(chips: int) -> None:
    assert whole_run(predict(Job("llama3-8b", f"{chips}xh100-sxm", 8))) == ""


@pytest.mark.parametrize(
    ("on", "unverified"), [("8xtpu-v5e", True), ("8xh100-sxm", False)]
)
def test_a_price_that_nobody_could_look_up_is_said_to_be_so(
    on: str, unverified: bool
) -> None:
    """Of what a run costs; the catalogue notes it beside the number."""
    job = Job("gpt2", on, batch=64, tokens=1e9)
    said = whole_run(predict(job, Layout(dp=8)))
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
    words = room(p)
    assert words.startswith("may not fit: memory") and "NOT" not in words
    assert words.endswith(
        f"risk of running out {chance(p.risk_of_oom)}, above the 10 % accepted"
    )
    near = predict(replace(job, headroom=p.risk_of_oom - 1e-6))
    assert room(near).endswith(
        f"{(risk := chance(p.risk_of_oom))}, just above the {risk} accepted"
    )
    asked = predict(replace(job, headroom=0.5))
    assert asked.fits and ": fits (" in room(asked)
    short = predict(replace(job, model=model("llama3-70b")))
    assert room(short).startswith("does NOT fit") and "short" in room(short)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_what_binds_is_never_more_than_the_step(scale: float) -> None:
    """On machines faster than the laws, causes are shares of what the laws say."""
    plain = cluster("8xh100-sxm")
    on = replace(plain, installation=Installation(scale, 9))
    job = Job("llama3-8b", on, 64, Layout(tp=2, dp=4, zero=1))
    (row,) = binding(predict(job))
    shares = [float(each) for each in re.findall(r"(\d+) %", row.text)]
    assert 50.0 < sum(shares) <= 100.0
