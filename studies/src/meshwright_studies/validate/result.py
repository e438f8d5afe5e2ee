"""Rows beside their predictions, and what they add up to: errors by quantity, source, class and
chip; verdicts; ranking.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshwright.prediction.certainty import evidence_runs

from .comparison import RowComparison
from .layouts import once
from .stats import confusion, grouped, ranking, reliability, stats

TIMES = (
    "step_time",
    "layer_forward_time",
    "layer_backward_time",
    "collective_time",
)


@dataclass(frozen=True)
class Validation:
    """Comparisons of rows. Errors are fractions of the measured value."""

    rows: tuple[RowComparison, ...]
    outside: dict[str, int] = field(default_factory=dict)
    """Rows that are not complete pre-training runs, by what they are."""

    def having(
        self, *quantities: str, held_out: bool = False
    ) -> list[RowComparison]:
        """The compared rows of some quantities: those that a fit may use, or those that are held
        out.
        """
        return [
            r
            for r in self.rows
            if r.quantity in quantities
            and r.ratio is not None
            and r.held_out is held_out
        ]

    def by(
        self, key: str, held_out: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Statistics by "source", "kind" or "chip": of times, or of memory where there are none."""
        groups = grouped(
            self.having(*TIMES, "memory", held_out=held_out),
            lambda r: str(getattr(r, key)),
        )
        return {
            name: _stats([r for r in of if r.quantity in TIMES] or of)
            for name, of in groups.items()
        }

    @property
    def overall(self) -> dict[str, Any]:
        """Statistics by quantity, the confusion of out-of-memory, and the ranking of layouts."""
        figures: dict[str, Any] = {
            name: _stats(self.having(name)) for name in ("step_time", "memory")
        }
        for name in TIMES[1:]:
            if self.having(name):
                figures[name] = _stats(self.having(name))
        steps = self.having("step_time")
        odds = [*verdicts(self.rows)]
        figures["memory"] |= {"layouts": once(self.having("memory"))}
        foreseen = {**confusion(odds), "reliability": reliability(odds)}
        return {
            **figures,
            "out_of_memory": foreseen,
            "ranking": _ranking(steps),
        }

    @property
    def ranked(self) -> dict[str, dict[str, Any]]:
        """The ranking of layouts by source."""
        rankings = {
            name: _ranking(of)
            for name, of in grouped(
                self.having("step_time"), lambda r: r.source
            ).items()
        }
        return {
            name: ranking
            for name, ranking in rankings.items()
            if ranking["groups"]
        }

    @property
    def held_out(self) -> dict[str, Any]:
        """Runs that no fit may use: each with the range of what its source leaves open, and their
        errors; {} if none.
        """
        apart = self.having("step_time", held_out=True)
        if not apart:
            return {}
        return {
            "rows": [
                {
                    "id": r.id,
                    "predicted": r.predicted,
                    "measured": r.measured,
                    "ratio": r.ratio,
                    "range": r.range_s,
                }
                for r in apart
            ],
            "step_time": _stats(apart),
            "sources": self.by("source", held_out=True),
        }

    @property
    def fitted(self) -> int:
        """Step times among the runs that the shared numbers were fitted to: their errors are those
        of a fit to its own rows.
        """
        known = {(run.source, run.id) for run in evidence_runs()}
        return sum((r.source, r.id) in known for r in self.having("step_time"))

    @property
    def skipped(self) -> dict[str, int]:
        """Reason -> complete pre-training rows skipped for it."""
        return dict(
            Counter(r.skipped for r in self.rows if r.skipped).most_common()
        )

    @property
    def notes(self) -> dict[str, list[str]]:
        """Note -> ids of the rows it is said of, the most frequent first."""
        ids: dict[str, list[str]] = defaultdict(list)
        for id, note in dict.fromkeys(
            (r.id, note) for r in self.rows for note in r.notes
        ):
            ids[note].append(id)
        return dict(sorted(ids.items(), key=lambda item: -len(item[1])))

    def to_dict(self) -> dict[str, Any]:
        """The fields of `validate --json`."""
        return {
            "rows": [r.to_dict() for r in self.rows],
            "sources": self.by("source"),
            "classes": self.by("kind"),
            "chips": self.by("chip"),
            "ranking": self.ranked,
            "held_out": self.held_out,
            "overall": self.overall,
            "fitted": self.fitted,
            "skipped": self.skipped,
            "notes": self.notes,
            "outside": self.outside,
        }


def verdicts(
    of: Iterable[RowComparison],
) -> Iterator[tuple[float | None, bool]]:
    """(risk, happened) of every run that ran out of memory or did not; risk None = not known."""
    for r in of:
        if r.quantity == "out_of_memory":
            yield r.predicted, bool(r.measured)


def _stats(of: Sequence[RowComparison]) -> dict[str, Any]:
    inside = [
        r.interval[0] <= (r.measured or 0.0) <= r.interval[1]
        for r in of
        if r.interval
    ]
    return stats([r.ratio for r in of if r.ratio is not None], inside)


def _ranking(runs: Iterable[RowComparison]) -> dict[str, Any]:
    """The ranking of the layouts of each workload."""
    groups = grouped(runs, lambda r: r.workload).values()
    return ranking(
        [(r.predicted or 0.0, r.measured or 0.0) for r in group]
        for group in groups
    )
