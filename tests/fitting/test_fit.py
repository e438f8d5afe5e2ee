"""Numbers fitted to runs: recovered where runs hold them, their prior where they do not, judged
without a laboratory.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod

import numpy as np
import pytest

from meshwright.compare.as_run import predict_as_run
from meshwright.describe import fitted, framework, kernels
from meshwright.describe.assumptions import BY_SHAPE_AS_WRITTEN, REALISTIC
from meshwright.describe.fitted import Parameter
from meshwright.prediction.certainty import evidence_runs as seen_runs
from meshwright_studies.fitting import fit as fits
from meshwright_studies.fitting.fit import RunModel, fit, stored, with_values
from meshwright_studies.fitting.runs import Measured, runs
from meshwright_studies.validate import published

CLOCK = Parameter(
    "clock", ("kernels/a100:clock",), 0.95, 10.0, 0.3, 1.0, "by hand", 0.95
)
HOST = Parameter(
    "host",
    ("frameworks/llm-foundry:host_s",),
    0.8e-3,
    0.2,
    1e-5,
    1e-1,
    "by hand",
    0.8e-3,
)


@cache
def few(*sources: str) -> tuple[Measured, ...]:
    """The first rows of some sources on A100s, as measured."""
    rows = []
    for source in sources:
        every = (row for row in published() if row["source"] == source)
        rows += [row for row in every if "A100" in row["hardware"]["gpu"]][:6]
    return runs(rows)


def made(
    of: tuple[Measured, ...], values: dict[str, float]
) -> tuple[Measured, ...]:
    """Runs that took what the laws say with these values."""
    every = {p.name: p for p in (CLOCK, HOST)}
    return tuple(
        replace(
            run, step_s=predict_as_run(by_hand(run, values, every)).step_time_s
        )
        for run in of
    )


def by_hand(
    run: Measured, values: dict[str, float], every: dict[str, Parameter]
):  # type: ignore[no-untyped-def]
    """Its job with other numbers, set one by one."""
    law = kernels.as_written()[run.job.cluster.chip.kernel_law]
    if "clock" in values:
        law = replace(law, clock=values["clock"])
    by = framework.as_written()[run.job.framework.name]
    if "host" in values and by.name == "llm-foundry":
        by = replace(by, host_s=values["host"])
    how = replace(REALISTIC, chip=replace(BY_SHAPE_AS_WRITTEN, kernels=law))
    return replace(run.job, assumptions=how, framework=by)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue has these two numbers alone; what was read of it before stays."""
    kernels.all_kernels(), framework.frameworks()
    monkeypatch.setattr(fitted, "fitted_parameters", lambda: (CLOCK, HOST))


@pytest.mark.usefixtures("only")
def test_a_fit_finds_the_numbers_that_runs_were_made_with() -> None:
    """Runs made with a clock of 0.8 give 0.8, whatever the prior says; one that is a tenth of all
    and twice as slow moves it little."""
    of = made(few("korthikanti2022", "zero-bubble"), {"clock": 0.8})
    found = fit(RunModel(of, (CLOCK,)))
    assert found.values["clock"] == pytest.approx(0.8, abs=0.002)
    odd = (replace(of[0], step_s=2 * of[0].step_s), *of[1:])
    assert fit(RunModel(odd, (CLOCK,))).values["clock"] == pytest.approx(
        0.8, abs=0.02
    )


@pytest.mark.usefixtures("only")
def test_a_number_of_one_laboratory_falls_back_without_it() -> None:
    of = made(
        few("korthikanti2022", "llm-foundry"), {"clock": 0.8, "host": 1.6e-3}
    )
    found = fit(RunModel(of, (CLOCK, HOST)))
    assert set(found.without) == {"korthikanti2022", "llm-foundry"}
    assert found.without["llm-foundry"]["host"] == pytest.approx(HOST.prior)
    assert found.identified_by(CLOCK) == ()  # either laboratory shows it
    low, high = found.range("clock")
    assert low <= found.values["clock"] <= high
    again = fit(RunModel(of, (CLOCK, HOST)))
    assert again == found  # to the last bit: nothing is drawn


@pytest.mark.usefixtures("only")
def test_a_prediction_is_asked_once_for_what_its_job_reads() -> None:
    of = few("korthikanti2022")
    model = RunModel(of, (CLOCK, HOST))
    model.errors({"clock": 0.9, "host": 1e-3})
    known = len(model.known)
    # none of them runs on llm-foundry
    model.errors({"clock": 0.9, "host": 2e-3})
    assert len(model.known) == known
    model.errors({"clock": 0.8, "host": 2e-3})
    assert len(model.known) == 2 * known


def test_the_catalogue_says_what_is_fitted_and_to_what() -> None:
    """At most 22 numbers; each belongs to chips, frameworks or the set, its prior is what the files
    say, its value lies within its bounds and its range over the laboratories."""
    of = fitted.fitted_parameters()
    assert 1 <= len(of) <= 22
    sources = {run.source for run in seen_runs()} - {*framework.frameworks()}
    for p in of:
        assert (
            p.least <= p.value <= p.most
            and p.range[0] <= p.range[1]
            and p.source
        )
        assert not any(
            source in where for source in sources for where in p.where
        )
        for where in p.where:
            place, path = where.split(":")
            assert value(place, path, False) == pytest.approx(
                1.0 if p.times else p.prior
            ) or (p.times)
            changed = value(place, path, True) / value(place, path, False)
            others = [q for q in of if where in q.where]
            assert changed == pytest.approx(
                prod(q.value / (1 if q.times else q.prior) for q in others)
            )


def value(place: str, path: str, after: bool) -> float:
    """A number of the catalogue, before or after the fit."""
    kind, name = place.split("/")
    things = {
        "kernels": kernels.all_kernels() if after else kernels.as_written(),
        "frameworks": framework.frameworks()
        if after
        else framework.as_written(),
        "set": {"chip": REALISTIC.chip if after else BY_SHAPE_AS_WRITTEN},
    }
    thing = things[kind][name]  # type: ignore[index]
    for field in path.split("."):
        thing = getattr(thing, field)
    return float(thing)


def test_the_fit_of_the_catalogue_is_the_one_that_it_holds() -> None:
    """A step from the stored numbers on, with all effects anew, changes none by more than a
    hundredth of its prior's width; the numbers without a laboratory are stored for all thirteen."""
    kept = stored()
    assert len(kept.without) == 13 and set(kept.left_out["families"]) >= {
        "Ampere",
        "Hopper",
        "Blackwell",
    }
    assert {p.name for p in fitted.fitted_parameters()} == set(kept.values)
    every = runs(published())
    some = tuple(run for i, run in enumerate(every) if i % 9 == 0)
    job = with_values(some[0].job, kept.values)
    assert predict_as_run(job).step_time_s == pytest.approx(
        predict_as_run(some[0].job).step_time_s
    )
    assert (
        fits.NOISE > 0
        and np.isfinite(
            RunModel(some[:5], fitted.fitted_parameters()).errors(kept.values)
        ).all()
    )
