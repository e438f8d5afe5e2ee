"""The spaces of a plan: what the user names, and for the rest the strategies that the set of
assumptions searches, or the framework proposes.

A plan's space is a set: every combination of the values named, with what the strategies nearest to
it take of the fields that nobody named. So whether a layout belongs does not depend on which other
values were named, nor in which order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from ..describe.choices import FIELDS, Choices, Value, Values, first_few
from ..describe.job import Job
from ..describe.layout import CHUNKED, Layout
from ..errors import BadInput
from ..layout.rules import host_unknown, other_exchanges
from ..layout.schemes import counts_model
from ..num import divisors
from ..schedule import get as schedule_named
from .space import ONE_VALUE, USUAL, Space

PLAIN = USUAL["scheme"]
Lack = tuple[str, ...]
"""The fields of which a strategy does not have the values named."""


def strategies(
    job: Job, space: Space, proposals: bool = True
) -> tuple[list[Space], list[str]]:
    """(products whose union is what a plan searches, sentences on what was named beyond the
    strategies of the job's set or framework).

    A combination of named values is searched in the strategies that have all of it; where none has,
    as asked, with the rest of those that lack the fewest of its fields.
    """
    how = job.assumptions
    runs = _runnable(job, space.choices)
    proposed = _proposed(job) if proposals else ()
    of_set = how.choices if "scheme" in space.choices else _of_model(job)
    own = of_set or proposed or runs or (Choices(),)
    whose = how.name if how.choices or not job.profile else job.profile.name
    relaxed = space.relaxed
    if how.strict and not relaxed:
        relaxed = False
        even = divisors(job.model.layers)
        own = tuple(each.but(pp=each.get("pp", even)) for each in own)
    products = list[Choices]()
    said = dict[frozenset[tuple[str, Values]], str]()
    for named in _combinations(space.choices, own):
        near = _nearest(own, named)
        products += [each.but(**named) for each, _ in near]
        beyond = [n for n in named if any(n in lack for _, lack in near)]
        what = {name: named[name] for name in beyond}
        instead = (
            _words({n: each[n] if n in lack else named[n] for n in beyond})
            for each, lack in near
        )
        said[frozenset(what.items())] = (
            f"{_words(what)} is searched as asked; {whose} itself searches"
            f" {' or '.join(dict.fromkeys(instead))}"
        )
    spaces = (
        Space(each, space.placements, relaxed)
        for each in _joined(products, space.choices)
    )
    # what two values need is said of each, unless neither is beyond by itself
    return [one for each in spaces for one in _searches(each)], [
        *(
            sentence
            for what, sentence in said.items()
            if what
            > frozenset().union(*(less for less in said if less < what))
        ),
        *_exchanges_beyond(job, space.choices),
    ]


def _exchanges_beyond(job: Job, named: Choices) -> Iterator[str]:
    """The sentence on named exchanges of keys that the framework lacks: a rule leaves out their
    layouts of several ranks, which of several values nobody would see.
    """
    have = job.profile.exchanges if job.profile else ()
    lacks = [v for v in named.get("cp_exchange", ()) if v not in have]
    if job.profile and have and lacks:
        yield other_exchanges(job.profile.name, have, lacks)


def _proposed(job: Job) -> tuple[Choices, ...]:
    """The strategies of the job's framework, without those that keep something in host memory where
    the chip's data do not say how fast its host is.
    """
    chip = job.cluster.chip
    return tuple(
        each
        for each in (job.profile.proposes if job.profile else ())
        if "offload" not in each
        or not host_unknown(chip, Layout(offload=str(each["offload"][0])))
    )


def _of_model(job: Job) -> tuple[Choices, ...]:
    """The strategies of the job's set without those of schemes that do not count such a model; all
    where none counts it, so that the refusal names each.
    """
    every = job.assumptions.choices
    fit = tuple(
        each
        for each in every
        if any(counts_model(job, str(s)) for s in each.get("scheme", PLAIN))
    )
    return fit or every


def _runnable(job: Job, named: Choices) -> tuple[Choices, ...]:
    """What the framework can run; BadInput for values that the user names and it cannot."""
    profile = job.profile
    if profile is None or not profile.choices:
        return ()
    for name, values in named.items():
        runs = [v for each in profile.choices for v in each.get(name, values)]
        if beyond := [v for v in values if v not in runs]:
            own = (v for each in profile.choices for v in each.get(name, ()))
            can = first_few(dict.fromkeys(own), 16)
            raise BadInput(
                f"framework {profile.name} runs {name} {can}, not {first_few(beyond)}"
            )
    return profile.choices


def _combinations(
    named: Choices, own: Sequence[Choices]
) -> Iterator[dict[str, Values]]:
    """The values named, in parts that each strategy has as a whole or not at all.

    Chunks that are named without a schedule, under strategies of 1F1B alone, are interleaved.
    """
    plain = all(each.get("schedule") == CHUNKED[:1] for each in own)
    chunked = plain and "schedule" not in named
    parts = []
    for name in (name for name in FIELDS if name in named):
        alike: dict[tuple[bool, ...], list[Value]] = {}
        for value in named[name]:
            who = [value in each.get(name, (value,)) for each in own]
            alike.setdefault((*who, value == 1), []).append(value)
        parts.append([(name, tuple(values)) for values in alike.values()])
    for combination in product(*parts):
        part = dict(combination)
        if chunked and part.get("interleave", (1,)) != (1,):
            part["schedule"] = CHUNKED[1:]
        yield part


def _nearest(
    own: Sequence[Choices], named: dict[str, Values]
) -> list[tuple[Choices, Lack]]:
    """The strategies that lack the fewest fields, with these; one of another scheme, which says
    what the other fields mean, is farthest.
    """
    lacks = [
        tuple(n for n, v in named.items() if v[0] not in each.get(n, v))
        for each in own
    ]
    far = [("scheme" in lack, len(lack)) for lack in lacks]
    every = zip(own, lacks, far, strict=True)
    return [(each, lack) for each, lack, is_ in every if is_ == min(far)]


def _words(values: Mapping[str, Values]) -> str:
    """pp 2 with schedule zb-h1 and zero 3."""
    each = (f"{name} {first_few(those)}" for name, those in values.items())
    return " and ".join(each).replace(" and ", " with ", 1)


def _joined(products: list[Choices], named: Choices) -> list[Choices]:
    """The same set as fewer products: those that differ in one field that was named are one."""
    for name in (name for name in FIELDS if name in named):
        alike: dict[Choices, set[Value]] = {}
        for each in products:
            rest = each.but(**{name: None})
            alike.setdefault(rest, set()).update(each[name])
        products = [
            rest.but(**{name: [v for v in named[name] if v in values]})
            for rest, values in alike.items()
        ]
    return products


def _searches(space: Space) -> Iterator[Space]:
    """The parts of a product that one search can look at: one value of each field of `ONE_VALUE`
    and of the scheme, and schedules that hold each stage on as many ranks.
    """
    copies: dict[int, list[Value]] = {}
    for name in space.values("schedule"):
        copies.setdefault(schedule_named(name).copies, []).append(name)
    ways = [*copies.values()] if len(copies) > 1 else [None]
    # what nobody names stays open: the program may take another than the usual one
    names = ("scheme", *(n for n in ONE_VALUE if n in space.choices))
    for way, *values in product(ways, *map(space.values, names)):
        fixed = dict(zip(names, values, strict=True))
        one = space.but(**fixed)
        yield one.but(schedule=way) if way else one
