"""A run beside its prediction: the step on the clock, in CPU seconds and in virtual time, cause by
cause, and its memory.

`formats.run_folder.read` makes the `Run`; `compare` computes, `report` shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from ..errors import BadInput
from ..formats.records import Run
from ..prediction.prediction import Prediction, predict
from ..prediction.replay import Replay, replay
from ..schedule.timeline import Timeline
from .terms import Step, step
from .virtual import Virtual, on_the_clock, virtual
from .why import explanations

KEPT = ("weights", "gradients", "optimizer")
"""Kinds of memory that live between steps."""


@dataclass(frozen=True)
class Comparison:
    """A run and what was predicted for it."""

    run: Run
    predicted: Prediction

    @property
    def recorded(self) -> bool:
        """The run recorded steps."""
        return bool(self.run.ranks)

    @cached_property
    def virtual(self) -> Virtual | None:
        """The recorded steps in virtual time; on GPUs, whose actions wait for each other on the
        device, None.
        """
        return virtual(self.run) if self.recorded else None

    @cached_property
    def step(self) -> Step | None:
        """Cause by cause."""
        return step(self.run, self.predicted) if self.recorded else None

    @cached_property
    def replayed(self) -> Replay:
        """The predicted timeline."""
        return replay(self.predicted)

    @cached_property
    def clock(self) -> Timeline | None:
        """The recorded step of median length, on the clock."""
        if not self.recorded:
            return None
        walls = [s.wall_s for s in self.run.ranks[0].steps]
        return on_the_clock(
            self.run.ranks, walls.index(sorted(walls)[len(walls) // 2])
        )

    def median(self, key: str) -> float:
        """Of a column of the metrics, over the steps that ran this job under this layout
        (`Run.timed`).
        """
        return float(median(row[key] for row in self.run.timed))

    @property
    def cpu_s(self) -> float | None:
        """Predicted CPU seconds of a step, of all ranks together; None unless `calibrate` has
        measured the job's machine.
        """
        return (
            None
            if self.predicted.cpu_time_s is None
            else sum(self.predicted.cpu_time_s.values())
        )

    @property
    def free(self) -> bool:
        """Passes wait for no other rank, but for the first, which may gather weights."""
        layout = self.predicted.layout
        return bool(layout.tp * layout.cp * layout.ep == 1 and layout.zero < 3)

    @property
    def contention(self) -> float | None:
        """Seconds on the clock for each CPU second, in parts that wait for nobody; 1 on a quiet
        machine. None where there are none.
        """
        kinds = ("F", "optimizer") if self.free else ("optimizer",)
        parts = [
            part
            for rank in self.run.ranks
            if rank.device == "cpu"
            for s in rank.steps
            for part in s.of(*kinds)
            if part.kind != "F"
            or part.microbatch > 0  # the first may gather weights
        ]
        spent = sum(part.busy_s for part in parts)
        return (
            sum(part.end_s - part.start_s for part in parts) / spent
            if spent
            else None
        )

    @property
    def crowd(self) -> tuple[int, int]:
        """(threads of ranks, cores) of the machine with the most threads for each core; (0, 0) if
        nothing was recorded.
        """
        ranks = Counter(
            rank.host
            for rank in self.run.ranks
            for _ in range(rank.threads)
            if rank.device == "cpu"
        )
        cores = {rank.host: rank.cores for rank in self.run.ranks}
        return max(
            ((n, cores[host]) for host, n in ranks.items()),
            key=lambda pair: pair[0] / max(pair[1], 1),
            default=(0, 0),
        )

    @property
    def memory(self) -> dict[str, tuple[float, float | None]]:
        """kind -> (predicted bytes of the fullest device, measured bytes of the fullest rank).
        within_step: the most that gradients, activations and buffers take together; measured with a
        profile.
        """
        predicted = self.predicted.memory_bytes
        most = max(
            self.run.ranks,
            key=lambda r: sum(
                r.steps[-1].bytes.get(kind, 0.0) for kind in KEPT
            ),
            default=None,
        )
        measured: dict[str, float | None] = {
            kind: most.steps[-1].bytes.get(kind) if most else None
            for kind in KEPT
        }
        inside = (
            predicted["gradients"]
            + predicted["activations"]
            + predicted["buffers"]
        )
        profile = self.run.profiles.get(most.rank) if most else None
        found = {kind: (predicted[kind], measured[kind]) for kind in KEPT}
        found["within_step"] = (
            inside,
            profile.peak_bytes if profile else None,
        )
        return found

    def why(self) -> Iterator[str]:
        """What explains the difference, a sentence each."""
        yield from explanations(self)

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
            "process_peak_bytes": max(
                (
                    s.bytes.get("peak", 0.0)
                    for r in self.run.ranks
                    for s in r.steps
                ),
                default=None,
            ),
            "why": [*self.why()],
        }

    def _bubble(self) -> dict[str, Any] | None:
        if not self.virtual or self.predicted.layout.pp == 1:
            return None
        b = self.virtual.bubble
        return {
            "measured": b.measured,
            "measured_raw": b.measured_raw,
            "measured_steady": b.measured_steady,
            "expected": b.expected,
            "closed_form": b.closed_form,
            "balanced": b.balanced,
            "predicted": (
                self.replayed.timeline.makespan_s
                * len(self.replayed.timeline.order)
                / sum(self.replayed.timeline.busy_s)
                - 1
            ),
            "as_planned": b.as_planned,
        }

    def _causes(self) -> dict[str, Any] | None:
        if not self.step:
            return None
        rows = [
            {
                "name": c.name,
                "predicted_s": c.predicted_s,
                "measured_s": c.measured_s,
                "difference_s": c.difference_s,
            }
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


def compare(run: Run) -> Comparison:
    """A run beside its prediction. BadInput if the run made no step."""
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


__all__ = ["Comparison", "Run", "Step", "Virtual", "compare"]
