"""Software searched with the layout: each combination of the settings that are named has its best
layout, and the best of these is the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from ..describe.job import Job
from ..prediction.certainty import resolution
from ..prediction.prediction import Prediction, predict
from .families import Family
from .software import NUMERICS, best_layout, flag_text, offers, with_settings
from .space import Space

Values = Mapping[str, tuple[Any, ...]]


def all_settings(job: Job) -> dict[str, tuple[Any, ...]]:
    """What a plan may choose of the software: the value in use and what the framework offers
    beside it, but for what changes the numbers of the training.
    """
    return {
        name: (getattr(job.profile, name), *values)
        for name, values in offers(job).items()
        if name not in NUMERICS
    }


def _combinations(job: Job, software: Values) -> Iterator[dict[str, Any]]:
    """Combinations of settings, those nearest to what the framework does by itself first."""
    every = [
        dict(zip(software, values, strict=True))
        for values in product(*software.values())
    ]

    def changed(settings: Mapping[str, Any]) -> int:
        return sum(
            getattr(job.profile, name) != value
            for name, value in settings.items()
        )

    yield from sorted(every, key=changed)


def choose_settings(
    job: Job, asked: Space
) -> tuple[dict[str, Any], list[Family]]:
    """(the settings of the answer, what others take as rows of a plan): the combination nearest to
    what the framework does by itself of those that are as good as the best, as far as the model can
    tell. After the first in which something fits, those that are no better than all before are
    not known.
    """
    plain = asked.without_software
    best: list[tuple[dict[str, Any], Prediction]] = []
    for settings in _combinations(job, asked.software):
        within = min((p.merit_s for _, p in best), default=np.inf)
        layout = best_layout(job, plain, settings, within)
        if layout:
            p = predict(with_settings(job, settings), layout)
            best.append((settings, p))
    if not best:
        return next(_combinations(job, asked.software)), []
    least = min(p.merit_s for _, p in best) * (1.0 + resolution(job))
    first = next(settings for settings, p in best if p.merit_s <= least)
    others = [
        Family(f"software: {flag_text(settings)}", p)
        for settings, p in best
        if settings != first
    ]
    return first, others
