"""Units: text in, SI floats inside, text out."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import BadInput
from meshwright.units import IEC, LENGTH, SI, parse, show
from refusals import refusal

READ = [
    ("400 Gbit/s", "B/s", 5e10),
    ("400 Gb/s", "B/s", 5e10),
    ("400Gbps", "B/s", 5e10),
    ("50 GB/s", "B/s", 5e10),
    ("50 GBps", "B/s", 5e10),
    ("3.35 TB/s", "B/s", 3.35e12),
    (900e9, "B/s", 9e11),
    ("900e9 B/s", "B/s", 9e11),
    ("0", "s", 0),
    ("2.5", "USD/h", 2.5),
    ("4000000", "token", 4e6),
    ("3352 GB/s", "B/s", 3.352e12),
    ("80 GB", "B", 8e10),
    ("80 GiB", "B", 80 * 2**30),
    ("640 Kib", "B", 80 * 2**10),
    ("40MiB", "B", 40 * 2**20),
    ("989.4 TFLOP/s", "FLOP/s", 9.894e14),
    ("989.4 TFLOPS", "FLOP/s", 9.894e14),
    ("1e25 FLOP", "FLOP", 1e25),
    ("2.5 us", "s", 2.5e-6),
    ("2.5 µs", "s", 2.5e-6),
    ("5 ms", "s", 5e-3),
    ("90 min", "s", 5400),
    ("3 days", "s", 259200),
    ("1830 MHz", "Hz", 1.83e9),
    ("700 W", "W", 700),
    ("1.4 kW", "W", 1400),
    ("4M", "token", 4e6),
    ("15T tokens", "token", 15e12),
    ("2.5 USD/h", "USD/h", 2.5),
    ("0.8", "", 0.8),
    (0.8, "", 0.8),
    (7, "B", 7),
    ("1_000", "", 1000),
    ("1,024 B", "B", 1024),
]


@pytest.mark.parametrize(("text", "unit", "value"), READ)
def test_reads_exactly(text, unit, value):
    # no rounding: 2.5 us is the float 2.5e-6
    assert parse(text, unit) == value


WRONG = [
    ("80 GiB", "B/s", "'80 GiB' is in B, but B/s is needed"),
    ("400 Gb/s", "B", "is in B/s, but B is needed"),
    ("989 TFLOP", "FLOP/s", "but FLOP/s is needed"),
    ("5 s", "B", "is in s"),
    ("5 parsec", "s", "unknown unit 'parsec'"),
    ("fast", "B/s", "has no number"),
    ("", "B", "has no number"),
    ("nan", "B", "has no number"),
    ("1e999 B", "B", "finite"),
    (math.inf, "B", "finite"),
    (math.nan, "B", "finite"),
    (10**400, "B", "finite"),
    (10**5000, "B", "finite"),
    (True, "B", "not True"),
    (None, "B", "has no number"),
    ([], "B", "has no number"),
    ("1" * 10**6, "B", "has no number"),
    ("1e308 EB", "B", "finite"),
]


@pytest.mark.parametrize(
    ("text", "unit", "reason"), WRONG, ids=range(len(WRONG))
)
def test_refuses_with_one_sentence(text, unit, reason):
    with refusal(reason) as caught:
        parse(text, unit, "link.bandwidth")
    assert str(caught.value).startswith("link.bandwidth")
    assert len(str(caught.value)) < 300


def test_the_example_in_an_error_is_of_the_size_that_is_asked():
    for text in ("soon", "60x", "5 W", True):
        with refusal("'60d'"):
            parse(text, "s", "--deadline", like="'60d'")
    assert parse("60d", "s", like="'60d'") == 60 * 86400
    with refusal("has no unit: say '30 d'"):
        parse("30", "s", "--deadline", like="'60d'")
    with refusal("'5M'"):
        parse("lots", "USD", "--budget")


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("400", "B/s", "say '400 GB/s' or '400 Gbit/s'"),
        ("5e10", "B/s", "say '5e10 B/s'"),
        ("80", "B", "say '80 GB' or '80 GiB'"),
        ("2.5", "s", "say '2.5 us' or '2.5 s'"),
        ("5e-6", "s", "say '5e-6 s'"),
        ("989", "FLOP/s", "say '989 TFLOP/s' or '989 GFLOP/s'"),
        ("1.8", "Hz", "say '1.8 GHz' or '1.8 MHz'"),
    ],
)
def test_a_text_without_a_unit_is_refused_with_what_it_may_mean(
    text, unit, says
):
    with refusal() as caught:
        parse(text, unit, "network.ib.bandwidth")
    told = f"network.ib.bandwidth {text} has no unit: {says}"
    assert str(caught.value) == told
    # each of the proposals is read
    for proposal in says.removeprefix("say ").split(" or "):
        assert parse(proposal.strip("'"), unit) > 0


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("8k", 8192),
        ("8K", 8192),
        ("8Ki", 8192),
        ("128k", 131072),
        ("128 k tokens", 131072),
        ("1M", 1048576),
        ("0.5k", 512),
        ("8192", 8192),
        ("8192 tokens", 8192),
        ("8,000", 8000),
    ],
)
def test_k_is_1024_in_lengths_of_sequences_only(text, tokens):
    assert parse(text, LENGTH) == tokens
    assert (
        parse("4M", "token") == 4e6
        and parse("4Mi", "token") == 4 * 2**20
        and parse("8k", "") == 8000
    )


@pytest.mark.parametrize("text", ["8m", "8G", "8k/s", "8 kB", "8 parsec"])
def test_a_length_is_no_other_quantity(text):
    with refusal("'8k'"):
        parse(text, LENGTH)


@given(
    st.text(max_size=40),
    st.sampled_from(["B", "B/s", "FLOP/s", "s", "token", ""]),
)
def test_any_text_is_a_finite_number_or_a_sentence(text, unit):
    with contextlib.suppress(BadInput):
        assert math.isfinite(parse(text, unit))


@given(st.floats(1, 1e20), st.sampled_from(["B", "B/s", "FLOP/s", "W"]))
def test_what_is_shown_reads_back(value, unit):
    assert parse(show(value, unit, 6), unit) == pytest.approx(value, rel=1e-5)


@given(st.floats(1e-9, 59.0))
def test_times_read_back(value):
    assert parse(show(value, "s", 6), "s") == pytest.approx(value, rel=1e-5)


@given(st.sampled_from([*SI, *IEC]), st.integers(1, 999))
def test_eight_bits_are_a_byte_under_every_prefix(prefix, number):
    assert parse(f"{8 * number} {prefix}bit", "B") == pytest.approx(
        parse(f"{number} {prefix}B", "B"), rel=1e-15
    )


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (5e10, "B/s", "50 GB/s"),
        (2**31, "GiB", "2 GiB"),
        (90, "s", "1.5 min"),
        (0.41, "", "0.41"),
        (2e-5, "s", "20 us"),
        (999.6, "B", "1 kB"),
        (9.894e14, "FLOP/s", "989 TFLOP/s"),
        (0, "s", "0 s"),
        (1234567, "USD", "1,234,567 USD"),
        (3.22e9, "GB", "3.22 GB"),
        (2e9, "MB", "2,000 MB"),
        (5e10, "GB/s", "50 GB/s"),
        (5e6, "kW", "5,000 kW"),
    ],
)
def test_shows(value, unit, text):
    assert show(value, unit) == text


@pytest.mark.parametrize(
    "base", ["B", "B/s", "FLOP", "FLOP/s", "bit/s", "W", "tokens/s"]
)
@pytest.mark.parametrize("value", [0.0, 3.0, 8.22e5, 1.024e9, 7e13, 2e19])
def test_no_number_has_two_prefixes(base, value):
    """Whatever unit a caller names: with a prefix of its own the number is in it, without one it
    gets a fitting one.
    """
    for prefix in ("", "k", "M", "G", "T", "P", "E", *IEC):
        text = show(value, prefix + base, 6)
        number, unit = text.split(" ")
        chosen = prefix or unit.removesuffix(base)
        assert unit == chosen + base and (prefix or chosen in SI), text
        times = {**SI, **IEC}[chosen]
        assert float(number.replace(",", "")) * times == pytest.approx(
            value, rel=1e-4
        )


def test_billions_of_tokens() -> None:
    """As people write them; bytes stay bytes."""
    assert parse("100B", "token") == parse("0.1T", "token") == 1e11
    assert parse("1.5 B tokens", "token") == 1.5e9
    assert parse("100B", "B") == 100
    for text in ("4 GB", "4 B/s"):
        with refusal("but token is needed"):
            parse(text, "token")
