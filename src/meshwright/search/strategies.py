"""The spaces of a plan: what the user names, and for the rest the strategies that the set of
assumptions searches, or the framework proposes.
"""

from __future__ import annotations

from itertools import product

from ..describe.choices import Choices, listed
from ..describe.job import Job
from ..num import divisors
from .framework import allowed, proposed
from .space import FIXED, Space


def strategies(
    job: Job, space: Space, proposals: bool = True
) -> tuple[list[Space], list[str]]:
    """(a space for each strategy of the job's set or framework and each scheme, sentences on what
    was named beyond them).

    A value that the user names and some strategy has is searched in those that have it; one that
    none has is searched in all, and said so. Thus a set's own space is only a default.
    """
    how = job.assumptions
    runs = allowed(job, space.choices)
    found = list(
        how.choices or (proposed(job, runs) if proposals else runs)
    ) or [Choices()]
    whose = how.name if how.choices or not job.profile else job.profile.name
    relaxed = space.relaxed
    if how.strict and not relaxed:
        relaxed = False
        even = divisors(job.model.layers)
        found = [choices.but(pp=choices.get("pp", even)) for choices in found]
    said = []
    # a scheme decides which strategies are left
    for name in sorted(space.choices, key=lambda name: name != "scheme"):
        asked = space.choices[name]
        own = [v for choices in found for v in choices.get(name, asked)]
        if beyond := [v for v in asked if v not in own]:
            searches = listed(dict.fromkeys(own))
            said.append(
                f"{name} {listed(beyond)} is searched as asked; {whose} itself searches {name}"
                f" {searches}"
            )
        each = [
            (choices, {*choices.get(name, asked), *beyond})
            for choices in found
        ]
        both = [
            choices.but(**{name: [v for v in asked if v in allowed]})
            for choices, allowed in each
        ]
        found = [choices for choices in both if choices[name]]
    spaces = [Space(choices, space.placements, relaxed) for choices in found]
    names = ("scheme", *FIXED)
    every = (
        (each, product(*(each.values(name) for name in names)))
        for each in spaces
    )
    one = [
        each.but(**dict(zip(names, v, strict=True)))
        for each, values in every
        for v in values
    ]
    return one, said
