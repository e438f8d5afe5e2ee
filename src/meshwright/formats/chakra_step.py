"""One training step as Chakra traces: the program of every rank, action by action.

    write(predict(job), "traces/step")   ->  traces/step.0.et, step.1.et, ..., step.groups.json

A rank of the pipeline works through the actions of its schedule; in each, layer by layer, nodes of
what it computes and of each collective (`chakra_program`). What a simulator adds is the network:
the times of collectives are not in the trace.

Key and value blocks that go round a ring are said as an all-gather of the same bytes, tokens of
DeepEP as an all-to-all. Sums of tied embeddings between the ends of a pipeline are left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..errors import BadInput
from ..layout.ranks import OUTER_FIRST, grid
from ..prediction.prediction import Prediction
from ..prediction.replay import replay
from ..schedule.timeline import Send
from ..schedule.types import Action
from . import chakra
from .chakra_groups import Groups, demand_groups, ranks
from .chakra_program import ChakraNode, RankProgram

MOST_NODES = 4_000_000
"""Of all ranks: some 500 MB."""
MICRO = 1e6


def programs(prediction: Prediction) -> list[RankProgram]:
    """What each rank of the pipeline does in a step."""
    m = prediction.microbatches
    if prediction.layout.pp == 1:
        alone = RankProgram(prediction, 0)
        for i in range(m):
            alone.action(Action("F", 0, i))
            alone.action(Action("B", 0, i))
            demand_room(alone, i + 1, m)
        alone.end()
        return [alone]
    one = replay(prediction).timeline
    sent = {(s.kind, s.stage, s.microbatch): s for s in one.sends}
    made = []
    for rank, actions in enumerate(one.order):
        program = RankProgram(prediction, rank)
        in_order = zip(actions, one.stages[rank], strict=True)
        for done, (action, stage) in enumerate(in_order):
            demand_room(program, done, len(actions))
            kind, before = ("F", -1) if action.kind == "F" else ("I", 1)
            came = sent.get((kind, stage + before, action.microbatch))
            goes = sent.get((kind, stage, action.microbatch))
            whole = action.kind != "W"
            if came and whole:
                program.message(chakra.RECEIVE, came.sender, tag(came, m))
            program.action(action)
            if goes and whole:
                program.message(chakra.SEND, goes.receiver, tag(goes, m))
        program.end()
        made.append(program)
    return made


def demand_room(program: RankProgram, done: int, actions: int) -> None:
    """BadInput where the ranks that do what one does have too many nodes, after so many of their
    actions."""
    job, layout = program.job, program.layout
    nodes = len(program.nodes) * int(layout.chips)
    if nodes > MOST_NODES:
        fewer = max(job.batch * done // actions, 1)
        raise BadInput(
            f"job.batch {job.batch:,} makes a trace of more than {MOST_NODES:,} nodes on"
            f" {layout.chips:,} ranks: --batch {fewer}seq is short enough"
        )


def tag(send: Send, m: int) -> int:
    """The number of a message among those of a step of m microbatches."""
    return 2 * (send.stage * m + send.microbatch) + (send.kind == "I")


def write_chakra(prediction: Prediction, path: str) -> tuple[int, int]:
    """Write PATH.0.et, PATH.1.et, ... and PATH.groups.json: (ranks, nodes).  Raises BadInput where
    that is too much, or the layout cannot be expressed."""
    layout = prediction.layout
    demand_groups(layout)
    stages = programs(prediction)
    of_stage = int(layout.chips) // len(stages)
    nodes = of_stage * sum(len(program.nodes) for program in stages)
    numbers = grid(layout)
    places = ranks(layout, numbers)
    groups = Groups(layout, places)
    heads = [_heads(program.nodes) for program in stages]
    for n, place in enumerate(places):
        stage = place["pp"]
        lines = []
        for node, head in zip(stages[stage].nodes, heads[stage], strict=True):
            tail = b""
            if node.axis:
                tail = chakra.group(groups.numbers(node.axis)[n])
            elif node.stage >= 0:
                at = {**place, "pp": node.stage}
                peer = int(numbers[tuple(at[axis] for axis in OUTER_FIRST)])
                out = node.kind == chakra.SEND
                tail = chakra.endpoints(*((n, peer) if out else (peer, n)))
            lines.append(head + tail)
        Path(f"{path}.{n}.et").write_bytes(chakra.file(lines))
    Path(f"{path}.groups.json").write_text(
        json.dumps({str(k): v for k, v in groups.members.items()}), "utf-8"
    )
    return len(places), nodes


def _heads(nodes: Sequence[ChakraNode]) -> list[bytes]:
    """Each node, but for what differs from rank to rank.

    Durations are whole microseconds: those of their ends are rounded, so that the sum is right.
    """
    heads, clock = [], 0.0
    for i, node in enumerate(nodes, 1):
        begins = round(clock * MICRO)
        clock += node.seconds
        lasts = round(clock * MICRO) - begins
        heads.append(
            chakra.node(
                i,
                node.name,
                node.kind,
                after=node.after,
                micros=lasts,
                attributes=node.said,
            )
        )
    return heads
