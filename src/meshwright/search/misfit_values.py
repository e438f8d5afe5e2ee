"""Why no layout is legal: which of the values that were asked for are at fault, and what they may
be instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..describe.choices import Choices, Value, Values, first_few
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.recompute import RECOMPUTE
from ..layout import rules
from ..num import divisors
from ..schedule import SCHEDULES
from .cascade import any_legal
from .space import DEGREES, USUAL, Space

NEAREST = 4
"""Values that a sentence names."""
MOST_RULES = 3
"""Broken rules that are told."""
TRIED = 12
"""Values that are tried for a field, the nearest first."""
WORDS: dict[str, Values] = {
    "schedule": (*(s.name for s in SCHEDULES.values() if s.copies == 1),),
    "recompute": RECOMPUTE,
    "zero": USUAL["zero"],
}
"""All values of the fields that are no whole numbers to be divided."""


def at_fault(job: Job, space: Space) -> list[str]:
    """A sentence for each field whose values are at fault by themselves, with the nearest that are
    not, before the rules that the values break together; or, after these, for each whose values are
    at fault beside the rest.
    """
    asked = {
        name: values
        for name, values in space.choices.items()
        if _others(job, name, values)
    }
    degrees: dict[str, None] = {
        name: None for name in asked if name in DEGREES
    }
    free = space.but(**degrees)
    alone = {
        name: values
        for name, values in asked.items()
        if not any_legal(job, free.but(**{name: values}))
    }
    own = [*_instead(job, free, alone, "here")]
    first: dict[str, Any] = {n: v[0] for n, v in space.choices.items()}
    layout = Layout(**first).filling(job.cluster.chips)
    broken = rules.broken(job, layout)[:MOST_RULES]
    if own:
        return [*own, *broken]
    return [*broken, *_instead(job, space, asked, "beside the rest")]


def _instead(
    job: Job, space: Space, asked: Mapping[str, Values], where: str
) -> Iterator[str]:
    """What each field may be instead of the values asked for."""
    for name, values in asked.items():
        if near := _near(job, space, name, values):
            yield f"{name} may be {near} {where}, not {first_few(values)}"


def _near(job: Job, space: Space, name: str, asked: Values) -> str:
    """The nearest values of a field with which some layout of the space is legal, in words that
    say whether there may be more; "": none of those tried.
    """
    others = _others(job, name, asked)
    legal = (
        value
        for value in others[:TRIED]
        if any_legal(job, space.but(**{name: (value,)}))
    )
    near = [value for _, value in zip(range(NEAREST + 1), legal, strict=False)]
    if not near:
        return ""
    more = len(near) > NEAREST or len(others) > TRIED
    shown = sorted(near[:NEAREST], key=lambda v: (isinstance(v, str), v))
    return first_few(shown) + (" (the nearest)" if more else "")


def _others(job: Job, name: str, asked: Values) -> list[Value]:
    """What else a field may hold that the job's framework runs, nearest first."""
    every: Iterable[Any] = WORDS.get(name, ())
    if name in DEGREES:
        wholes = {"interleave": job.model.layers, "microbatch": job.batch}
        every = sorted(
            divisors(wholes.get(name, job.cluster.chips)),
            key=lambda d: min(abs(d - int(value)) for value in asked),
        )
    ways: Iterable[Choices] = job.profile.choices if job.profile else ()
    return [
        value
        for value in every
        if value not in asked
        and any(
            value in way.get(name, (value,)) for way in ways or [Choices()]
        )
    ]
