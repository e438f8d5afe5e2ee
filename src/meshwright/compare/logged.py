"""The log of another tool's run beside the prediction of its job: seconds, tokens, memory.

A log says how long steps took and not why: there are no causes to set beside those predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

from ..describe.display import Displayed
from ..errors import BadInput
from ..formats.logs import Log, LoggedStep
from ..prediction.prediction import Prediction
from ..units import show
from .installation import demand_possible

GIB = 2.0**30
ALIKE = 0.7, 1.45
"""FLOPs of one step as tools count them, over ours: less where half of a causal mask counts, 4/3
where recomputation does (Megatron-LM to 2023).
"""
CHANGE = 1.1
"""Seconds of steps over those of others of the same run, from which the difference is named."""
LONG = 1.5
"""Seconds of a step over the median, from which it is one that does something else beside."""
FEWEST = 4
"""Lines of a quarter that say how a run changed."""


@dataclass(frozen=True)
class Logged(Displayed):
    """A log, and what was predicted for its job."""

    name: str
    log: Log
    predicted: Prediction

    def seconds(self, step: LoggedStep) -> float:
        """Seconds of a logged step: as written, or from its tokens a second."""
        if step.seconds:
            return step.seconds
        p = self.predicted
        rate = step.tokens_per_s_per_chip or 0.0
        return float(p.job.batch_tokens / (rate * int(p.layout.chips)))

    @cached_property
    def steady_s(self) -> list[float]:
        """Seconds of the steady steps, in their order."""
        return [self.seconds(step) for step in self.log.steady]

    @property
    def measured_s(self) -> float:
        """Median of the steady steps."""
        return median(self.steady_s)

    @property
    def flops_ratio(self) -> float | None:
        """FLOPs of a step as the tool counts them, over those of the job's model."""
        rates = [
            s.tflops_per_chip * 1e12 * self.seconds(s)
            for s in self.log.steady
            if s.tflops_per_chip
        ]
        p = self.predicted
        flops = p.model_flops_per_s_per_chip * p.step_time_s
        return median(rates) / flops if rates else None

    @property
    def other_work(self) -> str:
        """That the log is of other work than the job, where its TFLOP/s or its seconds say so."""
        try:
            demand_possible(self.predicted, self.measured_s)
        except BadInput as error:
            return str(error)
        times = self.flops_ratio
        if times is None or ALIKE[0] <= times <= ALIKE[1]:
            return ""
        return (
            f"the log's TFLOP/s make {times:.2f} times the FLOPs of this job a step: look for"
            " another model, sequence length or number of chips"
        )

    @property
    def slowing(self) -> str:
        """That the last quarter of the steady steps takes longer than the first, or less long:
        their median is then of neither.
        """
        every = self.steady_s
        quarter = len(every) // 4
        if quarter < FEWEST:
            return ""
        first, last = median(every[:quarter]), median(every[-quarter:])
        if 1.0 / CHANGE < last / first < CHANGE:
            return ""
        word = "slower" if last > first else "faster"
        return (
            f"the run became {word}: {show(first, 's')} a step in the first quarter of its lines,"
            f" {show(last, 's')} in the last"
        )

    @property
    def slower_steps(self) -> str:
        """That some steady steps take so much longer than their median that the run takes longer
        than its median says: checkpoints, evaluations, stragglers.
        """
        every = self.steady_s
        middle = self.measured_s
        long = [s for s in every if s > LONG * middle]
        mean = sum(every) / len(every)
        if not long or mean < CHANGE * middle:
            return ""
        return (
            f"{len(long)} of {len(every)} lines take more than {LONG:g} times the median: with them"
            f" a step takes {show(mean, 's')} on average (checkpoints, evaluations, stragglers)"
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """Sentences on why its median is not that of a step of the job, or of the run."""
        every = (self.other_work, self.slowing, self.slower_steps)
        return tuple(filter(None, every))

    @property
    def memory(self) -> float | None:
        """The most bytes that a line of the log names: torchtitan's, reserved by the allocator."""
        gib = [s.memory_gib for s in self.log.steps if s.memory_gib]
        return max(gib) * GIB if gib else None

    def why(self) -> Iterator[str]:
        """What the comparison rests on, a sentence each."""
        lines = len(self.log.steps)
        used = len(self.log.steady)
        median_of = (
            f"median of {used} of {lines} lines, without the first"
            if lines > used
            else "its only line, which also has what a run does once, such as compilation"
        )
        yield f"a log of {self.log.kind}: {median_of}; it says no causes"
        within = self.predicted.interval_s
        if within and not within[0] <= self.measured_s <= within[1]:
            yield (
                f"outside the interval of {show(within[0], 's')} to {show(within[1], 's')}: look"
                " for a setting that the job does not hold, or scale your machines by steps of"
                " your own (meshwright calibrate --from job.toml --steps train.log)"
            )

    @property
    def series(self) -> dict[str, list[Any]]:
        """Columns of the steps, as those of a run folder."""
        steps = self.log.steps
        columns: dict[str, list[Any]] = {
            "step": [s.iteration for s in steps],
            "step_time_s": [self.seconds(s) for s in steps],
        }
        if any(s.loss is not None for s in steps):
            columns["loss"] = [s.loss for s in steps]
        return columns

    def to_dict(self) -> dict[str, Any]:
        """The fields of `compare --json`; what a log cannot say is null."""
        p = self.predicted
        reserved = {
            "predicted": p.memory_bytes["reserved"],
            "measured": self.memory,
        }
        return {
            "run": self.name,
            "kind": self.log.kind,
            "model": p.job.model.name,
            "layout": p.to_dict()["layout"],
            "ranks": int(p.layout.chips),
            "steps": len(self.log.steps),
            "timed_steps": len(self.log.steady),
            "step_time_s": {
                "predicted": p.step_time_s,
                "measured": self.measured_s,
            },
            "causes": None,
            "memory_bytes": {"reserved": reserved},
            "why": [*self.doubts, *self.why()],
        }


def compare_log(name: str, log: Log, predicted: Prediction) -> Logged:
    """A log beside its prediction; of a batch that ramps up the steps of the job's own.  BadInput
    where the log is of another batch.
    """
    batch = predicted.job.batch
    said = {s.batch for s in log.steady if s.batch}
    if said and batch not in said:
        raise BadInput(
            f"{name} has a global batch of {', '.join(map(str, sorted(said)))} sequences, the job"
            f" of {batch}: give the job of this log, such as --batch {max(said)}seq"
        )
    same = tuple(s for s in log.steps if s.batch in (None, batch))
    return Logged(name, replace(log, steps=same), predicted)
