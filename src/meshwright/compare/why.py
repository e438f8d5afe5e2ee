"""What explains the difference between a run and its prediction, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from ..formats.records import like_the_newest
from ..units import show
from .late import NOTABLE, SLOW, slow_groups, stragglers
from .links import links
from .numbers import RunNumbers
from .terms import COMM, StepCauses

QUIET = 1.1
"""Seconds on the clock of a CPU second above which other work is said to have run on the cores."""
WAITS = (
    "a wait for messages includes the wait for the slowest rank of the group"
)
REASONS = {  # of what took longer than predicted
    **dict.fromkeys(COMM, WAITS),
    "pp_comm": (
        "PyTorch's schedule spends CPU seconds on sends, receives and bookkeeping between actions;"
        " the prediction counts only bytes"
    ),
    "bubble": "it grows with the passes, and with what stages differ",
    "optimizer": (
        "the update of this model is many small operations, or the memory is slower than described"
    ),
    "other": (
        "gradients are settled, measured and clipped in passes over them that the prediction does"
        " not count"
    ),
}


def explanations(c: RunNumbers) -> Iterator[str]:
    """Which steps are meant, the machine, then the causes, then what was not measured."""
    if len(like_the_newest(c.run.attempts)) < len(c.run.attempts):
        yield (
            "the run was resumed under another layout or job: times are those of"
            f" {len(c.run.timed)} of {len(c.run.metrics)} steps, which ran as job.toml says now"
        )
    threads, cores = c.crowd
    if threads > cores:
        yield (
            f"{threads} threads of ranks share {cores} cores, so a step takes up to"
            f" {threads / cores:.2g} times as long as with a core for each: virtual time and CPU"
            " seconds can be compared, time on the clock cannot"
        )
    yield from stalls(c)
    if c.contention and c.contention > QUIET:
        yield (
            f"CPU oversubscribed: compute sections took {c.contention:.2f} times their CPU time;"
            " ignore figures of the wall clock"
        )
    if not c.step:
        yield (
            "this run recorded no steps (record in [train] says how many): only times of whole"
            " steps can be compared"
        )
        return
    late = stragglers(c)
    for rank, times in late.items():
        yield (
            f"rank {rank} on {host(c, rank)} is a straggler: its passes took {times:.3g} times as"
            " long as those of the other ranks, relative to the prediction for each"
        )
    yield from slow_links(c, c.step)
    for group in slow_groups(c):
        ranks = ", ".join(map(str, group.ranks))
        hosts = ", ".join(dict.fromkeys(host(c, r) for r in group.ranks))
        yield (
            f"the link among ranks {ranks} on {hosts} is slow: each of them waits"
            f" {show(group.wait_s, 's')} or more a step for messages of {group.axis}, those of"
            f" other groups {show(group.usual_s, 's')}"
        )
    if not late:
        yield from arithmetic(c, c.step)
    for cause in c.step.causes:
        if (
            cause.name in REASONS
            and abs(cause.difference_s or 0.0) > NOTABLE * c.step.measured_s
        ):
            slower = (cause.measured_s or 0.0) > cause.predicted_s
            yield (
                f"{cause.name} took {show(cause.measured_s or 0.0, 's')} instead of"
                f" {show(cause.predicted_s, 's')}"
                + (f": {REASONS[cause.name]}" if slower else "")
            )
    if c.predicted.layout.zero in (1, 2) and c.predicted.layout.replicas > 1:
        yield (
            "weights: between steps a rank keeps its share of them; the prediction counts the whole"
            " ones, which exist within the step"
        )
    if not c.run.profiles and c.predicted.layout.chips > 1:
        yield (
            "waits for messages are in the remainder: a run with profile = 2 in [train] tells them"
            " apart by axis"
        )


STALLS = {
    "data_s": "waits for its data",
    "checkpoint_s": "waits for its checkpoints",
    "eval_s": "evaluates",
}
"""Column of the metrics -> what a run does in that time."""


def stalls(c: RunNumbers) -> Iterator[str]:
    """What the run does beside its steps, where it takes a notable share of the time."""
    whole = sum(row.get("elapsed_s", 0.0) for row in c.run.timed)
    for name, what in STALLS.items():
        spent = sum(row.get(name, 0.0) for row in c.run.timed)
        if whole and spent > NOTABLE * whole:
            yield (
                f"{100 * spent / whole:.0f} % of the time the run {what},"
                f" {show(spent / len(c.run.timed), 's')} a step: tokens/s count it, the step and"
                " its prediction do not"
            )


def slow_links(c: RunNumbers, step: StepCauses) -> Iterator[str]:
    """Links between stages that take longer than the others do, or, of a single one, than was
    predicted, where it takes a notable share of the step.
    """
    layout = c.predicted.layout
    every = links(c.run)
    many = 2 * c.predicted.job.batch // int(layout.dp * layout.microbatch)
    many *= int(layout.interleave)  # there and back, of each chunk
    for (a, b), seconds in every.items():
        others = [s for link, s in every.items() if link != (a, b)]
        usual = (
            median(others)
            if others
            else sum(
                cause.predicted_s
                for cause in step.causes
                if cause.name == "pp_comm"
            )
            / many
        )
        if (
            seconds > SLOW * usual
            and seconds * many > NOTABLE * step.measured_s
        ):
            than = "those over the other links" if others else "predicted"
            yield (
                f"the link between rank {a} on {host(c, a)} and rank {b} on {host(c, b)} is slow:"
                f" a message takes {show(seconds, 's')}, {show(seconds - usual, 's')} more than"
                f" {than}"
            )


def host(c: RunNumbers, rank: int) -> str:
    """Host of a rank."""
    return next(r.host for r in c.run.ranks if r.rank == rank)


def arithmetic(c: RunNumbers, step: StepCauses) -> Iterator[str]:
    """Seconds of the passes, where they are not as predicted."""
    passes = [
        cause for cause in step.causes if cause.name in ("forward", "backward")
    ]
    planned = sum(cause.predicted_s for cause in passes)
    spent = sum(cause.measured_s or 0.0 for cause in passes)
    if planned and spent and not 1 / QUIET < spent / planned < QUIET:
        chip = c.predicted.job.cluster.chip.name
        how = "slower" if spent > planned else "faster"
        yield (
            f"passes took {spent / planned:.3g} times the predicted seconds: for these layers the"
            f" machine is {how} than {chip!r} of the job file (meshwright calibrate measures it)"
        )
