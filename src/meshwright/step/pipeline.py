"""Layers make stages, stages make a pipeline: what each device holds, the slowest of them, and the
order of the microbatches.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from ..cost.layer import Clock, LayerCost, Seconds, Time
from ..cost.load import NOTHING, Busy, Load
from ..describe.job import Job
from ..describe.layers import totals
from ..describe.layout import Layout
from ..describe.recompute import recompute
from ..layout.stages import cut
from ..num import SCALARS, Num, maximum, minimum, where
from ..schedule import waits
from ..schedule.dealt import Cut, Dealt, Pass
from ..schedule.types import Schedule
from ..schedule.waits import Wait
from .microbatch import Body, backward, plain, sent_back, total


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

    def of(self, parts: Body, what: Any) -> Any:
        """The sum of what(part) over the parts, each times its share."""
        return sum_of(
            (share, what(part))
            for share, part in zip(self.parts, parts.parts, strict=True)
        )

    def back(self, parts: Body, text: str) -> Any:
        """Backward seconds with what recomputation adds to layers; embedding and head are never
        computed again.
        """
        again = self.again(text)
        return sum_of(
            (
                *(
                    (often, backward(layer, text, again))
                    for often, layer in zip(
                        self.layers, parts.layers, strict=True
                    )
                ),
                (self.embedding, parts.embedding.backward),
                (self.head, parts.head.backward),
            )
        )

    def sent(self, parts: Body) -> Load:
        """What the forward passes send."""
        found = self.of(parts, lambda c: c.sent)
        return found if isinstance(found, Load) else NOTHING

    def sent_back(self, parts: Body, text: str) -> Load:
        """What the backward passes send."""
        again = self.again(text)
        found = sum_of(
            (
                *(
                    (often, sent_back(layer, text, again))
                    for often, layer in zip(
                        self.layers, parts.layers, strict=True
                    )
                ),
                (self.embedding, parts.embedding.sent_back),
                (self.head, parts.head.sent_back),
            )
        )
        return found if isinstance(found, Load) else NOTHING


def either(condition: Any, a: Share, b: Share) -> Share:
    """`where` for shares."""

    def choose(x: Any, y: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(choose, x, y))
        return where(condition, x, y)

    return Share(*map(choose, a, b))


class Stages(NamedTuple):
    """One microbatch: on the slowest device, on the mean of the others, and in the parts that
    stages are made of.
    """

    forward: Time
    backward: Time
    others_forward: Num
    others_backward: Num
    others_weight: Num
    layer: Pass = Pass(0.0, 0.0, 0.0)
    more: tuple[Pass, ...] = ()
    """What a layer of each further kind takes more."""
    embedding: Pass = Pass(0.0, 0.0, 0.0)
    head: Pass = Pass(0.0, 0.0, 0.0)


class Pipeline(NamedTuple):
    """Seconds of the microbatches of one step."""

    busy: Time
    """m microbatches on the slowest device."""
    sends: Num
    """Stage boundaries, as far as they are not hidden."""
    bubble: Num
    span: Num
    """From the first action to the end: the sum of the three."""

    @property
    def total(self) -> Num:
        return self.span


class Shares(dict[str, Share]):
    """What devices hold, each by its name: the "first", the "last", a "middle" one that may be the
    slowest and a "second" that may be the fullest, and a device that is alone: the "whole".

    With layers of several kinds there may be several of a name, "middle 2" and so on.
    """

    def __missing__(self, name: str) -> Share:
        """There are fewer of this name than elsewhere: one of them again."""
        return self[name.split()[0]]

    def called(self, *names: str) -> tuple[str, ...]:
        """All devices of these names, name by name."""
        return tuple(
            key for name in names for key in self if key.split()[0] == name
        )


DEVICES = ("middle", "first", "last", "whole")
"""Among these the pipeline waits for the slowest."""


def shares(job: Job, layout: Layout, schedule: Schedule, v: Num) -> Shares:
    """What the devices of a pipeline hold, and a device that is alone.

    First: embedding; last: head. A folded schedule gives the first device both ends.
    """
    dealt = cut(job, layout.pp, schedule, v)
    held = _held if isinstance(dealt.p, SCALARS) else _held.__wrapped__
    return held(dealt, totals(job.model))


@lru_cache(maxsize=1024, typed=True)
def _held(dealt: Cut, every: tuple[float, ...]) -> Shares:
    """The same of a cut; a cut of numbers is the same one each time. every: layers of the model, of
    each kind.
    """
    ends = 1.0 if dealt.folded else 0.0
    chunk = sum(every) / dealt.stages

    def share(rank: Num, embedding: Num = 0.0, head: Num = 0.0) -> Share:
        kinds = dealt.rank_kinds(rank)
        begins = dealt.first_kind(rank)
        return Share(
            (dealt.rank_layers(rank) - sum(kinds), *kinds)
            if kinds
            else (dealt.rank_layers(rank),),
            embedding,
            head,
            chunk,
            (1.0 - sum(begins), *begins) if begins else (),
            rank,
        )

    first = share(0.0, 1.0, ends)
    inside = dealt.p > 2
    # the second device: as full as any in the middle, and with nearly as many microbatches in
    # flight as the first
    second = [either(inside, share(rank), first) for rank in dealt.early]
    return Shares(
        {
            **_numbered("middle", [share(rank) for rank in dealt.heavy]),
            "first": first,
            "last": share(dealt.q, 0.0, 1.0 - ends),
            **_numbered("second", second),
            "whole": _whole(dealt, every, chunk),
        }
    )


def _numbered(name: str, of: list[Share]) -> dict[str, Share]:
    return {
        f"{name} {k}" if k > 1 else name: share
        for k, share in enumerate(of, 1)
    }


def _whole(dealt: Cut, every: tuple[float, ...], chunk: Num) -> Share:
    """A device that is alone."""
    begins = tuple(float(kinds[1]) for kinds in dealt.kinds)
    return Share(
        every,
        1.0,
        1.0,
        chunk,
        (1.0 - sum(begins), *begins) if begins else (),
    )


def stages(
    layout: Layout,
    parts: Body,
    text: str,
    by: Shares,
    flat: Body | None = None,
) -> Stages:
    """The slowest device's microbatch and the mean of the others'. flat: `plain` parts."""
    flat = flat or plain(parts)
    names = by.called(*DEVICES)
    forward = {name: by[name].of(flat, lambda c: c.forward) for name in names}
    back = {name: by[name].back(flat, text) for name in names}
    name = slowest(layout, {k: forward[k] + back[k] for k in names})
    share = by["whole"].again(text)
    layer, *others_ = (_passes(c, text, share) for c in flat.layers)
    f = pick(name, forward)
    b = pick(name, back)
    others = maximum(layout.depth - 1.0, 1.0)
    rest_f = (forward["whole"] - f) / others
    rest_b = (back["whole"] - b) / others
    if flat is not parts:  # by cause too, of the slowest alone
        mine = pick(name, {k: by[k] for k in names})
        f = mine.of(parts, lambda c: c.forward)
        b = mine.back(parts, text)
    return Stages(
        f,
        b,
        rest_f,
        rest_b,
        by["whole"].of(parts, lambda c: c.weight_pass) / layout.depth,
        layer,
        tuple(other.plus(layer, -1.0) for other in others_),
        _passes(flat.embedding, "none"),
        _passes(flat.head, "none"),
    )


def _passes(part: LayerCost, text: str, share: Num = 1.0) -> Pass:
    """F, I and W of one microbatch; recomputation belongs to I."""
    back = total(backward(part, text, share))
    return Pass(total(part.forward), back - part.weight_pass, part.weight_pass)


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


def slowest(layout: Layout, seconds: dict[str, Num]) -> Choice:
    """Which device the pipeline waits for."""
    first = seconds["first"]
    last = seconds["last"]
    middle = seconds["middle"]
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


def pick(choice: Choice, values: dict[str, Any]) -> Any:
    """The value of the device that `slowest` chose."""
    middle = values["middle"]
    for name, slower in choice.middle:
        middle = _choose(slower, values[name], middle)
    return _choose(
        choice.alone,
        values["whole"],
        _choose(
            choice.end,
            _choose(choice.last, values["last"], values["first"]),
            middle,
        ),
    )


def sum_of(terms: Iterable[tuple[Num, Any]]) -> Any:
    """Sum of factor x value, leaving out factors that are 0."""
    result: Any = None
    for factor, value in terms:
        if isinstance(factor, float) and factor == 0.0:
            continue
        result = value * factor if result is None else result + value * factor
    return 0.0 if result is None else result


def _choose(condition: Any, a: Any, b: Any) -> Any:
    """`where` for shares and for seconds by cause too."""
    if isinstance(a, Share):
        return either(condition, a, b)
    if isinstance(a, Seconds):
        return Seconds(
            *(where(condition, x, y) for x, y in zip(a, b, strict=True))
        )
    return where(condition, a, b)


def hop(layout: Layout, parts: Body, at: Clock) -> Load:
    """One send between neighbouring stages."""
    return at.fabric.hop(parts.message, layout.group("pp"))


def carried(m: Num, send: Load, schedule: Schedule, v: Num) -> Busy:
    """Seconds each dimension is busy with sends: of every chunk one forward and one backward a
    microbatch.
    """
    return send.busy * (2 * m * schedule.chunks(v))


def barrier(job: Job) -> bool:
    """No rank begins the next step before all have ended this one."""
    return job.how.overlap.step_barrier != "none"


def ordered(
    job: Job,
    p: Num,
    m: Num,
    s: Stages,
    send: Num,
    schedule: Schedule,
    v: Num,
    refine: bool = False,
) -> Pipeline:
    """m microbatches through p stages in the order of a schedule, by cause; refine: as in
    `span`.
    """
    busy = (s.forward + s.backward) * schedule.rounds(m)
    if refine and schedule.by_costs and by_order(job):
        from ..schedule.replays import timed

        # one order, with sends and without
        schedule = timed(
            schedule, p, v, dealt(job, p, m, s, send, schedule, v)
        )
    whole = span(job, p, m, s, send, schedule, v, refine)
    if not by_order(job):
        return Pipeline(
            busy,
            *_published(job, p, m, s, send, schedule, v),
            whole,
        )
    quiet = span(job, p, m, s, 0.0, schedule, v, refine)
    return Pipeline(busy, whole - quiet, quiet - total(busy), whole)


def span(
    job: Job,
    p: Num,
    m: Num,
    s: Stages,
    send: Num,
    schedule: Schedule,
    v: Num,
    refine: bool = False,
) -> Num:
    """Seconds of m microbatches through p stages in the order of a schedule: its longest path, or
    what papers add up. refine: replay the order where the closed form is only a bound, as a
    prediction does; a search, which replays its best rows, takes the bound.
    """
    if by_order(job):
        d = dealt(job, p, m, s, send, schedule, v)
        if refine and schedule.loose:
            from ..schedule.replays import refined

            return refined(schedule, p, m, v, d, barrier(job))
        return schedule.span(d, barrier(job))
    sends, bubble = _published(
        job,
        p,
        m,
        s,
        send,
        schedule,
        v,
    )
    each = total(s.forward) + total(s.backward)
    return schedule.rounds(m) * each + sends + bubble


def by_order(job: Job) -> bool:
    """Sends wait where the order of the schedule has them wait; papers say for all microbatches
    whether they do.
    """
    return job.how.overlap.pp == "interleaved"


def dealt(
    job: Job, p: Num, m: Num, s: Stages, send: Num, schedule: Schedule, v: Num
) -> Dealt:
    """The stages of a pipeline."""
    layers = cut(job, p, schedule, v)
    return Dealt(
        layers,
        schedule.rounds(m),
        s.layer,
        s.embedding,
        s.head,
        s.more,
        send,
        schedule.group,
    )


def ways(
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
    if schedule.split_backward and not barrier(job):
        return dict.fromkeys(ranks, 0.0 * p)
    d = dealt(job, p, 1.0, s, send, schedule, v)
    back = {
        name: 0.0 if schedule.split_backward else d.up_whole(rank, 0.0)
        for name, rank in ranks.items()
    }
    return {
        name: d.down(0.0, rank) + back[name] for name, rank in ranks.items()
    }


def least_waits(
    job: Job, p: Num, s: Stages, schedule: Schedule, v: Num
) -> tuple[Wait, ...]:
    """Of the span, what is beyond m microbatches on the slowest device at least, added up; it falls
    with m.
    """
    together = barrier(job)
    if not by_order(job):
        f = s.others_forward
        b = s.others_backward
        w = s.others_weight
        return (
            Wait(
                schedule.least_bubble(
                    p,
                    v,
                    f,
                    b - w,
                    w,
                    together,
                )
            ),
        )
    d = dealt(job, p, 1.0, s, 0.0, schedule, v)
    if schedule.waits and not (schedule.split_backward and together):
        return schedule.waits(d, total(s.forward) + total(s.backward))
    if schedule.folded or (schedule.split_backward and not together):
        return (Wait(0.0 * p),)
    x = waits.slowest(d)
    return (
        Wait(
            d.down(0.0, x)
            + (0.0 if schedule.split_backward else d.up_whole(x, 0.0))
        ),
    )


def least_idle(
    job: Job, p: Num, m: Num, s: Stages, schedule: Schedule, v: Num
) -> Num:
    """The same of m microbatches, in seconds."""
    return reduce(
        operator.add,
        (
            wait.of(m)
            for wait in least_waits(
                job,
                p,
                s,
                schedule,
                v,
            )
        ),
    )


def _published(
    job: Job, p: Num, m: Num, s: Stages, send: Num, schedule: Schedule, v: Num
) -> tuple[Num, Num]:
    """(sends, bubble) of papers: the bubble of equal stages, where every send counts; in the steady
    state the assumption set says whether sends hide behind compute, each behind that of one chunk.
    """
    chunks = schedule.chunks(v)
    sends = chunks * send
    waits = float(job.how.overlap.pp != "all")
    longer = maximum(send - total(s.forward) / chunks, 0.0) + maximum(
        send - total(s.backward) / chunks, 0.0
    )
    paid = 2 * sends * waits + longer * chunks * (1.0 - waits)
    f = s.others_forward + sends
    i = s.others_backward - s.others_weight + sends
    return schedule.rounds(m) * paid, schedule.idle(
        p, m, v, f, i, s.others_weight, barrier(job)
    )
