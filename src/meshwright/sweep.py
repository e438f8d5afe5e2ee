"""One field varied, all others kept: strong scaling over chips, or any number of model, machine,
job or layout.

sweep(job, "chips", ["64..4096"])                            the best layout at every size
sweep(job, "network.ib.bandwidth", ["100 Gbit/s", "400 Gbit/s"])
sweep(job, "tp", [1, 2, 4, 8], fixed=True)                   the job's own layout, predicted
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from . import catalog
from .describe.assumptions import assumptions
from .describe.batch import parse_batch
from .describe.choices import FIELDS, first_few
from .describe.cluster import Cluster
from .describe.display import Displayed
from .describe.fields import demand_text, fields_of, left_out
from .describe.frozen import short_repr
from .describe.job import Job, demand_job
from .describe.layout import CHUNKED, Layout
from .describe.read import brief, demand_meant, read
from .describe.software import Software
from .errors import BadInput, MeshwrightError, article, unknown
from .formats import resolve
from .formats.toml import thing_named
from .prediction.certainty import ratio
from .prediction.prediction import Prediction, predict

if TYPE_CHECKING:
    from .search import Space

MOST = 1000
"""Points of a sweep."""
DOUBLING = re.compile(r"\s*(\d+)\s*\.\.\s*(\d+)\s*")
Value = str | int | float
Prices = Mapping[str, float]
"""Chip -> USD an hour."""
EMPTY: Prices = MappingProxyType({})


@dataclass(frozen=True)
class SweepPoint:
    """One value of the field and what came of it."""

    value: Value
    job: Job
    prediction: Prediction | None
    """None if nothing fits or the value is impossible."""
    note: str = ""
    """Why there is no prediction."""
    ran: bool = False
    """The layout is a published recipe, which ran, whatever its predicted risk."""

    __repr__ = short_repr

    @property
    def fits(self) -> bool:
        """There is a layout, and it fits or ran."""
        return bool(self.prediction and (self.ran or self.prediction.fits))


@dataclass(frozen=True)
class Sweep(Displayed):
    """Result of a sweep: one point per finished value, in order.

    >>> from meshwright import Job, Sweep, sweep
    >>> job = Job("llama3-8b", "64xh100-sxm", batch=512).with_(zero=3)
    >>> over = sweep(job, "microbatch", [1, 2], fixed=True)
    >>> isinstance(over, Sweep), len(over.points)
    (True, 2)
    """

    over: str
    points: tuple[SweepPoint, ...]
    interrupted: bool = False
    """Some points are missing."""
    fixed: bool = False
    """The layout is the job's own, not the best of each point."""

    def __post_init__(self) -> None:
        if not isinstance(self.over, str) or not all(
            isinstance(point, SweepPoint) for point in self.points
        ):
            raise BadInput(
                "a Sweep is what meshwright.sweep.sweep gives: sweep(job, 'chips', [64, 128])"
            )

    def __repr__(self) -> str:
        idle = [str(point.value) for point, p in self.predicted if p.idle]
        more = f"; chips are idle at {first_few(idle)}" if idle else ""
        return (
            f"Sweep: {len(self.points)} points over {self.over},"
            f" {len(self.predictions)} with a layout{more}"
        )

    @property
    def predicted(self) -> tuple[tuple[SweepPoint, Prediction], ...]:
        """Each point that has a prediction, with that prediction, in order."""
        return tuple((p, p.prediction) for p in self.points if p.prediction)

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """The predictions alone, in order."""
        return tuple(p for _, p in self.predicted)

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per point, for tables and CSV."""
        return [self._row(p) for p in self.points]

    def _row(self, point: SweepPoint) -> dict[str, Any]:
        p = point.prediction
        if p is None:
            return {self.over: point.value, "note": point.note}
        first = self.predictions[0]
        rates = {
            "chips": p.job.cluster.chips,
            "step_time_s": p.step_time_s,
            **_ends("interval", "s", p.interval_s),
            "tokens_per_s": p.tokens_per_s,
            "mfu": p.mfu,
            "speedup": p.tokens_per_s / first.tokens_per_s,
            **_ends("speedup", "", speedup(p, first)),
            "efficiency": p.tokens_per_s_per_chip
            / first.tokens_per_s_per_chip,
            "memory_bytes": p.memory_bytes["needed"],
            "fits": point.fits,
            "train_time_s": p.train_time_s,
            **_ends("train_time", "s", p.within(p.train_time_s)),
            "cost_usd": p.cost_usd,
            **_ends("cost", "usd", p.within(p.cost_usd)),
            "tokens_per_usd": p.job.tokens / p.cost_usd
            if p.cost_usd
            else None,
            "energy_j": p.energy_j,
        }
        layout = {name: getattr(p.layout, name) for name in FIELDS}
        return {self.over: point.value, **rates, **layout, "note": point.note}

    def to_dict(self) -> dict[str, Any]:
        """The fields of `sweep --json`."""
        points = [
            {
                "value": p.value,
                "note": p.note,
                "prediction": p.prediction.to_dict() if p.prediction else None,
            }
            for p in self.points
        ]
        return {
            "over": self.over,
            "fixed": self.fixed,
            "interrupted": self.interrupted,
            "points": points,
        }


def speedup(p: Prediction, first: Prediction) -> tuple[float, float] | None:
    """The 90 % interval of how many times the tokens a second of the first point's: what both are
    unsure of together does not count.
    """
    sure = ratio(first, p)
    times = p.tokens_per_s / first.tokens_per_s
    return (
        (times * sure[0], times * sure[1]) if sure and p is not first else None
    )


def _ends(
    name: str, unit: str, ends: tuple[float, float] | None
) -> dict[str, float | None]:
    """An interval as two numbers of a row."""
    low, high = ends or (None, None)
    tail = f"_{unit}" if unit else ""
    return {f"{name}_low{tail}": low, f"{name}_high{tail}": high}


def values(texts: Sequence[Value], most: int = MOST) -> list[Value]:
    """The values of texts: "64..4096" doubles from 64 to at most 4096, the rest stands for
    itself.
    """
    if not isinstance(texts, Iterable) or isinstance(texts, (str, Mapping)):
        raise BadInput(
            f"a sweep needs a list of values, such as [64, 128], not {brief(texts)}"
        )
    points: list[Value] = []
    for text in texts:
        if isinstance(text, str) and (match := DOUBLING.fullmatch(text[:100])):
            low = int(match[1])
            high = int(match[2])
            if not 0 < low <= high <= 10**12:
                raise BadInput(
                    f"range {text.strip()!r} must rise from at least 1 to at most 1e12"
                )
            while low <= high:
                points.append(low)
                low *= 2
        elif isinstance(text, str) and ".." in text[:100]:
            raise BadInput(
                f"range {text[:60]!r} must have a whole number at both ends, such as 64..4096"
            )
        elif text != "":
            points.append(text)
    if not 0 < len(points) <= most:
        raise BadInput(
            f"a sweep needs 1 to {most} values, such as 64,128, not {len(points)}"
        )
    return points


def parse(over: str) -> tuple[str, list[str]]:
    """(field, texts of its values) of "chips=64..4096" or "network.ib.bandwidth=100 Gbit/s,400
    Gbit/s".
    """
    field, equals, texts = over.partition("=")
    if not equals or not field.strip():
        raise BadInput(
            f"--over {over[:60]!r} must look like chips=64..4096 or batch=1M,4M"
        )
    return field.strip(), [text.strip() for text in texts.split(",")]


def sweep(
    job: Job,
    over: str,
    texts: Sequence[Value],
    space: Space | None = None,
    fixed: bool = False,
    progress: Callable[[str, float], None] | None = None,
    prices: Prices = EMPTY,
    **fields: Any,
) -> Sweep:
    """The best layout (with `fixed`: the job's own) for every value of a field. Ctrl-C ends it and
    keeps the finished points.

    >>> from meshwright import Job, sweep
    >>> job = Job("llama3-8b", "64xh100-sxm", batch=512)
    >>> over = sweep(job, "chips", ["32..128"], zero=3, framework="torchtitan")
    >>> [p.job.cluster.chips for p in over.points]
    [32, 64, 128]

    over: path of the field, such as chips, batch, seq, tp, network.ib.bandwidth, chip.hbm_bytes,
    assumptions; space: constraints of the search (a `Space`);  progress: called with what is done;
    prices: of chips (name -> USD an hour), instead of the catalogue's; fields: as `plan` takes
    them.  Raises BadInput if no value can be set.
    """
    from .search import constrain

    demand_job(job)
    if fixed:
        job = job.with_(**fields)
    else:
        job, space = constrain(job, space, fields)
    chosen = values(texts)
    demand_text(over, "the field of a sweep")
    points: list[SweepPoint] = []
    try:
        for point in _points(
            job, over, chosen, space=space, fixed=fixed, prices=prices
        ):
            points.append(point)
            if progress:
                progress(f"{over} = {point.value}", len(points) / len(chosen))
    except KeyboardInterrupt:
        return Sweep(over, tuple(points), interrupted=True, fixed=fixed)
    return Sweep(over, tuple(points), fixed=fixed)


def _points(
    job: Job,
    over: str,
    chosen: list[Value],
    space: Space | None,
    fixed: bool,
    prices: Prices,
) -> Iterator[SweepPoint]:
    # a wrong path or value shows before the work starts
    jobs = [
        (_display_value(over, value, varied), varied)
        for value in chosen
        for varied in [vary(job, over, value, prices)]
    ]
    for value, varied in jobs:
        try:
            if fixed:
                yield SweepPoint(value, varied, predict(varied))
            else:
                # a degree that is varied is a constraint
                best, note, ran = best_layout(varied, [over], space)
                yield SweepPoint(value, varied, best, note=note, ran=ran)
        except MeshwrightError as error:
            yield SweepPoint(value, varied, None, str(error))


def _display_value(over: str, value: Value, varied: Job) -> Value:
    """The value as it is shown: a length of sequences in tokens, since 8k are 8,192."""
    lengths = {
        "seq": varied.T,
        "job.seq": varied.T,
        "model.seq": varied.model.seq,
    }
    return lengths.get(over, value)


def best_layout(
    job: Job, over: Sequence[str], space: Space | None
) -> tuple[Prediction | None, str, bool]:
    """(the best layout where these fields are varied, or why there is none, whether it ran)."""
    from .search import Space, plan

    space = space or Space()
    for name in (path.removeprefix("layout.") for path in over):
        if name == "placement":
            raise BadInput(
                "placement is what a search chooses: it can only be varied for a fixed layout"
            )
        if (field := name.replace("-", "_")) in FIELDS:
            space = space.but(**{field: getattr(job.layout, field)})
    answer = plan(job, space, top=1)
    why = "" if answer.best else "; ".join(answer.notes) or "nothing fits"
    return answer.best, why, bool(answer.recipe)


def vary(job: Job, path: str, value: Value, prices: Prices = EMPTY) -> Job:
    """The job with one field changed; `path` begins at the job, its cluster or its layout. Raises
    BadInput.

    A changed `seq` keeps the tokens of a step; `batch` is read as on the command line; `on`
    replaces the cluster; another number of chips is a slice as it is sold, if the cluster was one.
    A layout that takes all chips goes on to do so: dp follows. The schedule follows interleave.
    prices: of chips (name -> USD an hour), instead of the catalogue's.
    """
    steps = [step for step in path.replace("[", ".[").split(".") if step]
    if path in ("batch", "job.batch"):
        count, _ = parse_batch(value, job.T, job.cluster.chips)
        return replace(job, batch=count)
    if path in ("assumptions", "job.assumptions"):
        # sets are compared on one run, in its numbers
        return replace(job, assumptions=assumptions(str(value)))
    if path == "on":
        changed = replace(job, cluster=resolve.cluster(str(value)))
    else:
        steps = _rooted(steps, path)
        changed = _set(job, steps, value, path)
        given: Any = value
        for step in reversed(steps):
            given = {step: given}
        demand_meant(changed, given, "job")
    if changed.T != job.T:
        changed = replace(
            changed, batch=max(round(job.batch_tokens / changed.T), 1)
        )
    if changed.cluster.chips != job.cluster.chips and path != "on":
        sold = _sold(job.cluster, changed.cluster.chips)
        changed = replace(changed, cluster=sold or changed.cluster)
    if steps[-1:] != ["usd_per_hour"]:
        priced = changed.cluster.priced(prices)
        changed = replace(changed, cluster=priced)
    if changed.cluster != job.cluster:
        changed = replace(changed, cluster=_renamed(changed.cluster))
    if steps[-1:] == ["interleave"] and job.layout.schedule in CHUNKED:
        carrying = CHUNKED[changed.layout.interleave > 1]
        changed = replace(
            changed, layout=replace(changed.layout, schedule=carrying)
        )
    layout, stated = changed.layout, job.layout.dp is not None
    full = stated and job.layout.chips == job.cluster.chips
    if full and steps[-1:] != ["dp"]:
        layout = layout.refilling(changed.cluster.chips)
    return replace(changed, layout=layout)


def _rooted(steps: list[str], path: str) -> list[str]:
    """The path from the job on."""
    names = {
        "": [f.name for f in dataclasses.fields(Job)],
        "cluster": ["chip", "network", "chips"],
        "layout": [f.name for f in dataclasses.fields(Layout)],
        "software": [f.name for f in dataclasses.fields(Software)],
    }
    first = steps[0].replace("-", "_") if steps else ""  # as its flag
    if first == "job":
        return steps[1:]
    for table, fields in names.items():
        if first in fields:
            named = [first, *steps[1:]]
            return [table, *named] if table else named
    raise unknown(
        "field", path, [name for fields in names.values() for name in fields]
    )


def _set(record: Any, steps: list[str], value: Value, path: str) -> Any:
    """The thing with the field at `steps` replaced; `read` checks it."""
    if isinstance(record, tuple):
        index = _index(record, steps[0], path)
        return (
            *record[:index],
            _set(record[index], steps[1:], value, path),
            *record[index + 1 :],
        )
    if (
        not dataclasses.is_dataclass(record)
        or isinstance(record, type)
        or not steps
    ):
        raise BadInput(
            f"field {path!r} is not a number or a name that can be varied"
        )
    fields = {
        f.name: getattr(record, f.name) for f in dataclasses.fields(record)
    }
    name = steps[0]
    rest = steps[1:]
    if name not in fields and (
        named := [
            f
            for f, v in fields.items()
            if isinstance(v, tuple) and name in _names(v)
        ]
    ):
        name, rest = named[0], steps  # network.ib for network.dims[1]
    if name not in fields:
        entries = [
            entry.name
            for v in fields.values()
            if isinstance(v, tuple)
            for entry in v
            if hasattr(entry, "name")
        ]
        raise unknown(
            f"field {path!r}: in {article(type(record).__name__.lower())}",
            name,
            (rest and entries) or fields,
        )
    inner = fields[name]
    if not rest or isinstance(inner, Mapping):
        new = {**inner, rest[0]: value} if rest else value
        return read(
            type(record),
            _stated_fields(record, name, new),
            ".".join(path.split(".")[: -1 - len(rest)]),
            thing_named,
        )
    return replace(record, **{name: _set(inner, rest, value, path)})


def _stated_fields(record: Any, name: str, value: Any) -> dict[str, Any]:
    """What a file would say of the thing with one field changed: no defaults, and no fields of
    options that it lost.
    """
    now = {f: getattr(record, f) for f in fields_of(type(record))}
    lost = left_out(type(record), {**now, name: value})
    said = {
        f.name: now[f.name]
        for f in fields_of(type(record)).values()
        if f.name not in lost and now[f.name] != f.default
    }
    return {**said, name: value}


def _names(things: tuple[Any, ...]) -> list[str]:
    """What entries of a list are called."""
    return [str(getattr(thing, "name", i)) for i, thing in enumerate(things)]


def _index(things: tuple[Any, ...], step: str, path: str) -> int:
    """Which of the things "[1]" or a name means."""
    names = _names(things)
    if step in names:
        return names.index(step)
    number = step.strip("[]")
    if number.isdecimal() and int(number[:6]) < len(things):
        return int(number)
    raise unknown(f"field {brief(path)}: entry", step, names)


def _sold(cluster: Cluster, chips: int) -> Cluster | None:
    """So many chips of the catalogue on their network, if the cluster is some of them: a larger
    slice of a torus has longer axes, not one more.
    """
    named = cluster.chip.name, cluster.network.name
    if not all(map(catalog.has, ("chips", "networks"), named)):
        return None
    mine, other = (
        catalog.cluster(f"{number}x{named[0]}", named[1])
        for number in (cluster.chips, chips)
    )
    # which may have a price of its own
    if replace(mine, name=cluster.name, chip=cluster.chip) != cluster:
        return None
    return replace(other, chip=cluster.chip)


def _renamed(cluster: Cluster) -> Cluster:
    """The cluster under the name that its chips and network have in the catalogue, if they have
    one.
    """
    for what in (cluster.chip.name, cluster.network.name):
        name = f"{cluster.chips}x{what}"
        try:
            if replace(resolve.cluster(name), name="") == replace(
                cluster, name=""
            ):
                return replace(cluster, name=name)
        except BadInput:
            pass
    return replace(cluster, name="")
