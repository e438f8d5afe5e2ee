"""The time of a step: microbatches in the order of the schedule, what each device has to
synchronise, and the optimizer.

    total = max(the order of the slowest device and what comes before and after it,
                each device by itself, each dimension of the network by itself)

For one layout or columns of them; `costs.StepCosts` makes the parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

from ..cost.load import Busy
from ..describe.assumptions import Overlap
from ..num import Num, maximum, minimum
from .passes import Passes
from .pipeline import FillAndDrain, Pipeline
from .sync import SyncWait
from .weights import DeviceSync


class DeviceStep(NamedTuple):
    """A device in a step."""

    passes: Passes
    """Of a microbatch."""
    sync: DeviceSync
    work: Num
    """Seconds of its microbatches."""
    wait: SyncWait
    """For its collectives."""
    idle_way: FillAndDrain | None = None
    """While it has nothing to do yet, or nothing any more; None where papers add up."""

    @property
    def span(self) -> Num:
        """Seconds from the first weights that it gathers to its last gradient."""
        return self.work + self.wait.total


@dataclass(frozen=True, eq=False)
class Step:
    """Seconds of one step. Its end is the latest of: the pipeline with what comes before and after
    it; each device with its own synchronisation, however the others fare; each link with all that
    it carries.
    """

    pipeline: Pipeline
    outside: Num
    """Before and after the pipeline: the first weights and the last gradients of the first device;
    where papers add up, what the device with most work and synchronisation takes beyond the one
    with most work."""
    update: Num
    devices: tuple[DeviceStep, ...] = ()
    """Those that may be the slowest (`ModelShares.slow`)."""
    links: Busy = Busy()
    """Seconds each dimension of the network is busy, where hidden sends share it with all the
    rest.
    """

    @cached_property
    def device_ends(self) -> tuple[Num, ...]:
        """When each device is done, with the optimizer, however the others fare; none where papers
        add up.
        """
        return tuple(
            d.span + self.update + d.wait.fill_and_drain_with_wait(d.idle_way)
            for d in self.devices
            if d.idle_way
        )

    @property
    def total(self) -> Num:
        """The longest of the order of the pipeline, of each device by itself, and of each link."""
        return maximum(self._without_full_links, self.links.most)

    @cached_property
    def sync(self) -> Num:
        """Seconds of weight and gradient collectives that show."""
        rest = self.pipeline.total + self.update
        return reduce(
            maximum, (done - rest for done in self.device_ends), self.outside
        )

    @cached_property
    def slowdown(self) -> Num:
        """The part of `sync` that is compute made slower by collectives that hide, on the device
        that sets the end of the step; of numbers only.
        """
        wait = self.devices[self.critical_device].wait
        # a part of `sync`: never more than what of it is left beside the collectives outside
        return minimum(wait.slowdown, maximum(self.sync - wait.outside, 0.0))

    @property
    def link_wait(self) -> Num:
        """Seconds for which sends wait because links are full."""
        # links that are not full make nobody wait
        return maximum(self.links.most - self._without_full_links, 0.0)

    @cached_property
    def critical_device(self) -> int:
        """The device that sets the end of the step, or the first, where the order of the pipeline
        does; of numbers only.
        """
        if not self.device_ends:
            spans = [float(d.span) for d in self.devices]
            return spans.index(max(spans))
        ends = [
            float(self.pipeline.total + (self.outside + self.update)),
            *map(float, self.device_ends),
        ]
        # the first end is the pipeline's own: where that is the last of all, device 0 stands for it
        return max(ends.index(max(ends)) - 1, 0)

    @cached_property
    def _without_full_links(self) -> Num:
        """The end of the step as far as no link is full: the pipeline's order, or a device."""
        return reduce(
            maximum,
            self.device_ends,
            self.pipeline.total + (self.outside + self.update),
        )


def shares_links(how: Overlap, zero: int) -> bool:
    """Sends and synchronisation hide at the same time, on the same links, with a ZeRO stage. Papers
    add up what is sent, whatever else lies on the links.
    """
    dp = how.dp.at(zero)
    ordered = how.pp == "interleaved"
    return ordered and dp.scope != "none" and dp.links == "shared"
