"""What is faster outside published practice."""

from __future__ import annotations

from ..describe.job import Job
from ..describe.slices import axes
from ..layout import beside, practice
from ..prediction.certainty import resolution
from ..prediction.prediction import Prediction, predict
from .families import Family
from .ranked import Ranked
from .space import Space
from .strategies import strategies

NAMED = 4
"""Layouts outside published practice that are searched for at first."""


def outside(job: Job, asked: Space, best: Prediction) -> tuple[Family, ...]:
    """The best layout that breaks a convention of published runs, or that the framework's released
    version does not run, where it beats the best by more than the model's resolution.
    """
    if best.idle or axes(job.cluster.network):
        return ()
    every, _ = strategies(job, asked, proposals=False)
    usual = beside.kept(job)
    within = best.merit_s / (1.0 + resolution(job))
    fastest = Ranked(usual, every, NAMED, within=within).best(1)
    if not fastest:
        return ()
    p = predict(job, fastest[0].layout)
    if p.merit_s > within:
        return ()
    why = [
        *practice.broken(job, p.layout),
        *practice.not_proposed(job, p.layout),
    ]
    return (Family("outside published practice", p, "; ".join(why)),)
