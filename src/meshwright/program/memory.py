"""The peak memory of a rank of the trainer before it runs: a walk through its step, tensor by
tensor as PyTorch's engine keeps them.

What count says a layer saves is not all: every named term of `TERMS` is a buffer of the engine with
its formula. The walk goes through the actions of the rank in the order of the schedule, backward
passes operation by operation, and remembers the largest sum. Bytes of live tensors: what an
allocator leaves between them, and what a kernel uses inside itself, is not in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from ..count import vocabulary
from ..count.model import kinds
from ..count.work import Op
from ..describe.job import Job
from ..layout.stages import microbatches, schedule_of
from ..schedule import get
from ..schedule.types import Action
from ..step import boundary
from . import tensors
from .messages import (
    BOTH,
    EMBEDDING,
    FP32,
    HEAD,
    LOSS,
    Shapes,
    Stage,
    again,
    elements,
    end_shapes,
    expert_shapes,
    gathered,
    layer_ops,
    layer_shapes,
    order,
    reduced_at_once,
    replicas,
    stages,
)

TERMS = {
    "weights": "fp32, 4 bytes a parameter of this rank's shard",
    "optimizer": "two moments, 8 bytes a parameter of the shard",
    "gathered weights": (
        "whole, in the precision of the products; zero 0-2: all of them, 3: the unit in use and"
        " the one that arrives"
    ),
    "gradients": "fp32, 4 bytes a parameter: whole until they are reduced, then the shard",
    "activations": "what autograd keeps, for each microbatch in flight",
    "vocabulary gradient": (
        "the embedding's gradient for all V rows on every tp rank: 4 (V - V/tp) D"
    ),
    "receive buffers": (
        "of an activation from its arrival to the end of its backward pass, of a gradient during"
        " one: 2 bytes x tokens x D"
    ),
    "stage outputs": (
        "kept from forward to backward of each microbatch: its hidden states, or the logits"
    ),
    "loss": (
        "the logits where there is one stage, and while their gradient is made that and some rows"
        " in fp32"
    ),
    "output gradients": (
        "zero-bubble: gradients of every product's result, from the first half of the backward"
        " pass to the second"
    ),
    "backward": (
        "gradients of one layer's weights before they are added up, of the operation's inputs and"
        " results, and what is computed again"
    ),
    "reduction": "the gradients of one unit, copied together in fp32 to be reduced",
}
"""Name of a term -> what it is."""


EXPERTS = "experts"
"""A unit inside a layer."""
DISPATCH, COMBINE = f"{EXPERTS}/dispatch", f"{EXPERTS}/combine"
"""The first and the last of their operations."""
ROUNDS = 6
"""Of a pipeline, after which no more is held: what fills it, what drains it, and some between."""


@dataclass
class Ledger:
    """Bytes that live now, by term, and as they were at the peak."""

    now: Counter[str] = field(default_factory=Counter)
    peak: Counter[str] = field(default_factory=Counter)
    total: float = 0.0
    highest: float = 0.0

    def add(self, term: str, size: float) -> None:
        """These bytes live from now on (or, negative, no longer)."""
        self.now[term] += size  # type: ignore[assignment]
        self.total += size
        if self.total > self.highest:
            self.highest, self.peak = self.total, Counter(self.now)

    def touch(self, term: str, size: float) -> None:
        """These bytes live for a moment."""
        self.add(term, size)
        self.add(term, -size)

    def follow(self, change: Ledger) -> None:
        """What a ledger that began with nothing went through happens again from here on."""
        if self.total + change.highest > self.highest:
            self.highest = self.total + change.highest
            self.peak = Counter(self.now)
            self.peak.update(change.peak)
        self.now.update(change.now)
        self.total += change.total


@dataclass(frozen=True, eq=False)
class Unit:
    """Parameters that FSDP gathers and reduces together, with the operations of one microbatch that
    use them. All layers of a kind are one unit.
    """

    name: str
    """layer, one of the ends of the model, or the experts of the layer that comes after them, among
    whose operations theirs are.
    """
    ops: list[Op]
    again: list[Op]
    """What is computed again in the backward pass."""
    whole: float = 0.0
    """Bytes of its parameters in fp32."""
    padded: float = 0.0
    """The same with the rows that pad them to shards."""
    shard: float = 0.0
    """A rank's share of those."""
    foreign: float = 0.0
    """Rows of other tp ranks in the gradient of the embedding, in fp32."""
    saved: float = 0.0
    """Bytes kept of one microbatch, without the logits."""
    logits: float = 0.0
    """Bytes of the logits in fp32."""


class State(NamedTuple):
    """What is there of a unit beside its shard."""

    gathered: bool = False
    """Its weights."""
    whole: bool = False
    """Its gradients in fp32."""
    reduced: bool = False
    """Its gradients as a shard."""
    unadded: bool = False
    """Gradients in the products' precision that the second half of a backward pass left."""


class Walk:
    """One step of one rank.

    What a pass does follows from the state of the units of its stage, and what a layer's backward
    pass does from that of the layer and the one before: each is walked once and then remembered.
    """

    def __init__(self, job: Job, rank: int, shards: int) -> None:
        """job: `expected.carried_out`."""
        self.job, self.layout, self.ledger = job, job.layout, Ledger()
        self.width, self.boundary = (
            float(job.precision.activation_bytes),
            float(boundary(job, job.layout)),
        )
        _, self.shards = replicas(self.layout, shards)
        _, self.shards_of_experts = replicas(self.layout, shards, True)
        self.copied = bool(tensors.copied(job, self.layout))
        self.input_is_saved = tensors.input_is_saved(
            job, self.layout.recompute
        )
        self.stages = stages(job, rank)
        self.chunked = len(self.stages) > 1
        """PyTorch gathers and lets go of whole chunks; else layer by layer."""
        self.mine = {stage.number for stage in self.stages}
        self.schedule, self.rank = get(self.layout.schedule), rank
        self.of_kinds = dict[Any, list[Unit]]()
        self.units = {s.number: self.units_of(s) for s in self.stages}
        self.states = {n: [State()] * len(u) for n, u in self.units.items()}
        self.known = dict[Any, tuple[Ledger, list[State], float]]()
        """What a pass or a layer's backward pass did -> its bytes, and the state it left."""
        self.reducing, self.closing = 0.0, False
        self.at_once = reduced_at_once(self.layout)

    @property
    def late(self) -> bool:
        """The gradients of this backward pass are reduced at once."""
        return self.closing or self.at_once

    def units_of(self, stage: Stage) -> list[Unit]:
        """Embedding, layers and head of a stage, in the order of its forward pass."""
        every = kinds(self.job.model)
        layers = list[Unit]()
        for i, ops in zip(
            stage.layers, layer_ops(self.job, stage), strict=True
        ):
            if every[i] not in self.of_kinds:
                self.of_kinds[every[i]] = self.units_of_layer(
                    ops, every[i].moe
                )
            layers += self.of_kinds[every[i]]
        ends_ops = {
            EMBEDDING: vocabulary.embedding(self.job, self.layout),
            HEAD: vocabulary.head(self.job, self.layout),
        }
        ends_ops[BOTH] = ends_ops[EMBEDDING] + ends_ops[HEAD]
        ends = {
            name: [self.unit(name, shapes, ends_ops[name])]
            for name, shapes in end_shapes(self.job, stage).items()
        }
        return [
            *ends.get(EMBEDDING, []),
            *layers,
            *ends.get(HEAD, []),
            *ends.get(BOTH, []),
        ]

    def units_of_layer(self, ops: list[Op], moe: bool) -> list[Unit]:
        """Its experts, if it has any, and itself."""
        shapes = layer_shapes(self.job, moe=moe)
        whole = self.unit("layer", shapes, ops)
        return (
            [self.unit(EXPERTS, expert_shapes(self.job), []), whole]
            if moe
            else [whole]
        )

    def unit(self, name: str, shapes: Shapes, ops: list[Op]) -> Unit:
        """With its bytes."""
        shards = self.shards_of_experts if name == EXPERTS else self.shards
        padded = FP32 * float(elements(shapes, shards))
        rows = {k: s for k, s in shapes.items() if k == "embedding.weight"}
        way = self.layout.recompute
        redone = again(ops, way) if name == "layer" else []
        saved = sum(self.of_op(op, redone) for op in ops if op.name != LOSS)
        return Unit(
            name,
            ops,
            redone,
            FP32 * float(elements(shapes)),
            padded,
            padded / shards,
            FP32 * float(elements(rows) * (self.layout.tp - 1)),
            self.boundary if way == "full" and redone else saved,
            sum(float(op.saved) for op in ops if op.name == LOSS),
        )

    def of_op(self, op: Op, redone: list[Op]) -> float:
        """Bytes an operation keeps, where some run again."""
        selective = self.layout.recompute == "selective" and op in redone
        return float(op.needed if selective else op.saved)

    def run(self, actions: list[Action]) -> Ledger:
        """The whole step."""
        self.start()
        last = {action.chunk: number for number, action in enumerate(actions)}
        moves = gathered(actions, self.layout.zero == 3)
        for number, (action, moved) in enumerate(
            zip(actions, moves, strict=True)
        ):
            stage = self.stages[action.chunk]
            if self.chunked:
                self.move(*moved)
            self.closing = self.layout.pp == 1 and number == len(actions) - 1
            self.remembered(
                stage,
                slice(None),
                (stage.number, action.kind),
                partial(self.act, action.kind, stage),
            )
            if self.layout.pp > 1 and number == last[action.chunk]:
                self.through(stage)
        return self.ledger

    def remembered(
        self, stage: Stage, part: slice, key: Any, act: Callable[[], None]
    ) -> None:
        """Act on some units of a stage; where they are in the same state, as before."""
        states = self.states[stage.number]
        key = (*key, self.closing, self.reducing, *states[part])
        if key not in self.known:
            before, self.ledger = self.ledger, Ledger()
            act()
            self.known[key] = self.ledger, states[part], self.reducing
            self.ledger = before
        change, states[part], self.reducing = self.known[key]
        self.ledger.follow(change)

    def act(self, kind: str, stage: Stage) -> None:
        """One pass of one microbatch."""
        if kind == "F":
            self.forward(stage)
        elif kind == "B" or (kind == "W" and stage.first):
            self.backward(stage)
        elif (
            kind == "I" and not stage.first
        ):  # the first stage has no gradient to hand on: all its work waits for W
            self.input_backward(stage)
        elif kind == "W":
            self.weight_backward(stage)

    def move(self, gone: set[int], fetched: set[int]) -> None:
        """Let go of the weights of these chunks, gather those of others."""
        for chunks, how in ((gone, self.release), (fetched, self.gather)):
            for chunk in chunks:
                stage = self.stages[chunk]
                how(stage, *range(len(self.units[stage.number])))

    def through(self, stage: Stage) -> None:
        """All microbatches are through a stage of a pipeline: PyTorch reduces its gradients, where
        they waited, and lets go of its gathered weights.
        """
        for index in range(len(self.units[stage.number])):
            self.release(stage, index)
            if not self.at_once:
                self.add_up(stage, index)
                self.reduce(stage, index)
        self.ledger.add("reduction", -self.reducing)
        self.reducing = 0.0

    def start(self) -> None:
        """What lives before the first microbatch."""
        every = sum(unit.shard for of in self.units.values() for unit in of)
        self.ledger.add("weights", every)
        self.ledger.add("optimizer", 2 * every)
        if self.layout.pp > 1:
            end = "first" if self.rank == 0 else "last"
            early = tensors.early(
                self.schedule, self.layout.pp, self.layout.interleave, end
            )
            self.ledger.add("receive buffers", float(early) * self.boundary)
        if self.layout.zero < 3 and not self.chunked:
            self.move(set(), {0})

    def as_gathered(self, unit: Unit) -> float:
        """Bytes of its weights in the precision of the products."""
        return self.width / FP32 * unit.padded

    def gather(self, stage: Stage, *which: int) -> None:
        """Whole weights of these units, if they are not there."""
        states = self.states[stage.number]
        for i in which:
            if self.copied and i >= 0 and not states[i].gathered:
                size = self.as_gathered(self.units[stage.number][i])
                self.ledger.add("gathered weights", size)
                states[i] = states[i]._replace(gathered=True)

    def release(self, stage: Stage, *which: int) -> None:
        """They go again."""
        states = self.states[stage.number]
        for i in which:
            if states[i].gathered:
                size = self.as_gathered(self.units[stage.number][i])
                self.ledger.add("gathered weights", -size)
                states[i] = states[i]._replace(gathered=False)

    def kept(self, stage: Stage) -> dict[str, float]:
        """What lives from the forward to the backward pass of one microbatch."""
        units = self.units[stage.number]
        found = {"activations": sum(unit.saved for unit in units)}
        logits = float(tensors.logits(self.job, units[-1].logits))
        if self.layout.pp == 1:
            return {**found, "loss": logits}
        found["stage outputs"] = logits if stage.last else self.boundary
        sender = stage.number - 1
        local = sender in self.mine or stage.first
        found["receive buffers"] = 0.0 if local else self.boundary
        if not stage.first and self.input_is_saved:
            # it lies where it was received
            found["activations"] -= self.boundary
        return found

    def forward(self, stage: Stage) -> None:
        """One microbatch forward."""
        units = self.units[stage.number]
        every = range(len(units))
        sharded = self.layout.zero == 3
        if sharded and not self.chunked:
            ends = [i for i in every if units[i].name == BOTH]
            # the unit in use and the one that arrives
            for first in every[:2][: len(units) - 1]:
                self.gather(stage, *ends, first, first + 1)
                self.release(stage, *every)
        for term, size in self.kept(stage).items():
            self.ledger.add(term, size)
        if sharded:
            # the last one as it arrived, too, until another arrives
            if self.states[stage.number][-1].gathered:
                arrived = self.as_gathered(units[-1])
                self.ledger.touch("gathered weights", arrived)
            self.release(stage, *every)

    def backward(self, stage: Stage) -> None:
        """One microbatch backward."""
        kept = self.kept(stage)
        units = self.units[stage.number]
        arrived = 0.0 if stage.last else self.boundary
        self.ledger.add("receive buffers", arrived)
        both = units[-1].name == BOTH
        made = 0.0
        # its gradient is made by the head and whole after the embedding
        if both:
            self.gather(stage, len(units) - 1)
            self.loss_backward(stage)
            of_head = [op for op in units[-1].ops if op.name.startswith(HEAD)]
            self.operations_backward(stage, 0, Unit(HEAD, of_head, []))
            made = self.of_end(units[-1])
            self.ledger.add("backward", made)
        for index in reversed(range(len(units) - both)):
            if units[index].name != EXPERTS:
                # with its experts, and what is fetched ahead
                near = slice(max(index - 2, 0), index + 1)
                self.remembered(
                    stage,
                    near,
                    units[near],
                    partial(self.unit_backward, stage, index),
                )
        self.ledger.add("backward", -made)
        if both:
            self.finish(stage, len(units) - 1)
        # its operations have let go of what they kept
        kept["activations"] -= sum(unit.saved for unit in units)
        for term in ("activations", "stage outputs", "receive buffers"):
            self.ledger.add(term, -kept.get(term, 0.0))
        self.ledger.add("receive buffers", -arrived)
        self.ledger.add("reduction", -self.reducing)
        self.reducing = 0.0

    def of_end(self, unit: Unit) -> float:
        """Bytes of the gradients of embedding or head before they are added up."""
        size = (unit.whole + unit.foreign) / FP32
        return float(tensors.as_made(self.job, size))

    def loss_backward(self, stage: Stage) -> None:
        """The gradient of the logits is made; they are let go where nothing else holds them."""
        loss = self.units[stage.number][-1].logits
        self.ledger.touch("loss", float(tensors.in_loss(self.job, loss)))
        if self.layout.pp == 1:
            self.ledger.add("loss", -float(tensors.logits(self.job, loss)))

    def unit_backward(self, stage: Stage, index: int) -> None:
        """A layer, the embedding or the head backward, with its experts, if it has any: their
        gradients are added up as soon as their tokens' gradients have gone back.
        """
        unit = self.units[stage.number][index]
        self.gather(stage, index, index - 1)
        if unit.name == HEAD:
            self.loss_backward(stage)
        self.operations_backward(stage, index, unit)
        self.finish(stage, index)

    def operations_backward(
        self, stage: Stage, index: int, unit: Unit
    ) -> None:
        """The operations of a unit from the last to the first; then the gradients of its weights
        are made, but not yet added up.
        """
        whole = self.layout.recompute == "full" and bool(unit.again)
        redone = (
            {id(op): float(op.saved) for op in unit.again} if whole else {}
        )
        self.ledger.add("backward", sum(redone.values()))
        made = of_experts = 0.0
        for op in reversed(unit.ops):
            if op.name == LOSS:
                continue
            if op.name == COMBINE:
                self.gather(stage, index - 1, index - 2)
            weights = float(tensors.as_made(self.job, op.weights))
            if unit.name == EMBEDDING:
                weights = self.of_end(unit) if op is unit.ops[0] else 0.0
            self.ledger.touch("backward", self.moving(op))
            self.ledger.add(
                "activations", 0.0 if whole else -self.of_op(op, unit.again)
            )
            self.ledger.add("backward", weights - redone.get(id(op), 0.0))
            made += weights
            of_experts += weights if op.expert else 0.0
            if op.name == DISPATCH:
                made -= of_experts
                self.ledger.add("backward", -of_experts)
                self.finish(stage, index - 1)
        self.ledger.add("activations", -self.boundary if whole else 0.0)
        self.ledger.add("backward", -made)

    def moving(self, op: Op) -> float:
        """Bytes of the gradients of an operation's inputs and results, with that of the residual
        stream.
        """
        return float(tensors.moving(self.job, self.boundary, op))

    def results(self, unit: Unit) -> float:
        """Bytes of the results of all operations with weights."""
        return float(tensors.results(self.job, unit.ops))

    def input_backward(self, stage: Stage) -> None:
        """The first half of a zero-bubble backward pass: nothing is let go before the second, and
        every result's gradient stays for it.
        """
        units = self.units[stage.number]
        self.ledger.add(
            "receive buffers", 0.0 if stage.last else self.boundary
        )
        if stage.last:
            self.loss_backward(stage)
        for index in reversed(range(len(units))):
            moving = [
                self.moving(op) for op in units[index].ops if op.name != LOSS
            ]
            self.ledger.touch("backward", max(moving, default=0.0))
            self.ledger.add("output gradients", self.results(units[index]))
            self.add_up(stage, index)

    def weight_backward(self, stage: Stage) -> None:
        """The second half: gradients of the weights, which are added up in the first half of the
        next microbatch.
        """
        states = self.states[stage.number]
        for index, unit in enumerate(self.units[stage.number]):
            size = self.width / FP32 * unit.whole
            if states[
                index
            ].unadded:  # PyTorch adds it to the one that is there
                self.ledger.touch("backward", size)
            else:
                states[index] = states[index]._replace(unadded=True)
                self.ledger.add("backward", size)
        for term, size in self.kept(stage).items():
            self.ledger.add(term, -size)
        self.ledger.add(
            "receive buffers", 0.0 if stage.last else -self.boundary
        )
        self.ledger.add(
            "output gradients",
            -sum(map(self.results, self.units[stage.number])),
        )

    def add_up(self, stage: Stage, index: int) -> None:
        """Gradients that a second half left in the products' precision become fp32."""
        states, unit = (
            self.states[stage.number],
            self.units[stage.number][index],
        )
        if states[index].unadded:
            states[index] = states[index]._replace(unadded=False)
            self.ledger.add("backward", -self.width / FP32 * unit.whole)
            self.accumulate(stage, index)

    def accumulate(self, stage: Stage, index: int) -> None:
        """Whole gradients of a unit in fp32: there from the first microbatch on."""
        states = self.states[stage.number]
        if not states[index].whole:
            states[index] = states[index]._replace(whole=True)
            unit = self.units[stage.number][index]
            self.ledger.add("gradients", unit.whole)
            self.ledger.add("vocabulary gradient", unit.foreign)

    def finish(self, stage: Stage, index: int) -> None:
        """The gradients of a unit's weights are made: add them up, or (late) reduce them."""
        unit = self.units[stage.number][index]
        made = 0.0
        whole = self.states[stage.number][index].whole
        if self.late and not whole and self.copied:
            made = self.width / FP32 * unit.whole
        else:
            self.accumulate(stage, index)
        self.ledger.add("backward", made)
        if self.late:
            if self.closing or (self.layout.zero == 3 and self.layout.pp == 1):
                self.release(stage, index)
            self.reduce(stage, index, made)

    def reduce(self, stage: Stage, index: int, made: float = 0.0) -> None:
        """Copy a unit's gradients (`made`: bytes of those in the products' precision) together and
        reduce them; the copy stays until the next unit's. A new shard is added to the one that is
        there.
        """
        if not self.copied:
            return
        states, unit = (
            self.states[stage.number],
            self.units[stage.number][index],
        )
        self.ledger.add("reduction", unit.padded - self.reducing)
        self.reducing = unit.padded
        self.ledger.add("backward", -made)
        if states[index].whole:
            self.ledger.add("gradients", -unit.whole)
            self.ledger.add("vocabulary gradient", -unit.foreign)
        if states[index].reduced:
            self.ledger.touch("reduction", unit.shard)
        else:
            self.ledger.add("gradients", unit.shard)
        states[index] = states[index]._replace(whole=False, reduced=True)


def shortened(job: Job) -> Job:
    """The job with fewer microbatches and the same peak: between filling a pipeline and draining it
    one round is like another, unless all microbatches are held.
    """
    layout = job.layout
    schedule = schedule_of(layout)
    p = int(layout.pp)
    v = int(layout.interleave)
    m = int(microbatches(job, layout))
    turn = max(p, layout.microbatch_group)
    fewer = ROUNDS * turn + m % turn
    all_held = schedule.in_flight(p, fewer, v) > fewer - turn
    # nor where the order of fewer may be another one
    if p == 1 or fewer >= m or all_held or schedule.costed:
        return job
    return replace(job, batch=int(fewer * layout.microbatch * layout.dp))


def peak(job: Job, rank: int, shards: int = 0) -> Ledger:
    """The ledger of one step of a rank of the pp axis. job: `expected.carried_out`."""
    actions = order(shortened(job), rank)
    # between the first microbatch and the last, one is like another
    if job.layout.pp == 1:
        actions = (
            [*actions[:4], *actions[-2:]] if len(actions) > 6 else actions
        )
    return Walk(job, rank, shards).run(actions)
