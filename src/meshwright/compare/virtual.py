"""Virtual time: the recorded actions, each as long as it kept its rank busy, put in the order in
which the program ran them.

A machine with fewer cores than ranks stretches a step in ways that say nothing about its schedule.
CPU seconds of an action hardly change then, so a replay of the actions with the dependencies of the
pipeline tells how long the step would take if each rank had a core of its own and messages were
free. Three replays: with every action's own seconds (`raw`), with each action's median over steps
and replicas (`steady`), and with the median of its kind and stage over microbatches too
(`typical`). Neighbours on the machine make single actions longer by chance; a chain of ranks that
wait for one another adds up the longest, so `raw` overstates the bubble of tight schedules.

    bubble = makespan / useful - 1        useful: busy seconds of a rank, mean over ranks

as a closed form (p - 1) / (v m) and the like.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from ..describe.layout import Layout
from ..errors import BadInput
from ..formats.records import RankRecord, RecordedRun, StepPart
from ..schedule import get as schedule_named
from ..schedule.timeline import Timeline, timeline_of_order
from ..schedule.types import Action, Order

Key = tuple[str, int, int]
"""(kind, stage, microbatch) of an action."""
Seconds = dict[Key, float]
Kinds = dict[tuple[str, int], float]
"""(kind, stage) -> seconds."""


@dataclass(frozen=True)
class RecordedPipeline:
    """The ranks that work on one replica of the model, in one recorded step."""

    order: Order
    stages: list[list[int]]
    """The stages of each rank, ascending: chunk 0, 1, ..."""
    seconds: Seconds
    """Busy seconds of each action. Ranks of a tensor- or context-parallel group work in lockstep:
    the slowest counts.
    """

    def replay(self, seconds: Seconds) -> Timeline:
        """The longest path through the actions."""
        return timeline_of_order(
            self.order,
            lambda rank, chunk: self.stages[rank][chunk],
            lambda *key: seconds[key],
        )


@dataclass(frozen=True)
class Bubble:
    """Idle time of a pipeline as a share of its useful time."""

    measured: float
    """Of the replay with typical seconds."""
    measured_raw: float
    """Of the replay with every action's own seconds; median over steps and replicas."""
    measured_steady: float
    """Of the replay with each action's median seconds over steps and replicas."""
    expected: float
    """Of the plan: the schedule's own order of actions, each with the median seconds of its kind on
    its stage.
    """
    closed_form: float
    """Of equal stages: the schedule's formula with the mean seconds of F, I and W."""
    balanced: float
    """As `measured`, with the seconds of each rank scaled so that all are equally busy: what is
    left when unequal stages are not idle time.
    """
    as_planned: bool
    """Every rank ran its actions in the order of `schedule`."""


@dataclass(frozen=True)
class Virtual:
    """A step in virtual time."""

    raw: Timeline
    """Of the step and replica whose makespan is the median one."""
    typical: Timeline
    rest_s: float
    """What follows the pipeline: busy seconds outside of actions on the busiest rank, median over
    steps.
    """
    bubble: Bubble

    @property
    def step_s(self) -> float:
        """Pipeline and what follows."""
        return self.raw.makespan_s + self.rest_s


def virtual(run: RecordedRun) -> Virtual:
    """The recorded steps in virtual time. BadInput if the records do not describe a pipeline."""
    recorded = [
        pipe
        for k in range(len(run.ranks[0].steps))
        for pipe in virtual_pipelines(run.ranks, k)
    ]
    kinds = by_stage(recorded)
    raw = [pipe.replay(pipe.seconds) for pipe in recorded]
    typical = recorded[0].replay(
        {key: kinds[key[:2]] for key in recorded[0].seconds}
    )
    chosen = sorted(raw, key=lambda t: t.makespan_s)[len(raw) // 2]
    steady = recorded[0].replay(
        {
            key: median(pipe.seconds[key] for pipe in recorded)
            for key in recorded[0].seconds
        }
    )
    return Virtual(
        chosen,
        typical,
        rest(run.ranks),
        _bubble(
            run.job.layout,
            pipe=recorded[0],
            kinds=kinds,
            raw=raw,
            steady=steady,
            typical=typical,
        ),
    )


def virtual_pipelines(
    ranks: Sequence[RankRecord], k: int
) -> list[RecordedPipeline]:
    """The pipelines of the k-th recorded step, one a replica."""
    groups: dict[tuple[int, int], dict[int, list[RankRecord]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for rank in ranks:
        groups[rank.replica][rank.place.get("pp", 0)].append(rank)
    return [
        _pipeline([group[pp] for pp in sorted(group)], k)
        for _, group in sorted(groups.items())
    ]


def stages_of_rank(parts: Sequence[StepPart]) -> list[int]:
    """The stages that a rank works on, ascending: chunk 0, 1, ..."""
    return sorted({part.stage for part in parts})


def actions_of_rank(parts: Sequence[StepPart]) -> list[Action]:
    """What a rank did, in its order, stages as its chunks."""
    chunk = {stage: i for i, stage in enumerate(stages_of_rank(parts))}
    return [
        Action(part.kind, chunk[part.stage], part.microbatch) for part in parts
    ]


def _pipeline(
    by_rank: Sequence[Sequence[RankRecord]], k: int
) -> RecordedPipeline:
    """One replica: for each place on the pp axis the ranks there."""
    order: Order = []
    stages = []
    seconds = Seconds()
    for group in by_rank:
        rows = [record.steps[k].actions for record in group]
        keys = [[part[:3] for part in row] for row in rows]
        if any(each != keys[0] for each in keys) or len({*keys[0]}) < len(
            keys[0]
        ):
            raise BadInput(
                f"the record of rank {group[0].rank} does not hold the same actions as its"
                " neighbours, each once"
            )
        order.append(actions_of_rank(rows[0]))
        stages.append(stages_of_rank(rows[0]))
        for parts in zip(*rows, strict=True):
            seconds[parts[0][:3]] = max(part.busy_s for part in parts)
    return RecordedPipeline(order, stages, seconds)


def _bubble(
    layout: Layout,
    pipe: RecordedPipeline,
    kinds: Kinds,
    raw: Sequence[Timeline],
    steady: Timeline,
    typical: Timeline,
) -> Bubble:
    """The bubble as it was, and as the schedule promises it."""
    schedule = schedule_named(layout.schedule)
    p = int(layout.pp)
    v = int(layout.interleave)
    m = sum(action[:2] == ("F", 0) for action in pipe.order[0])
    order = schedule.order(p, m, v) if p > 1 else pipe.order
    plan = timeline_of_order(
        order,
        schedule.placement(p, v),
        lambda kind, stage, _: kinds.get((kind, stage), 0.0),
    )
    f, i, w = mean_pass_seconds(kinds, p)
    useful = m * (f + i + w)
    return Bubble(
        measured=idle(typical),
        measured_raw=median(idle(t) for t in raw),
        measured_steady=idle(steady),
        expected=idle(plan),
        closed_form=float(schedule.bubble(p, m, v, f=f, i=i, w=w)) / useful
        if p > 1 and useful
        else 0.0,
        balanced=idle(pipe.replay(balance(pipe, kinds, typical.busy_s))),
        as_planned=pipe.order == order,
    )


def balance(
    pipe: RecordedPipeline, kinds: Kinds, busy: Sequence[float]
) -> Seconds:
    """Seconds of actions by kind and stage, each rank in a unit of time in which it is as busy as
    the mean rank.
    """
    unit = {
        stage: mean(busy) / (s or 1.0)
        for stages, s in zip(pipe.stages, busy, strict=True)
        for stage in stages
    }
    return {key: kinds[key[:2]] * unit[key[1]] for key in pipe.seconds}


def by_stage(recorded: Sequence[RecordedPipeline]) -> Kinds:
    """(kind, stage) -> median busy seconds over microbatches, steps and replicas."""
    every: dict[tuple[str, int], list[float]] = defaultdict(list)
    for pipe in recorded:
        for (kind, stage, _), seconds in pipe.seconds.items():
            every[kind, stage].append(seconds)
    return {key: median(values) for key, values in every.items()}


def mean_pass_seconds(middle: Kinds, p: int) -> tuple[float, float, float]:
    """Seconds of F, I and W of one microbatch on one rank, mean over ranks. A whole backward pass
    counts as I where none is split.
    """
    total = {
        kind: sum(s for (k, _), s in middle.items() if k == kind) / p
        for kind in "FBIW"
    }
    return (
        (total["F"], total["I"], total["W"])
        if total["W"]
        else (total["F"], total["B"], 0.0)
    )


def idle(t: Timeline) -> float:
    """Idle over useful seconds, mean over ranks."""
    useful = mean(t.busy_s)
    return t.makespan_s / useful - 1 if useful else 0.0


def rest(ranks: Sequence[RankRecord]) -> float:
    """Busy seconds outside of actions on the busiest rank; median over steps."""
    return median(
        max(outside_seconds(rank, k) for rank in ranks)
        for k in range(len(ranks[0].steps))
    )


def outside_seconds(rank: RankRecord, k: int) -> float:
    """CPU seconds of the thread (on a GPU: stream seconds of the parts) that are no action's."""
    step = rank.steps[k]
    if rank.device != "cpu":
        return sum(
            part.busy_s
            for part in step.of(
                "reduce", "settle", "norm", "clip", "optimizer"
            )
        )
    return max(
        # two clocks of the kernel, of different resolution: their difference may be below 0
        step.thread_cpu_s - sum(part.busy_s for part in step.actions),
        0.0,
    )


def on_the_clock(ranks: Sequence[RankRecord], k: int) -> Timeline:
    """The k-th recorded step as it ran: one replica, each rank of its pipeline with begin and end
    of its actions on a common clock.
    """
    line = sorted(
        (
            r
            for r in ranks
            if not any(n for axis, n in r.place.items() if axis != "pp")
        ),
        key=lambda r: r.rank,
    )
    zero = min(
        record.steps[k].began_unix_s
        + min((a.start_s for a in record.steps[k].actions), default=0.0)
        for record in line
    )
    order = []
    stages = []
    starts = []
    ends = []
    for record in line:
        step = record.steps[k]
        parts: list[StepPart] = step.actions
        order.append(actions_of_rank(parts))
        stages.append([part.stage for part in parts])
        starts.append(
            [part.start_s + step.began_unix_s - zero for part in parts]
        )
        ends.append([part.end_s + step.began_unix_s - zero for part in parts])
    return Timeline(order, stages, start_s=starts, end_s=ends, sends=[])
