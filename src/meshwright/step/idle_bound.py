"""What no order of a schedule undercuts: how long the slowest device of a pipeline waits at least.
A search ranks by it before it replays the best layouts.
"""

from __future__ import annotations

from ..num import Num, maximum, minimum
from ..schedule.schedule import Schedule
from ..schedule.stage_costs import StageCosts


def least_idle(
    schedule: Schedule, m: Num, stages: StageCosts, busy: Num, barrier: bool
) -> Num:
    """Seconds that the slowest device waits at least while m microbatches pass: the span of the
    pipeline less `busy`, its work.

    The longest of two kinds of paths through the order's dependencies, with their sends: one
    microbatch through all stages and back (`_microbatch_latency`), and all work of each of the
    busiest devices with the pauses of its own order (`_idle_in_run`). A schedule may end no earlier
    than any of its paths, so no replay is shorter and a search may leave out a layout by it. It
    would cease to hold if a pass could begin before the pass it depends on has arrived, or if one
    device ran two passes at once. The second kind is left out where the order does not fix what a
    rank does between its first F and its first B: where it is folded (two chunks meet on a rank),
    and in a run of split steps without `ahead`.
    """
    # a bound on waiting: the busiest rank may be busy for longer than the way takes
    idle = maximum(_microbatch_latency(schedule, stages) - busy, 0.0)
    in_run = schedule.split_backward and not (barrier or schedule.ahead)
    if schedule.folded or in_run:
        return idle
    # a rank with less work may wait for longer. That all that may have the most are asked keeps the
    # bound growing with every cost: of the slowest alone it would fall where another becomes that
    rounds, most = schedule.rounds(m), stages.load(stages.slowest).total
    for x in stages.partition.busiest:
        less = (most - stages.load(x).total) * rounds
        idle = maximum(
            idle,
            _idle_in_run(schedule, m, stages, x, barrier=barrier) - less,
        )
    return idle


def _microbatch_latency(schedule: Schedule, stages: StageCosts) -> Num:
    """Seconds of one microbatch through all stages and back to the first device, in any order:
    every F, every I, both ways of every send, and the W that must follow (all of them where
    backward passes are whole, else the first device's own). A folded pipeline turns around on one
    rank, without a send there.

    It bounds a step in a run of steps too: the first device ends no sooner, and all of the next
    step follows from its first pass (or, of stages that lie on two ranks, from that of either end).
    """
    partition = stages.partition
    every = stages.passes(0.0, partition.stages)
    hops = 2.0 * stages.sends.first(partition.stages - 1.0)
    last = stages.at(0.0).w if schedule.split_backward else every.w
    return every.f + every.i + hops + last


def _idle_in_run(
    schedule: Schedule, m: Num, stages: StageCosts, x: Num, barrier: bool
) -> Num:
    """The pauses of a device x of looped stages in its own order. Of 1F1B, with q = p - 1 and q - x
    ranks below:

        0   F0 F1 F2 .. |              | B0 ..
        x        F0 F1 ..|F(q-x)| pause | B0 F B F B .. B |
                .                                         . up: B through the stages before x
                down: F through the stages before x

    down    nothing of x begins before the first microbatch is there
    run     between F0 and B0 it goes down to the last rank and back; meanwhile x runs
            min(h (q - x), m - 1) forwards, h a rank below it
    up      the last pass of x is whole and goes up all stages before it (not where W are split off)
    around  split, in a run of steps: after its last I x waits for it to go up, for W of the first
            device, and for the next step's first F to come down; meanwhile it runs the
            min(h x, m - 1) + 1 W that it holds back

    These pauses of x do not overlap, so their sum is proven for a step by itself; in a run, for the
    mean of many steps. That the second step alone (what a replay says) is no shorter rests on
    tests: a device that was late in the first step may be early in the second.
    """
    split, h = schedule.split_backward, schedule.ahead
    partition, load, (down, up) = (
        stages.partition,
        stages.load(x),
        stages.ways(x),
    )
    pauses = down if split else down + up
    if split and not barrier:
        before = stages.passes(0.0, x)
        around = before.f + before.i + stages.load(0.0).w - load.w
        around = around + 2 * stages.sends.first(x)
        # weight passes that fill the way round: at most h a hop, and one for each later microbatch
        pauses = maximum(around - load.w * minimum(h * x, m - 1.0), 0.0)
    if h and not (split and barrier):
        below = stages.passes(x + 1.0, partition.p)
        hops = 2 * stages.sends.first(partition.q - x)
        turned = below.f + below.i + (0.0 if split else below.w) + hops
        # forward passes ahead fill the way back: at most h a hop, of m - 1 further microbatches
        run = load.f * minimum(h * (partition.q - x), m - 1.0)
        pauses = pauses + maximum(turned - run, 0.0)
    return pauses
