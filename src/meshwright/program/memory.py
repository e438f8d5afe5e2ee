"""The peak memory of a rank of the trainer before it runs: a walk through its step, tensor by
tensor as PyTorch's engine keeps them.

What count says a layer saves is not all: every named term of `TERMS` is a buffer of the engine with
its formula. The walk goes through the actions of the rank in the order of the schedule, backward
passes operation by operation, and remembers the largest sum. Bytes of live tensors: what an
allocator leaves between them, and what a kernel uses inside itself, is not in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ..count.work import Op
from ..describe.job import Job
from ..layout.stages import microbatches, schedule_of
from ..schedule import get
from ..schedule.types import Action
from ..step.zero import cuts
from . import tensors
from .ledger import Ledger
from .messages import FP32, LOSS, reduced_at_once
from .order import Stage, order, rank_stages, weight_lifetimes
from .parameters import BOTH, EMBEDDING, HEAD
from .units import EXPERTS, Unit, Units

DISPATCH, COMBINE = f"{EXPERTS}/dispatch", f"{EXPERTS}/combine"
"""The first and the last of their operations."""
GATHER, RELEASE, THROUGH = "gather", "release", "through"
"""What is done with a whole stage, beside the kinds of its actions."""
ROUNDS = 4
"""Of a pipeline, after which no more is held: what fills it, what drains it, and some between."""


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

    def __init__(self, units: Units, rank: int) -> None:
        """units: of a job as it is carried out."""
        self.job, self.layout, self.ledger = units.job, units.layout, Ledger()
        self.boundary = units.boundary
        self.width = float(self.job.precision.activation_bytes)
        self.copied = bool(tensors.copies_weights(self.job, self.layout))
        self.input_is_saved = tensors.input_is_saved(
            self.job, self.layout.recompute
        )
        self.stages = rank_stages(self.job, rank)
        self.chunked = len(self.stages) > 1
        """PyTorch gathers and lets go of whole chunks; else layer by layer."""
        self.sharded = cuts(self.layout.zero, "weights")
        self.numbers = {stage.number for stage in self.stages}
        self.schedule, self.rank = get(self.layout.schedule), rank
        self.units = {s.number: units.stage_units(s) for s in self.stages}
        self.states = dict[int, list[State]]()
        """Of the units of a stage, while it is walked."""
        self.known, self.value = units.known, units.value
        self.numbered = units.numbered
        self.natures = {
            s.number: self.numbered(self.nature(s)) for s in self.stages
        }
        """The number of what decides on what happens in a stage: the same for stages alike."""
        self.conditions = {
            number: self.numbered((State(),) * len(every))
            for number, every in self.units.items()
        }
        """The number of the state that the units of each stage are in."""
        self.reducing, self.closing = 0.0, False
        self.at_once = reduced_at_once(self.layout)

    @property
    def late(self) -> bool:
        """The gradients of this backward pass are reduced at once."""
        return self.closing or self.at_once

    def run(self, actions: list[Action]) -> Ledger:
        """The whole step."""
        self.start()
        last = {action.chunk: number for number, action in enumerate(actions)}
        moves = weight_lifetimes(actions, self.sharded)
        for number, (action, moved) in enumerate(
            zip(actions, moves, strict=True)
        ):
            stage = self.stages[action.chunk]
            if self.chunked:
                self.move(*moved)
            self.closing = self.layout.pp == 1 and number == len(actions) - 1
            self.advance(stage, action.kind)
            if self.layout.pp > 1 and number == last[action.chunk]:
                self.advance(stage, THROUGH)
        return self.ledger

    def nature(self, stage: Stage) -> tuple[Any, ...]:
        """What of a stage decides on what happens in it."""
        local = stage.number - 1 in self.numbers
        return stage.first, stage.last, local, *self.units[stage.number]

    def advance(self, stage: Stage, kind: str) -> None:
        """What a stage does, or what is done with it; as before where one alike was in the same
        state."""
        n = stage.number
        key = (
            kind,
            self.natures[n],
            self.conditions[n],
            self.closing,
            self.reducing,
        )
        if key not in self.known:
            states = self.states[n] = [*self.value(self.conditions[n])]
            change = self.change_by(partial(self.act, kind, stage))
            self.known[key] = (
                change,
                self.numbered(tuple(states)),
                self.reducing,
            )
        change, self.conditions[n], self.reducing = self.known[key]
        self.ledger.follow(change)

    def advance_units(
        self, stage: Stage, part: slice, act: Callable[[], None]
    ) -> None:
        """Act on some units of a stage; as before where they were in the same state."""
        states = self.states[stage.number]
        units = self.units[stage.number][part]
        key = (*units, self.closing, self.reducing, *states[part])
        if key not in self.known:
            change = self.change_by(act)
            self.known[key] = change, states[part], self.reducing
        change, states[part], self.reducing = self.known[key]
        self.ledger.follow(change)

    def change_by(self, act: Callable[[], None]) -> Ledger:
        """What an act does to the bytes that live."""
        before, self.ledger = self.ledger, Ledger()
        act()
        change, self.ledger = self.ledger, before
        return change

    def act(self, kind: str, stage: Stage) -> None:
        """One pass of one microbatch, or what is done with a whole stage."""
        every = range(len(self.units[stage.number]))
        if kind == GATHER:
            self.gather(stage, *every)
        elif kind == RELEASE:
            self.release(stage, *every)
        elif kind == THROUGH:
            self.through(stage)
        elif kind == "F":
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
        for chunks, kind in ((gone, RELEASE), (fetched, GATHER)):
            for chunk in chunks:
                self.advance(self.stages[chunk], kind)

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
        shards = sum(
            unit.shard for units in self.units.values() for unit in units
        )
        self.ledger.add("weights", shards)
        self.ledger.add("optimizer", 2 * shards)
        if self.layout.pp > 1:
            p, v = self.layout.pp, self.layout.interleave
            early = tensors.early(self.schedule, p, v, self.rank == 0)
            self.ledger.add("receive buffers", float(early) * self.boundary)
        if not (self.sharded or self.chunked):
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
        sizes = {"activations": sum(unit.saved for unit in units)}
        logits = float(tensors.logits(self.job, units[-1].logits))
        if self.layout.pp == 1:
            return {**sizes, "loss": logits}
        sizes["stage outputs"] = logits if stage.last else self.boundary
        sender = stage.number - 1
        local = sender in self.numbers or stage.first
        sizes["receive buffers"] = 0.0 if local else self.boundary
        if not stage.first and self.input_is_saved:
            # it lies where it was received
            sizes["activations"] -= self.boundary
        return sizes

    def forward(self, stage: Stage) -> None:
        """One microbatch forward."""
        units = self.units[stage.number]
        every = range(len(units))
        if self.sharded and not self.chunked:
            ends = [i for i in every if units[i].name == BOTH]
            # the unit in use and the one that arrives
            for first in every[:2][: len(units) - 1]:
                self.gather(stage, *ends, first, first + 1)
                self.release(stage, *every)
        for term, size in self.kept(stage).items():
            self.ledger.add(term, size)
        if self.sharded:
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
            self.loss_backward(stage)
            self.gather(stage, len(units) - 1)
            of_head = [op for op in units[-1].ops if op.name.startswith(HEAD)]
            self.operations_backward(stage, 0, Unit(HEAD, of_head, []))
            made = self.of_end(units[-1])
            self.ledger.add("backward", made)
        for index in reversed(range(len(units) - both)):
            if units[index].name != EXPERTS:
                # with its experts, and what is fetched ahead
                near = slice(max(index - 2, 0), index + 1)
                self.advance_units(
                    stage, near, partial(self.unit_backward, stage, index)
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
        if unit.name == HEAD:
            self.loss_backward(stage)
        # FSDP asks for weights when the gradient of what they made is there
        self.gather(stage, index, index - 1)
        self.operations_backward(stage, index, unit)
        self.finish(stage, index)

    def operations_backward(
        self, stage: Stage, index: int, unit: Unit
    ) -> None:
        """The operations of a unit from the last to the first; then the gradients of its weights
        are made, but not yet added up.
        """
        whole = bool(unit.again)
        redone = {id(op): float(op.saved) for op in unit.again}
        self.ledger.add("activations", -unit.results)
        self.ledger.add("backward", sum(redone.values()) + unit.unused)
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
            self.ledger.add("activations", 0.0 if whole else -float(op.saved))
            self.ledger.add("backward", weights - redone.get(id(op), 0.0))
            made += weights
            of_experts += weights if op.expert else 0.0
            if op.name == DISPATCH:
                made -= of_experts
                self.ledger.add("backward", -of_experts)
                self.finish(stage, index - 1)
        self.ledger.add("activations", -self.boundary if whole else 0.0)
        self.ledger.add("backward", -made - unit.unused)

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
            if self.closing or (self.sharded and self.layout.pp == 1):
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
        # a name in PyTorch's loop over the gradients (`foreach_reduce`) holds the last one
        loop = unit.last * (self.width / FP32 if made else 1.0)
        self.ledger.add("reduction", loop)
        if states[index].reduced:
            self.ledger.touch("reduction", unit.shard)
        else:
            self.ledger.add("gradients", unit.shard)
        self.ledger.add("reduction", -loop)
        states[index] = states[index]._replace(whole=False, reduced=True)


def shorten(job: Job) -> Job:
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


def peak(
    job: Job, rank: int, shards: int = 0, units: Units | None = None
) -> Ledger:
    """The ledger of one step of a rank of the pp axis. job: `messages.carried_out`; units: of that
    job, for several ranks."""
    actions = order(shorten(job), rank)
    # between the first microbatch and the last, one is like another
    if job.layout.pp == 1 and len(actions) > 6:
        actions = [*actions[:4], *actions[-2:]]
    return Walk(units or Units(job, shards), rank).run(actions)
