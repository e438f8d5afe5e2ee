"""The pipelines of papers in closed form: m microbatches on the slowest device, the sends that
show, and the bubble of equal stages.
"""

from __future__ import annotations

from ..describe.assumptions import Overlap
from ..num import Num, maximum, minimum, where
from ..schedule.schedule import Schedule
from ..schedule.stage_costs import PassSeconds, StageCosts
from .pipeline import Pipeline, Shape


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
