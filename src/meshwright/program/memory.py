"""The peak memory of a rank of the trainer before it runs: a walk through its step, tensor by
tensor as PyTorch's engine keeps them.

What count says a layer saves is not all: every named term of `TERMS` is a buffer of the engine with
its formula. The walk goes through the actions of the rank in the order of the schedule, backward
passes operation by operation, and remembers the largest sum. Bytes of live tensors: what an
allocator leaves between them, and what a kernel uses inside itself, is not in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from ..describe.job import Job
from ..layout.stages import microbatches, schedule_of
from ..schedule.types import Action
from ..step.zero import is_sharded
from . import tensors
from .ledger import Ledger
from .messages import reduced_at_once
from .operations import FP32
from .order import Stage, order, rank_stages, weight_lifetimes
from .parameters import BOTH, EMBEDDING, HEAD
from .units import EXPERTS, Unit, Units

DISPATCH, COMBINE = f"{EXPERTS}/dispatch", f"{EXPERTS}/combine"
"""The first and the last of their operations."""
ROUNDS = 4
"""Of a pipeline, after which no more is held: what fills it, what drains it, and some between."""


@dataclass
class LiveUnit:
    """What is there of a unit beside its shard."""

    unit: Unit
    gathered: bool = False
    """Its weights."""
    whole: bool = False
    """Its gradients in fp32."""
    reduced: bool = False
    """Its gradients as a shard."""
    unadded: bool = False
    """Gradients in the products' precision that the second half of a backward pass left."""


class Walk:
    """One step of one rank."""

    def __init__(self, units: Units, rank: int) -> None:
        """units: of a job as it is carried out."""
        self.job, self.layout, self.ledger = units.job, units.layout, Ledger()
        self.boundary = units.boundary
        self.narrow = float(self.job.precision.activation_bytes) / FP32
        """Bytes in the precision of the products for each in fp32."""
        self.copied = bool(tensors.copies_weights(self.job, self.layout))
        self.input_is_saved = tensors.input_is_saved(
            self.job, self.layout.recompute
        )
        self.stages = rank_stages(self.job, rank)
        self.chunked = len(self.stages) > 1
        """PyTorch gathers and lets go of whole chunks; else layer by layer."""
        self.sharded = is_sharded(self.layout.zero, "weights")
        self.rank = rank
        self.live = {
            stage.number: [LiveUnit(unit) for unit in units.stage_units(stage)]
            for stage in self.stages
        }
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
            self.act(action.kind, stage)
            if self.layout.pp > 1 and number == last[action.chunk]:
                self.through(stage)
        return self.ledger

    def act(self, kind: str, stage: Stage) -> None:
        """One pass of one microbatch."""
        # the first stage has no gradient to hand on: all its work waits for W
        if kind == "F":
            self.forward(stage)
        elif kind == "B" or (kind == "W" and stage.first):
            self.backward(stage)
        elif kind == "I" and not stage.first:
            self.input_backward(stage)
        elif kind == "W":
            self.weight_backward(stage)

    def move(self, gone: set[int], fetched: set[int]) -> None:
        """Let go of the weights of these chunks, gather those of others."""
        for chunks, moved in ((gone, self.release), (fetched, self.gather)):
            for chunk in chunks:
                moved(*self.live[self.stages[chunk].number])

    def through(self, stage: Stage) -> None:
        """All microbatches are through a stage of a pipeline: PyTorch reduces its gradients, where
        they waited, and lets go of its gathered weights.
        """
        for one in self.live[stage.number]:
            self.release(one)
            if not self.at_once:
                self.add_up(one)
                self.reduce(one)
        self.let_go_of_copy()

    def start(self) -> None:
        """What lives before the first microbatch."""
        shards = sum(
            one.unit.shard for live in self.live.values() for one in live
        )
        self.ledger.add("weights", shards)
        self.ledger.add("optimizer", 2 * shards)
        if self.layout.pp > 1:
            p, v = self.layout.pp, self.layout.interleave
            schedule = schedule_of(self.layout)
            early = tensors.early(schedule, p, v, self.rank == 0)
            self.ledger.add("receive buffers", float(early) * self.boundary)
        if not (self.sharded or self.chunked):
            self.move(set(), {0})

    def gather(self, *live: LiveUnit) -> None:
        """Whole weights of these units, if they are not there."""
        for one in live:
            if self.copied and not one.gathered:
                size = self.narrow * one.unit.padded
                self.ledger.add("gathered weights", size)
                one.gathered = True

    def release(self, *live: LiveUnit) -> None:
        """They go again."""
        for one in live:
            if one.gathered:
                size = self.narrow * one.unit.padded
                self.ledger.add("gathered weights", -size)
                one.gathered = False

    def kept(self, stage: Stage) -> dict[str, float]:
        """What lives from the forward to the backward pass of one microbatch."""
        units = [one.unit for one in self.live[stage.number]]
        sizes = {"activations": sum(unit.saved for unit in units)}
        logits = float(tensors.logits(self.job, units[-1].logits))
        if self.layout.pp == 1:
            return {**sizes, "loss": logits}
        sizes["stage outputs"] = logits if stage.last else self.boundary
        local = stage.number - 1 in self.live or stage.first
        sizes["receive buffers"] = 0.0 if local else self.boundary
        if not stage.first and self.input_is_saved:
            # it lies where it was received
            sizes["activations"] -= self.boundary
        return sizes

    def forward(self, stage: Stage) -> None:
        """One microbatch forward."""
        live = self.live[stage.number]
        if self.sharded and not self.chunked:
            ends = [one for one in live if one.unit.name == BOTH]
            # the unit in use and the one that arrives
            for pair in pairwise(live[:3]):
                self.gather(*ends, *pair)
                self.release(*live)
        for term, size in self.kept(stage).items():
            self.ledger.add(term, size)
        if self.sharded:
            # the last one as it arrived, too, until another arrives
            if live[-1].gathered:
                arrived = self.narrow * live[-1].unit.padded
                self.ledger.touch("gathered weights", arrived)
            self.release(*live)

    def backward(self, stage: Stage) -> None:
        """One microbatch backward."""
        live = self.live[stage.number]
        arrived = 0.0 if stage.last else self.boundary
        self.ledger.add("receive buffers", arrived)
        layers, end = live, live[-1]
        made = 0.0
        # its gradient is made by the head and whole after the embedding
        if end.unit.name == BOTH:
            layers = live[:-1]
            self.loss_backward(end.unit)
            self.gather(end)
            of_head = [
                work for work in end.unit.works if work.name.startswith(HEAD)
            ]
            self.operations_backward([LiveUnit(Unit(HEAD, of_head))])
            made = self.of_end(end.unit)
            self.ledger.add("backward", made)
        for number in range(len(layers), 0, -1):
            if layers[number - 1].unit.name != EXPERTS:
                self.unit_backward(layers[:number])
        self.ledger.add("backward", -made)
        if layers is not live:
            self.finish(end)
        kept = self.kept(stage)
        # its operations have let go of what they kept
        kept["activations"] -= sum(one.unit.saved for one in live)
        for term in ("activations", "stage outputs", "receive buffers"):
            self.ledger.add(term, -kept.get(term, 0.0))
        self.ledger.add("receive buffers", -arrived)
        self.let_go_of_copy()

    def of_end(self, unit: Unit) -> float:
        """Bytes of the gradients of embedding or head before they are added up."""
        size = (unit.whole + unit.foreign) / FP32
        return float(tensors.as_made(self.job, size))

    def loss_backward(self, unit: Unit) -> None:
        """The gradient of the logits is made; they are let go where nothing else holds them."""
        self.ledger.touch(
            "loss", float(tensors.in_loss(self.job, unit.logits))
        )
        if self.layout.pp == 1:
            logits = float(tensors.logits(self.job, unit.logits))
            self.ledger.add("loss", -logits)

    def unit_backward(self, live: list[LiveUnit]) -> None:
        """The last of these units, a layer, the embedding or the head, backward, with its experts,
        if it has any: their gradients are added up as soon as their tokens' gradients have gone
        back.
        """
        one = live[-1]
        if one.unit.name == HEAD:
            self.loss_backward(one.unit)
        # FSDP asks for weights when the gradient of what they made is there
        self.gather(*live[-2:])
        self.operations_backward(live)
        self.finish(one)

    def operations_backward(self, live: list[LiveUnit]) -> None:
        """The operations of the last of these units from the last to the first; then the gradients
        of its weights are made, but not yet added up.
        """
        unit = live[-1].unit
        again = {id(work): work.saved for work in unit.works[: unit.again]}
        self.ledger.add("activations", -unit.results)
        self.ledger.add("backward", sum(again.values()) + unit.unused)
        made = of_experts = 0.0
        for work in reversed(unit.works):
            if work.name == COMBINE:
                self.gather(*live[-3:-1])
            weights = work.gradients
            if unit.name == EMBEDDING:
                weights = self.of_end(unit) if work is unit.works[0] else 0.0
            self.ledger.touch("backward", work.moving)
            self.ledger.add("activations", 0.0 if again else -work.saved)
            self.ledger.add("backward", weights - again.get(id(work), 0.0))
            made += weights
            of_experts += weights if work.expert else 0.0
            if work.name == DISPATCH:
                made -= of_experts
                self.ledger.add("backward", -of_experts)
                self.finish(live[-2])
        self.ledger.add("activations", -self.boundary if again else 0.0)
        self.ledger.add("backward", -made - unit.unused)

    def input_backward(self, stage: Stage) -> None:
        """The first half of a zero-bubble backward pass: nothing is let go before the second, and
        every result's gradient stays for it.
        """
        live = self.live[stage.number]
        self.ledger.add(
            "receive buffers", 0.0 if stage.last else self.boundary
        )
        if stage.last:
            self.loss_backward(live[-1].unit)
        for one in reversed(live):
            moving = [work.moving for work in one.unit.works]
            self.ledger.touch("backward", max(moving, default=0.0))
            self.ledger.add("output gradients", one.unit.made)
            self.add_up(one)

    def weight_backward(self, stage: Stage) -> None:
        """The second half: gradients of the weights, which are added up in the first half of the
        next microbatch.
        """
        live = self.live[stage.number]
        for one in live:
            size = self.narrow * one.unit.whole
            # PyTorch adds it to the one that is there
            if one.unadded:
                self.ledger.touch("backward", size)
            else:
                self.ledger.add("backward", size)
            one.unadded = True
        for term, size in self.kept(stage).items():
            self.ledger.add(term, -size)
        self.ledger.add(
            "receive buffers", 0.0 if stage.last else -self.boundary
        )
        made = sum(one.unit.made for one in live)
        self.ledger.add("output gradients", -made)

    def add_up(self, one: LiveUnit) -> None:
        """Gradients that a second half left in the products' precision become fp32."""
        if one.unadded:
            one.unadded = False
            self.ledger.add("backward", -self.narrow * one.unit.whole)
            self.accumulate(one)

    def accumulate(self, one: LiveUnit) -> None:
        """Whole gradients of a unit in fp32: there from the first microbatch on."""
        if not one.whole:
            one.whole = True
            self.ledger.add("gradients", one.unit.whole)
            self.ledger.add("vocabulary gradient", one.unit.foreign)

    def finish(self, one: LiveUnit) -> None:
        """The gradients of a unit's weights are made: add them up, or (late) reduce them."""
        made = 0.0
        if self.late and not one.whole and self.copied:
            made = self.narrow * one.unit.whole
        else:
            self.accumulate(one)
        self.ledger.add("backward", made)
        if self.late:
            if self.closing or (self.sharded and self.layout.pp == 1):
                self.release(one)
            self.reduce(one, made)

    def reduce(self, one: LiveUnit, made: float = 0.0) -> None:
        """Copy a unit's gradients (`made`: bytes of those in the products' precision) together and
        reduce them; the copy stays until the next unit's. A new shard is added to the one that is
        there.
        """
        if not self.copied:
            return
        unit = one.unit
        self.ledger.add("reduction", unit.padded - self.reducing)
        self.reducing = unit.padded
        self.ledger.add("backward", -made)
        if one.whole:
            self.ledger.add("gradients", -unit.whole)
            self.ledger.add("vocabulary gradient", -unit.foreign)
        # a name in PyTorch's loop over the gradients (`foreach_reduce`) holds the last one
        loop = unit.last * (self.narrow if made else 1.0)
        self.ledger.add("reduction", loop)
        if one.reduced:
            self.ledger.touch("reduction", unit.shard)
        else:
            self.ledger.add("gradients", unit.shard)
        self.ledger.add("reduction", -loop)
        one.whole, one.reduced = False, True

    def let_go_of_copy(self) -> None:
        """The copy of the last unit's gradients goes."""
        self.ledger.add("reduction", -self.reducing)
        self.reducing = 0.0


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
    """The ledger of one step of a rank of the pp axis. job: `operations.carried_out`; units: its,
    for several ranks."""
    actions = order(shorten(job), rank)
    # between the first microbatch and the last, one is like another
    if job.layout.pp == 1 and len(actions) > 6:
        actions = [*actions[:4], *actions[-2:]]
    return Walk(units or Units(job, shards), rank).run(actions)
