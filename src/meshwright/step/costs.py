"""What a step is made of, for one layout or columns of them, each part made once and shared by all
choices that do not change it.

A table of layouts has one set of degrees and many choices beside them. How layers are dealt to
devices says what these hold, and so what they synchronise and update; sequence parallelism and
recomputation change what a microbatch costs; a schedule orders microbatches; a ZeRO stage says when
weights and gradients travel. Each part names the choices that change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..cost.layer import Clock, LayerCost
from ..cost.load import Busy
from ..count.microbatch import DeviceMicrobatch
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import microbatches, schedule_of
from ..num import BY_VALUE, Num, largest, maximum, where
from ..schedule.schedule import Schedule
from ..schedule.stage_costs import PassSeconds, StageCosts
from . import memory
from .activations import Activations, activations, flights
from .closed_form import closed_pipeline
from .holding import parameter_bytes
from .idle_bound import least_idle
from .microbatch import (
    ModelCost,
    clock_of,
    model_cost,
    model_with_recomputation,
)
from .optimizer import update
from .parameters import DeviceParameters, parameters_of
from .passes import Microbatch, device_passes
from .pipeline import (
    FillAndDrain,
    Pipeline,
    SendsAndBubble,
    fill_and_drain,
    replay_total,
    stage_sends,
)
from .shares import ModelShares, model_shares
from .sync import link_traffic, sync_wait
from .total import DeviceStep, Step, shares_links
from .weights import DeviceSync, device_syncs
from .zero import is_sharded

if TYPE_CHECKING:  # as in `pipeline`
    from ..schedule.replays import Paths

R = TypeVar("R")
CHOICES = (*BY_VALUE, Schedule)
"""Types of what is one for all rows."""
DEAL = ("deal",)
"""What changes the layers of a device."""
PASSES = (*DEAL, "layout.sequence_parallel", "layout.recompute")
"""What changes a microbatch."""
ORDER = (*PASSES, "layout.schedule", "layout.microbatch_group")
"""What changes the order of all microbatches."""
SHARDS = (*DEAL, "layout.zero", "layout.dp_replicate")
"""What changes the shards of gradients, weights and optimizer state."""


class Part(Generic[R]):
    """A part of `StepCosts` that the values at these paths change."""

    def __init__(
        self, make: Callable[[StepCosts], R], paths: Iterable[str]
    ) -> None:
        self.make = make
        self.choices = [attrgetter(path) for path in paths]

    @overload
    def __get__(self, costs: None, owner: Any) -> Part[R]: ...

    @overload
    def __get__(self, costs: StepCosts, owner: Any) -> R: ...

    def __get__(self, costs: StepCosts | None, owner: Any) -> Any:
        if costs is None:
            return self
        cache = costs.cache
        value = (
            self.make(costs) if cache is None else self.shared(costs, cache)
        )
        # a plain attribute from now on: the next to ask this step asks no key
        costs.__dict__[self.make.__name__] = value
        return value

    def shared(self, costs: StepCosts, cache: dict[Any, Any]) -> Any:
        """The part, made for the first of all choices under which it is the same."""
        choices = (choice(costs) for choice in self.choices)
        # a field that is a column is the same column whatever is chosen
        values = (x if isinstance(x, CHOICES) else "column" for x in choices)
        key = (self.make, *values)
        if key not in cache:
            cache[key] = self.make(costs)
        return cache[key]


def part(*paths: str) -> Callable[[Callable[[StepCosts], R]], Part[R]]:
    """Makes a method of `StepCosts` a part that the values at these paths change."""
    return lambda make: Part(make, paths)


@dataclass(frozen=True, eq=False)
class StepCosts:
    """The parts of one step of a layout, or of each row of a table."""

    job: Job
    layout: Layout
    cost: ModelCost
    """Of a microbatch, in each part of the model."""
    clock: Clock
    paths: Paths | None = None
    """Of one layout, whose order is replayed (`replays.replayed`); None: what it takes at least
    (`least_idle`), by which a search ranks before it replays the best."""
    bound: bool = False
    """Rows are not placed, and seconds are such that no placement undercuts them."""
    dealer: Schedule | None = None
    """Stands for all schedules that deal layers alike; None: the layout's own."""
    mask: Any = True
    """Of the rows whose bytes are asked for; True: all."""
    rank: float | None = None
    """The device whose bytes are asked for; None: all that may be the fullest."""
    cache: dict[Any, Any] | None = None
    """What was made already, for all choices of a table; None: there is one."""

    @property
    def deal(self) -> Schedule:
        """The schedule by which layers are dealt."""
        return self.dealer or schedule_of(self.layout)

    @part(*DEAL)
    def shares(self) -> ModelShares:
        """What the devices hold."""
        layout = self.layout
        every = model_shares(
            self.job.model, layout.pp, self.deal, layout.interleave
        )
        if self.rank is None:
            return every
        return every._replace(full=(every.on(self.rank),))

    @part(*DEAL)
    def owned(self) -> list[DeviceParameters]:
        """Parameters of each of the fullest devices (`shares.full`); one of them has the most to
        update."""
        return [
            parameters_of(self.job, self.layout, self.cost, share)
            for share in self.shares.full
        ]

    @part(*PASSES)
    def microbatch(self) -> Microbatch:
        """One microbatch on the devices of the pipeline."""
        mode, shares = self.layout.recompute, self.shares
        again = model_with_recomputation(
            self.cost, mode, shares.recompute_share(mode)
        )
        sends, sent = stage_sends(
            self.layout, self.cost, self.clock, shares.partition
        )
        return Microbatch(
            device_passes(again, shares.slow),
            StageCosts(
                shares.partition, tuple(map(_passes, again.parts)), sends
            ),
            sent,
        )

    @part(*ORDER)
    def pipeline(self) -> Pipeline:
        """All microbatches in the order of the schedule. Papers say what all of them wait in closed
        form.
        """
        how, layout = self.job.how, self.layout
        schedule, stages = schedule_of(layout), self.microbatch.stages
        shape = layout.pp, microbatches(self.job, layout), layout.interleave
        if not how.overlap.follows_schedule:
            return closed_pipeline(
                how.overlap,
                schedule,
                shape,
                stages,
                hop=how.network.hop,
                bound=self.bound,
            )
        m, barrier = schedule.rounds(shape[1]), how.overlap.has_barrier
        busy = largest(d.whole.work for d in self.microbatch.devices) * m
        sends_and_bubble: SendsAndBubble
        if self.paths is not None and layout.pp > 1:
            total, sends_and_bubble = replay_total(
                schedule,
                shape,
                stages,
                busy,
                paths=self.paths,
                barrier=barrier,
            )
        else:
            idle = least_idle(schedule, shape[1], stages, busy, barrier)
            total, sends_and_bubble = busy + idle, lambda: (0.0, idle)
        links = self.microbatch.sent * (m * schedule.chunks(layout.interleave))
        return Pipeline(total, sends_and_bubble, links)

    @part(*ORDER)
    def idle_ways(self) -> tuple[FillAndDrain, ...]:
        """The way of one microbatch down to each of the slow devices (`shares.slow`) and up again:
        none where papers add up.
        """
        if not self.job.how.overlap.follows_schedule:
            return ()
        order, stages = schedule_of(self.layout), self.microbatch.stages
        ranks = [share.rank for share in self.shares.slow]
        return fill_and_drain(
            order, stages, ranks, self.job.how.overlap.has_barrier
        )

    @property
    def sharded(self) -> bool:
        """Something is: ZeRO stages 1 and 2 send the same messages, as often as they say."""
        return self.layout.zero > 0

    @property
    def by_units(self) -> bool:
        """Units of weights are gathered each by itself, in no bucket."""
        return is_sharded(self.layout.zero, "weights")

    @part(*DEAL, "sharded", "by_units", "layout.dp_replicate")
    def syncs(self) -> tuple[DeviceSync, ...]:
        """Collectives of the weights that devices hold."""
        return device_syncs(
            self.job,
            self.layout,
            self.cost,
            devices=self.shares.slow,
            clock=self.clock,
        )

    @part(*SHARDS)
    def update_seconds(self) -> Num:
        """Seconds of the optimizer."""
        owned = [one.whole for one in self.owned]
        zero = self.layout.zero
        return update(
            self.job,
            self.layout.most_replicas,
            owned,
            zero=zero,
            clock=self.clock,
        )

    @property
    def rounds(self) -> Num:
        """Microbatches that a rank runs through each of its chunks."""
        return self.deal.rounds(microbatches(self.job, self.layout))

    @part(*PASSES, *SHARDS)
    def devices(self) -> tuple[DeviceStep, ...]:
        """The slow devices with their synchronisation, whatever the order."""
        zero, how, m = self.layout.zero, self.clock.overlap.dp, self.rounds
        # one table of both ends, for whose gradients all devices wait
        tied = self.syncs[0].tied_gradients.seconds
        return tuple(
            DeviceStep(
                passes.whole,
                sync,
                m * passes.whole.work,
                wait=sync_wait(passes, sync, m, zero, how)._replace(
                    tied_gradients=tied
                ),
            )
            for passes, sync in zip(
                self.microbatch.devices, self.syncs, strict=True
            )
        )

    @part(*PASSES, *SHARDS)
    def traffic(self) -> Busy:
        """Seconds of each dimension of the network, but for the pipeline."""
        sent = ((d.passes, d.sync) for d in self.devices)
        return link_traffic(sent, self.rounds, self.layout.zero)

    @part(*ORDER, *SHARDS)
    def step(self) -> Step:
        """The sum: pipeline, synchronisation and optimizer."""
        devices, ways = self.devices, self.idle_ways
        outside = devices[0].wait.outside
        if not ways:  # papers add up
            spans, works = [d.span for d in devices], [d.work for d in devices]
            outside = reduce(maximum, spans) - reduce(maximum, works)
        shared = shares_links(self.clock.overlap, self.layout.zero)
        return Step(
            self.pipeline,
            outside,
            self.update_seconds,
            devices=tuple(
                d._replace(idle_way=way)
                for d, way in zip_longest(devices, ways)
            ),
            links=self.traffic + self.pipeline.links if shared else Busy(),
        )

    @part(*PASSES)
    def activations(self) -> list[Activations]:
        """What each of the fullest devices (`shares.full`) keeps of one microbatch, in bytes."""
        microbatch = DeviceMicrobatch.from_layout(self.job, self.layout)
        return activations(microbatch, self.cost, self.shares.full)

    @part(*ORDER)
    def activation_bytes(self) -> list[Num]:
        """Bytes of activations on each of the fullest devices, of all microbatches in flight."""
        layout, order = self.layout, schedule_of(self.layout)
        m = microbatches(self.job, layout)
        ranks = [share.rank for share in self.shares.full]
        flight, heads, late = flights(layout, m, order, ranks, self.mask)
        every = zip(self.activations, flight, strict=True)
        return [each.total(n, heads, late) for each, n in every]

    @part(*SHARDS)
    def fixed_bytes(self) -> list[memory.FixedBytes]:
        """Bytes of states and buffers on each of the fullest devices, without activations."""
        every = zip(self.owned, self.shares.full, strict=True)
        per_parameter = parameter_bytes(self.job, self.layout.zero)
        return [
            memory.fixed_bytes(
                self.job,
                self.layout,
                self.cost,
                per_parameter=per_parameter,
                owned=owned,
                share=share,
            )
            for owned, share in every
        ]

    @property
    def uses(self) -> list[memory.MemoryUse]:
        """Bytes by kind on each of the fullest devices, at its fullest moment."""
        every = zip(
            self.fixed_bytes,
            self.activation_bytes,
            self.activations,
            strict=True,
        )
        return [
            reduce(memory.larger_use, fixed.uses(kept, each.last))
            for fixed, kept, each in every
        ]

    @property
    def bytes(self) -> Num:
        """Bytes of tensors on the fullest device, what `oom.fits` compares with `oom.limit`."""
        return largest(use.total for use in self.uses)

    @property
    def new_blocks(self) -> Num:
        """Bytes that the allocator holds on the fullest device beside the blocks of `bytes`: the
        optimizer's (`memory.new_block`), and those of gradients that replicas reduce, which lie in
        the memory of another stream, where no activation leaves any (torch/distributed/fsdp/
        _fully_shard/_fsdp_collectives.py, foreach_reduce; blocks are kept by stream in
        c10/cuda/CUDACachingAllocator.cpp). Before an allocation fails all free ones are given back.
        """
        every = zip(self.fixed_bytes, self.activation_bytes, strict=True)
        apart = largest(fixed.apart(kept) for fixed, kept in every)
        beyond = where(self.layout.shards > 1, apart - self.bytes, 0.0)
        own = memory.new_block(self.job, self.layout, self.owned)
        return own + maximum(beyond, 0.0)


def _passes(part: LayerCost) -> PassSeconds:
    """F, I and W of one microbatch; recomputation belongs to I."""
    w = part.weight_pass
    return PassSeconds(part.forward, part.backward - w, w)


def whole_step(
    job: Job,
    layout: Layout,
    cost: ModelCost,
    clock: Clock | None = None,
    replay: bool = False,
) -> Step:
    """One step of the job; the layout's numbers may be arrays (categorical fields may not).

    replay: the pipeline's order is carried out action by action, of a layout of plain numbers;
    False: its lower bound (`least_idle`).
    """
    paths: Paths | None = {} if replay else None
    return StepCosts(
        job, layout, cost, clock or clock_of(job), paths=paths
    ).step


def step_time(job: Job, layout: Layout) -> Num:
    """Seconds of one step."""
    clock = clock_of(job)
    return whole_step(job, layout, model_cost(job, layout, clock), clock).total
