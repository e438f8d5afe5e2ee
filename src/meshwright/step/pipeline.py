"""Layers make stages, stages make a pipeline: what each device holds, the slowest of them, and the order of the microbatches."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, NamedTuple

from ..cost.layer import Clock, Seconds, Time
from ..cost.load import NOTHING, Busy, Load
from ..describe.assumptions import Overlap
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import layers_on
from ..num import Num, maximum, minimum, where
from ..schedule.types import Schedule
from .microbatch import Body, backward, sent_back, total


class Share(NamedTuple):
    """How often one microbatch on a device passes each part of the model."""

    typical: Num
    leading: Num
    embedding: Num
    head: Num

    def of(self, parts: Body, what: Any) -> Any:
        """The sum of what(part) over the parts, each times its share."""
        return sum_of((share, what(part)) for share, part in zip(self, parts, strict=False))

    def back(self, parts: Body, recompute: str) -> Any:
        """Backward seconds with what recomputation adds to layers; embedding and head are never computed again."""
        layers = (
            (self.typical, backward(parts.typical, recompute)),
            (self.leading, backward(parts.leading, recompute)),
        )
        return sum_of((*layers, (self.embedding, parts.embedding.backward), (self.head, parts.head.backward)))

    def sent(self, parts: Body) -> Load:
        """What the forward passes send."""
        found = self.of(parts, lambda c: c.sent)
        return found if isinstance(found, Load) else NOTHING

    def sent_back(self, parts: Body, recompute: str) -> Load:
        """What the backward passes send."""
        found = sum_of((
            (self.typical, sent_back(parts.typical, recompute)),
            (self.leading, sent_back(parts.leading, recompute)),
            (self.embedding, parts.embedding.sent_back),
            (self.head, parts.head.sent_back),
        ))  # fmt: skip
        return found if isinstance(found, Load) else NOTHING


class Stages(NamedTuple):
    """One microbatch on the slowest device, and on the mean of the others."""

    forward: Time
    backward: Time
    others_forward: Num
    others_backward: Num
    others_weight: Num


class Pipeline(NamedTuple):
    """Seconds of the microbatches of one step."""

    busy: Time
    """m microbatches on the slowest device."""
    sends: Num
    """Stage boundaries, as far as they are not hidden."""
    bubble: Num

    @property
    def total(self) -> Num:
        return total(self.busy) + self.sends + self.bubble


Shares = dict[str, Share]
"""What the "middle", "first" and "last" device hold, and a device that is alone: the "whole"."""


DEVICES = ("middle", "first", "last", "whole")
"""Among these the pipeline waits for the slowest."""


def shares(job: Job, layout: Layout, schedule: Schedule, v: Num) -> Shares:
    """What a middle, the first and the last device hold, and a device that is alone.

    First: embedding and leading layers; last: head. A folded schedule gives the first device both ends.
    """
    n, n_first, n_last = layers_on(job, layout, schedule.chunks(v))
    lead = float(job.model.moe.dense_layers) if job.model.moe else 0.0
    early = minimum(n_first, lead) if lead else 0.0
    ends = 1.0 if schedule.folded else 0.0
    middle, first = Share(n, 0.0, 0.0, 0.0), Share(n_first - early, early, 1.0, ends)
    inside = layout.pp > 2
    return {
        "middle": middle,
        "first": first,
        "last": Share(n_last, 0.0, 0.0, 1.0 - ends),
        # the second device: as full as any in the middle, and with nearly as many microbatches in flight as the first
        "second": Share(*(where(inside, a, b) for a, b in zip(middle, first, strict=True))),
        "whole": Share(job.model.layers - lead, lead, 1.0, 1.0),
    }


def stages(layout: Layout, parts: Body, recompute: str, by: Shares) -> Stages:
    """The slowest device's microbatch and the mean of the others'."""
    forward = {name: by[name].of(parts, lambda c: c.forward) for name in DEVICES}
    back = {name: by[name].back(parts, recompute) for name in DEVICES}
    name = slowest(layout, {k: total(forward[k]) + total(back[k]) for k in DEVICES})
    f, b = pick(name, forward), pick(name, back)
    others = maximum(layout.pp - 1.0, 1.0)
    rest_f, rest_b = (total(forward["whole"]) - total(f)) / others, (total(back["whole"]) - total(b)) / others
    return Stages(f, b, rest_f, rest_b, by["whole"].of(parts, lambda c: c.weight_pass) / layout.pp)


Choice = tuple[Any, Any, Any]
"""(the device is alone, an end is slowest, the last end is)."""


def slowest(layout: Layout, seconds: dict[str, Num]) -> Choice:
    """Which device the pipeline waits for."""
    first, last = seconds["first"], seconds["last"]
    return layout.pp == 1, maximum(first, last) >= seconds["middle"], last >= first


def pick(choice: Choice, values: dict[str, Time]) -> Time:
    """The value of the device that `slowest` chose."""
    alone, end, last = choice
    return _choose(
        alone, values["whole"], _choose(end, _choose(last, values["last"], values["first"]), values["middle"])
    )


def sum_of(terms: Iterable[tuple[Num, Any]]) -> Any:
    """Sum of factor x value, leaving out factors that are 0."""
    result: Any = None
    for factor, value in terms:
        if isinstance(factor, float) and factor == 0.0:
            continue
        result = value * factor if result is None else result + value * factor
    return 0.0 if result is None else result


def _choose(condition: Any, a: Time, b: Time) -> Time:
    """`where` for seconds by cause too."""
    if isinstance(a, Seconds):
        return Seconds(*(where(condition, getattr(a, c), getattr(b, c)) for c in Seconds.__slots__))
    return where(condition, a, b)


def hop(layout: Layout, parts: Body, at: Clock) -> Load:
    """One send between neighbouring stages."""
    return at.fabric.hop(parts.message, layout.group("pp"))


def carried(how: Overlap, m: Num, send: Load, schedule: Schedule, v: Num) -> Busy:
    """Seconds each dimension is busy with sends that hide: of every chunk one forward and one backward a microbatch.

    -inf where they do not hide: time that is paid needs no other limit.
    """
    chunks = schedule.chunks(v)
    hidden = hides(how, chunks) > 0
    return Busy(where(hidden, seconds * (2 * m * chunks), -inf) for seconds in send.busy)


def hides(how: Overlap, chunks: Num) -> Num:
    """1 where sends hide behind compute in the steady state, else 0."""
    return where(chunks > 1, 1.0, 0.0) if how.pp == "interleaved" else float(how.pp == "all")


def barrier(job: Job) -> bool:
    """No rank begins the next step before all have ended this one."""
    return job.assumptions.overlap.step_barrier != "none"


def ordered(job: Job, p: Num, m: Num, s: Stages, send: Num, schedule: Schedule, v: Num) -> Pipeline:
    """m microbatches through p stages in the order of a schedule.

    Each chunk costs a send forward and one backward. In the bubble every send counts; in the steady state the assumption
    set says whether sends hide behind compute.
    """
    chunks = schedule.chunks(v)
    sends = chunks * send
    waits = 1.0 - hides(job.assumptions.overlap, chunks)
    # what hides does so behind the compute of one chunk
    longer = maximum(send - total(s.forward) / chunks, 0.0) + maximum(send - total(s.backward) / chunks, 0.0)
    paid = 2 * sends * waits + longer * chunks * (1.0 - waits)
    f, i = s.others_forward + sends, s.others_backward - s.others_weight + sends
    bubble = schedule.idle(p, m, v, f, i, s.others_weight, barrier(job))
    return Pipeline((s.forward + s.backward) * m, m * paid, bubble)
