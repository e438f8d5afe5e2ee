"""Seconds of one layer under a scheme: compute, data-parallel and tensor-parallel collectives,
forward and backward.

    scheme   forward                             backward
    DP       -                                   all-reduce of weight gradients
    FSDP     all-gather of weights               all-gather of weights, reduce-scatter of gradients
    TP       all-gather in, reduce-scatter out   all-gather dout, reduce-scatter din

Mixed schemes have both rows at once. Operations are timed by `cost.layer`, weights and gradients by
`step.sync`: one step of one layer. DP and FSDP traffic is off the critical path, TP traffic is on
it: its hiding is a bound. Source: How To Scale Your Model, part 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from ..cost.causes import PassCost, Seconds, sent_load
from ..cost.layer import LayerCost, Timer
from ..cost.load import Load
from ..cost.overlap import behind
from ..count.microbatch import DeviceMicrobatch
from ..count.work import Op
from ..describe.assumptions import BOOK_MAX, BOOK_SUM
from ..describe.model import Model
from ..num import Num, crossing, maximum, product, where
from ..step import ModelCost, whole_step
from ..step.parameters import Parameters
from ..step.weights import WeightSync, weight_sync
from .memory import FSDP
from .mesh import Mesh, Ranks
from .work import LayerSetting, On

EDITIONS = {"sum": BOOK_SUM.overlap.dp, "max": BOOK_MAX.overlap.dp}
"""edition of the book -> how collectives of different mesh axes share the network."""


class Times(NamedTuple):
    """One pass of one layer."""

    compute: Num
    """Seconds of its operations."""
    data: Load
    """Data-parallel collectives."""
    tensor: Load
    """Those of the activations."""

    def comm(self, edition: str) -> Num:
        """Seconds of all communication: `sum`, one mesh axis after the other; `max`, beside each
        other.
        """
        own = self.tensor.seconds
        return (
            own + behind(own, self.tensor, self.data, EDITIONS[edition]).total
        )

    def gap(self, edition: str) -> Num:
        """T_math - T_comms, which grows with the batch."""
        return self.compute - self.comm(edition)

    def ratio(self, edition: str) -> Num:
        """T_math/T_comms; infinite without communication."""
        comm = self.comm(edition)
        return where(
            # NumPy works both branches out: no division by 0 in the one that is not taken
            comm > 0,
            self.compute / maximum(comm, 1e-300),
            float("inf"),
        )


def bound_from(at: Callable[[float], Times], edition: str) -> float | None:
    """Tokens from which a pass is compute-bound; None if it never is."""

    return crossing(lambda tokens: float(at(tokens).gap(edition)))


class RooflinePasses(NamedTuple):
    """The two passes, and the step that they make."""

    forward: Times
    backward: Times
    step_s: Num
    """Seconds of both as the assumption set overlaps them."""


CUT = ("tp", "ep", "cp", "pp")
"""Axes that cut a model."""


def timed_stack(layers: int) -> Model:
    """What a step is told of a model whose layers, all alike, are timed already."""
    return Model(
        "layers that are timed", layers, 1, heads=1, ffn=1, vocab=0, seq=1
    )


@dataclass(frozen=True)
class LayerStep:
    """One step of one layer; what is not asked for is not timed."""

    setting: LayerSetting
    mesh: Mesh
    layout: On
    zero: int = FSDP
    shards: Num = 1
    """Chips that a layer's weights are cut over besides."""
    copies: Num = 1.0
    """Share of the experts' messages that is sent."""
    layers: int = 1

    @cached_property
    def ops(self) -> Sequence[Op]:
        """What the layer does on one chip."""
        ops = self.setting.ops(self.layout)
        return (
            ops
            if self.copies == 1.0
            else [_sent(op, self.copies) for op in ops]
        )

    @cached_property
    def timer(self) -> Timer:
        return Timer(self.mesh.clock, self.layout)

    @cached_property
    def weights(self) -> Num:
        """Parameters that a chip gathers and whose gradients it sums."""
        return sum(op.weights for op in self.ops) / self.shards

    @cached_property
    def syncs(self) -> WeightSync:
        """One gather of the weights, and one reduction of the gradients."""
        return weight_sync(
            self.setting.job,
            self.layout,
            Parameters(self.weights, 0.0),
            zero=self.zero,
            clock=self.mesh.clock,
        )

    @property
    def forward(self) -> Times:
        """The forward pass."""
        costs = [self.timer.pass_cost(op, op.forward) for op in self.ops]
        gather, _ = self.syncs
        return passed(costs, gather)

    @property
    def backward(self) -> Times:
        """The backward pass."""
        costs = [self.timer.pass_cost(op, op.backward) for op in self.ops]
        gather, reduction = self.syncs
        return passed(costs, gather + reduction)

    @property
    def step_s(self) -> Num:
        """Seconds of a model of such layers, as the assumption set overlaps them."""
        job = self.setting.job
        layer = self.timer.layer(self.ops)._replace(
            weights=self.weights, expert_weights=0.0
        )
        message = DeviceMicrobatch.from_layout(job, self.layout).stage_message
        nothing = LayerCost()
        return whole_step(
            replace(job, model=timed_stack(self.layers)),
            replace(self.layout, zero=self.zero),
            ModelCost(
                (layer,), nothing, nothing, boundary=0.0, message=message
            ),
            self.mesh.clock,
        ).total


def passed(costs: Sequence[PassCost], data: Load) -> Times:
    """A pass of some operations, with its data-parallel collectives."""
    return Times(
        sum(chip_seconds(cost.time) for cost in costs),
        data,
        sent_load(costs),
    )


def layer_step(
    setting: LayerSetting,
    mesh: Mesh,
    tokens: Num,
    groups: Mapping[str, Ranks],
    microbatches: int = 1,
    **how: Any,
) -> LayerStep:
    """One step of `tokens` tokens a chip and microbatch (of a tensor-parallel group: together).

    groups: those of "replicas", "tp", "ep", "cp" and "pp" that have several chips;  how: other
    fields of `LayerStep`.
    """
    lying = {
        **dict.fromkeys(("replicas", *CUT), mesh.alone),
        **groups,
    }
    degrees = {axis: product(lying[axis]) for axis in CUT}
    lying |= {"etp": lying["tp"], "edp": lying["replicas"]}
    layout = setting.on(
        tokens, **degrees, microbatches=microbatches, groups=lying
    )
    return LayerStep(setting, mesh, layout, **how)


@dataclass(frozen=True)
class Asked:
    """A batch on a mesh, and what of a layer counts."""

    setting: LayerSetting
    mesh: Mesh
    batch: float
    """Tokens of all pods."""

    @property
    def sequences(self) -> float:
        """That the batch makes."""
        return self.batch / (self.setting.seq or self.setting.model.seq)

    def spread(
        self, chips: int, groups: Mapping[str, Ranks], **how: Any
    ) -> Callable[[Num], LayerStep]:
        """The step of so many tokens of all pods, dealt to so many chips.  groups, how: of
        `layer_step`.
        """
        return lambda batch: layer_step(
            self.setting, self.mesh, batch / chips, groups, **how
        )


def chip_seconds(seconds: Seconds) -> Num:
    """The chip's own: arithmetic and memory."""
    return seconds.compute + seconds.memory


def _sent(op: Op, share: Num) -> Op:
    """The operation with a share of its messages' bytes."""
    ahead, back = (
        work._replace(
            comm=tuple(m._replace(bytes=m.bytes * share) for m in work.comm)
        )
        for work in (op.forward, op.backward)
    )
    return op._replace(forward=ahead, backward=back)
