"""A run beside its prediction, in numbers: on the clock, in CPU seconds, in virtual time, and in
bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from ..describe.display import Displayed
from ..formats.records import RecordedRun
from ..prediction.prediction import Prediction
from ..prediction.replay import Replay, replay
from ..schedule.timeline import Timeline
from .terms import StepCauses, step_causes
from .virtual import Virtual, on_the_clock, virtual

KEPT = ("weights", "gradients", "optimizer")
"""Kinds of memory that live between steps."""


@dataclass(frozen=True)
class RunNumbers(Displayed):
    """A run and its prediction, in numbers."""

    run: RecordedRun
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
    def step(self) -> StepCauses | None:
        """Cause by cause."""
        return step_causes(self.run, self.predicted) if self.recorded else None

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
        """Median of a column of the metrics over the steps that ran this job under this layout
        (`RecordedRun.timed`).
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
            # a host that reports no cores counts as one
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
        within = (inside, profile.peak_bytes if profile else None)
        return {
            **{kind: (predicted[kind], measured[kind]) for kind in KEPT},
            "within_step": within,
        }
