"""A prediction: the time, memory and cost of a step as a tree of terms that adds up, each with its
formula and source.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from ..count.model import count_microbatch, parameters
from ..describe.display import Displayed
from ..describe.frozen import one_line, with_values
from ..describe.job import Job, demand_job
from ..describe.layers import mix
from ..describe.layout import Layout
from ..layout import rules
from ..layout.placement import launched
from ..program.cpu import cpu_seconds, why_no_cpu_time
from ..step import clock_of, oom
from ..step.microbatch import time_model
from ..units import DAY_S, show
from .certainty import (
    Certainty,
    certainty,
    chip_unmeasured,
    nearest_runs,
)
from .classes import chip_family
from .explanation import Explanation
from .failures import Failures, Loss, loss_to_failures, of_family
from .memory_term import memory_term
from .notes import prediction_notes
from .result import StepResult
from .term import Term
from .terms import step_term

ANSWERS = (
    "step_time_s",
    "replayed_s",
    "cpu_time_s",
    "interval_s",
    "evidence",
    "tokens_per_s",
    "tokens_per_s_per_chip",
    "model_flops_per_s_per_chip",
    "mfu",
    "hfu",
    "time_s",
    "memory_bytes",
    "fits",
    "risk_of_oom",
    "microbatches",
    "useful_time_s",
    "lost_s",
    "train_time_s",
    "chip_hours",
    "cost_usd",
    "energy_j",
)
"""Properties of a prediction that `predict --json` has by their names."""


@dataclass(frozen=True)
class Prediction(StepResult, Displayed):
    """Predicted time and memory of one step under a layout, with its interval and notes, and the
    cost of the run.

    >>> from meshwright import Job, Prediction, predict
    >>> p = predict(Job("llama3-8b", "64xh100-sxm", batch=512), zero=3)
    >>> isinstance(p, Prediction)
    True
    >>> low, high = p.interval_s
    >>> low < p.step_time_s < high
    True
    >>> abs(sum(p.time_s.values()) / p.step_time_s - 1) < 1e-9
    True
    """

    def __reduce__(self) -> Any:
        """Pickled and copied without what was computed from the fields: it is computed again when
        asked for.
        """
        return type(self), (self.job, self.layout)

    def with_results(self, **values: Any) -> Prediction:
        """A copy that has these values of its properties, and does not compute them again."""
        return with_values(self, **self.__dict__ | values)

    def __repr__(self) -> str:
        use = self.memory_bytes
        cluster = self.job.cluster
        return (
            f"Prediction: {self.job.model.name} on {cluster.chips} x {cluster.chip.name}\n"
            f"  {self.verdict}: {show(use['needed'], 'GiB')} of {show(use['capacity'], 'GiB')}\n"
            f"  step time {show(self.step_time_s, 's')}, MFU {self.mfu:.1%}{self.proviso}\n"
            f"  {one_line(self.layout)}"
            + (f"\n  {self.idle}" if self.idle else "")
        )

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Rates that nobody measured, settings that do nothing here, corners where it is too
        fast."""
        return prediction_notes(self)

    @property
    def merit_s(self) -> float:
        """The ranking criterion: expected step time over the chance that the layout fits."""
        return self.merit_at(self.risk_of_oom)

    def merit_at(self, risk: float) -> float:
        """`merit_s`, if the layout runs out of memory with this probability."""
        return self.step_time_s / max(1.0 - risk, oom.LEAST_CHANCE)

    @cached_property
    def cpu_time_s(self) -> dict[str, float] | None:
        """CPU seconds by cause, summed over all ranks; None unless `meshwright calibrate` has
        measured all that the layout needs (`why_no_cpu_time`).
        """
        if why_no_cpu_time(self.job, self.layout):
            return None
        return {
            cause: float(value)
            for cause, value in cpu_seconds(self.job, self.layout).items()
        }

    @cached_property
    def certainty(self) -> Certainty | None:
        """How sure the step time is, and on which published runs that rests; None under a set that
        was compared with none.
        """
        return certainty(self)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The step times between which nine of ten runs of this kind lie; None without evidence."""
        return self.within(self.step_time_s)

    @property
    def evidence(self) -> dict[str, Any] | None:
        """What the interval rests on, as `predict --json` has it."""
        sure = self.certainty
        if sure is None:
            return None
        return {
            "class": sure.kind,
            "rows": sure.rows,
            "sources": list(sure.sources),
            "nearest": [run._asdict() for run in nearest_runs(self.job)],
            "note": sure.note,
        }

    @property
    def verdict(self) -> str:
        """Whether it fits, in words; "may not fit" if the risk is above the accepted one but
        running out is not certain (`oom.SURE`).
        """
        if self.fits:
            return "fits"
        return "does NOT fit" if self.risk_of_oom > oom.SURE else "may not fit"

    @property
    def proviso(self) -> str:
        """What stands behind seconds and rates of what has no room; "" where it fits."""
        words = {
            "does NOT fit": ", if it fitted",
            "may not fit": ", if it fits",
        }
        return words.get(self.verdict, "")

    @property
    def memory_short(self) -> float:
        """Bytes that the fullest device lacks; negative if it has more than needed."""
        use = self.memory_bytes
        return use["needed"] - use["capacity"]

    @property
    def risk_accepted(self) -> float:
        """Probability of running out of memory up to which a layout fits."""
        return float(oom.risk_limit(self.job.how.memory, self.job.headroom))

    @property
    def unmeasured(self) -> bool:
        """Whether the chip's sustained rate is assumed because nobody measured it; the notes say
        which.
        """
        return chip_unmeasured(self.job)

    @cached_property
    def failures(self) -> Failures | None:
        """What interrupts the run; None under a set that was compared with no runs."""
        if self.certainty is None:
            return None
        return of_family(chip_family(self.job.cluster.chip))

    @cached_property
    def lost(self) -> Loss | None:
        """What interruptions and checkpoints cost the run."""
        chips = self.job.cluster.chips
        size = parameters(self.job.model)
        return (
            loss_to_failures(self.failures, chips, size)
            if self.failures
            else None
        )

    @property
    def useful_time_s(self) -> float | None:
        """Seconds of all steps of the run; None if the job names no tokens."""
        return self.job.tokens / self.tokens_per_s if self.job.tokens else None

    @property
    def train_time_s(self) -> float | None:
        """Seconds of the whole run, with checkpoints, interruptions and restarts; None if the job
        names no tokens.
        """
        useful, lost = self.useful_time_s, self.lost
        return useful / float(lost.goodput) if useful and lost else useful

    @property
    def lost_s(self) -> dict[str, float] | None:
        """Parts of `train_time_s`: seconds of checkpoints, of restarts, of repeated work."""
        whole, lost, failures = self.train_time_s, self.lost, self.failures
        if whole is None or lost is None or failures is None:
            return None
        parts = lost.parts(whole, failures.restart_s)
        return {k: float(s) for k, s in parts.items() if k != "useful"}

    @property
    def days(self) -> float | None:
        """Days of the whole run, with checkpoints and interruptions; None if the job names no
        tokens.

        >>> from meshwright import Job, Layout, cluster, model, predict
        >>> on = cluster("64xh100-sxm")
        >>> job = Job(model("llama3-8b"), on, batch=512, tokens=1e12)
        >>> p = predict(job, Layout(dp=64, zero=3))
        >>> p.days == p.train_time_s / 86400
        True
        """
        whole = self.train_time_s
        return whole and whole / DAY_S

    @property
    def usd(self) -> float | None:
        """`cost_usd`: rent of the whole run; None if the price or the length is unknown.

        >>> from meshwright import Job, Layout, cluster, model, predict
        >>> on = cluster("64xh100-sxm").priced({"h100-sxm": 2.5})
        >>> job = Job(model("llama3-8b"), on, batch=512, tokens=1e12)
        >>> p = predict(job, Layout(dp=64, zero=3))
        >>> p.usd == 2.5 * p.chip_hours
        True
        """
        return self.cost_usd

    @property
    def risk(self) -> float:
        """`risk_of_oom`: probability that a device runs out of memory.

        >>> from meshwright import Job, Layout, cluster, model, predict
        >>> job = Job(model("llama3-70b"), cluster("8xh100-sxm"), batch=64)
        >>> predict(job, Layout(tp=8, dp=1)).risk > 0.99
        True
        """
        return float(self.risk_of_oom)

    @property
    def chip_hours(self) -> float | None:
        whole = self.train_time_s
        return whole and whole * self.job.cluster.chips / 3600

    @property
    def cost_usd(self) -> float | None:
        """Rent of the run; None if the price or the length is unknown."""
        hours = self.chip_hours
        return hours and self.job.cluster.chip.rent_usd(hours)

    @property
    def energy_j(self) -> float | None:
        """Energy of the run with every chip at its power limit; None if unknown."""
        on, whole = self.job.cluster, self.train_time_s
        return whole and on.chip.energy_j(whole * on.chips)

    def within(self, value: float | None) -> tuple[float, float] | None:
        """90 % interval of a quantity that grows with the step time, such as days or dollars."""
        sure = self.certainty
        if value is None or sure is None:
            return None
        return value * sure.low, value * sure.high

    @cached_property
    def explanation(self) -> Explanation:
        """What the leaves of both trees are read from."""
        return Explanation(self)

    @cached_property
    def term(self) -> Term:
        """The step time as a tree: causes, then parts of the model, then operations."""
        return step_term(self.explanation)

    @cached_property
    def memory_term(self) -> Term:
        """The memory of the fullest device as a tree."""
        return memory_term(self.explanation)

    def to_dict(self) -> dict[str, Any]:
        """The fields of `predict --json`: SI units, keys that end in their unit."""
        job, on, l = self.job, self.job.cluster, self.layout
        return {
            "model": job.model.name,
            "layer_kinds": mix(job.model),
            "cluster": on.name or f"{on.chips}x{on.chip.name}",
            "chips": on.chips,
            "batch_sequences": job.batch,
            "seq_tokens": job.T,
            "batch_tokens": job.batch_tokens,
            "parameters": parameters(job.model),
            "active_parameters": parameters(job.model, True),
            **{name: getattr(self, name) for name in ANSWERS},
            "memory_by_stage_bytes": {
                end: {k: float(v) for k, v in u._asdict().items()}
                for end, u in self.memory_by_stage.items()
            },
            "train_time_interval_s": self.within(self.train_time_s),
            "cost_interval_usd": self.within(self.cost_usd),
            "energy_interval_j": self.within(self.energy_j),
            "precision": job.precision_words,
            "layout": {f.name: getattr(l, f.name) for f in fields(l)}
            | {"placement": {a: list(s) for a, s in l.placement.items()}},
            "assumptions": job.assumptions.name,
            "framework": job.profile.name if job.profile else None,
            "notes": list(self.notes),
        }


def predict(
    job: Job, layout: Layout | None = None, **fields: Any
) -> Prediction:
    """Predict one step of the job under its layout (or the one given), with these values of some
    fields (`Job.with_`).

    Raises BadInput with a sentence for each rule the layout breaks. A layout that does not fit in
    memory is still predicted: `fits` is then False.

    >>> from meshwright import Job, predict
    >>> job = Job("llama3-70b", "512xh100-sxm", batch=512)
    >>> p = predict(job, tp=8, pp=4, zero=1)
    >>> p.layout.dp, p.fits, 0.35 < p.mfu < 0.5
    (16, True, True)
    """
    demand_job(job, layout)
    if fields:
        job = job.with_(**({"layout": layout} if layout else {}), **fields)
        layout = None
    layout = (layout or job.layout).filling(job.cluster.chips)
    if not job.framework and job.framework_of(layout) != job.usual_framework:
        job = replace(job, layout=layout)  # the default is one that runs it
    rules.demand_legal(job, layout)
    full = launched(job, layout)
    job = job.laid_out(full)
    # the tale of every prediction, in its order: count, time; bytes and seconds when they are read
    counts = count_microbatch(job, full)
    clock = clock_of(job, shared=True)
    cost = time_model(counts, clock)
    return Prediction(job, full).with_results(
        counts=counts, clock=clock, cost=cost
    )
