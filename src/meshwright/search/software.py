"""The software of a plan: what its framework can be set to, what each setting gives on the layout
of the answer, and what the best of them give together, with the layout searched anew.

A framework's offers (`describe.software.Offer`) say which values a setting may have, on which
chips, for which models and in which numbers. What a job states is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..describe.framework import framework
from ..describe.frozen import FrozenDict, short_repr
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout import practice, setting_rules
from ..layout.rules import framework_refusals
from ..prediction.certainty import has_precedent, resolution
from ..prediction.prediction import Prediction, predict
from .precedent import precedent_spaces
from .ranked import best_within
from .space import Space
from .strategies import strategies

NUMERICS = ("gradients", "float8")
"""Settings that change the numbers of a training, not only how fast it runs: they are priced, and
made by whoever wants them."""
EXPERTS = ("dispatcher", "ep_overlap")
"""Settings that mean nothing where no rank holds other experts than the next: another layout may
want them."""
NO_CHANGE = 0.0005
"""Share of a step below which a setting does nothing."""
SMALL_CHANGE = 0.005
"""Share of a step below which a setting is not worth its place in a set."""
WORTH = 0.01
"""Share of a step from which a set is named, and another layout is looked for to have a setting
that the answer's does not go with."""


@dataclass(frozen=True)
class Tuning:
    """Settings of the software in place of those that a plan assumes."""

    settings: Mapping[str, Any]
    prediction: Prediction
    change: float
    """Of the seconds of a step: -0.28 is 28 % less."""
    merit: float
    """Of the seconds over the chance to fit, by which settings are chosen."""
    since: tuple[str, ...]
    """Releases that brought the settings."""

    __repr__ = short_repr

    @property
    def numerics(self) -> bool:
        """It changes the numbers of the training."""
        return any(name in NUMERICS for name in self.settings)

    @property
    def flags(self) -> str:
        """The settings as flags of a command."""
        return flag_text(self.settings)

    def to_dict(self) -> dict[str, Any]:
        """The fields of one of `software` of `plan --json`."""
        p = self.prediction
        return {
            "settings": dict(self.settings),
            "flags": self.flags,
            "since": list(self.since),
            "change": self.change,
            "numerics": self.numerics,
            "step_time_s": p.step_time_s,
            "interval_s": p.interval_s,
            "risk_of_oom": p.risk_of_oom,
            "layout": p.to_dict()["layout"],
        }


def flag_text(settings: Mapping[str, Any]) -> str:
    """Settings as flags of a command."""
    return " ".join(
        f"--{name.replace('_', '-')} {str(value).lower()}"
        for name, value in settings.items()
    )


def settable(job: Job) -> dict[str, tuple[Any, ...]]:
    """Setting -> the values that it may have beside the one in use: what the framework does by
    itself, and what it offers to this model on these chips in these numbers.
    """
    if job.profile is None:
        return {}
    by = job.framework or framework(job.usual_framework)
    run = (
        job.cluster.chip.kernel_law,
        bool(job.model.moe),
        job.precision.compute,
    )
    values = {name: [getattr(by, name)] for name in job.software.given}
    for one in by.offers:
        if one.runs(*run):
            values.setdefault(one.setting, []).append(one.meant)
    return {
        name: others
        for name, every in values.items()
        if (others := _others(every, getattr(job.profile, name)))
    }


def _others(values: Iterable[Any], used: Any) -> tuple[Any, ...]:
    """Values, each once, without the one in use."""
    return tuple(value for value in dict.fromkeys(values) if value != used)


def offers(job: Job) -> dict[str, tuple[Any, ...]]:
    """Setting -> what the framework offers beside what it does by itself; none of a setting that
    the job states.
    """
    stated = job.software.given
    every = settable(job).items()
    return {name: values for name, values in every if name not in stated}


def with_settings(job: Job, settings: Mapping[str, Any]) -> Job:
    """The job with other settings of its software."""
    return replace(job, software=replace(job.software, **settings))


def tuning(
    best: Prediction, settings: Mapping[str, Any], layout: Layout | None = None
) -> Tuning:
    """The layout of a plan's best, or another, under other settings."""
    job = with_settings(best.job, settings)
    p = predict(job, layout or best.layout)
    by = best.job.profile
    since = {
        (one.setting, one.meant): one.since
        for one in (by.offers if by else ())
    }
    releases = (since.get(item, "") for item in settings.items())
    return Tuning(
        FrozenDict(settings),
        p,
        p.step_time_s / best.step_time_s - 1.0,
        merit=p.merit_s / best.merit_s - 1.0,
        since=tuple(dict.fromkeys(filter(None, releases))),
    )


def _runs_with(best: Prediction, setting: str, value: Any) -> bool:
    """The layout of the answer goes with another value of a setting."""
    job = with_settings(best.job, {setting: value})
    return not setting_rules.broken_settings(job, best.layout)


def single_tunings(best: Prediction) -> tuple[Tuning, ...]:
    """Each setting at each other value, the layout of the answer kept, best first; none that the
    layout cannot run, or that does nothing.
    """
    every = (
        tuning(best, {name: value})
        for name, values in offers(best.job).items()
        for value in values
        if _runs_with(best, name, value)
    )
    worth = (one for one in every if abs(one.merit) >= NO_CHANGE)
    return tuple(sorted(worth, key=lambda one: one.merit))


def best_tuning(best: Prediction, asked: Space) -> Tuning | None:
    """The best set of settings and the best layout under it, where that takes less than the answer;
    settings that change the numbers of the training are left as they are.

    Of each setting the value is taken that gives most on the layout of the answer. The layout is
    kept, unless another is better by more than the model's resolution.
    """
    wanted = _best_settings(best)
    own = {
        name: value
        for name, value in wanted.items()
        if _runs_with(best, name, value)
    }
    one = _prune(best, own, best.layout)
    # a setting that makes the plan slower does not raise the limit of the search
    least = min(one.merit, 0.0) if one else 0.0
    within = best.merit_s * (1.0 + least) / (1.0 + resolution(best.job))
    # each search takes as long as the plan's: the second only where the first gives nothing
    again = best.fits and not best.idle
    every = [wanted, own] if own != wanted else [wanted]
    for settings in every if again else []:
        layout = best_layout(best.job, asked, settings, within)
        other = layout and _prune(best, settings, layout)
        if other and other.prediction.merit_s <= within:
            return other
    return one


def _best_settings(best: Prediction) -> dict[str, Any]:
    """Setting -> the value that gives most on the layout of the answer, whether or not it can run
    so, of those that a prediction times there; the first where none does anything and another
    layout may want it.
    """
    wanted = {}
    for name, values in offers(best.job).items():
        if name in NUMERICS:
            continue
        every = [
            tuning(best, {name: value})
            for value in values
            if not framework_refusals(
                with_settings(best.job, {name: value}), best.layout
            )
        ]
        if not every:
            continue
        first = min(every, key=lambda one: round(one.merit, 9))
        runs = not setting_rules.broken_settings(
            first.prediction.job, best.layout
        )
        if first.merit <= -(NO_CHANGE if runs else WORTH) or name in EXPERTS:
            wanted[name] = first.settings[name]
    return wanted


def best_layout(
    job: Job, asked: Space, settings: Mapping[str, Any], within: float
) -> Layout | None:
    """The best layout under other settings that keeps the conventions of published runs, and what
    the settings ask, within a limit.
    """
    other = with_settings(job, settings)
    # a search ranks by what the laws say, before the installation's scale
    within /= job.cluster.installation.scale
    spaces, _ = strategies(other, asked)
    conventions = practice.kept_conventions(other, asked.choices)
    usual = practice.keeping(setting_rules.keeping(other), conventions)
    one = best_within(usual, spaces, within)
    if (
        one
        and "zero" not in asked.choices
        and not has_precedent(other, one.layout)
    ):
        one = best_within(usual, precedent_spaces(usual, spaces), within)
    return one and one.layout


def _prune(
    best: Prediction, settings: Mapping[str, Any], layout: Layout
) -> Tuning | None:
    """The settings that do something on a layout, together; None: none does."""
    kept = dict(settings)
    whole = tuning(best, kept, layout)
    for name in settings:
        fewer = {k: v for k, v in kept.items() if k != name}
        less = tuning(best, fewer, layout)
        if less.prediction.merit_s <= whole.prediction.merit_s * (
            1.0 + SMALL_CHANGE
        ):
            kept, whole = fewer, less
    return whole if kept and whole.merit <= -WORTH else None
