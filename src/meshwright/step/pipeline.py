"""Layers make stages, stages make a pipeline: what each device holds, the slowest of them, and the
order of the microbatches.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Any, NamedTuple, TypeAlias

from ..cost.layer import Clock, LayerCost
from ..cost.load import Busy, Load
from ..describe.job import Job
from ..describe.layers import totals
from ..describe.layout import Layout
from ..describe.recompute import recompute
from ..layout.stages import partition
from ..num import SCALARS, Num, maximum, minimum, named, naming, where
from ..schedule.partition import StagePartition
from ..schedule.stage_costs import Pass, StageCosts
from ..schedule.types import Schedule
from .microbatch import Body


class Share(NamedTuple):
    """How often one microbatch on a device passes each part of the model."""

    layers: tuple[Num, ...]
    """Of each kind, as in `Body.layers`."""
    embedding: Num
    head: Num
    chunk: Num = 1.0
    """Layers of a chunk of the model, on average."""
    begins: tuple[Num, ...] = ()
    """The kind of its first layer: 1 of that, 0 of the others; none = the first kind."""
    rank: Num = 0.0
    """Which device of the pipeline it is."""

    def again(self, text: str) -> Num:
        """The share of the layers that recomputes, where only the first of each chunk do: spread
        evenly over all.
        """
        first = recompute(text).layers
        return minimum(first / self.chunk, 1.0) if first else 1.0

    @property
    def number(self) -> Num:
        """Layers of all kinds."""
        return reduce(operator.add, self.layers)

    @property
    def parts(self) -> tuple[Num, ...]:
        """As in `Body.parts`."""
        return (*self.layers, self.embedding, self.head)

    @property
    def one(self) -> tuple[Num, ...]:
        """Its first layer, by kind; nothing where it has none."""
        some = minimum(self.number, 1.0)
        if len(self.layers) == 1 or not self.begins:
            return (some, *(0.0 for _ in self.layers[1:]))
        return tuple(some * kind for kind in self.begins)

    def passed(self, parts: Body) -> Passed:
        """What it passes at all."""
        return [
            (often, part)
            for often, part in zip(self.parts, parts.parts, strict=True)
            if not (isinstance(often, float) and often == 0.0)
        ]

    def of(self, parts: Body, what: str) -> Any:
        """The sum of a number of all parts."""
        return added(self.passed(parts), what)

    def passes(self, parts: Body) -> tuple[Num, Num]:
        """Forward and backward seconds."""
        passed = self.passed(parts)
        return added(passed, "forward"), added(passed, "backward")


Passed: TypeAlias = list[tuple[Num, LayerCost]]
"""How often one microbatch passes something, and what."""


def added(passed: Passed, what: str, nothing: Any = 0.0) -> Any:
    """The sum of a number of what is passed, each so often; nothing: where none is."""
    found = None
    for often, part in passed:
        mine = getattr(part, what) * often
        found = mine if found is None else found + mine
    return nothing if found is None else found


def where_share(condition: Any, a: Share, b: Share) -> Share:
    """`where` for shares."""

    if isinstance(condition, SCALARS):
        return a if condition else b

    def choose(x: Any, y: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(choose, x, y))
        return where(condition, x, y)

    return Share(*map(choose, a, b))


class Stages(NamedTuple):
    """One microbatch: on the slowest device, on the mean of the others, and in the parts that
    stages are made of.
    """

    forward: Num
    backward: Num
    others_forward: Num
    others_backward: Num
    others_weight: Num
    layer: Pass = Pass(0.0, 0.0, 0.0)
    more: tuple[Pass, ...] = ()
    """What a layer of each further kind takes more."""
    embedding: Pass = Pass(0.0, 0.0, 0.0)
    head: Pass = Pass(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Pipeline:
    """Seconds of the microbatches of one step."""

    busy: Num
    """m microbatches on the slowest device."""
    total: Num
    """From the first action to the end."""
    parts: Callable[[], tuple[Num, Num]]
    """What of it are `sends`, and `bubble`: asked for only where they are told apart."""

    @cached_property
    def _parts(self) -> tuple[Num, Num]:
        return self.parts()

    @property
    def sends(self) -> Num:
        """Stage boundaries, as far as they are not hidden."""
        return self._parts[0]

    @property
    def bubble(self) -> Num:
        """Waiting without them."""
        return self._parts[1]


class Shares(dict[str, Share]):
    """What devices hold, each by its name: the "first", the "last", a "middle" one that may be
    slower than they are and a "second" that may be the fullest, and a device that is alone: the
    "whole".

    With layers of several kinds there may be several of a name, "middle 2" and so on.
    """

    def again(self, text: str) -> Num:
        """`Share.again`, the same on all devices."""
        return next(iter(self.values())).again(text)

    def __missing__(self, name: str) -> Share:
        """There are fewer of this name than elsewhere: one of them again, or in the middle, where
        all hold alike, any."""
        return self["second" if name == "middle" else name.split()[0]]

    def called(self, *names: str) -> tuple[str, ...]:
        """All devices of these names, name by name."""
        return tuple(key for name in names for key in self._named[name])

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        """Name -> devices of it."""
        found: dict[str, list[str]] = defaultdict(list)
        for key in self:
            found[key.split()[0]].append(key)
        return found


DEVICES = ("first", "middle", "last")
"""Of a pipeline: among these it waits for the slowest, and the last to be done; there may be
several in the middle."""


def shares(job: Job, layout: Layout, schedule: Schedule, v: Num) -> Shares:
    """What the devices of a pipeline hold, and a device that is alone.

    First: embedding; last: head. A folded schedule gives the first device both ends.
    """
    cut = partition(job, layout.pp, schedule, v)
    held = _held if isinstance(cut.p, SCALARS) else _held.__wrapped__
    return held(cut, totals(job.model), schedule.holds_back)


@lru_cache(maxsize=1024, typed=True)
def _held(cut: StagePartition, every: tuple[float, ...], back: bool) -> Shares:
    """The same of a cut; a cut of numbers is the same one each time. every: layers of the model, of
    each kind; back: later ranks hold more of a microbatch.
    """
    ends = 1.0 if cut.folded else 0.0
    chunk = sum(every) / cut.stages

    def share(rank: Num, embedding: Num = 0.0, head: Num = 0.0) -> Share:
        kinds = cut.rank_kinds(rank)
        begins = cut.first_kind(rank)
        return Share(
            (cut.rank_layers(rank) - sum(kinds), *kinds)
            if kinds
            else (cut.rank_layers(rank),),
            embedding,
            head,
            chunk,
            (1.0 - sum(begins), *begins) if begins else (),
            rank,
        )

    first = share(0.0, 1.0, ends)
    inside = cut.p > 2
    # the second device: as full as any in the middle, and with nearly as many microbatches in
    # flight as the first; or the one before the last, with as many gradients held back
    fullest = cut.late if back else cut.early
    second = [where_share(inside, share(rank), first) for rank in fullest]
    return Shares(
        {
            **_numbered("middle", [share(rank) for rank in cut.heavy]),
            "first": first,
            "last": share(cut.q, 0.0, 1.0 - ends),
            **_numbered("second", second),
            "whole": _whole(cut, every, chunk),
        }
    )


def _numbered(name: str, of: list[Share]) -> dict[str, Share]:
    return {
        f"{name} {k}" if k > 1 else name: share
        for k, share in enumerate(of, 1)
    }


def _whole(cut: StagePartition, every: tuple[float, ...], chunk: Num) -> Share:
    """A device that is alone."""
    begins = tuple(float(kinds[1]) for kinds in cut.kinds)
    return Share(
        every,
        1.0,
        1.0,
        chunk,
        (1.0 - sum(begins), *begins) if begins else (),
    )


def stages(layout: Layout, parts: Body, by: Shares) -> Stages:
    """The slowest device's microbatch and the mean of the others'."""
    names = by.called(*DEVICES, "whole")
    passes = {name: by[name].passes(parts) for name in names}
    return staged(
        layout,
        parts,
        by,
        passes_of(slowest(layout, passes), passes),
        passes["whole"],
    )


Passes: TypeAlias = tuple[Num, Num]
"""Forward and backward seconds of a microbatch on a device."""


def passes_of(choice: Choice, passes: Mapping[str, Passes]) -> Passes:
    """Of the device that `slowest` chose."""
    f, b = (
        value_of_slowest(
            choice, {name: each[k] for name, each in passes.items()}
        )
        for k in (0, 1)
    )
    return f, b


def staged(
    layout: Layout, parts: Body, by: Shares, slow: Passes, whole: Passes
) -> Stages:
    """The same of the passes of the slowest device, and of one that is alone."""
    f, b = slow
    others = maximum(layout.depth - 1.0, 1.0)
    layer, *more = map(_passes, parts.layers)
    return Stages(
        f,
        b,
        (whole[0] - f) / others,
        (whole[1] - b) / others,
        by["whole"].of(parts, "weight_pass") / layout.depth,
        layer,
        tuple(other.plus(layer, -1.0) for other in more),
        _passes(parts.embedding),
        _passes(parts.head),
    )


def _passes(part: LayerCost) -> Pass:
    """F, I and W of one microbatch; recomputation belongs to I."""
    w = part.weight_pass
    return Pass(part.forward, part.backward - w, w)


class Choice(NamedTuple):
    """Which device it is."""

    alone: Any
    """The device is alone."""
    end: Any
    """An end is slowest."""
    last: Any
    """The last end is."""
    middle: tuple[tuple[str, Any], ...] = ()
    """Further ones between the ends, where each is slower than those before."""


def slowest(layout: Layout, passes: Mapping[str, Passes]) -> Choice:
    """Which device the pipeline waits for."""
    seconds = {name: f + b for name, (f, b) in passes.items()}
    first = seconds["first"]
    last = seconds["last"]
    middle = seconds.get("middle", 0.0)
    slower = []
    for name in seconds:
        if name.startswith("middle "):
            slower.append((name, seconds[name] > middle))
            middle = maximum(middle, seconds[name])
    return Choice(
        layout.pp == 1,
        (maximum(first, last) >= middle) | (layout.pp == 2),
        last >= first,
        tuple(slower),
    )


def value_of_slowest(choice: Choice, values: dict[str, Any]) -> Any:
    """The value of the device that `slowest` chose."""
    found = _choose(choice.last, values["last"], values["first"])
    if "middle" in values:
        middle = values["middle"]
        for name, slower in choice.middle:
            middle = _choose(slower, values[name], middle)
        found = _choose(choice.end, found, middle)
    return _choose(choice.alone, values["whole"], found)


def sum_of(terms: Iterable[tuple[Num, Any]]) -> Any:
    """Sum of factor x value, leaving out factors that are 0."""
    result: Any = None
    for factor, value in terms:
        if isinstance(factor, float) and factor == 0.0:
            continue
        result = value * factor if result is None else result + value * factor
    return 0.0 if result is None else result


def _choose(condition: Any, a: Any, b: Any) -> Any:
    """`where` for shares too."""
    if isinstance(a, Share):
        return where_share(condition, a, b)
    return where(condition, a, b)


def hop(layout: Layout, parts: Body, at: Clock) -> Load:
    """One send between neighbouring stages."""
    send = at.fabric.hop(parts.message, layout.group("pp"))
    return send._replace(seconds=named(send.seconds, "sends", parts.boundary))


def carried(m: Num, send: Load, schedule: Schedule, v: Num) -> Busy:
    """Seconds each dimension is busy with sends: of every chunk one forward and one backward a
    microbatch.
    """
    return send.busy * (2 * m * schedule.chunks(v))


MANY = 1e9
"""Microbatches: a bound for any number of them."""


def barrier(job: Job) -> bool:
    """No rank begins the next step before all have ended this one."""
    return job.how.overlap.step_barrier != "none"


def pipeline_time(
    job: Job,
    p: Num,
    m: Num,
    s: Stages,
    send: Num,
    schedule: Schedule,
    v: Num,
    refine: bool = False,
) -> Pipeline:
    """m microbatches through p stages in the order of a schedule.

    refine: one layout, whose order is replayed; else what it takes at least (`least_idle`), by
    which a search ranks before it replays the best. Papers say what all microbatches wait in
    closed form.
    """
    busy = (s.forward + s.backward) * schedule.rounds(m)
    if not by_order(job):
        sends, bubble = _published(job, p, m, s, send, schedule, v)
        return Pipeline(busy, busy + sends + bubble, lambda: (sends, bubble))
    if refine and p > 1:
        return _replayed(job, (p, m, v), s, send, schedule, busy)
    idle = least_idle(job, p, s, schedule, v, m, send)
    return Pipeline(busy, busy + idle, lambda: (0.0, idle))


def _replayed(
    job: Job,
    at: tuple[Num, Num, Num],
    s: Stages,
    send: Num,
    schedule: Schedule,
    busy: Num,
) -> Pipeline:
    """One layout, action by action: the bubble is what it takes without sends; one order serves
    both. at: (p, m, v).
    """
    from ..schedule.replays import itemised, one, timed

    p, m, v = map(int, at)
    d = stage_costs(job, p, s, send, schedule, v)
    silent = d._replace(send=0.0)
    order = timed(schedule, (p, m, v), d)
    if any(map(naming, d.numbers)):  # an explanation asks for both
        both = [d, silent]
        whole, quiet = itemised(order, (p, m, v), both, barrier(job))
        return Pipeline(busy, whole, lambda: (whole - quiet, quiet - busy))
    seconds = one(order, (p, m, v), d, barrier(job))

    def parts() -> tuple[Num, Num]:
        rest = one(order, (p, m, v), silent, barrier(job))
        return seconds - rest, rest - busy

    return Pipeline(busy, seconds, parts)


def by_order(job: Job) -> bool:
    """Sends wait where the order of the schedule has them wait; papers say for all microbatches
    whether they do.
    """
    return job.how.overlap.pp == "interleaved"


def stage_costs(
    job: Job, p: Num, s: Stages, send: Num, schedule: Schedule, v: Num
) -> StageCosts:
    """One microbatch in the stages of a pipeline."""
    layers = partition(job, p, schedule, v)
    return StageCosts(layers, s.layer, s.embedding, s.head, s.more, send)


def fill_and_drain(
    job: Job,
    p: Num,
    s: Stages,
    send: Num,
    schedule: Schedule,
    v: Num,
    ranks: Mapping[str, Num],
) -> dict[str, Num]:
    """Seconds in which devices, each by its name, have nothing to do yet, or nothing any more: the
    way of one microbatch down to it and, where backward passes are whole, up again. Where a rank
    may begin the next step meanwhile, nothing.
    """
    split = schedule.split_backward
    if split and not barrier(job):
        return dict.fromkeys(ranks, 0.0 * p)
    d = stage_costs(job, p, s, send, schedule, v)
    return {
        name: d.down(rank) + (0.0 if split else d.up(rank))
        for name, rank in ranks.items()
    }


def least_idle(
    job: Job,
    p: Num,
    s: Stages,
    schedule: Schedule,
    v: Num,
    m: Num = MANY,
    send: Num = 0.0,
) -> Num:
    """Of the span of m microbatches, what is beyond their work on the slowest device x at least:
    seconds of a few paths of the order, with their sends.

    Any: the first microbatch through all stages and back to the first device. Folded stages: the
    step of stages that all take as little as the lightest, with its bubble in closed form, as no
    pass that takes longer makes another begin sooner; without a barrier where the first device ends
    last, with as few microbatches as devices. Whole backward
    passes: the way of the first microbatch down to x and of the last one up from it; and from x to
    the last rank and back, less the p - 1 - x forwards that x runs ahead meanwhile. Split ones in a
    run of steps (h forwards ahead, h weight gradients held back a rank): up from x and down again
    with the next step's first microbatch, less h x weight gradients of x; and to the last rank and
    back, less h (p - 1 - x) forwards.
    """
    together = barrier(job)
    if not by_order(job):
        f, b, w = s.others_forward, s.others_backward, s.others_weight
        return schedule.least_bubble(p, v, f, b - w, w, together)
    split, h = schedule.split_backward, schedule.ahead
    d = stage_costs(job, p, s, send, schedule, v)
    every = d.passes(0.0, d.partition.stages)
    turn = 1.0 if schedule.folded and not d.partition.crosses else 0.0
    hops = 2.0 * (d.partition.stages - 1.0 - turn) * d.sent
    through = every.f + every.i + hops + (d.at(0.0).w if split else every.w)
    work = schedule.rounds(m) * (s.forward + s.backward)
    idle = maximum(through - work, 0.0)
    if schedule.folded and m is not MANY and not schedule.replayed:
        light = d.lightest
        whole = (
            schedule.bubble(p, m, v, *light) + schedule.rounds(m) * light.total
        )
        # else the first device may begin the next step before others end this one
        fits = where((m <= p) | together, whole, 0.0)
        idle = maximum(idle, fits - work)
    if schedule.folded or (split and not (together or h)):
        return idle
    x = d.slowest
    mine, before = d.load(x), d.passes(0.0, x)
    path = d.down(x) + (0.0 if split else d.up(x))
    if split and not together:
        around = before.f + before.i + d.load(0.0).w - mine.w + 2 * x * d.sent
        path = maximum(around - mine.w * minimum(h * x, m - 1.0), 0.0)
    if h and not (split and together):
        below = d.passes(x + 1.0, d.partition.p)
        back = 2 * (d.partition.q - x) * d.sent
        turned = below.f + below.i + (0.0 if split else below.w) + back
        run = h * (d.partition.q - x)
        path = path + maximum(turned - mine.f * minimum(run, m - 1.0), 0.0)
    return maximum(idle, path)


def _published(
    job: Job, p: Num, m: Num, s: Stages, send: Num, schedule: Schedule, v: Num
) -> tuple[Num, Num]:
    """(sends, bubble) of papers: the bubble of equal stages, where every send counts; in the steady
    state the assumption set says whether sends hide behind compute, each behind that of one chunk.
    """
    chunks = schedule.chunks(v)
    sends = chunks * send
    waits = float(job.how.overlap.pp != "all")
    longer = maximum(send - s.forward / chunks, 0.0) + maximum(
        send - s.backward / chunks, 0.0
    )
    paid = 2 * sends * waits + longer * chunks * (1.0 - waits)
    f = s.others_forward + sends
    i = s.others_backward - s.others_weight + sends
    return schedule.rounds(m) * paid, schedule.idle(
        p, m, v, f, i, s.others_weight, barrier(job)
    )
