"""A run beside its prediction: the step on the clock, in CPU seconds and in virtual time, cause by
cause, and its memory.

`formats.run_folder.read_run` makes the `RecordedRun`; `compare` computes, `report` shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, overload

from ..describe.job import Job
from ..errors import BadInput
from ..formats import read_text, run_folder
from ..formats.logs import steps_of
from ..formats.records import RecordedRun
from ..prediction.prediction import predict
from ..schedule.timeline import Timeline
from .logged import Logged, compare_log
from .numbers import RunNumbers
from .terms import StepCauses
from .virtual import Virtual, idle
from .why import explanations


class Comparison(RunNumbers):
    """A run and its prediction: numbers, and what explains their difference.

    >>> from meshwright import Comparison
    >>> [name for name in ("why", "explain", "plot") if hasattr(Comparison, name)]
    ['why', 'explain', 'plot']
    """

    def why(self) -> Iterator[str]:
        """What explains the difference, a sentence each."""
        yield from explanations(self)

    @property
    def timelines(self) -> dict[str, Timeline]:
        """Timelines of the pipeline, predicted first."""
        timelines = {"predicted": self.replayed.timeline}
        if self.clock and self.virtual:
            timelines |= {
                "measured on the clock": self.clock,
                "measured in virtual time": self.virtual.raw,
            }
        return timelines

    @property
    def process_peak_bytes(self) -> float | None:
        """The most that a process has held so far, with PyTorch itself; None without steps."""
        steps = (step for rank in self.run.ranks for step in rank.steps)
        return max((s.bytes.get("peak", 0.0) for s in steps), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The fields of `compare --json`: SI units, keys that end in their unit."""
        p = self.predicted
        return {
            "run": self.run.folder,
            "model": p.job.model.name,
            "layout": p.to_dict()["layout"],
            "ranks": int(p.layout.chips),
            "steps": len(self.run.metrics),
            "timed_steps": len(self.run.timed),
            "recorded_steps": [s.step for s in self.run.ranks[0].steps]
            if self.run.ranks
            else [],
            "step_time_s": {
                "predicted": p.step_time_s,
                "measured": self.median("step_time_s"),
            },
            "cpu_s": {
                "predicted": self.cpu_s,
                "measured": self.median("cpu_s"),
            },
            "virtual_step_s": self.virtual.step_s if self.virtual else None,
            "contention": self.contention,
            "threads_on_host": self.crowd[0],
            "cores_of_host": self.crowd[1],
            "bubble": self._bubble(),
            "causes": self._causes(),
            "memory_bytes": {
                kind: {"predicted": a, "measured": b}
                for kind, (a, b) in self.memory.items()
            },
            "process_peak_bytes": self.process_peak_bytes,
            "why": [*self.why()],
        }

    def _bubble(self) -> dict[str, Any] | None:
        if not self.virtual or self.predicted.layout.pp == 1:
            return None
        predicted = idle(self.replayed.timeline)
        return {**asdict(self.virtual.bubble), "predicted": predicted}

    def _causes(self) -> dict[str, Any] | None:
        if not self.step:
            return None
        rows = [
            {**asdict(c), "difference_s": c.difference_s}
            for c in self.step.causes
        ]
        left = {
            "s": self.step.remainder_s,
            "where_s": dict(self.step.remainder),
        }
        return {
            "rank": self.step.rank,
            "predicted_s": self.predicted.step_time_s,
            "measured_s": self.step.measured_s,
            "rows": rows,
            "remainder": left,
        }


@overload
def compare(run: RecordedRun | str | Path) -> Comparison: ...
@overload
def compare(run: str | Path, job: Job) -> Logged: ...
def compare(
    run: RecordedRun | str | Path, job: Job | None = None
) -> Comparison | Logged:
    r"""Compare a run with its prediction: a run of meshwright's trainer or its folder, or the log
    of another tool together with its job. BadInput if no step was finished.

    >>> from pathlib import Path
    >>> from meshwright import Job, compare
    >>> step = "iteration {}/ 9 | elapsed time per iteration (ms): 8500.0 |"
    >>> log = Path("train.log")
    >>> _ = log.write_text("\n".join(step.format(i) for i in range(1, 10)))
    >>> job = Job("llama3-8b", "64xh100-sxm", batch=512).with_(zero=1)
    >>> compare(log, job).measured_s
    8.5
    """
    if job is not None:
        name = str(run)
        log = steps_of(read_text(name), name[:80])
        return compare_log(name, log, predict(job))
    if not isinstance(run, RecordedRun):
        run = run_folder.read_run(run)
    if not run.metrics:
        raise BadInput(
            f"{run.folder} holds no finished step (metrics.jsonl is empty or missing)"
        )
    if run.ranks and len(run.ranks) != int(run.job.layout.chips):
        raise BadInput(
            f"{run.folder}/record is of {len(run.ranks)} ranks, but job.toml of"
            f" {int(run.job.layout.chips)}: record it again"
        )
    return Comparison(run, predict(run.job))


__all__ = ["Comparison", "RecordedRun", "StepCauses", "Virtual", "compare"]
