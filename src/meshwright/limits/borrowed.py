"""Another set of assumptions in place of the paper's: what a stack of MLPs has of it.

The chip, the network, what overlaps and the memory that can be allocated are the set's; work,
numbers and layouts stay the paper's (`scenario.READ`). What hides behind an operation, a layer or a
product becomes what it is in a step of equal blocks (`in_step`): behind a weight gradient exactly,
a third of the products for half of what is sent; behind a layer the same seconds, taken over both
passes, so that forward passes short of work borrow from backward ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from ..describe.assumptions import (
    EPOCH,
    JOINTS,
    WHOLE,
    Assumptions,
    Hide,
    differing,
)
from ..describe.chip import Chip
from ..describe.framework import answered, asked, framework, usual
from ..describe.frozen import put
from ..errors import BadInput
from .scenario import BY_SHAPE, READ

WEIGHTS = 1 / 3
"""Of the products of a block, those that make weight gradients."""
BACKWARD_SENT = 1 / 2
"""Of what a block sends, what its backward pass does."""


@dataclass(frozen=True)
class Borrowed:
    """A set as `limits` can use it."""

    assumptions: Assumptions
    left: tuple[str, ...]
    """Fields of it that say nothing here, or not what they say elsewhere."""


def borrowed(
    how: Assumptions, chip: Chip, framework_name: str = ""
) -> Borrowed:
    """The paper's model of a step with the chip, network, overlap and memory of another set; fields
    that it leaves to the framework are answered by the one of that name, else by the usual one.
    """
    if framework_name and not asked(how):
        raise BadInput(
            f"assumptions {how.name} say themselves what a framework does: leave out framework"
            f" {framework_name}, or take assumptions realistic"
        )
    name = framework_name or usual(how, chip)
    kept = answered(how, framework(name))
    fields = (*READ, *(BY_SHAPE if kept.chip.model == "by-shape" else ()))
    taken: Any = EPOCH
    for path in fields:
        taken = put(path, attrgetter(path)(kept))(taken)
    hidden = {
        axis: in_step(getattr(taken.overlap, axis)) for axis in ("tp", "ep")
    }
    taken = replace(taken, overlap=replace(taken.overlap, **hidden))
    left = [
        path
        for joint in (*JOINTS, *WHOLE)
        for path in differing(
            getattr(kept, joint), getattr(taken, joint), joint
        )
    ]
    return Borrowed(
        replace(taken, name=how.name, source=how.source), tuple(left)
    )


def in_step(how: Hide) -> Hide:
    """The same behind the products of a whole step."""
    if how.scope in ("none", "step"):
        return how
    if how.scope == "weight gradient":
        return Hide(
            "step",
            how.share * WEIGHTS,
            how.slow,
            most=how.most * BACKWARD_SENT,
        )
    return Hide("step", how.share, how.slow, most=how.most)
