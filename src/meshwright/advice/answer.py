"""The answer: single changes by what they give, and the best two and three of them together.

Singles are tried all. A pair joins one of the best singles with any other change, a triple one of
the best pairs with a third, whether or not these could be made alone: enough for what a person
changes at once, and `plan` searches everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from statistics import median
from typing import Any

from ..compare.installation import LEAST, demand_possible
from ..describe.cluster import Installation
from ..describe.display import Displayed
from ..describe.job import Job
from ..prediction.prediction import Prediction, predict
from ..search import Progress
from ..step import oom
from ..units import show
from .changes import Change, singles, value_in_effect
from .gap import Gap, gap
from .judged import Judge, Option
from .spoken import Tongue, tongue

LEADS = 10
"""Single changes that a pair begins with."""
PAIRS = 6
"""Pairs that a triple begins with."""
MORE = 0.01
"""A pair, or triple, is worth a name that gains so much more than what it begins with."""


@dataclass(frozen=True)
class Advice(Displayed):
    """Changes that would improve a run.

    >>> from meshwright import Advice, Job, advise
    >>> advice = advise(Job("llama3-8b", "8xh100-sxm", batch=64).with_(tp=8, zero=1))
    >>> isinstance(advice, Advice), advice.gains[0].gain > 0
    (True, True)
    """

    run: Prediction
    """The run itself; where its steps were measured, scaled by these."""
    changes: tuple[Option, ...]
    """Single changes that fit, best first, of each choice every value; ties and slower ones too."""
    numerics: tuple[Option, ...]
    """The same of changes of numbers and batch, which train something else."""
    tie: float
    """Gain up to which a change is a tie."""
    pair: Option | None = None
    """The best two changes, where they gain more than the best one."""
    triple: Option | None = None
    gap: Gap | None = None
    """Measured beside predicted; None without a measured time."""
    format: str = ""
    """The format whose words the changes have; "": fields of a job."""
    foreign: bool = False
    """Whether the run is a file of that format, not a job of ours."""
    unfit: int = 0
    """Single changes left out, since they do not fit."""
    unsaid: int = 0
    """Single changes left out, since the framework's files cannot say them."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        first = self.gains[0] if self.gains else None
        said = (
            f"{dict(first.change.fields)}: {first.gain:+.1%} tokens/s"
            if first
            else "no single change gains more than a tie"
        )
        return f"Advice: {show(self.run.step_time_s, 's')} a step; {said}"

    @cached_property
    def best_each(self) -> tuple[Option, ...]:
        """The best value of each choice."""
        first: dict[str, Option] = {}
        for each in self.changes:
            first.setdefault(each.change.choice, each)
        return tuple(first.values())

    @property
    def ran(self) -> bool:
        """The steps of the run were measured, so it had room, whatever was predicted."""
        return self.gap is not None

    @property
    def fits(self) -> bool:
        """The run has room: it ran, or its predicted risk is accepted."""
        return self.ran or self.run.fits

    @property
    def gains(self) -> tuple[Option, ...]:
        """For each choice, the best value that gains more than a tie; if the run does not fit, also
        changes that make it fit.
        """
        return tuple(a for a in self.best_each if self.helps(a))

    @property
    def rest(self) -> tuple[Option, ...]:
        """For each remaining choice, its best value."""
        return tuple(a for a in self.best_each if not self.helps(a))

    @property
    def ties(self) -> tuple[Option, ...]:
        """For each choice, the best value that gains something, but no more than a tie."""
        return tuple(a for a in self.rest if 0.0 < a.gain <= self.tie)

    def helps(self, each: Option) -> bool:
        """Whether a change is worth making: it gains more than a tie, or it fits where the run does
        not.
        """
        return each.gain > self.tie if self.fits else each.fits

    def to_dict(self) -> dict[str, Any]:
        """The fields of `advise --json`."""
        return {
            "run": self.run.to_dict()
            | ({"fits": True, "risk_of_oom": 0.0} if self.ran else {}),
            "format": self.format or None,
            "tie": self.tie,
            "measured": self.gap.to_dict()
            | {"predicted_risk_of_oom": self.run.risk_of_oom}
            if self.gap
            else None,
            "changes": [change_record(a, self) for a in self.changes],
            "numerics": [change_record(a, self) for a in self.numerics],
            "pair": change_record(self.pair, self) if self.pair else None,
            "triple": change_record(self.triple, self)
            if self.triple
            else None,
            "left_out": {"unfit": self.unfit, "unsaid": self.unsaid},
            "notes": list(self.notes),
        }


def change_record(each: Option, of: Advice) -> dict[str, Any]:
    """One change, as `--json` has it."""
    p = each.prediction
    run = of.run.job
    return {
        "fields": {
            path: [json_value(value_in_effect(run, path)), json_value(new)]
            for path, new in each.change.fields.items()
        },
        "flags": {
            k: [json_value(x) for x in pair] for k, pair in each.words.items()
        },
        "step_time_s": p.step_time_s,
        "interval_s": p.interval_s,
        "gain": each.gain,
        "tie": abs(each.gain) <= of.tie,
        "memory_bytes": p.memory_bytes["needed"],
        "risk_of_oom": each.risk,
        "fits": each.fits,
    }


def json_value(value: Any) -> Any:
    """A value as JSON has it: descriptions by their names."""
    if isinstance(value, (str, int, float, bool, type(None), list, tuple)):
        return value
    return getattr(value, "compute", None) or str(value)


def advise(
    job: Job,
    measured: float | Sequence[float] = (),
    format: str = "",
    taken: Iterable[str] = (),
    names: frozenset[str] = frozenset(),
    progress: Progress | None = None,
) -> Advice:
    """Single changes to a job with a layout, by gain, then the best pair and triple.

    measured: seconds of its steps; three or more scale all predictions by one factor. format: tool
    of its file, whose names are used. taken: fields that were assumed, such as cp. names: keys that
    the tool's version has, if known. progress: called for each change tried.

    >>> from meshwright import Job, Layout, advise, cluster, model
    >>> on = cluster("64xh100-sxm")
    >>> job = Job(model("llama3-8b"), on, batch=512, layout=Layout(tp=8, zero=1))
    >>> advise(job).gains[0].gain > 0.06
    True
    """
    steps = (
        [float(measured)]
        if isinstance(measured, (int, float))
        else [float(s) for s in measured]
    )
    run = predict(job.filled)
    if steps:
        demand_possible(run, median(steps))
    words = tongue(run.job, format, names)
    seen = gap(run, steps, words, taken) if steps else None
    if len(steps) >= LEAST:
        run = predict(_calibrate(run, steps))
        words = tongue(run.job, format, names)
    judge = Judge(run, progress, ran=bool(steps))
    every = [*singles(run.job)]
    tried = [option for c in every if (option := judge.option(c))]
    fine = sorted(filter(judge.fits, tried), key=lambda o: o.cost_s)
    known = [*expressible(fine, words)]
    kept = [a for a in known if not a.change.numerics]
    answer = Advice(
        run,
        tuple(kept),
        tuple(a for a in known if a.change.numerics),
        judge.tie,
        gap=seen,
        format=words.format if words.base is not None else "",
        foreign=bool(format),
        unfit=len(tried) - len(fine),
        unsaid=len(fine) - len(known),
        notes=_notes(run, judge.ran),
    )
    others = [c for c in every if not c.numerics]
    return with_combinations(answer, judge, others, words)


def _notes(run: Prediction, ran: bool) -> tuple[str, ...]:
    """What is said of the run; of one that ran not that it has no room."""
    short = oom.shortage(run.job, run.memory_bytes["allocated"])
    return tuple(note for note in run.notes if not ran or note != short)


def _calibrate(run: Prediction, steps: Sequence[float]) -> Job:
    """The run's job on its installation: one scale, with which it takes the median of its steps;
    `calibrate` draws it to 1, since it is for other jobs.
    """
    plain = Installation()
    job = run.job
    alone = replace(job, cluster=replace(job.cluster, installation=plain))
    times = median(steps) / predict(alone).step_time_s
    known = Installation(times, len(steps))
    return replace(job, cluster=replace(job.cluster, installation=known))


def expressible(options: Iterable[Option], words: Tongue) -> Iterator[Option]:
    """The options that the framework's words can say."""
    for option in options:
        if spoken := words.words(option.change):
            yield replace(option, words=spoken)


def with_combinations(
    answer: Advice, judge: Judge, others: Sequence[Change], words: Tongue
) -> Advice:
    """The answer with its best pair and triple, where they are worth more than their beginning."""
    leads = answer.best_each[:LEADS]
    pairs = _combinations(judge, [o.change for o in leads], others)
    first = next(iter(leads), None)
    pair = next(expressible(pairs, words), None)
    if first is None or pair is None or not worth(pair, first):
        return answer
    starts = [a.change for a in islice(expressible(pairs, words), PAIRS)]
    triple = next(
        expressible(_combinations(judge, starts, others), words), None
    )
    if triple is not None and not worth(triple, pair):
        triple = None
    return replace(answer, pair=pair, triple=triple)


def worth(more: Option, less: Option) -> bool:
    """A longer change gains more than the shorter one, and is no riskier bargain."""
    faster = more.gain > max(less.gain, 0.0) or not less.fits
    return faster and more.cost_s * (1.0 + MORE) < less.cost_s


def _combinations(
    judge: Judge, starts: Sequence[Change], others: Sequence[Change]
) -> list[Option]:
    """Changes joined with another one each, best first."""
    every: dict[Mapping[str, Any], Change] = {}
    for start in starts:
        for other in others:
            if start.apart(other):
                both = start.joined(other)
                every.setdefault(both.fields, both)
    return sorted(judge.options(every.values()), key=lambda o: o.cost_s)
