"""A result computed once more, by the functions that computed it, on numbers that remember how they
were made (`recorded`): what the leaves of its trees are read from, as far as somebody reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any

from ..cost.causes import Seconds
from ..cost.layer import Clock, LayerCost, Timer
from ..cost.network import Fabric
from ..cost.offload import COPIES
from ..count.work import Op
from ..describe.frozen import with_values
from ..program import resident
from ..step import ModelCost, StepCosts
from ..step.memory import MemoryUse
from ..step.microbatch import labels, time_model
from .expression import times
from .formulas import Formula, formulas
from .recorded import Recorded, Traced, contributions, record, taken
from .result import Passes, StepResult

WORK = {
    "matrix": "FLOPs",
    "vector": "vector_FLOPs",
    "memory": "bytes",
    "out": "out",
    "inner": "inner",
}
"""Field of a `Pass` or a `Product` -> its name in an expression."""
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
LINK = (
    "bandwidth",
    "efficiency",
    "latency",
    "launch",
    "hop",
    "hop_ll",
    "hop_ll128",
    "climb",
    "climb_ll",
)
"""Numbers of dimensions and transports that are told apart by the dimension."""
COSTS = {
    "forward": "forward",
    "backward": "backward",
    "weight_pass": "weight gradients",
    "saved": "activations",
    "weights": "parameters",
    "expert_weights": "parameters of experts",
}
"""Field of a `LayerCost` -> what a term calls it."""
RECOMPUTED = {"time": "recomputed", "saved": "activations kept"}
"""Field of a `RecomputeCost` -> what a term calls it."""


class Explanation:
    """The recorded side of a result."""

    def __init__(self, result: StepResult) -> None:
        self.result = result

    @cached_property
    def clock(self) -> Clock:
        """Rates of chip and links by their names."""
        return recorded_clock(self.result.clock)

    @cached_property
    def costs(self) -> StepCosts:
        """The step, of parts of the model whose costs are its items."""
        r = self.result
        parts = named_costs(r.cost, labels(r.job.model))
        return StepCosts(
            r.job, r.layout, parts, clock=self.clock, paths=r.costs.paths
        )

    @cached_property
    def formulas(self) -> dict[str, Formula]:
        """Of each cause, its formula with the numbers put in, and its source."""
        return formulas(self.result)

    def formula(self, cause: str, part: int) -> str:
        """The formula of a cause (part 0), or its source (1)."""
        return self.formulas[cause][part]

    @cached_property
    def memory(self) -> MemoryUse:
        """Bytes by kind on the fullest device, of the same items."""
        r = self.result
        if r.peaks:
            terms = resident.fullest(r.peaks).items()
            return resident.by_kind(
                {name: Recorded.called(name, size) for name, size in terms}
            )
        (use,) = replace(self.costs, rank=float(r.fullest)).uses
        return use

    def waited(self, field: str) -> Traced:
        """What the device that ends last waits for: a field of `SyncWait`."""
        wait = self.costs.step.devices[self.result.step.critical_device].wait
        return getattr(wait, field)

    def meanwhile(self) -> Traced:
        """What of the collectives of weights and gradients is waited for elsewhere."""
        step = self.costs.step
        shown: Traced = step.sync - step.slowdown
        return shown - (self.waited("total") - self.waited("slowdown"))

    def operation(self, op: Op, back: bool, cause: str, n: float) -> Traced:
        """The seconds of a cause in one pass of an operation, n times a step."""
        work = record(op.backward if back else op.forward, "", WORK)
        timer = Timer(self.clock, self.result.layout)
        cost = timer.pass_cost(
            op._replace(backward=work) if back else op, work
        )
        return times(n, getattr(cost.time, cause))

    @cached_property
    def passes(self) -> Passes:
        """Of the slowest device, by the laws of their operations."""
        r = self.result
        return r.passes_of(time_model(r.counts, self.clock))

    def host(self, key: tuple[str, str]) -> Traced:
        """By which launching a pass outlasts its kernels."""
        n, seconds = self.passes[key]
        return times(n, seconds.host)

    def hidden(self, cause: str) -> Traced:
        """What of a cause hides behind compute."""
        return total(self.passes, lambda s: -1.0 * taken(getattr(s, cause)))

    def slowdown(self) -> Traced:
        """By which compute is slower beside what hides inside layers."""
        return total(self.passes, attrgetter("overlap_slowdown"))

    def copies(self) -> Traced:
        """Of activations to host memory and back, what outlasts the passes beside it."""

        def outlasting(seconds: Seconds) -> Traced:
            shares, _ = contributions(seconds.memory)
            often, each = shares.get(COPIES, (0.0, 0.0))
            return often * each

        return total(self.passes, outlasting)


def total(passes: Passes, part: Callable[[Seconds], Traced]) -> Traced:
    """A part of the seconds of all passes of a step."""
    return sum((n * part(seconds) for n, seconds in passes.values()), 0.0)


def named_costs(parts: ModelCost, labels: list[str]) -> ModelCost:
    """The costs of parts as items: what a formula makes of them says how often each is in it;
    labels: of the layers of each kind.
    """

    def named(record: Any, label: str, names: Mapping[str, str]) -> Any:
        numbers = {field: getattr(record, field) for field in names}
        return record._replace(
            **{
                field: Recorded.called(f"{label} {names[field]}", x)
                for field, x in numbers.items()
                if x
            }
        )

    def layer(cost: LayerCost, label: str) -> LayerCost:
        again = {
            k: named(x, label, RECOMPUTED) for k, x in cost.recompute.items()
        }
        record: LayerCost = named(cost, label, COSTS)
        return record._replace(recompute=again)

    return parts._replace(
        layers=tuple(map(layer, parts.layers, labels)),
        embedding=layer(parts.embedding, "embedding"),
        head=layer(parts.head, "head"),
        boundary=Recorded.called("inputs of layers", parts.boundary),
    )


@lru_cache(maxsize=32)
def recorded_clock(clock: Clock) -> Clock:
    """A clock whose rates are recorded terms with the names of the chip's fields."""
    plain = clock.rates
    rates = record(plain._replace(kernels={}), "", CHIP)
    return Clock(
        rates._replace(kernels=plain.kernels),
        recorded_links(clock.fabric),
        clock.overlap,
    )


def recorded_links(fabric: Fabric) -> Fabric:
    """A network with its rates by the names of its dimensions."""
    names = [re.sub(r"\W+", "_", d.name) for d in fabric.dims]

    def each(what: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            record(x, what, {f: f"{f}_{name}" for f in (what, *LINK)})
            for x, name in zip(values, names, strict=True)
        )

    return with_values(
        fabric,
        rates=each("rate", fabric.rates),
        latencies=each("latency", fabric.latencies),
        dims=each("", fabric.dims),
        transports=each("", fabric.transports),
    )
