"""Orders of V-shaped pipelines, written as programs: "F0 F0 F1 I1 W1" instead of loops with
counters.

A word is a kind and a chunk; the microbatch follows from counting: the k-th F0 of a rank is the
forward of microbatch k through its chunk 0. Rank r holds stages r and 2p - 1 - r, so the last stage
lies on the rank of the first and the turn of the V needs no send.
"""

from __future__ import annotations

from collections import Counter

from .types import Action


def numbered(program: str) -> list[Action]:
    """The actions of a program; B counts as an I and a W."""
    counts: Counter[str] = Counter()
    actions = []
    for word in program.split():
        kind = word[0]
        digit = word[1]
        passes = "IW" if kind == "B" else kind
        actions.append(Action(kind, int(digit), counts[passes[0] + digit]))
        for each in passes:
            counts[each + digit] += 1
    return actions
