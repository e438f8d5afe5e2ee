"""The peak memory of a rank of the trainer before it runs: a walk through its step, tensor by
tensor as PyTorch's engine keeps them.

What count says a layer saves is not all: every named term of `TERMS` is a buffer of the engine with
its formula. The walk goes through the actions of the rank in the order of the schedule, backward
passes operation by operation, and remembers the largest sum. Bytes of live tensors: what an
allocator leaves between them, and what a kernel uses inside itself, is not in them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

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


@dataclass(frozen=True)
class Unit:
    """Parameters that FSDP gathers and reduces together, with the operations of one microbatch that
    use them.
    """

    shapes: Shapes
    ops: list[Op]
    again: list[Op]
    """What is computed again in the backward pass."""
    name: str = "layer"
    """layer, one of the ends of the model, or the experts of the layer that comes after them, among
    whose operations theirs are.
    """


class Walk:
    """One step of one rank."""

    def __init__(self, job: Job, rank: int, shards: int) -> None:
        """job: `expected.carried_out`."""
        self.job, self.layout, self.ledger = job, job.layout, Ledger()
        self.kinds = kinds(job.model)
        self.width, self.boundary = (
            float(job.precision.activation_bytes),
            float(boundary(job, job.layout)),
        )
        copies, self.shards = replicas(self.layout, shards)
        others, self.shards_of_experts = replicas(self.layout, shards, True)
        replicated = copies * self.shards > 1 or (
            job.model.moe is not None and others * self.shards_of_experts > 1
        )
        self.copied = tensors.mixed(job) or replicated
        """FSDP is at work: the weights a product sees are other tensors than those the optimizer
        changes.
        """
        self.input_is_saved = tensors.input_is_saved(
            job, self.layout.recompute
        )
        self.stages = stages(job, rank)
        self.chunked = len(self.stages) > 1
        """PyTorch gathers and lets go of whole chunks; else layer by layer."""
        self.mine = {stage.number for stage in self.stages}
        self.schedule, self.rank = get(self.layout.schedule), rank
        self.units = {s.number: self.units_of(s) for s in self.stages}
        self.whole: set[tuple[int, int]] = set()
        """(stage, unit) whose gradients are there, whole and in fp32."""
        self.reduced: set[tuple[int, int]] = set()
        """Those whose gradients are there as shards."""
        self.there: dict[tuple[int, int], float] = {}
        """Those whose weights are gathered, with their bytes."""
        self.unadded: dict[tuple[int, int], float] = {}
        self.reducing, self.closing = 0.0, False
        self.at_once = reduced_at_once(self.layout)

    def units_of(self, stage: Stage) -> list[Unit]:
        """Embedding, layers and head of a stage, in the order of its forward pass."""
        layers = [
            unit
            for i, ops in zip(
                stage.layers, layer_ops(self.job, stage), strict=True
            )
            for unit in self.units_of_layer(ops, self.kinds[i].moe)
        ]
        ends_ops = {
            EMBEDDING: vocabulary.embedding(self.job, self.layout),
            HEAD: vocabulary.head(self.job, self.layout),
        }
        ends_ops[BOTH] = ends_ops[EMBEDDING] + ends_ops[HEAD]
        ends = {
            name: [Unit(shapes, ends_ops[name], [], name)]
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
        whole = Unit(shapes, ops, again(ops, self.layout.recompute))
        of_experts = Unit(expert_shapes(self.job), [], [], EXPERTS)
        return [of_experts, whole] if moe else [whole]

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
            late = self.closing or self.at_once
            if action.kind == "F":
                self.forward(stage)
            elif action.kind == "B" or (action.kind == "W" and stage.first):
                self.backward(stage, late)
            elif (
                action.kind == "I" and not stage.first
            ):  # the first stage has no gradient to hand on: all its work waits for W
                self.input_backward(stage)
            elif action.kind == "W":
                self.weight_backward(stage)
            if self.layout.pp > 1 and number == last[action.chunk]:
                self.through(stage)
        return self.ledger

    def move(self, gone: set[int], fetched: set[int]) -> None:
        """Let go of the weights of these chunks, gather those of others."""
        for chunks, how in ((gone, self.release), (fetched, self.gather)):
            for chunk in chunks:
                stage = self.stages[chunk]
                how([(stage, i) for i in range(len(self.units[stage.number]))])

    def through(self, stage: Stage) -> None:
        """All microbatches are through a stage of a pipeline: PyTorch reduces its gradients, where
        they waited, and lets go of its gathered weights.
        """
        for index, unit in enumerate(self.units[stage.number]):
            self.release([(stage, index)])
            if not self.at_once:
                self.add_up(stage, index, unit)
                self.reduce(stage, index, unit)
        self.ledger.add("reduction", -self.reducing)
        self.reducing = 0.0

    def start(self) -> None:
        """What lives before the first microbatch."""
        every = sum(
            self.padded(unit) / self.shards_of(unit)
            for units in self.units.values()
            for unit in units
        )
        self.ledger.add("weights", FP32 * every)
        self.ledger.add("optimizer", 2 * FP32 * every)
        if self.layout.pp > 1:
            end = "first" if self.rank == 0 else "last"
            early = tensors.early(
                self.schedule, self.layout.pp, self.layout.interleave, end
            )
            self.ledger.add("receive buffers", float(early) * self.boundary)
        if self.layout.zero < 3 and not self.chunked:
            self.move(set(), {0})

    def shards_of(self, unit: Unit) -> int:
        """Ranks that share out its state."""
        return self.shards_of_experts if unit.name == EXPERTS else self.shards

    def padded(self, unit: Unit) -> float:
        """Its parameters, with the rows that pad them to shards."""
        return float(elements(unit.shapes, self.shards_of(unit)))

    def gather(self, which: list[tuple[Stage, int]]) -> None:
        """Whole weights of these units, in the precision of the products, if they are not there."""
        for stage, index in which:
            if (
                self.copied
                and index >= 0
                and (key := (stage.number, index)) not in self.there
            ):
                unit = self.units[stage.number][index]
                self.there[key] = self.width * self.padded(unit)
                self.ledger.add("gathered weights", self.there[key])

    def release(self, which: list[tuple[Stage, int]]) -> None:
        """They go again."""
        for stage, index in which:
            self.ledger.add(
                "gathered weights", -self.there.pop((stage.number, index), 0.0)
            )

    def saved(self, unit: Unit) -> float:
        """Bytes a unit keeps of one microbatch."""
        if self.layout.recompute == "full" and unit.again:
            return self.boundary
        return sum(self.of_op(unit, op) for op in unit.ops)

    def of_op(self, unit: Unit, op: Op) -> float:
        """Bytes an operation keeps."""
        return float(tensors.kept(op, self.layout.recompute, op in unit.again))

    def kept(self, stage: Stage) -> dict[str, float]:
        """What lives from the forward to the backward pass of one microbatch."""
        units = self.units[stage.number]
        loss = self.loss(stage)
        found = {"activations": sum(map(self.saved, units)) - loss}
        logits = float(tensors.logits(self.job, loss))
        if self.layout.pp == 1:
            return {**found, "loss": logits}
        found["stage outputs"] = logits if stage.last else self.boundary
        found["receive buffers"] = self.boundary * self.received(
            stage, stage.number - 1
        )
        if not stage.first and self.input_is_saved:
            # it lies where it was received
            found["activations"] -= self.boundary
        return found

    def loss(self, stage: Stage) -> float:
        """Bytes of the logits in fp32, as they are counted."""
        every = (op for unit in self.units[stage.number] for op in unit.ops)
        return sum(float(op.saved) for op in every if op.name == LOSS)

    def received(self, stage: Stage, sender: int) -> bool:
        """What this stage gets from another comes from another rank."""
        return sender not in self.mine and not (stage.first and sender < 0)

    def forward(self, stage: Stage) -> None:
        """One microbatch forward."""
        units = self.units[stage.number]
        ends = [
            (stage, i) for i, unit in enumerate(units) if unit.name == BOTH
        ]
        sharded = self.layout.zero == 3
        if sharded and not self.chunked:
            # the unit in use and the one that arrives
            for first in range(min(2, len(units) - 1)):
                self.gather([*ends, (stage, first), (stage, first + 1)])
                self.release([(stage, i) for i in range(len(units))])
        for term, size in self.kept(stage).items():
            self.ledger.add(term, size)
        if sharded:
            every = [(stage, i) for i in range(len(units))]
            # the last one as it arrived, too, until another arrives
            arrived = self.there.get((stage.number, len(units) - 1), 0.0)
            self.ledger.touch("gathered weights", arrived)
            self.release(every)

    def backward(self, stage: Stage, late: bool) -> None:
        """One microbatch backward. late: its gradients are reduced at once."""
        kept = self.kept(stage)
        units = self.units[stage.number]
        arrived = 0.0 if stage.last else self.boundary
        self.ledger.add("receive buffers", arrived)
        both = units[-1].name == BOTH
        made = 0.0
        # its gradient is made by the head and whole after the embedding
        if both:
            self.gather([(stage, len(units) - 1)])
            self.loss_backward(stage)
            of_head = [op for op in units[-1].ops if op.name.startswith(HEAD)]
            self.unit_backward(Unit({}, of_head, [], HEAD))
            made = self.of_end(units[-1])
            self.ledger.add("backward", made)
        for index in reversed(range(len(units) - both)):
            if units[index].name == EXPERTS:
                continue
            self.gather([(stage, index), (stage, index - 1)])
            if units[index].name == HEAD:
                self.loss_backward(stage)
            self.unit_backward(units[index], (stage, index - 1, late))
            self.finish(stage, index, late)
        self.ledger.add("backward", -made)
        if both:
            self.finish(stage, len(units) - 1, late)
        self.let_go(stage, kept)
        self.ledger.add("receive buffers", -arrived)
        self.ledger.add("reduction", -self.reducing)
        self.reducing = 0.0

    def let_go(self, stage: Stage, kept: dict[str, float]) -> None:
        """What ends with the backward pass of a microbatch; what its operations kept is gone."""
        left = kept["activations"] - sum(
            map(self.saved_of, self.units[stage.number])
        )
        self.ledger.add("activations", -left)
        for term in ("stage outputs", "receive buffers"):
            self.ledger.add(term, -kept.get(term, 0.0))

    def saved_of(self, unit: Unit) -> float:
        """Bytes a unit keeps of one microbatch, without the logits."""
        return self.saved(unit) - sum(
            float(op.saved) for op in unit.ops if op.name == LOSS
        )

    def of_end(self, unit: Unit) -> float:
        """Bytes of the gradients of embedding or head before they are added up."""
        return float(
            tensors.as_made(
                self.job, elements(unit.shapes) + self.foreign(unit)
            )
        )

    def loss_backward(self, stage: Stage) -> None:
        """The gradient of the logits is made; they are let go where nothing else holds them."""
        loss = self.loss(stage)
        self.ledger.touch("loss", float(tensors.in_loss(self.job, loss)))
        if self.layout.pp == 1:
            self.ledger.add("loss", -float(tensors.logits(self.job, loss)))

    def foreign(self, unit: Unit) -> float:
        """Rows of other tp ranks in the gradient of the embedding, in elements."""
        rows = {
            name: shape
            for name, shape in unit.shapes.items()
            if name == "embedding.weight"
        }
        return float(elements(rows) * (self.layout.tp - 1))

    def unit_backward(
        self, unit: Unit, experts: tuple[Stage, int, bool] | None = None
    ) -> None:
        """The operations of a unit from the last to the first; then the gradients of its weights
        are made, but not yet added up. experts: its own, if it has any, as `finish` is told of
        them; those are added up as soon as their tokens' gradients have gone back.
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
            if op.name == COMBINE and experts:
                stage, index, _ = experts
                self.gather([(stage, index), (stage, index - 1)])
            weights = float(tensors.as_made(self.job, op.weights))
            if unit.name == EMBEDDING:
                weights = self.of_end(unit) if op is unit.ops[0] else 0.0
            self.ledger.touch("backward", self.moving(op))
            self.ledger.add(
                "activations", 0.0 if whole else -self.of_op(unit, op)
            )
            self.ledger.add("backward", weights - redone.get(id(op), 0.0))
            made += weights
            of_experts += weights if op.expert else 0.0
            if op.name == DISPATCH and experts:
                made -= of_experts
                self.ledger.add("backward", -of_experts)
                self.finish(*experts)
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
            self.add_up(stage, index, units[index])

    def weight_backward(self, stage: Stage) -> None:
        """The second half: gradients of the weights, which are added up in the first half of the
        next microbatch.
        """
        for index, unit in enumerate(self.units[stage.number]):
            key = (stage.number, index)
            size = self.width * elements(unit.shapes)
            if key in self.unadded:  # PyTorch adds it to the one that is there
                self.ledger.touch("backward", size)
            else:
                self.unadded[key] = size
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

    def add_up(self, stage: Stage, index: int, unit: Unit) -> None:
        """Gradients that a second half left in the products' precision become fp32."""
        if size := self.unadded.pop((stage.number, index), 0.0):
            self.ledger.add("backward", -size)
            self.accumulate(stage, index)

    def accumulate(self, stage: Stage, index: int) -> None:
        """Whole gradients of a unit in fp32: there from the first microbatch on."""
        if (stage.number, index) not in self.whole:
            self.whole.add((stage.number, index))
            unit = self.units[stage.number][index]
            self.ledger.add("gradients", FP32 * elements(unit.shapes))
            self.ledger.add("vocabulary gradient", FP32 * self.foreign(unit))

    def finish(self, stage: Stage, index: int, late: bool) -> None:
        """The gradients of a unit's weights are made: add them up, or (late) reduce them."""
        key = (stage.number, index)
        unit = self.units[stage.number][index]
        made = 0.0
        if late and key not in self.whole and self.copied:
            made = self.width * elements(unit.shapes)
        else:
            self.accumulate(stage, index)
        self.ledger.add("backward", made)
        if late:
            if self.closing or (self.layout.zero == 3 and self.layout.pp == 1):
                self.release([(stage, index)])
            self.reduce(stage, index, unit, made)

    def reduce(
        self, stage: Stage, index: int, unit: Unit, made: float = 0.0
    ) -> None:
        """Copy a unit's gradients (`made`: bytes of those in the products' precision) together and
        reduce them; the copy stays until the next unit's. A new shard is added to the one that is
        there.
        """
        if not self.copied or not unit.shapes:
            return
        key = (stage.number, index)
        padded = FP32 * self.padded(unit)
        self.ledger.add("reduction", -self.reducing)
        self.ledger.add("reduction", padded)
        self.reducing = padded
        self.ledger.add("backward", -made)
        if key in self.whole:
            self.whole.discard(key)
            self.ledger.add("gradients", -FP32 * elements(unit.shapes))
            self.ledger.add("vocabulary gradient", -FP32 * self.foreign(unit))
        shard = padded / self.shards_of(unit)
        if key in self.reduced:
            self.ledger.touch("reduction", shard)
        else:
            self.reduced.add(key)
            self.ledger.add("gradients", shard)


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
