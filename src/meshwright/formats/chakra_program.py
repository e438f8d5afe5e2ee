"""What a rank of the pipeline does in a step, as nodes of a Chakra trace.

What it computes until the next collective is a node with its FLOPs, bytes of memory and seconds.
Collectives begin one after the other, as all groups of a rank see them, so that no two ranks wait
for each other; a rank computes on as soon as it has what it needs.
"""

from __future__ import annotations

from typing import NamedTuple

from ..cost.causes import Seconds
from ..cost.layer import LayerCost
from ..count.recompute import recomputed_ops
from ..count.work import Pass
from ..describe.layers import kinds, sorts
from ..describe.recompute import recompute, resolve
from ..exchange import KERNELS
from ..exchange.types import Message
from ..num import product
from ..prediction.prediction import Prediction
from ..program.order import Stage, rank_stages
from ..schedule.types import Action
from ..step.parameters import Parameters
from ..step.weights import gather_messages, reduction_messages
from ..step.zero import is_sharded
from . import chakra

SAID = {"ring": "all_gather", **dict.fromkeys(KERNELS, "all_to_all")}
"""Kinds of messages that a simulator knows by another name."""
AFTER = ("all_reduce", "reduce_scatter", "reduce")
"""Collectives of what a computation makes; others bring what it needs."""


class ChakraNode(NamedTuple):
    """One node of a rank of the pipeline; its ranks in other axes have the same."""

    name: str
    kind: int
    after: tuple[int, ...]
    seconds: float = 0.0
    said: bytes = b""
    """Its attributes, but for group and ranks."""
    axis: str = ""
    """Of a collective."""
    stage: int = -1
    """Of a message: the rank of the pipeline at its other end."""


class ChakraUnit(NamedTuple):
    """A layer, or an end of the model, on a rank."""

    name: str
    cost: LayerCost
    again: bool = False
    """It is computed again in the backward pass."""

    @property
    def weights(self) -> Parameters:
        """Its parameters on the device."""
        return Parameters(self.cost.weights, self.cost.expert_weights)


class RankProgram:
    """The nodes of one rank of the pipeline."""

    def __init__(self, prediction: Prediction, rank: int) -> None:
        self.prediction, self.rank = prediction, rank
        self.job = prediction.job
        self.layout = prediction.layout
        self.nodes: list[ChakraNode] = []
        self.units = [
            units_of_stage(prediction, stage)
            for stage in rank_stages(self.job, rank)
        ]
        self.pending: list[float] = [0.0, 0.0, 0.0]
        """Seconds, FLOPs and bytes since the last collective."""
        self.waits: list[int] = []
        """What the next computation needs."""
        self.last_work = self.last_sent = self.ahead = 0

    def compute(self, work: Pass, seconds: float, share: float = 1.0) -> None:
        """A computation, until the next collective a part of one node."""
        for i, n in enumerate(
            (seconds, work.matrix + work.vector, work.memory)
        ):
            self.pending[i] += float(n) * share

    def flush(self, name: str) -> None:
        """A node of what was computed since the last one."""
        seconds, flops, memory = self.pending
        if not (any(self.pending) or self.waits):
            return
        self.pending = [0.0, 0.0, 0.0]
        after = sorted({*self.waits, self.last_work} - {0})
        said = chakra.work_attributes(flops, memory)
        self.nodes.append(
            ChakraNode(
                name, chakra.COMP, (*after,), seconds=seconds, said=said
            )
        )
        self.last_work, self.waits = len(self.nodes), []

    def send(
        self,
        name: str,
        m: Message,
        after: int | None = None,
        waited: bool = True,
    ) -> None:
        """A collective, after the one before it and after a node of work.

        after: None: the last work; waited: what is computed next needs it.
        """
        ranks = round(float(product(self.layout.group(m.axis))))
        if ranks < 2 or not m.bytes:
            return
        if after is None:
            self.flush(name)
            after = self.last_work
        kind = SAID.get(m.kind, m.kind)
        said = chakra.collective(kind, float(m.bytes), ranks)
        waits = (*sorted({after, self.last_sent} - {0}),)
        self.nodes.append(
            ChakraNode(
                f"{name} {m.kind} {m.axis}",
                chakra.COLLECTIVE,
                waits,
                said=said,
                axis=m.axis,
            )
        )
        self.last_sent = len(self.nodes)
        if waited:
            self.waits.append(self.last_sent)

    def message(self, kind: int, peer: int, tag: int) -> None:
        """A message to or from another rank of the pipeline."""
        size = float(self.prediction.cost.message)
        said = chakra.message(size, tag)
        out = kind == chakra.SEND
        after = (self.last_work,) if out and self.last_work else ()
        name = f"{'to' if out else 'from'} stage rank {peer}"
        self.nodes.append(ChakraNode(name, kind, after, said=said, stage=peer))
        if not out:
            self.waits.append(len(self.nodes))

    def passed(self, name: str, work: Pass, seconds: float) -> None:
        """A pass of an operation, with what it sends before and after."""
        for m in work.comm:
            if m.kind not in AFTER:
                self.send(name, m)
        self.compute(work, seconds)
        for m in work.comm:
            if m.kind in AFTER:
                self.send(name, m)

    def forward(self, name: str, unit: ChakraUnit) -> None:
        """A forward pass of a unit."""
        for timed in unit.cost.operations:
            for _ in range(round(float(timed.times))):
                self.passed(
                    f"{name} {timed.op.name}",
                    timed.op.forward,
                    own_seconds(timed.forward.time),
                )
        self.compute(Pass(), float(unit.cost.causes.forward.host))
        self.flush(name)

    def recomputed(self, name: str, unit: ChakraUnit) -> None:
        """What runs again before a backward pass."""
        how = self.job.how.count
        parts = resolve(self.layout.recompute, how.selective, how.full)
        operations = unit.cost.operations
        runs = recomputed_ops([t.op for t in operations], parts)
        for timed, run in zip(operations, runs, strict=True):
            share = float(run.share)
            if share:
                work = timed.op.forward
                seconds = own_seconds(timed.forward.time) * share
                comm = tuple(
                    m._replace(bytes=m.bytes * share) for m in work.comm
                )
                part = Pass(
                    work.matrix * share,
                    work.vector * share,
                    work.memory * share,
                    comm,
                )
                self.passed(f"{name} again {timed.op.name}", part, seconds)

    def backward(self, name: str, unit: ChakraUnit, kind: str) -> None:
        """A backward pass of a unit: B whole, I without and W only the gradients of weights."""
        for timed in reversed(unit.cost.operations):
            work, half = timed.op.backward, timed.backward
            weights = float(half.weights)
            seconds = own_seconds(half.time) - (
                weights if kind == "I" else 0.0
            )
            cut = 0.5 if kind != "B" and weights else 1.0
            part = Pass(
                work.matrix * cut,
                work.vector * cut,
                work.memory * cut,
                work.comm if kind != "W" else (),
            )
            for _ in range(round(float(timed.times))):
                if kind != "W":
                    self.passed(f"{name} {timed.op.name}", part, seconds)
                elif weights:
                    self.compute(part, weights)
        if kind != "W":
            self.compute(Pass(), float(unit.cost.causes.backward.host))
        self.flush(name)

    def action(self, action: Action) -> None:
        """A pass of a microbatch through a chunk, with the weights it gathers."""
        units = self.units[action.chunk]
        on = units if action.kind == "F" else units[::-1]
        sharded = (
            is_sharded(self.layout.zero, "weights") and action.kind != "W"
        )
        coming: dict[int, list[int]] = {}
        for k, unit in enumerate(on):
            name = f"{action.kind} {action.microbatch} {unit.name}"
            start = self.last_work
            # the weights of a layer come while the one before it is computed
            for i in (k, k + 1) if sharded else ():
                if i not in coming and i < len(on):
                    coming[i] = self.gather(on[i], self.ahead)
            self.waits += coming.get(k, [])
            self.ahead = start
            if action.kind == "F":
                self.forward(name, unit)
                continue
            if unit.again and action.kind != "W":
                self.recomputed(name, unit)
            self.backward(name, unit, action.kind)
            if action.kind != "I" and is_sharded(
                self.layout.zero, "gradients"
            ):
                self.reduce(unit.name, unit.weights)

    def gather(self, unit: ChakraUnit, after: int) -> list[int]:
        """The gathers of a unit's weights, by number."""
        first = len(self.nodes)
        for m in gather_messages(self.job, self.job.layout, unit.weights):
            self.send(unit.name, m, after, waited=False)
        return [*range(first + 1, len(self.nodes) + 1)]

    def reduce(self, name: str, weights: Parameters) -> None:
        """The gradients of weights, summed over their replicas while the rank computes on."""
        layout = self.job.layout
        for m in reduction_messages(
            self.job,
            layout,
            weights,
            sharded=is_sharded(layout.zero, "optimizer"),
            summed=self.job.how.overlap.weights.summed_whole(layout.zero),
        ):
            self.send(name, m, self.last_work, waited=False)

    def end(self) -> None:
        """Gradients that are summed once a step, the optimizer, and the new weights."""
        chunks = [
            Parameters(*map(sum, zip(*(u.weights for u in us), strict=True)))
            for us in self.units
        ]
        if not is_sharded(self.layout.zero, "gradients"):
            for chunk, weights in enumerate(chunks):
                self.reduce(f"gradients of chunk {chunk}", weights)
        self.waits += [self.last_sent] if self.last_sent else []
        self.compute(Pass(), float(self.prediction.step.update))
        self.flush("optimizer")
        if self.layout.zero in (1, 2):
            for chunk, weights in enumerate(chunks):
                for m in gather_messages(self.job, self.job.layout, weights):
                    self.send(f"weights of chunk {chunk}", m)


def own_seconds(time: Seconds) -> float:
    """Seconds of a half that are the chip's own."""
    return float(time.compute + time.memory)


def units_of_stage(prediction: Prediction, stage: Stage) -> list[ChakraUnit]:
    """What a stage holds, in the order of a forward pass."""
    cost, every = prediction.cost, kinds(prediction.job.model)
    numbers = {kind: k for k, kind in enumerate(sorts(prediction.job.model))}
    how = recompute(prediction.layout.recompute)
    most = how.layers or len(every)
    runs = how.parts != "none"
    layers = [
        ChakraUnit(
            f"layer {i}", cost.layers[numbers[every[i]]], runs and k < most
        )
        for k, i in enumerate(stage.layers)
    ]
    first = [ChakraUnit("embedding", cost.embedding)] if stage.first else []
    last = [ChakraUnit("head", cost.head)] if stage.last else []
    return [*first, *layers, *last]
