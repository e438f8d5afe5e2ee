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
from ..describe.framework import framework, questions_of, usual, with_answers
from ..describe.frozen import put
from ..errors import BadInput
from .scenario import BY_SHAPE, READ

WEIGHTS = 1 / 3
"""Of the products of a block, those that make weight gradients."""
BACKWARD_SENT = 1 / 2
"""Of what a block sends, what its backward pass does."""


@dataclass(frozen=True)
class StackAssumptions:
    """What a set says of a stack of MLPs."""

    assumptions: Assumptions
    unread: tuple[str, ...]
    """Fields of the set that say nothing here, or not what they say elsewhere."""


def stack_assumptions(
    source: Assumptions, chip: Chip, framework_name: str = ""
) -> StackAssumptions:
    """The paper's model of a step with the chip, network, overlap and memory of another set; fields
    that it leaves to the framework are answered by the one of that name, else by the usual one.
    """
    if framework_name and not questions_of(source):
        raise BadInput(
            f"assumptions {source.name} already say what a framework does: leave out framework"
            f" {framework_name}, or take assumptions realistic"
        )
    profile = framework(framework_name or usual(source, chip))
    whole = with_answers(source, profile)
    fields = READ + (BY_SHAPE if whole.chip.model == "by-shape" else ())
    stack: Any = EPOCH
    for path in fields:
        stack = put(path, attrgetter(path)(whole))(stack)
    for axis in ("tp", "ep"):
        how = getattr(stack.overlap, axis)
        stack = put(f"overlap.{axis}", in_step(how))(stack)
    unread = [
        path
        for joint in (*JOINTS, *WHOLE)
        for path in differing(
            getattr(whole, joint), getattr(stack, joint), joint
        )
    ]
    stack = replace(stack, name=source.name, source=source.source)
    return StackAssumptions(stack, tuple(unread))


def in_step(how: Hide) -> Hide:
    """What hides behind the products of a whole step."""
    if how.scope in ("none", "step"):
        return how
    share, most = how.share, how.most
    if how.scope == "weight gradient":
        share, most = share * WEIGHTS, most * BACKWARD_SENT
    return Hide("step", share, how.slow, most=most)
