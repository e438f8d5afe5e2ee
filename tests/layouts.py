"""Layouts in words."""

from __future__ import annotations

import re
from typing import Any

from meshwright import Layout
from meshwright.schedule import SCHEDULES


def cut(words: str) -> Layout:
    """A layout in words: a field and its number, a schedule, what is recomputed, or "whole": without
    sequence parallelism. One replica, if they do not say: "tp2 pp2 zero1 interleaved interleave2".
    """
    fields: dict[str, Any] = {"dp": 1}
    for word in words.split():
        if part := re.fullmatch(r"([a-z]+)(\d+)", word):
            fields[part[1]] = int(part[2])
        elif word == "whole":
            fields["sequence_parallel"] = False
        else:
            kind = "schedule" if word in SCHEDULES else "recompute"
            fields[kind] = word
    return Layout(**fields)
