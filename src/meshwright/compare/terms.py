"""The step of the busiest rank, cause by cause: predicted beside measured, and what is left.

Measured are means over the recorded steps. What a cause is measured by:

    forward, backward   busy seconds of the actions F; of B, I and W
    tp, cp, ep, dp_comm waits for messages of that axis in a profiled step (None without a profile)
    pp_comm             CPU seconds between the actions of the pipeline: posting sends and receives
    bubble              idle seconds of the rank in virtual time
    optimizer           busy seconds of the update
    other               CPU seconds of everything else: settling gradients, their norm, clipping,
                        the loss

The remainder is the step on the clock minus all of these: waiting for a core, for messages that no
profile tells apart, for other ranks. It says in which part of the step it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..formats.records import RankRecord, RecordedRun, StepPart, StepRecord
from ..prediction.prediction import Prediction
from .virtual import virtual_pipelines

COMM = ("tp_comm", "cp_comm", "ep_comm", "dp_comm")
AXES = {
    "tp": "tp_comm",
    "cp": "cp_comm",
    "ep": "ep_comm",
    "replicas": "dp_comm",
    "dp": "dp_comm",
    "copies": "dp_comm",
    "edp": "dp_comm",
}
"""Axis of a message (words of `train.traffic`) -> cause. Waits of all ranks together (for the norm)
and between stages stay in the remainder.
"""
ARITHMETIC = ("compute", "memory", "host")
"""What the chip does itself, which a run measures pass by pass."""


@dataclass(frozen=True)
class Cause:
    """One line of the comparison."""

    name: str
    predicted_s: float
    measured_s: float | None
    """None: this run did not measure it."""

    @property
    def difference_s(self) -> float | None:
        """Measured minus predicted."""
        return (
            None
            if self.measured_s is None
            else self.measured_s - self.predicted_s
        )


@dataclass(frozen=True)
class StepCauses:
    """Causes that add up: their measured seconds and the remainder make the measured step."""

    rank: int
    """The busiest, which the prediction is about."""
    causes: tuple[Cause, ...]
    measured_s: float
    """Mean of the recorded steps on the clock."""
    remainder: Mapping[str, float]
    """Part of the step -> seconds of the remainder that lie there; they may be negative where
    causes overlap.
    """

    @property
    def remainder_s(self) -> float:
        """What no cause explains."""
        return self.measured_s - sum(
            cause.measured_s or 0.0 for cause in self.causes
        )


def step_causes(run: RecordedRun, predicted: Prediction) -> StepCauses:
    """The comparison of a run that recorded steps."""
    rank = max(
        run.ranks, key=lambda r: sum(busy_seconds(s.actions) for s in r.steps)
    )
    profile = run.profiles.get(rank.rank)
    waits: Mapping[str, float] = profile.wait_s if profile else {}
    idle = fmean(rank_bubbles(run, rank))
    busy = [busy_by_cause(s, rank.device) for s in rank.steps]
    comm = dict.fromkeys(COMM, 0.0) if profile else {}
    for axis, wait in waits.items():
        if axis in AXES:
            comm[AXES[axis]] += wait
    measured = {**mean_of_steps(busy), "bubble": idle, **comm}
    wall = fmean(s.wall_s for s in rank.steps)
    left = mean_of_steps([waiting(rank, s) for s in rank.steps])
    left["within actions"] -= sum(comm.values())
    left["between actions"] -= idle
    planned = causes(predicted)
    rows = tuple(
        Cause(name, s, measured.get(name))
        for name, s in planned.items()
        if s or measured.get(name)
    )
    return StepCauses(rank.rank, rows, wall, left)


def causes(p: Prediction) -> dict[str, float]:
    """The predicted step by the causes used here: arithmetic, memory traffic and the host's
    launches together, split by pass.
    """
    t = dict(p.time_s)
    arithmetic = sum(t.pop(cause) for cause in ARITHMETIC)
    forward = sum(
        part.value
        for cause in ARITHMETIC
        if (term := p.term.find(cause))
        for part in term.parts
        if part.name.endswith("forward")
    )
    return {"forward": forward, "backward": arithmetic - forward, **t}


def mean_of_steps(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds by name, of which each step has a row."""
    return {name: fmean(row[name] for row in rows) for name in rows[0]}


def busy_seconds(parts: Sequence[StepPart]) -> float:
    """Busy seconds of parts together."""
    return float(sum(part.busy_s for part in parts))


def busy_by_cause(s: StepRecord, device: str) -> dict[str, float]:
    """Busy seconds of one step by cause."""
    forward = busy_seconds(s.of("F"))
    backward = busy_seconds(s.of("B", "I", "W"))
    whole = busy_seconds(s.of("pipeline"))
    optimizer = busy_seconds(s.of("optimizer"))
    # PyTorch's schedules end with it
    stages = s.of("pipeline") and any(
        part.kind == "reduce" for part in s.parts
    )
    between = (
        # what is left of a clock's sum, which its own readings may exceed
        max(whole - forward - backward - busy_seconds(s.of("reduce")), 0.0)
        if stages
        else 0.0
    )
    everything = (
        s.thread_cpu_s
        if device == "cpu"
        else whole + busy_seconds(s.of("settle", "norm", "clip", "optimizer"))
    )
    return {
        "forward": forward,
        "backward": backward,
        "optimizer": optimizer,
        "pp_comm": between,
        "other": everything - forward - backward - optimizer - between,
    }


def waiting(rank: RankRecord, s: StepRecord) -> dict[str, float]:
    """Seconds on the clock during which the rank was not busy, by part of the step. With `of` they
    add up to the step.
    """
    within = sum(part.end_s - part.start_s - part.busy_s for part in s.actions)
    between = sum(
        part.end_s - part.start_s - part.busy_s for part in s.of("pipeline")
    )
    between -= within + sum(
        part.end_s - part.start_s - part.busy_s for part in s.of("reduce")
    )
    spent = sum(busy_by_cause(s, rank.device).values())
    return {
        "within actions": within,
        "between actions": between,
        "rest of the step": s.wall_s - spent - within - between,
    }


def rank_bubbles(run: RecordedRun, rank: RankRecord) -> list[float]:
    """Idle seconds of a rank in virtual time, in each recorded step."""
    idle = []
    places = sorted({record.replica for record in run.ranks})
    for k in range(len(rank.steps)):
        pipe = virtual_pipelines(run.ranks, k)[places.index(rank.replica)]
        idle.append(pipe.replay(pipe.seconds).idle_s[rank.place.get("pp", 0)])
    return idle
