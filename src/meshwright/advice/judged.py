"""Which changes a run can make, and what each gives: predicted one by one, like the run itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ..describe.frozen import FrozenDict
from ..describe.job import Job
from ..errors import BadInput
from ..layout import rules, setting_rules
from ..layout.practice import PRACTICE, not_proposed
from ..layout.rules import ALWAYS, STRICT
from ..prediction.certainty import resolution
from ..prediction.prediction import Prediction, predict
from ..search import Progress
from ..step import oom
from .changes import Change
from .spoken import Words

NOTHING = 1e-9
"""Gain of a change that changes nothing."""
LEAST_GAIN = 0.01
"""Gain that is worth a change where the set of assumptions knows no ties."""


@dataclass(frozen=True)
class Option:
    """A change, and what the run is with it."""

    change: Change
    prediction: Prediction
    gain: float
    """More tokens a second than the run, as a share of its own; below 0 it is slower."""
    risk: float
    """Probability that it runs out of memory (`Judge.risk`)."""
    words: Words = FrozenDict()
    """What it sets in the run's file, once somebody has looked."""

    @property
    def fits(self) -> bool:
        """Its risk is accepted."""
        return self.risk <= self.prediction.risk_accepted

    @property
    def cost_s(self) -> float:
        """What ranks: expected seconds of a sequence over the chance that the step fits."""
        p = self.prediction
        return p.merit_at(self.risk) / p.job.batch


@dataclass(frozen=True)
class Judge:
    """A run, and what its changes are held against."""

    run: Prediction
    progress: Progress | None = None
    """Told of each change that is tried; may end it all by raising."""
    ran: bool = False
    """Its steps were measured, so it had room."""

    @cached_property
    def rules(self) -> tuple[rules.LayoutRule, ...]:
        """What every layout keeps, and of the conventions and even shares those that the run
        keeps: a change breaks no more than the run does."""
        job, own = self.run.job, self.run.layout
        usual = (r for r in (*STRICT, *PRACTICE) if r.holds(job, own))
        return (*ALWAYS, *usual)

    @cached_property
    def tie(self) -> float:
        """Gain below which the faster one is not known, or is not worth a change."""
        return max(resolution(self.run.job), LEAST_GAIN)

    @cached_property
    def unreleased(self) -> int:
        """Choices of the run that the framework's released version does not have."""
        return len(not_proposed(self.run.job.profile, self.run.layout))

    @cached_property
    def amiss(self) -> int:
        """Rules of its own settings that the layout of the run breaks."""
        return len(
            setting_rules.broken_settings(self.run.job, self.run.layout)
        )

    def legal(self, job: Job) -> bool:
        """The framework runs the changed job, as far as layouts go."""
        layout = job.layout
        if rules.broken(job, layout, self.rules):
            return False
        if len(setting_rules.broken_settings(job, layout)) > self.amiss:
            return False
        return len(not_proposed(job.profile, layout)) <= self.unreleased

    def option(self, change: Change) -> Option | None:
        """The run with a change; None where that is not legal, or does nothing."""
        if self.progress:
            self.progress("changes", 0.0)
        try:
            job = change.applied_to(self.run.job)
            if not self.legal(job):
                return None
            p = predict(job)
        except BadInput:
            return None
        gain = p.tokens_per_s / self.run.tokens_per_s - 1.0
        still = abs(gain) < NOTHING and (
            p.memory_bytes == self.run.memory_bytes
        )
        return None if still else Option(change, p, gain, self.risk(p))

    def risk(self, p: Prediction) -> float:
        """Probability that the run, or a change of it, runs out of memory."""
        run = self.run
        if not self.ran:
            return p.risk_of_oom
        # beyond the last digit of a risk its bytes still tell which needs more
        if p.memory_bytes["needed"] <= run.memory_bytes["needed"]:
            return 0.0
        return oom.risk_beside(p.risk_of_oom, run.risk_of_oom)

    def fits(self, option: Option) -> bool:
        """Its risk is accepted, or no greater than the run's own."""
        return option.fits or option.risk <= self.risk(self.run)

    def options(self, changes: Iterable[Change]) -> Iterator[Option]:
        """The changes that can be made and fit."""
        for change in changes:
            option = self.option(change)
            if option and self.fits(option):
                yield option
