"""The answer of `fit`: what is fitted, and how good it is where it has not looked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from meshwright.describe.fitted import Parameter, fitted_parameters
from meshwright.errors import BadInput
from meshwright.prediction.classes import EXPERTS

from ..validate.rows import Row
from ..validate.stats import by, stats
from . import intervals
from .baselines import Baselines, baselines
from .evidence import HEAD, evidence_table, evidence_toml
from .fit import Fit, RunModel, fit, left_out, whose
from .intervals import UnseenIntervals, scaled
from .runs import runs
from .seen import Column, Seen
from .seen import log_errors as errors_of
from .written import fitted_text


@dataclass(frozen=True)
class FitAnswer:
    """Numbers, and every run as predicted at the priors, in the sample, and with its laboratory,
    its family of chips, or its families of chips and frameworks left out."""

    parameters: tuple[Parameter, ...]
    fit: Fit
    priors: tuple[Seen, ...]
    sample: tuple[Seen, ...]
    laboratories: tuple[Seen, ...]
    families: tuple[Seen, ...]
    pairs: tuple[Seen, ...]
    constants: Baselines
    """What one constant does without each laboratory."""

    @cached_property
    def nested(self) -> UnseenIntervals:
        """Intervals of each laboratory from the others alone."""
        return intervals.nested(self.laboratories)

    @cached_property
    def one_interval(self) -> UnseenIntervals:
        """One pooled interval, from the others alone."""
        return intervals.one_for_all(self.laboratories)

    @property
    def columns(self) -> dict[str, tuple[Seen, ...]]:
        """How a run was predicted -> all runs."""
        return {
            "priors": self.priors,
            "in sample": self.sample,
            "laboratory left out": self.laboratories,
            "family of chips left out": self.families,
            "chips and framework left out": self.pairs,
        }

    def files(self, date: str) -> dict[str, str]:
        """Path in the catalogue -> what is to be written there."""
        count = len(self.fit.without)
        of = self.laboratories
        return {
            "fitted.toml": fitted_text(
                self.parameters,
                self.fit,
                date,
                runs=len(of),
                laboratories=count,
            ),
            "evidence.toml": f"{HEAD}\n{evidence_toml(of, 'realistic')}",
            "runs/seen.csv": evidence_table(of),
        }

    def to_dict(self) -> dict[str, Any]:
        """The fields of `fit --json`."""
        return {
            "parameters": [
                {
                    "name": p.name,
                    "where": list(p.where),
                    "prior": p.prior,
                    "value": self.fit.values[p.name],
                    "range": self.fit.range(p.name),
                    "without": self.fit.identified_by(p),
                }
                for p in self.parameters
            ],
            "errors": {name: errors(of) for name, of in self.columns.items()},
            "sources": {
                name: {
                    key: errors(rows)
                    for key, rows in by(of, lambda s: s.source).items()
                }
                for name, of in self.columns.items()
            },
            "intervals": {
                "coverage": float(self.nested.inside.mean()),
                "classes": coverage(self.laboratories, self.nested),
                "score": float(self.nested.score.mean()),
                "score_of_one_interval": float(self.one_interval.score.mean()),
            },
            "scaled": error_after_scale(self.laboratories),
            "baselines": beside_baselines(self.laboratories, self.constants),
        }


def answer(
    rows: Sequence[Row], of: Sequence[Parameter] | None = None
) -> FitAnswer:
    """Fit the shared numbers to published runs and judge them. BadInput for runs of fewer than two
    laboratories, one of which is left out at a time.
    """
    used = runs(rows)
    if len(names := {whose(run) for run in used}) < 2:
        raise BadInput(
            f"a fit leaves out one laboratory at a time, so it needs runs of two or more: of"
            f" {len(rows)} rows {len(used)} can be used, of {len(names)}"
            f" {'laboratory' if len(names) == 1 else 'laboratories'}"
        )
    model = RunModel(used, tuple(fitted_parameters() if of is None else of))
    return runs_as_predicted(model, fit(model))


def runs_as_predicted(model: RunModel, fitted: Fit) -> FitAnswer:
    """Every run as predicted with numbers that were fitted before."""
    return FitAnswer(
        model.parameters,
        fitted,
        tuple(model.seen({p.name: p.prior for p in model.parameters})),
        sample=tuple(model.seen(fitted.values)),
        laboratories=tuple(left_out(model, fitted)),
        families=tuple(left_out(model, fitted, "families")),
        pairs=tuple(left_out(model, fitted, "pairs")),
        constants=baselines(model, whose),
    )


def errors(of: Sequence[Seen]) -> dict[str, Any]:
    """Median, mean, 90 % and bias of predicted over measured; of dense models and experts too."""
    kinds = {
        "dense": [s for s in of if s.run.kind != EXPERTS],
        "experts": [s for s in of if s.run.kind == EXPERTS],
    }
    medians = {
        name: ratios(rows)["median_abs_error"] for name, rows in kinds.items()
    }
    return {**ratios(of), **medians}


def ratios(of: Sequence[Seen]) -> dict[str, Any]:
    """Statistics of predicted over measured."""
    figures = stats([1.0 / one.run.ratio for one in of])
    return {key: value for key, value in figures.items() if key != "coverage"}


def coverage(
    of: Sequence[Seen], intervals_of: UnseenIntervals
) -> dict[str, dict[str, float]]:
    """Class -> rows, sources, and the share of rows inside."""
    kinds = np.array([one.kind for one in of])
    return {
        kind: {
            "rows": int((kinds == kind).sum()),
            "sources": len({one.source for one in of if one.kind == kind}),
            "inside": float(intervals_of.inside[kinds == kind].mean()),
        }
        for kind in sorted({*kinds.tolist()})
    }


def beside_baselines(
    of: Sequence[Seen], constants: Baselines
) -> dict[str, Any]:
    """Baseline -> its median error, and the share of runs to which the model is nearer."""
    ours = away(-errors_of(of))
    return {
        name: {
            "median_abs_error": float(np.median(away(error))),
            "nearer": float((ours < away(error)).mean()),
        }
        for name, error in constants._asdict().items()
    }


def away(error: Column) -> Column:
    """|predicted / measured - 1|, of logarithms."""
    distance: Column = np.abs(np.expm1(error))
    return distance


def error_after_scale(of: Sequence[Seen]) -> dict[str, float]:
    """Median error of a source's other rows after one scale from three of them (mean of DRAWS
    seeded draws), and of all its rows after one constant from all.
    """
    left: dict[int, list[Column]] = defaultdict(list)
    for seed, rest, _ in scaled(of):
        left[seed].append(away(-rest))
    whole = [
        away(np.median(error) - error)
        for rows in by(of, lambda s: s.source).values()
        for error in (errors_of(rows),)
    ]
    medians = [np.median(np.concatenate(of)) for of in left.values()]
    return {
        "three_rows": float(np.mean(medians)),
        "all_rows": float(np.median(np.concatenate(whole))),
    }
