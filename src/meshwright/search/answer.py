"""What a plan found: the best layouts that fit, by family too, the front of time against memory,
what was looked at, and what would help if nothing fits.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from textwrap import indent
from typing import Any

from ..describe.display import Displayed
from ..describe.frozen import FrozenDict
from ..describe.job import Job
from ..errors import NoLayout
from ..prediction.certainty import resolution
from ..prediction.elastic import Elasticity, elasticities
from ..prediction.prediction import Prediction, predict
from ..units import show
from .families import Family
from .precedent import outside_conventions
from .ranked import Ranking
from .software import Tuning, best_tuning, single_tunings
from .space import Space


@dataclass(frozen=True)
class Plan(Displayed):
    """The result of a search: the best layout, alternatives, and what was searched.

    >>> from meshwright import Job, Plan, plan
    >>> answer = plan(Job("llama3-70b", "8xh100-sxm", batch=64))
    >>> isinstance(answer, Plan), answer.best is None, answer.closest.fits
    (True, True, False)
    """

    best: Prediction | None
    alternatives: tuple[Prediction, ...] = ()
    """The others, best first; some of them may be as good as `best` (`merit.Complexity`)."""
    families: tuple[Family, ...] = ()
    """The best of each family of layouts; empty under a paper's set."""
    pareto: tuple[Prediction, ...] | None = None
    """Layouts that nothing beats in both time and memory, thinned out: each needs a tenth less
    memory than the one before. None: not asked for."""
    searched: int = 0
    """Layouts covered: with every option and placement in a strict space, with every option in a
    relaxed one.
    """
    feasible: int = 0
    """Layouts that were evaluated and fit. Bounds spare most from being looked at, so more may
    exist; `evaluate.brute` counts them all.
    """
    rejected: dict[str, int] | None = None
    """Rule -> how many combinations of degrees broke it (each counted once); "memory" and "bound":
    layouts too big, or ruled out by a bound.
    """
    elapsed_s: float = 0.0
    notes: tuple[str, ...] = ()
    closest: Prediction | None = None
    """If nothing fits: the layout that needs the least memory."""
    idle: str = ""
    """Why the answer leaves chips idle although that was not asked for; empty if it does not."""
    tried: str = ""
    """Among which layouts these are the fastest."""
    untried: str = ""
    """What the space leaves out."""
    kept: tuple[str, ...] = ()
    """Conventions of published runs that these layouts keep."""
    settings: Mapping[str, Any] = FrozenDict()
    """Of the software, where the plan was asked to choose them."""
    recipe: str = ""
    """The published recipe that the answer is, where no layout that was searched is as fast."""
    asked: tuple[Job, Space] | None = field(
        default=None, compare=False, repr=False
    )
    """What was asked, where the answer keeps conventions; None: it need not."""

    def __repr__(self) -> str:
        best = f"best: {self.best!r}" if self.best else "no layout fits"
        counts = (
            f"{self.searched:,} layouts searched in {show(self.elapsed_s, 's')}, {self.feasible:,}"
            " seen to fit"
        )
        return f"Plan: {counts}; {len(self.alternatives)} alternatives\n{indent(best, '  ')}"

    @property
    def answer(self) -> Prediction:
        """`best`. Raises NoLayout, with what is missing, if nothing fits."""
        if self.best is None:
            raise NoLayout("; ".join(self.notes) or "nothing fits")
        return self.best

    @cached_property
    def outside(self) -> tuple[Family, ...]:
        """The best layout that breaks a convention, or that the framework's released version does
        not run, where it is faster by more than the model's resolution: another search, made when
        it is asked for.
        """
        if not (self.asked and self.best):
            return ()
        return outside_conventions(*self.asked, self.best)

    @cached_property
    def software(self) -> tuple[Tuning, ...]:
        """What each other setting of the framework's software would give, the layout kept."""
        return single_tunings(self.best) if self.asked and self.best else ()

    @cached_property
    def tuned(self) -> Tuning | None:
        """The best settings together, and the best layout under them: another search, made when it
        is asked for.
        """
        if not (self.asked and self.best):
            return None
        return best_tuning(self.best, self.asked[1])

    def cost_s(self, p: Prediction) -> float:
        """The ranking criterion: step time over the chance to fit, which is 1 for a layout that a
        published run shows to fit.
        """
        ran = [row.prediction for row in self.families if row.ran]
        if self.recipe:
            ran.append(self.best)
        known = any(p is one for one in ran)
        return p.step_time_s if known else p.merit_s

    def slower(self, p: Prediction) -> float:
        """`cost_s` of a layout over that of the best, minus 1; negative if the layout is faster."""
        return (
            self.cost_s(p) / self.cost_s(self.best) - 1 if self.best else 0.0
        )

    @property
    def fastest(self) -> Prediction | None:
        """The layout with the least `cost_s`: `best`, unless that is a tie and was preferred. Needs
        at least two layouts (`top`).
        """
        every = filter(None, (self.best, *self.alternatives))
        return min(every, key=self.cost_s, default=None)

    def tie(self, p: Prediction) -> bool:
        """Whether a layout is as good as the best, within the model's resolution."""
        best, least = self.best, self.fastest
        assert best is not None and least is not None
        near = 1.0 + resolution(p.job)
        most, cost = self.cost_s(least) * near, self.cost_s(p)
        return bool(cost <= most and cost * near >= self.cost_s(best))

    @property
    def beyond(self) -> Family | None:
        """The family whose layout is faster than the best by more than the model's resolution: it
        is not the answer because no run vouches for it.
        """
        for family in self.families:
            p = family.prediction
            if p and self.slower(p) < 0 and not self.tie(p):
                return family
        return None

    def _beside(self, p: Prediction | None) -> dict[str, Any]:
        """A layout as JSON has it beside the best."""
        if p is None or self.best is None:
            return {"slower": None, "tie": False}
        return {"slower": self.slower(p), "tie": self.tie(p)}

    @property
    def elasticities(self) -> tuple[Elasticity, ...]:
        """How the step time changes with each software setting, then with each better machine."""
        if not (self.best and self.families):
            return ()
        settings = (
            Elasticity(one.flags, one.flags, one.change)
            for one in self.software
        )
        return (*settings, *elasticities(self.best))

    def to_dict(self) -> dict[str, Any]:
        """The fields of `plan --json`."""
        return {
            "best": self.best.to_dict() if self.best else None,
            "alternatives": [
                {**p.to_dict(), **self._beside(p)} for p in self.alternatives
            ],
            "families": [
                {
                    "name": row.name,
                    "prediction": row.prediction and row.prediction.to_dict(),
                    **self._beside(row.prediction),
                    "note": row.note,
                }
                for row in (*self.families, *self.outside)
            ],
            "software": {
                "chosen": dict(self.settings),
                "changes": [one.to_dict() for one in self.software],
                "together": self.tuned.to_dict() if self.tuned else None,
            },
            "elasticities": [e.to_dict() for e in self.elasticities],
            "pareto": None
            if self.pareto is None
            else [p.to_dict() for p in self.pareto],
            "searched": self.searched,
            "feasible": self.feasible,
            "rejected": dict(self.rejected or {}),
            "elapsed_s": self.elapsed_s,
            "notes": [*([self.idle] if self.idle else []), *self.notes],
            "space": {
                "tried": self.tried,
                "not_tried": self.untried,
                "kept": list(self.kept),
            },
            "recipe": self.recipe or None,
            "closest": self.closest.to_dict() if self.closest else None,
        }


@dataclass(frozen=True)
class EarlyAnswer:
    """The answer on all chips before pipelines are replayed: the first that a search knows."""

    job: Job
    ranked: Ranking
    slack: float

    @property
    def best(self) -> Prediction | None:
        """The answer among those that the first does not clearly beat; None: nothing fits, as far
        as is known.
        """
        layout = self.ranked.best_by_bounds(self.slack)
        p = predict(self.job, layout) if layout else None
        return p if p and p.fits else None


Steps = Generator[EarlyAnswer, None, Plan]
"""What a search knows before its answer, and its answer."""
