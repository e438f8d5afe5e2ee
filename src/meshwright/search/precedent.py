"""Layouts that shard as published runs do, and what is faster outside published practice.

What no run has shown may be faster by what nobody measured: such a layout is the answer only where
even the slow end of its interval beats the best of those that runs show.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..describe.job import Job
from ..describe.slices import axes
from ..layout import practice, setting_rules
from ..prediction.certainty import resolution, shardings
from ..prediction.prediction import Prediction, predict
from .degrees import values_above_one
from .families import Family
from .ranked import best_within
from .space import Space
from .strategies import strategies

NAME = "a sharding without runs"
SAID = "no published run is sharded like this"
CUTTING_AXES = ("tp", "cp", "pp")
"""Axes that cut a model beside ZeRO's shards: those that `classes.sharding` names."""
UNSHARDED = (0, 1)
"""ZeRO stages that leave weights and gradients whole."""


def slow_end(p: Prediction) -> float:
    """What ranks a prediction at the slow end of its interval."""
    # sets without evidence are not planned by practice
    assert p.certainty is not None
    return p.merit_s * p.certainty.high


def precedent_spaces(job: Job, spaces: Sequence[Space]) -> list[Space]:
    """Of each space the parts in which layouts shard as published runs of such a model do; no two
    of them have a layout in common where the spaces have none.
    """
    known = sorted(shardings(job))
    every = (_part(job, space, how) for space in spaces for how in known)
    return [part for part in every if part]


def _part(job: Job, space: Space, how: str) -> Space | None:
    """The part of a space of one sharding, such as "ZeRO-3 cp"; None: it has none."""
    if not how:
        return space.part(zero=UNSHARDED)
    first, *cuts = how.split()
    degrees = {
        axis: values_above_one(job, space, axis) if axis in cuts else (1,)
        for axis in CUTTING_AXES
    }
    return space.part(zero=[int(first.removeprefix("ZeRO-"))], **degrees)


def outside_conventions(
    job: Job, asked: Space, best: Prediction
) -> tuple[Family, ...]:
    """The best layout that breaks a convention of published runs, or that the framework's released
    version does not run, where it beats the best by more than the model's resolution.
    """
    if best.idle or axes(job.cluster.network):
        return ()
    every, _ = strategies(job, asked, proposals=False)
    within = best.merit_s / (1.0 + resolution(job))
    # a search ranks by what the laws say, before the installation's scale
    limit = within / job.cluster.installation.scale
    one = best_within(setting_rules.keeping(job), every, limit)
    if one is None:
        return ()
    p = predict(job, one.layout)
    if p.merit_s > within:
        return ()
    why = practice.unusual(job, p.layout)
    return (Family("outside published practice", p, "; ".join(why)),)
