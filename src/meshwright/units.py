"""The only door for units: text comes in and goes out here, everything inside is a float in SI
units.

    parse("400 Gbit/s", "B/s") -> 5e10          show(3.35e12, "B/s") -> "3.35 TB/s"
    parse("80 GiB", "B")       -> 85899345920   show(2e-5, "s")      -> "20 us"

Grammar: a number, an optional SI (k M G T P E, and m u n p) or IEC (Ki Mi Gi Ti Pi) prefix, a unit,
an optional "/s". Units: B, bit (b), FLOP (also FLOPs, FLOPS = FLOP/s), s, min, h, day, W, Wh, J,
Hz, USD, token. GB = 1e9 B, GiB = 2^30 B, 8 bit = 1 B. "Gbps" is Gbit/s and "GBps" is GB/s. The
field says which dimension it wants, so "80 GiB" is refused as a bandwidth; of tokens, 100B is 100
billion. A text without a unit is refused where people write several (`MEANT`): 400 is no bandwidth.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from .errors import BadInput

SI = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Z": 1e21,
    "m": 1e-3,
    "u": 1e-6,
    "µ": 1e-6,
    "n": 1e-9,
    "p": 1e-12,
}
IEC = {
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}
KIB = 2.0**10
MIB = 2.0**20
GIB = 2.0**30
GB = 1e9
DAY_S = 86400.0
YEAR_S = 365.25 * DAY_S

# name -> (size in the base unit, base unit)
UNITS = {
    "B": (1.0, "B"),
    "byte": (1.0, "B"),
    "bytes": (1.0, "B"),
    "bit": (0.125, "B"),
    "bits": (0.125, "B"),
    "b": (0.125, "B"),
    "FLOP": (1.0, "FLOP"),
    "FLOPs": (1.0, "FLOP"),
    "flop": (1.0, "FLOP"),
    "flops": (1.0, "FLOP"),
    "s": (1.0, "s"),
    "sec": (1.0, "s"),
    "min": (60.0, "s"),
    "h": (3600.0, "s"),
    "hour": (3600.0, "s"),
    "hours": (3600.0, "s"),
    "d": (DAY_S, "s"),
    "day": (DAY_S, "s"),
    "days": (DAY_S, "s"),
    "month": (YEAR_S / 12, "s"),
    "months": (YEAR_S / 12, "s"),
    "W": (1.0, "W"),
    "J": (1.0, "J"),
    "Wh": (3600.0, "J"),
    "Hz": (1.0, "Hz"),
    "USD": (1.0, "USD"),
    "token": (1.0, "token"),
    "tokens": (1.0, "token"),
    "tok": (1.0, "token"),
}
LENGTH = "tokens of a sequence"
"""A unit of its own: in lengths of sequences k and M are powers of two, as everybody means by 8k,
128k and 1M.
"""
LENGTHS = {"": 1.0, "k": KIB, "K": KIB, "Ki": KIB, "M": MIB, "Mi": MIB}
MEANT = {
    "B": ("GB", "GiB"),
    "B/s": ("GB/s", "Gbit/s"),
    "FLOP/s": ("TFLOP/s", "GFLOP/s"),
    "Hz": ("GHz", "MHz"),
    "s": ("us", "s"),
}
"""Dimensions in which a bare number is not understood, and what it may mean there."""
SI_SIZED = {"s": (1e-30, 0.1)}
"""Bare numbers that were meant in the SI unit itself: seconds of a machine, all others in millions
and more."""
BILLION = ("B", "Btoken", "Btokens")
"""Of tokens, as people write 100B; nobody counts them in bytes."""
PER_SECOND = {"FLOPS": (1.0, "FLOP"), "bps": (0.125, "B"), "Bps": (1.0, "B")}
NUMBER = re.compile(
    r"\s*([-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*$"
)

THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(?!\d)")
"""4,194,304; but not 1,5, which half of the world reads as one and a half."""


def parse(
    text: str | float | int, unit: str, field: str = "value", like: str = ""
) -> float:
    """The number that `text` means, in SI `unit` ("B", "B/s", "FLOP/s", "s", "W", "Hz", "USD/h",
    "token", LENGTH, or "" for a pure number).

    text: "400 Gbit/s", or a Python number, taken to be in `unit` already;  field: named in the
    error;  like: the example there, where the unit's usual one is of another size.
    Raises BadInput if the text has no number, an unknown unit, another dimension than asked for, or
    none where `MEANT` has several.
    """
    such = like or example(unit)
    if isinstance(text, bool):
        raise BadInput(
            f"{field} must be a number with a unit such as {such}, not {text}"
        )
    if isinstance(text, (int, float)):
        return finite(text, field)
    match = (
        NUMBER.match(text)
        if isinstance(text, str) and len(text) <= 100
        else None
    )
    if not match:
        raise BadInput(
            f"{field} {str(text)[:60]!r} has no number in it; write it like {such}"
        )
    if "," in match[1] and not THOUSANDS.match(match[1]):
        raise BadInput(
            f"{field} {text[:60]!r} has a comma that does not separate thousands; write it"
            f" like {such}"
        )
    number = finite(match[1].replace(",", "").replace("_", ""), field)
    rest = match[2]
    if not rest:
        if number and unit in MEANT:
            raise BadInput(
                f"{field} {match[1][:40]} has no unit: say {_likely(match[1], unit, like)}"
            )
        return number
    known = _unit(rest, unit)
    if known is None:
        raise BadInput(
            f"{field} {str(text)[:60]!r} has an unknown unit {rest[:20]!r}; write it like {such}"
        )
    factor, dimension = known
    if dimension != unit:
        raise BadInput(
            f"{field} {str(text)[:60]!r} is in {dimension or 'no unit'}, but"
            f" {unit or 'a pure number'} is needed, such as {such}"
        )
    # decimal: 2.5 us is 2.5e-6 exactly
    return finite(float(Decimal(repr(number)) * Decimal(repr(factor))), field)


def _likely(number: str, unit: str, like: str) -> str:
    """What a number without a unit may mean: "'400 GB/s' or '400 Gbit/s'"."""
    low, high = SI_SIZED.get(unit, (1e6, math.inf))
    usual = NUMBER.match(like.strip("'"))
    if low <= abs(float(number.replace(",", "").replace("_", ""))) <= high:
        units: tuple[str, ...] = (unit,)
    else:
        units = (usual[2],) if usual else MEANT[unit]
    return " or ".join(f"'{number[:40]} {name}'" for name in units)


def finite(number: str | float | int, field: str) -> float:
    """The number as a float; BadInput if it is not a finite one."""
    try:
        value = float(number)
    except (ValueError, OverflowError):
        value = math.inf
    if not math.isfinite(value):
        shown = (
            "one of more than 300 digits"
            if isinstance(number, int)
            else str(number)[:40]
        )
        raise BadInput(f"{field} must be a finite number, not {shown}")
    return value


def _unit(text: str, unit: str) -> tuple[float, str] | None:
    """Factor and base unit of `text`, None if it is none; a lone prefix ("4M") takes the wanted
    unit."""
    numerator, _, denominator = (
        text.replace(" per ", "/").replace(" ", "").partition("/")
    )
    if unit == "token" and not denominator and numerator in BILLION:
        return 1e9, unit
    for table, rate in ((PER_SECOND, "/s"), (UNITS, "")):
        for name, (size, base) in table.items():
            if (
                numerator.endswith(name)
                and (scale := _prefix(numerator[: -len(name)], unit))
                is not None
            ):
                if base == "token" and unit == LENGTH and not denominator:
                    return scale, LENGTH
                if denominator == "" or (
                    denominator in ("s", "sec") and not rate
                ):
                    return scale * size, base + ("/s" if denominator else rate)
                if denominator in ("h", "hour") and not rate:
                    return scale * size, base + "/h"
    if not denominator and (scale := _prefix(numerator, unit)) is not None:
        return scale, unit
    return None


def _prefix(text: str, unit: str) -> float | None:
    return LENGTHS.get(text) if unit == LENGTH else SI.get(text, IEC.get(text))


def example(unit: str) -> str:
    """A well-formed text in that unit, for error messages."""
    examples = {
        "B": "'80 GB'",
        "B/s": "'400 Gbit/s'",
        "FLOP/s": "'989 TFLOP/s'",
        "FLOP": "'1e25 FLOP'",
        "s": "'5 us'",
        "W": "'700 W'",
        LENGTH: "8192 or '8k' (8,192)",
    }
    return examples.get(
        unit,
        {
            "token": "'4M'",
            "USD": "'5M'",
            "USD/h": "'2.5 USD/h'",
            "Hz": "'1.8 GHz'",
        }.get(unit, "'0.1'"),
    )


def show(value: float, unit: str, digits: int = 3) -> str:
    """Text with a fitting prefix and `digits` significant digits; memory ("GiB") and time have
    their own habits.

    show(5e10, "B/s") -> "50 GB/s";  show(2**31, "GiB") -> "2 GiB";  show(90, "s") -> "1.5 min";
    show(0.41, "") -> "0.41". A unit that has a prefix is the one that is shown, of a value without:
    show(2e9, "MB") -> "2,000 MB".
    """
    if not math.isfinite(value):
        return f"{value} {unit}".strip()
    if size := _of_prefix(unit):
        return f"{_round(value / size, digits)} {unit}"
    if unit == "s" and abs(value) >= 60:
        size, name = next(
            (s, n)
            for s, n in ((DAY_S, "days"), (3600.0, "h"), (60.0, "min"))
            if abs(value) >= s
        )
        return f"{_round(value / size, digits)} {name}"
    if unit in ("", "%", "chips"):
        return f"{_round(value, digits)} {unit}".strip()
    if unit == "USD":
        return f"{value:,.0f} USD"
    for prefix in ("E", "P", "T", "G", "M", "k", "", "m", "u", "n"):
        if abs(value) >= SI[prefix] * (1 - 10.0**-digits / 2) and (
            unit[:1] in "sWHJ" or SI[prefix] >= 1
        ):
            return f"{_round(value / SI[prefix], digits)} {prefix}{unit}"
    return f"{_round(value, digits)} {unit}"


def count(number: float, digits: int = 3) -> str:
    """A plain number with a prefix: 983 k, 70.6 B (billion), 15 T (trillion); 3.65e+16 beyond."""
    if abs(number) >= 1e15:
        return f"{number:.{digits - 1}e}"
    for size, prefix in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")):
        # 999,999 is 1 M, not 1,000 k
        if size * (1 - 10.0**-digits / 2) <= abs(number) < math.inf:
            return show(number / size, "", digits) + prefix
    return show(number, "", digits)


def _of_prefix(unit: str) -> float | None:
    """The size of the prefix that a unit begins with; None if it is a unit as it stands."""
    name = unit.partition("/")[0]
    if name in UNITS:
        return None
    factors = (
        size
        for prefix, size in {**SI, **IEC}.items()
        if prefix and name.startswith(prefix) and name[len(prefix) :] in UNITS
    )
    return next(factors, None)


def _round(value: float, digits: int) -> str:
    """`digits` significant digits without an exponent for everyday sizes."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e7:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{digits - 1}e}"
