"""What p, m and v a schedule can run, as conditions with sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..num import row_by_row
from . import groups


@dataclass(frozen=True)
class Rule:
    """A condition on p, m, v, and the sentence for those who break it."""

    holds: Callable[[Any, Any, Any], Any]
    """(p, m, v), numbers or arrays -> True where the rule is kept."""
    sentence: Callable[[int, int, int], str]
    """(p, m, v) -> what is wrong, with the nearest valid values."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", row_by_row(self.holds))


def one_chunk(name: str) -> Rule:
    """The schedule does not cut a device's layers further."""
    return Rule(
        lambda p, m, v: v == 1,
        lambda p, m, v: (
            f"{name} keeps one chunk of the model on a device, not {v}: interleave must be 1"
            " (interleaved takes more)"
        ),
    )


def two_chunks(name: str) -> Rule:
    """The schedule always folds the model in two; an interleave left at 1 is not an objection."""
    return Rule(
        lambda p, m, v: (v == 1) | (v == 2),
        lambda p, m, v: (
            f"{name} always keeps 2 chunks of the model on a device, not {v}: interleave must be 2"
        ),
    )


def many_chunks(name: str, plain: str) -> Rule:
    """The schedule cuts a device's layers into several chunks."""
    return Rule(
        lambda p, m, v: v >= 2,
        lambda p, m, v: (
            f"{name} needs at least 2 chunks of the model on a device, not {v}: with one, take"
            f" {plain}"
        ),
    )


def whole_groups(name: str, group: int) -> Rule:
    """Microbatches go round the chunks in groups (`groups`)."""
    return Rule(
        lambda p, m, v: groups.in_groups(p, m, group),
        lambda p, m, v: groups.sentence(name, int(p), int(m), group),
    )
