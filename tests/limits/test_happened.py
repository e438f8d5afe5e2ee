"""What whole transformers are said to reach, beside the largest runs that happened."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from meshwright.describe.job import PRECISIONS
from meshwright.formats.scenario import load_scenario
from meshwright.limits.happened import (
    LargeRun,
    kept_up,
    largest_runs,
    near,
)
from meshwright.limits.realistic import (
    FINE,
    Realism,
    RealPoint,
    flops_of,
    larger,
    most_useful,
    run_on,
)
from meshwright.units import DAY_S

REAL = Realism(precision=PRECISIONS["bf16"])


@pytest.mark.parametrize("run", largest_runs(), ids=lambda run: run.title)
def test_what_happened_is_neither_impossible_nor_far_from_the_limit(
    run: LargeRun,
) -> None:
    """A run half as large is done on these chips in these days, one three times as large is not;
    a quarter of what others than the laboratory estimate.
    """
    scenario = load_scenario(run.scenario)
    scenario = replace(scenario, duration_s=run.days * DAY_S)
    chips, *fewer = most_useful(scenario, REAL, run.chips)
    assert chips <= run.chips < 2 * chips
    assert fewer == [chips // 2, chips // 4]
    less = run.flops / (4 if run.estimate else 2)
    sizes = [(flops_of(scenario, REAL, D), D) for D in FINE]
    small = max(D for flops, D in sizes if flops < less)
    large = min(D for flops, D in sizes if flops > 3 * run.flops)
    assert isinstance(run_on(scenario, REAL, small, chips), RealPoint)
    assert isinstance(run_on(scenario, REAL, large, chips), str)


def test_only_an_estimate_keeps_up_more_than_35_percent() -> None:
    """Llama 3 405B by hand: 3.8e25 / (16,384 x 78 x 86,400 s x 989.4e12)."""
    shares = {
        run.title: run.utilisation(load_scenario(run.scenario).chip)
        for run in largest_runs()
    }
    assert shares.pop("Llama 3 405B") == pytest.approx(0.3478, rel=1e-3)
    assert shares.pop("Grok 3") > 0.5
    assert all(0.29 < share < 0.355 for share in shares.values())


def test_runs_of_a_chip() -> None:
    assert [run.title for run in near("epoch-h100")][:2] == [
        "Grok 3",
        "Llama 3 405B",
    ]
    assert {run.title for run in near("a100-80")} == {"GPT-4", "BLOOM 176B"}
    assert not near("mi300x")


def test_a_refusal_names_the_larger_run_and_what_is_in_doubt() -> None:
    """Of an estimate beyond what any published run kept up the estimate is in doubt too."""
    assert 0.345 < kept_up() < 0.355  # Llama 3 405B, DeepSeek-V3

    def said(name: str, flops: float) -> str:
        most: Any = SimpleNamespace(flops=flops)
        return larger(load_scenario(name), most)

    h100 = "h100-sxm@dgx-h100"
    doubt = said(h100, 1.3e26)
    assert "Grok 3 (an estimate) made 4.0e+26 on 100,000 in 92 days" in doubt
    assert "51 % of the peak" in doubt and "35 % at most" in doubt
    assert "estimate is too high" in doubt
    assert "Grok 3" in said(h100, 1e25) and not said(h100, 1e27)
    doubt = said("a100-80@selene", 1e25)
    assert "GPT-4 (an estimate)" in doubt
    assert doubt.endswith("so what is assumed here is too pessimistic")
