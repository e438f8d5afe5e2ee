"""Operations timed once more, on numbers that remember how they were computed (`recorded`): the
same laws, with the rates of chip and links by their names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..cost.layer import UNTOLD, Clock, Seconds, Timer
from ..cost.network import Fabric
from ..cost.offload import beside
from ..count.work import Op
from ..describe.frozen import changed
from ..describe.offload import offload
from ..program import resident
from ..step import (
    ENDS_CALLED,
    Body,
    Pipeline,
    Step,
    body,
    hop,
    joined,
    labels,
    pipelined,
    redo,
    synchronised,
    units,
    updated,
    work,
)
from ..step.memory import Use
from ..step.sync import Exposed
from .expression import Expression, times, written
from .items import explained, piped
from .recorded import Recorded, Traced, recorded, taken

if TYPE_CHECKING:
    from .prediction import Prediction

WORK = {
    "matrix": "FLOPs",
    "vector": "vector_FLOPs",
    "memory": "bytes",
    "out": "out",
    "inner": "inner",
}
"""Field of a `Pass` or a `Product` -> its name in an expression."""
SENDS = "sends"
"""What an item calls a message between two stages."""
CHIP = {
    "matrix": "rate",
    "wide": "rate_16bit",
    "peak16": "peak_16bit",
    "vector": "vector_rate",
    "memory": "bandwidth",
    "launch_s": "launch",
    "depth": "k0",
    "waves": "gamma",
    "units": "units",
}
"""The same of the rates of a chip."""


class Retimed:
    """What a prediction computed, by the functions that computed it, for expressions: as far as
    somebody reads them."""

    def __init__(self, p: Prediction) -> None:
        self.p = p

    @cached_property
    def timer(self) -> Timer:
        """Of the layout, on recorded rates."""
        return Timer(self.clock, self.p.layout)

    @cached_property
    def items(self) -> Body:
        """The parts of the model, whose costs are items."""
        return explained(
            self.p._body, labels(self.p.job.model), Recorded.called
        )

    @cached_property
    def clock(self) -> Clock:
        """Rates of chip and links by their names."""
        return recorded_clock(self.p._clock)

    @cached_property
    def body(self) -> Body:
        """The parts of the model by the laws of their operations."""
        return body(self.p.job, self.p.layout, self.clock, details=True)

    @cached_property
    def send(self) -> Traced:
        """Seconds of a message between two stages, an item."""
        seconds = hop(self.p.layout, self.p._body, self.clock).seconds
        return Recorded.called(SENDS, seconds)

    @cached_property
    def pipe(self) -> Pipeline:
        """The pipeline; what is replayed is no formula: of that nothing but a send."""
        if self.p.replayed_s is None:
            return piped(self.p, self.items, self.send)
        return Pipeline(0.0, 0.0, lambda: (self.send, self.send))

    @cached_property
    def step(self) -> Step:
        """The step, in the pipeline that there is."""
        p, job, layout = self.p, self.p.job, self.p.layout
        plain = work(job, layout, p._body, p._shares, p._clock)
        pipe = pipelined(job, layout, plain)._replace(seconds=p._step.pipeline)
        mine = work(job, layout, self.body, p._shares, self.clock)
        stages = (layout.zero,)
        each = units(job, layout, self.body, mine.by, stages, self.clock)
        return joined(
            job,
            layout,
            mine,
            pipe,
            synchronised(job, layout, mine, each),
            p._step.update,
            self.clock,
        )

    @property
    def waits(self) -> Exposed:
        """What the device that ends last waits for."""
        return self.step.waiting[self.p._step.awaited]

    def meanwhile(self) -> Traced:
        """What of the collectives of weights and gradients is waited for elsewhere."""
        shown: Traced = self.step.sync - self.step.slowdown
        return shown - (self.waits.total - self.waits.slowdown)

    @cached_property
    def passes(self) -> dict[tuple[str, str], tuple[float, Seconds]]:
        """(part of the model, direction) -> how often in a step, and its seconds, on the slowest
        device."""
        p = self.p
        slowest = p._step.slowest
        m = p._schedule.rounds(p.microbatches)
        text = p.layout.recompute
        again = slowest.again(text)
        kinds = labels(p.job.model)
        found: dict[tuple[str, str], tuple[float, Seconds]] = {}
        for label, cost, often in zip(
            (*kinds, *ENDS_CALLED), self.body.parts, slowest.parts, strict=True
        ):
            n = float(often * m)
            found[label, "forward"] = n, cost.causes.forward
            found[label, "backward"] = n, cost.causes.backward
            once_more = redo(cost, text) if label in kinds else None
            if once_more:
                often = float(n * again)
                found[label, "recomputed"] = often, once_more.causes
        return found

    def host(self, label: str, direction: str) -> Expression:
        """By which launching a pass outlasts its kernels."""
        n, seconds = self.passes[label, direction]
        return times(n, seconds.host)

    def hidden(self, cause: str) -> Expression:
        """What of a cause hides behind compute."""
        return self.summed(
            lambda seconds: -1.0 * taken(getattr(seconds, cause))
        )

    def slowdown(self) -> Expression:
        """By which compute is slower beside what hides inside layers."""
        return self.summed(lambda seconds: seconds.overlap_slowdown)

    def summed(self, what: Callable[[Seconds], Traced]) -> Expression:
        """A sum over all passes."""
        found: Any = 0.0
        for n, seconds in self.passes.values():
            found = found + n * what(seconds)
        return written(found)

    def copies(self) -> Expression:
        """Of activations to host memory and back, what outlasts the passes beside it."""
        p = self.p
        chip = p.job.cluster.chip
        share = offload(p.layout.offload).share(p.job.model.layers)
        layout = replace(p.layout, offload="none")
        here = body(p.job, layout, self.clock, details=True)
        found: Any = 0.0
        for label, cost in zip(labels(p.job.model), here.layers, strict=True):
            longer = beside(cost._replace(causes=UNTOLD), share, chip).causes
            again = redo(cost._replace(causes=longer), p.layout.recompute)
            for direction, seconds in (
                ("forward", longer.forward),
                ("backward", longer.backward),
                ("recomputed", again.causes if again else Seconds()),
            ):
                if seconds.memory:
                    n, _ = self.passes[label, direction]
                    found = found + n * seconds.memory
        return written(found)

    @cached_property
    def memory(self) -> Use:
        """Bytes by kind on the fullest device."""
        p = self.p
        return resident.use(p.job, p.layout, self.items, p._schedule)

    @cached_property
    def updated(self) -> Traced:
        """Seconds of the optimizer."""
        p = self.p
        return updated(p.job, p.layout, self.items, p._shares, self.clock)

    def seconds(self, op: Op, back: bool) -> Seconds:
        """One pass by cause."""
        if not back:
            work = recorded(op.forward, "", WORK)
            return self.timer.half(op, work).time
        work = recorded(op.backward, "", WORK)
        return self.timer.back(op._replace(backward=work)).time

    def expression(
        self, op: Op, back: bool, cause: str, n: float
    ) -> Expression:
        """The seconds of a cause in one pass, n times a step."""
        return times(n, getattr(self.seconds(op, back), cause))


def recorded_clock(at: Clock) -> Clock:
    """The same rates, by their names."""
    plain = at.rates
    rates = recorded(plain._replace(kernels={}), "", CHIP)
    return Clock(
        rates._replace(kernels=plain.kernels),
        recorded_links(at.fabric),
        at.overlap,
    )


def recorded_links(fabric: Fabric) -> Fabric:
    """A network with its rates by the names of its dimensions."""
    names = [re.sub(r"\W+", "_", d.name) for d in fabric.dims]

    def each(what: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            recorded(x, "", {"": f"{what}_{name}"})
            if isinstance(x, float)
            else recorded(x, "", {f: f"{f}_{name}" for f in LINK})
            for x, name in zip(values, names, strict=True)
        )

    return changed(
        fabric,
        rates=each("rate", fabric.rates),
        latencies=each("latency", fabric.latencies),
        dims=each("", fabric.dims),
        transports=each("", fabric.transports),
    )


LINK = (
    "bandwidth",
    "efficiency",
    "latency",
    "launch",
    "hop",
    "hop_ll",
    "climb",
    "climb_ll",
)
"""Numbers of dimensions and transports that are told apart by the dimension."""
