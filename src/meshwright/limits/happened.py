"""Largest runs that happened, as published or as others estimate them (largest_runs.toml)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated

from .. import catalog
from ..describe import shipped
from ..describe.chip import Chip
from ..describe.fields import Checked, Name, Prose, Range
from ..describe.read import read
from ..units import DAY_S

HALF = ("bf16", "fp16")


@dataclass(frozen=True)
class LargeRun(Checked):
    """A training run of a laboratory."""

    title: Name
    scenario: Name
    """What comes nearest to its machines, as `limits` takes it."""
    chips: int
    days: float
    flops: float
    year: Annotated[float, Range(1950.0, 2100.0)]
    source: Prose
    estimate: bool = False
    """Of others than the laboratory."""

    @property
    def chip(self) -> Chip:
        """What its scenario names, or the network of its scenario is built with."""
        name = self.scenario.partition("@")[0]
        own = catalog.has("chips", name)
        return catalog.chip(name if own else catalog.network(name).chip)

    def utilisation(self, chip: Chip) -> float:
        """Its FLOPs over those of its chips at their peak in 16 bits on all its days: 0.30 to 0.35
        where laboratories published all three, pauses and repeated steps included.
        """
        peak = max(chip.matrix_flops.get(half, 0.0) for half in HALF)
        return self.flops / (self.chips * self.days * DAY_S * peak)


@cache
def largest_runs() -> tuple[LargeRun, ...]:
    """By training FLOPs, the largest first."""
    runs = [
        read(LargeRun, {**row}, f"largest_runs.{name}")
        for name, row in shipped.shipped_table("largest_runs.toml").items()
    ]
    return tuple(sorted(runs, key=lambda run: -run.flops))


@cache
def kept_up() -> float:
    """The largest utilisation of a run whose laboratory published FLOPs, chips and days."""
    return max(
        run.utilisation(run.chip) for run in largest_runs() if not run.estimate
    )


def near(chip: str) -> tuple[LargeRun, ...]:
    """Those on chips of this name, or of the same name of a paper's set."""
    kind = chip.rpartition("epoch-")[2].partition("-")[0]
    return tuple(
        run for run in largest_runs() if run.scenario.partition("-")[0] == kind
    )
