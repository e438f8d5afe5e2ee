"""A batch as people write it: tokens of a step, or sequences.

Frameworks are given sequences, a multiple of dp x microbatch. Tokens are rounded to a number that
the chips share evenly, whatever the layout: so a plan and the prediction of it have one batch.
"""

from __future__ import annotations

import math
import re

from ..errors import BadInput, brief
from ..num import divisors
from ..units import parse
from .fields import WHOLE

ROUNDED = 0.025
"""A batch in tokens may be changed by this share, so that more chips share its sequences evenly."""
SHARED = 0.05
"""And by this one, so that all chips do, with as many sequences for each or as many chips for each:
1M is often said for 2^20 (4.9 % more), as 128 sequences of 8,192 are."""
MOST_TOKENS = 1e9
"""More than the batches of all published runs: so many sequences that nobody meant them."""
APPROXIMATE = re.compile(r".*[0-9]\s*[kKMGT]\s*(?:tokens?)?\s*")
"""Tokens in decimal thousands or millions: nobody means 15,625 sequences by "64M", though that is
what they are."""
SEQUENCES = re.compile(r"(.*?)\s*(?:seq|seqs|sequence|sequences)\s*")


def parse_batch(
    text: str | int | float, seq: int, chips: int
) -> tuple[int, str | None]:
    """(sequences, note): "512seq" are sequences; "4M", and bare numbers, are tokens, rounded to
    whole sequences.

    seq: tokens of a sequence;  chips: tokens that make no whole sequences, or are said in decimal
    millions, are rounded to what so many chips share (`shared_multiple`);  note: says what was
    rounded, None if nothing was.
    """
    if isinstance(text, str) and (match := SEQUENCES.fullmatch(text[:100])):
        number = parse(match[1] or text, "", "batch")
        if number != int(number):
            raise BadInput(
                f"batch {text[:40]!r} must be a whole number of sequences"
            )
        return int(_in_range(number, text)), None
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise BadInput(
            f"batch must be tokens such as '4M', or sequences such as '512seq', not {brief(text)}"
        )
    tokens = parse(text, "token", "batch")
    if 0 < tokens < seq:
        raise BadInput(_less_than_one(tokens, seq))
    count = int(_in_range(round(tokens / seq), text))
    said_exactly = not (isinstance(text, str) and APPROXIMATE.fullmatch(text))
    if count * seq == tokens and said_exactly:
        return count, None
    whole = f"batch: {tokens:,.0f} tokens rounded to"
    if (better := shared_multiple(tokens / seq, chips)) != count and math.gcd(
        better, chips
    ) > math.gcd(count, chips):
        return (
            better,
            (
                f"{whole} {better:,} sequences of {seq:,} ({better * seq:,} tokens,"
                f" {100 * (better * seq / tokens - 1):+.1f} %), which"
                f" {math.gcd(better, chips):,} of {chips:,} chips share evenly; the nearest:"
                f" --batch {count}seq"
            ),
        )
    if count * seq == tokens:
        return count, None
    return (
        count,
        f"{whole} {count:,} sequences of {seq:,} ({count * seq:,} tokens)",
    )


def _less_than_one(tokens: float, seq: int) -> str:
    """Why so few tokens are no batch, and what may have been meant: as many sequences, where such
    a batch could be.
    """
    would = (
        f"; for sequences write '{tokens:.0f}seq'"
        if tokens * seq <= MOST_TOKENS
        else f": batch must be at least {seq:,} ('1seq'), or seq at most {tokens:,.0f}"
    )
    return f"batch of {tokens:,.0f} tokens is less than one sequence of {seq:,}{would}"


def shared_multiple(sequences: float, chips: int) -> int:
    """The multiple of the largest divisor of `chips` that lies within ROUNDED of that many
    sequences, or within SHARED where it is one of all chips, or divides them.
    """
    for d in reversed(divisors(chips)):
        near = round(sequences / d) * d
        all_share = math.gcd(near, chips) == min(near, chips)
        most = SHARED if all_share else ROUNDED
        if near and abs(near - sequences) <= most * sequences:
            return near
    return max(round(sequences), 1)


def _in_range(sequences: float, text: object) -> float:
    if not WHOLE[0] <= sequences <= WHOLE[1]:
        raise BadInput(
            f"batch {brief(text)} must be between 1 and {WHOLE[1]:g} sequences"
        )
    return sequences
