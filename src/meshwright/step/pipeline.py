"""The order of the microbatches: what a pipeline takes for all of a step, of what its stages take
for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..cost.layer import Clock
from ..cost.load import Busy
from ..describe.assumptions import Overlap
from ..describe.layout import Layout
from ..num import Num, maximum, minimum, product, where, with_name
from ..schedule.partition import StagePartition
from ..schedule.schedule import Schedule
from ..schedule.sends import StageSends
from ..schedule.stage_costs import PassSeconds, StageCosts
from ..schedule.types import ScheduleOrder
from .microbatch import ModelCost

# it loads slowly, and a step without a pipeline does without
if TYPE_CHECKING:
    from ..schedule.replays import Paths

Shape: TypeAlias = tuple[Num, Num, Num]
"""(p, m, v): ranks, microbatches of a step, and chunks of a rank in the order of a schedule."""
SendsAndBubble: TypeAlias = Callable[[], tuple[Num, Num]]
"""Computes the seconds of sends that show and of the bubble, which few ask to be told apart."""


class FillAndDrain(NamedTuple):
    """The way of one microbatch down to a device and up again, for which that device is idle."""

    seconds: Num
    """Of passes and sends, before anything waits for weights or gradients."""
    forward: Num = 0.0
    """Forward passes on the way, counted in passes of a whole device: rank / v, since each rank
    before runs one of its v chunks."""
    backward: Num = 0.0
    """Backward passes on the way, counted alike; 0 where they are split into B and W."""


@dataclass(frozen=True)
class Pipeline:
    """Seconds of the microbatches of one step."""

    total: Num
    """From the first action to the end."""
    sends_and_bubble: SendsAndBubble
    """`sends` and `bubble`, which with m microbatches on the slowest device are the total; computed
    when one is asked for."""
    links: Busy = Busy()
    """Seconds each dimension of the network carries what stages send."""

    @cached_property
    def _parts(self) -> tuple[Num, Num]:
        return self.sends_and_bubble()

    @property
    def sends(self) -> Num:
        """Seconds of sends between stages, as far as they do not hide."""
        return self._parts[0]

    @property
    def bubble(self) -> Num:
        """Seconds the slowest device waits for others, sends aside."""
        return self._parts[1]


def stage_sends(
    layout: Layout, cost: ModelCost, clock: Clock, partition: StagePartition
) -> tuple[StageSends, Busy]:
    """(What sends between neighbouring stages take, seconds each dimension is busy with those of
    one rank), forward and backward, of one microbatch through one chunk.
    """
    group, turns = layout.group("pp"), partition.folded
    links = clock.links(layout)
    if links.how.hop != "each":
        send = links.load("send", cost.message, group)
        seconds = with_name(send.seconds, "sends", cost.boundary)
        ranks = product(group)
        return StageSends.alike(seconds, ranks, turns), send.busy * 2
    hops = links.neighbours(cost.message)
    sends = StageSends.over(
        [
            with_name(h.seconds, f"sends over {dim.name}", cost.boundary)
            for h, dim in zip(hops, links.dims, strict=True)
        ],
        group,
        turns,
    )
    busy = Busy()
    for h, g, here in zip(hops, group, sends.every, strict=False):
        # a rank has two neighbours; of those beyond its unit, where units hold several ranks, one
        often = where(g > 1, where(here == 1, 2.0, 1.0), 0.0)
        busy = busy + h.busy * often
    return sends, busy


def replay_total(
    schedule: ScheduleOrder,
    shape: Shape,
    stages: StageCosts,
    busy: Num,
    paths: Paths,
    barrier: bool,
) -> tuple[Num, SendsAndBubble]:
    """`Pipeline.total` of one layout, action by action, and its parts: the bubble is what it takes
    without sends; one order serves both. paths, barrier: as in `replays.replayed`.
    """
    from ..schedule.replays import replayed

    at = int(shape[0]), int(shape[1]), int(shape[2])
    seconds = replayed(schedule, at, stages, barrier, paths=paths)

    def parts() -> tuple[Num, Num]:
        silent = replace(stages, sends=stages.sends.free)
        quiet = replayed(schedule, at, silent, barrier, paths=paths)
        return seconds - quiet, quiet - busy

    return seconds, parts


def fill_and_drain(
    schedule: Schedule,
    stages: StageCosts,
    ranks: Sequence[Num],
    barrier: bool,
) -> tuple[FillAndDrain, ...]:
    """When ranks have nothing to do yet, or nothing any more: the way of one microbatch down to
    each, by one chunk of each stage before it, and, where backward passes are whole, up again.
    Where a rank may begin the next step meanwhile (no barrier), nothing.
    """
    split = schedule.split_backward
    if split and not barrier:
        return tuple(FillAndDrain(0.0 * stages.partition.p) for _ in ranks)
    once = 1.0 / stages.partition.v
    ways = []
    for rank in ranks:
        down, up = stages.ways(rank)
        passes = rank * once
        ways.append(
            FillAndDrain(down, passes)
            if split
            else FillAndDrain(down + up, passes, passes)
        )
    return tuple(ways)


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


def closed_pipeline(
    how: Overlap,
    schedule: Schedule,
    shape: Shape,
    stages: StageCosts,
    hop: str,
    bound: bool,
) -> Pipeline:
    """What sets of assumptions say in closed form that follow no order of actions. hop: as in
    `NetworkTime`;  bound: as in `paper_pipeline`.
    """
    if how.pp == "none" and hop == "each":
        # both ranks of a boundary wait for what they send each other
        return exchanged_pipeline(how, schedule, shape, stages, bound)
    return paper_pipeline(
        how,
        schedule,
        shape,
        slow=stages.load(stages.slowest),
        others=stages.others,
        send=stages.sends.farthest,
        bound=bound,
    )


def exchanged_pipeline(
    how: Overlap,
    schedule: Schedule,
    shape: Shape,
    stages: StageCosts,
    bound: bool = False,
) -> Pipeline:
    """Ranks that wait until what they send and what they receive has gone, both ways at once
    (Megatron-LM to 2022, p2p_communication.py). In the steady state of 1F1B

        rank r    F | with r + 1 | B | with r - 1 | F ...

    a microbatch takes c, the longest of the ranks' own rounds: passes, and the sends over its
    boundaries (`_round`). No loop over several ranks takes longer: one over k ranks passes k
    microbatches and is the sum of their rounds. A step takes the way of one microbatch through all
    stages and back, and c for each further one:

        T = sum of f + b + 2 sum of sends + (m - 1) c

    A first rank with more work than others runs part of it while its first forwards go down, which
    is not counted.
    """
    _, m, v = shape
    chunks, rounds = schedule.chunks(v), schedule.rounds(m)
    slow = stages.load(stages.slowest).total
    paid = (rounds - 1.0) * (_round(schedule, stages, chunks) - slow)
    # the bubble counts a send for each of p - 1 stages
    send = stages.sends.first(stages.partition.q) / maximum(
        stages.partition.q, 1.0
    )
    bubble = paper_bubble(
        how, schedule, shape, stages.others, chunks * send, bound
    )
    return Pipeline(slow * rounds + paid + bubble, lambda: (paid, bubble))


def _round(schedule: Schedule, stages: StageCosts, chunks: Num) -> Num:
    """Seconds of a microbatch on the rank that takes longest with its sends.

    The ends have one boundary, in the nearest dimension in use. A rank between has two, of which
    one at most leaves its unit there, because neighbouring numbers have no common divisor; that the
    rank with most work is that one is the cautious case. Chunks go round: every rank has two
    boundaries, and all four messages are under way at once, on the same links or on different ones.
    """
    partition, near, far = (
        stages.partition,
        stages.sends.nearest,
        stages.sends.farthest,
    )
    if schedule.chunked:
        return stages.load(stages.slowest).total + chunks * maximum(
            2.0 * near, far
        )
    longest: Num = 0.0
    for rank in (
        0.0,
        *partition.heavy,
        minimum(1.0, partition.q),
        partition.q,
    ):
        ends = (rank == 0) | (rank == partition.q)
        sends = near + where(ends, 0.0, far)
        longest = maximum(longest, stages.load(rank).total + chunks * sends)
    return longest


def paper_pipeline(
    how: Overlap,
    schedule: Schedule,
    shape: Shape,
    slow: PassSeconds,
    others: PassSeconds,
    send: Num,
    bound: bool = False,
) -> Pipeline:
    """Papers add up m microbatches on the slowest device, the bubble of equal stages, where every
    send counts, and in the steady state what the set of assumptions says of sends: all wait, or
    each hides behind the compute of one chunk. slow: the slowest device;  others: the mean of the
    others, which all stages equal.

    bound: of rows that are not placed. What may fall where a pass takes longer and another device
    is the slowest then is left out: sends that hide, and a bubble of f, i and w apart.
    """
    _, m, v = shape
    chunks, rounds = schedule.chunks(v), schedule.rounds(m)
    if how.pp != "all":
        paid = rounds * (2 * (chunks * send))
    elif bound:
        paid = 0.0
    else:
        # a send hides behind one pass of the slowest stage; only what outlasts it waits
        longer = maximum(send - slow.f / chunks, 0.0) + maximum(
            send - slow.b / chunks, 0.0
        )
        paid = rounds * (longer * chunks)
    bubble = paper_bubble(how, schedule, shape, others, chunks * send, bound)
    busy = slow.total * rounds
    return Pipeline(busy + paid + bubble, lambda: (paid, bubble))


def paper_bubble(
    how: Overlap,
    schedule: Schedule,
    shape: Shape,
    others: PassSeconds,
    sends: Num,
    bound: bool,
) -> Num:
    """The bubble of stages that all take the mean of the others, with their sends in each pass.
    bound: as in `paper_pipeline`.
    """
    if bound and (schedule.split_backward or schedule.replayed):
        return 0.0
    f, i, w = others
    return schedule.bubble(
        *shape, f=f + sends, i=i + sends, w=w, barrier=how.has_barrier
    )
