"""Predictions against published measurements: every complete pre-training row becomes a job and is predicted as it is.

    validate("runs.json").overall["step_time"]["median_abs_error"]

Nothing is fitted and no source has constants of its own. Rows that cannot be described are skipped with a sentence; what
had to be assumed of a row, or cannot be said in a layout, is a note.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..describe.assumptions import REALISTIC, Assumptions
from ..describe.job import Job
from ..errors import BadInput
from ..layout import rules
from ..layout.placement import placed
from ..prediction.prediction import Prediction
from . import collectives, rows
from .jobs import described
from .measured import Pair, pairs, workload
from .rows import Row, plain, text
from .stats import confusion, quantile, ranking, stats

TIMES = ("step_time", "layer_forward_time", "layer_backward_time", "collective_time")
FATAL = (rules.POSITIVE, rules.CHIPS, rules.EXPERT_RANKS, rules.BATCH)
"""Rules without which a layout means nothing. Real runs break the others (61 layers on 64 chunks)."""


@dataclass(frozen=True)
class Checked:
    """One quantity of one row beside its prediction; or why there is none."""

    id: str
    source: str
    quantity: str | None
    predicted: float | None = None
    measured: float | None = None
    interval: tuple[float, float] | None = None
    skipped: str | None = None
    chip: str = ""
    workload: tuple[object, ...] = ()
    notes: tuple[str, ...] = ()
    """What had to be assumed of the row, or is not in its job."""

    @property
    def ratio(self) -> float | None:
        """predicted / measured; None for what is a yes or a no."""
        if self.predicted is None or not self.measured or self.quantity == "out_of_memory":
            return None
        return self.predicted / self.measured

    def to_dict(self) -> dict[str, Any]:
        names = ("id", "source", "quantity", "predicted", "measured", "ratio", "interval", "skipped")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Validation:
    """All comparisons. Errors are fractions of the measured value."""

    rows: tuple[Checked, ...]
    outside: dict[str, int] = field(default_factory=dict)
    """Rows that are not complete pre-training runs, by what they are."""

    def having(self, *quantities: str) -> list[Checked]:
        """The compared rows of some quantities."""
        return [r for r in self.rows if r.quantity in quantities and r.ratio is not None]

    def by(self, key: str) -> dict[str, dict[str, Any]]:
        """Statistics by "source" or "chip": of times, or of memory where a source has no times."""
        groups: dict[str, list[Checked]] = defaultdict(list)
        for r in self.having(*TIMES, "memory"):
            groups[getattr(r, key)].append(r)
        return {name: _stats([r for r in of if r.quantity in TIMES] or of) for name, of in groups.items()}

    @property
    def overall(self) -> dict[str, Any]:
        """Statistics by quantity, the confusion of out-of-memory, and the ranking of layouts."""
        groups: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
        for r in self.having("step_time"):
            groups[r.workload].append((r.predicted or 0.0, r.measured or 0.0))
        found: dict[str, Any] = {name: _stats(self.having(name)) for name in ("step_time", "memory")}
        for name in TIMES[1:]:
            if self.having(name):
                found[name] = _stats(self.having(name))
        return {**found, "out_of_memory": confusion(verdicts(self.rows)), "ranking": ranking(groups.values())}

    @property
    def skipped(self) -> dict[str, int]:
        """Reason -> complete pre-training rows skipped for it."""
        return dict(Counter(r.skipped for r in self.rows if r.skipped).most_common())

    @property
    def notes(self) -> dict[str, list[str]]:
        """Note -> ids of the rows it is said of, the most frequent first."""
        found: dict[str, list[str]] = defaultdict(list)
        for id, note in dict.fromkeys((r.id, note) for r in self.rows for note in r.notes):
            found[note].append(id)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def to_dict(self) -> dict[str, Any]:
        """The fields of `validate --json`."""
        return {
            "rows": [r.to_dict() for r in self.rows], "sources": self.by("source"), "chips": self.by("chip"),
            "overall": self.overall, "skipped": self.skipped, "notes": self.notes, "outside": self.outside,
        }  # fmt: skip


def verdicts(of: Iterable[Checked]) -> Iterator[tuple[bool | None, bool]]:
    """(predicted, happened) of every run that ran out of memory or did not; predicted None = not known."""
    for r in of:
        if r.quantity == "out_of_memory":
            yield None if r.predicted is None else bool(r.predicted), bool(r.measured)


def _stats(of: Sequence[Checked]) -> dict[str, Any]:
    inside = [r.interval[0] <= (r.measured or 0.0) <= r.interval[1] for r in of if r.interval]
    return stats([r.ratio for r in of if r.ratio is not None], inside)


def validate(
    source: str | Path | Sequence[Row], assumptions: Assumptions = REALISTIC, network: str = "perlmutter"
) -> Validation:
    """Compare published measurements with what the assumption set predicts.

    source: a JSON file of runs, a CSV file of collectives, or the rows themselves;  network: catalogue name of the
    machine whose collectives the CSV holds.  Raises BadInput if the source as a whole cannot be read.
    """
    if isinstance(source, (str, Path)):
        content = rows.read_text(source)
        if collectives.is_table(content):
            return Validation(tuple(_collectives(content, network, assumptions)))
        found = rows.parse(content)
    else:
        found = rows.check(source)
    outside = Counter(why for row in found if (why := out_of_scope(row)))
    return Validation(
        tuple(c for row in found if not out_of_scope(row) for c in checked(row, assumptions)),
        dict(outside.most_common()),
    )


def published() -> list[Row]:
    """The measurements that ship with the catalogue."""
    from importlib import resources

    return rows.parse((resources.files("meshwright.catalog") / "runs" / "published.json").read_text("utf-8"))


def evidence(of: Validation, name: str) -> str:
    """How measured step times spread around the predictions of an assumption set, as the TOML of catalog/evidence.toml."""
    ratios = sorted(1 / r.ratio for r in of.having("step_time") if r.ratio)
    low, high = quantile(ratios, 0.1), quantile(ratios, 0.9)
    return (
        f"[{name}]\nlow = {low:.3f}\nhigh = {high:.3f}\nrows = {len(ratios)}\n"
        'source = "10 % and 90 % quantiles of measured over predicted step time, published runs of catalog/runs"\n'
    )


def out_of_scope(row: Row) -> str:
    """What a row is instead of a complete pre-training run; "" if it is one. A row that does not say counts as one."""
    task = text(row, "task")
    if task and task != "pretrain":
        return f"{task}, not pre-training"
    return "its source does not describe the run completely" if row.get("complete") is False else ""


def checked(row: Row, assumptions: Assumptions = REALISTIC) -> Iterator[Checked]:
    """The comparisons of one row; one with a reason if there are none."""
    base = Checked(plain(row, "id")[:120], plain(row, "source")[:120], None)
    try:
        about = described(row)
        prediction = predicted(replace(about.job, assumptions=assumptions))
        found = list(pairs(row, prediction, about.memory))
        if not found:
            raise BadInput("nothing it measured can be compared")
        if not all(0 <= number < 1e30 for p in found for number in (p.predicted or 0.0, p.measured)):
            raise BadInput("its numbers are out of all proportion")
        same = workload(row, prediction.job)
    except (BadInput, ArithmeticError, ValueError) as error:
        yield replace(
            base, skipped=str(error)[:300] if isinstance(error, BadInput) else "its numbers are out of all proportion"
        )
        return
    for quantity, here, there, note in found:
        yield replace(
            base,
            quantity=quantity,
            predicted=here,
            measured=there,
            interval=prediction.interval_s if quantity == "step_time" else None,
            chip=prediction.job.cluster.chip.name,
            workload=same,
            notes=(*about.notes, note) if note else about.notes,
        )


def predicted(description: Job) -> Prediction:
    """The prediction of a run that took place: only rules without which a layout means nothing are kept."""
    for rule in FATAL:
        if not rule.holds(description, description.layout):
            raise BadInput(rule.sentence(description, description.layout))
    full = placed(description.layout, description.cluster.sizes)
    return Prediction(replace(description, layout=full), full)


def _collectives(content: str, network: str, assumptions: Assumptions) -> Iterator[Checked]:
    for what, *rest in collectives.compare(content, network, assumptions):
        source = f"{network} {what.split('-')[0]}"
        if len(rest) == 1:
            yield Checked(what, source, None, skipped=str(rest[0]))
        else:
            yield Checked(what, source, "collective_time", float(rest[0]), float(rest[1]), chip=network)


__all__ = ["Checked", "Pair", "Validation", "published", "validate"]
