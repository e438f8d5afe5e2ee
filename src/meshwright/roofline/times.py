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
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ..cost.layer import Half, Seconds, Timer, sent
from ..cost.load import NOTHING, Load
from ..cost.overlap import behind
from ..count.work import Op
from ..describe.assumptions import BOOK_MAX, BOOK_SUM
from ..num import Num, crossing, maximum, product, where
from ..step.sync import Device, exposed
from ..step.weights import DeviceSync, Parameters, WeightSync, weight_sync
from .memory import FSDP
from .mesh import Mesh, Ranks
from .work import On, Setting

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

    def ratio(self, edition: str) -> Num:
        """T_math/T_comms; infinite without communication."""
        comm = self.comm(edition)
        return where(
            comm > 0, self.compute / maximum(comm, 1e-300), float("inf")
        )


def bound_from(at: Callable[[float], Times], edition: str) -> float | None:
    """Tokens from which a pass is compute-bound; None if it never is."""

    def gap(tokens: float) -> float:
        t = at(tokens)
        return float(t.compute - t.comm(edition))

    return crossing(gap)


class Passes(NamedTuple):
    """Both passes, and the step that they make."""

    forward: Times
    backward: Times
    step_s: Num
    """Seconds of both as the assumption set overlaps them."""


@dataclass(frozen=True)
class Step:
    """One step of one layer; what is not asked for is not timed."""

    setting: Setting
    mesh: Mesh
    layout: On
    zero: int = FSDP
    shards: Num = 1
    """Chips that a layer's weights are cut over besides."""
    copies: Num = 1.0
    """Share of the experts' messages that is sent."""

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
    def ahead(self) -> list[Half]:
        """The forward pass of each operation."""
        return [self.timer.half(op, op.forward) for op in self.ops]

    @cached_property
    def back(self) -> list[Half]:
        """The backward pass of each operation."""
        return [self.timer.half(op, op.backward) for op in self.ops]

    @cached_property
    def weights(self) -> WeightSync:
        """Collectives of weights and gradients."""
        held = sum(op.weights for op in self.ops) / self.shards
        return weight_sync(
            self.setting.job,
            self.layout,
            Parameters(held, 0.0),
            (self.zero,),
            self.mesh.clock,
        )

    @property
    def forward(self) -> Times:
        """The forward pass."""
        fsdp = self.zero == FSDP
        return passed(self.ahead, self.weights.gather if fsdp else NOTHING)

    @property
    def backward(self) -> Times:
        """The backward pass."""
        fsdp = self.zero == FSDP
        each = self.weights
        return passed(
            self.back, each.gather + each.scatter if fsdp else each.all_reduce
        )

    @property
    def step_s(self) -> Num:
        """Seconds of both as the assumption set overlaps them."""
        ahead, back = self.timer.together(self.ahead, self.back)
        f = ahead.total
        b = back.total
        one = (f, b, sent(self.ahead), sent(self.back))
        each = self.weights
        return (
            f
            + b
            + exposed(
                Device(*one, one, DeviceSync(each, each * 0.0, each)),
                1.0,
                self.zero,
                self.mesh.clock.overlap.dp,
            ).total
        )


def passed(halves: list[Half], data: Load) -> Times:
    """A pass of some operations, with its data-parallel collectives."""
    return Times(sum(busy(half.time) for half in halves), data, sent(halves))


def step(
    setting: Setting,
    mesh: Mesh,
    tokens: Num,
    groups: Mapping[str, Ranks],
    microbatches: int = 1,
    **how: Any,
) -> Step:
    """One step of `tokens` tokens a chip and microbatch (of a tensor-parallel group: together).

    groups: those of "replicas", "tp", "ep" and "cp" that have several chips;  how: other fields of
    `Step`.
    """
    at = {
        **dict.fromkeys(("replicas", "tp", "ep", "cp"), mesh.alone),
        **groups,
    }
    degrees = {axis: product(at[axis]) for axis in ("tp", "ep", "cp")}
    at |= {"etp": at["tp"], "edp": at["replicas"]}
    layout = setting.on(
        tokens, **degrees, microbatches=microbatches, groups=at
    )
    return Step(setting, mesh, layout, **how)


def busy(seconds: Seconds) -> Num:
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
