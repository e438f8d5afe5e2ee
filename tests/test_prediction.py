"""What a prediction says about itself: how sure it is, what follows from its step time."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from by_hand import by_hand
from meshwright import Job, assumptions, cluster, model
from meshwright.describe.layout import Layout
from meshwright.prediction import prediction
from meshwright.validate import Checked, Validation, evidence
from meshwright.validate.evidence import spread


def test_the_interval_spans_what_runs_measured_over_what_was_predicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A 6 s step of a set whose runs took 0.9 to 1.5 times their predictions: 5.4 to 9 s."""
    monkeypatch.setattr(prediction, "evidence", lambda: {"by hand": {"low": 0.9, "high": 1.5}})
    assert by_hand(Layout()).interval_s == pytest.approx((5.4, 9.0))


def test_no_runs_no_interval() -> None:
    assert by_hand(Layout()).interval_s is None


def test_nine_of_ten_runs_lie_within_the_evidence() -> None:
    """21 runs that took 1.0, 1.05, ... 2.0 times what was predicted: one below 1.05, one above
    1.95.
    """
    rows = [Checked(str(i), "here", "step_time", 1.0, 1.0 + i / 20) for i in range(21)]
    pooled = tomllib.loads(evidence(Validation(tuple(rows)), "by-hand"))["by-hand"]
    assert (pooled["low"], pooled["high"], pooled["rows"], pooled["sources"]) == (1.05, 1.95, 21, 1)


def test_sources_weigh_alike_in_the_evidence() -> None:
    """90 runs of one source at 1.0 and 3 of another at 2.0: half of the weight lies at 2.0."""
    rows = [Checked(str(i), "large", "step_time", 1.0, 1.0) for i in range(90)]
    rows += [Checked(str(i), "small", "step_time", 1.0, 2.0) for i in range(3)]
    assert spread(rows) == pytest.approx((1.0, 2.0))


def test_a_class_of_few_sources_is_never_surer_than_all_runs() -> None:
    """Class a: four sources at 0.8, 0.9, 1.1 and 1.2; class b: one source at 1.0, which says
    nothing of another.
    """
    rows = [
        Checked(str(i), str(i), "step_time", 1.0, t, kind="a")
        for i, t in enumerate((0.8, 0.9, 1.1, 1.2))
    ]
    rows.append(Checked("4", "4", "step_time", 1.0, 1.0, kind="b"))
    found = tomllib.loads(evidence(Validation(tuple(rows)), "by-hand"))["by-hand"]
    assert (found["classes"]["b"]["low"], found["classes"]["b"]["high"]) == (
        found["low"],
        found["high"],
    )
    assert found["classes"]["a"]["low"] == 0.815  # 5 % of three steps on: 0.8 + 0.15 x 0.1


def test_a_job_takes_the_evidence_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = {
        "Megatron Core, dense": {"low": 0.9, "high": 1.2},
        "experts": {"low": 0.5, "high": 2.0},
    }
    monkeypatch.setattr(
        prediction, "evidence", lambda: {"realistic": {"low": 1.0, "high": 1.0, "classes": classes}}
    )
    job = Job(model("llama3-8b"), cluster("8xh100-sxm"), 8, Layout(tp=8))
    assert prediction.spread(job) == classes["Megatron Core, dense"]
    assert prediction.spread(replace(job, model=model("mixtral-8x7b"))) == classes["experts"]
    # no published run of its family
    assert prediction.spread(replace(job, framework="meshwright")) is None


def test_utilisation_is_work_over_time_and_peak() -> None:
    """One chip, one sequence, two layers: 3 s each at the peak; the model's FLOPs count attention
    once, uncut.
    """
    p = by_hand(Layout())
    assert p.step_time_s == pytest.approx(6.0)
    assert p.mfu == pytest.approx(1.0)
    assert by_hand(Layout(recompute="full")).hfu == pytest.approx(1.0)  # 8 s, a third more work
    assert by_hand(Layout(recompute="full")).mfu == pytest.approx(6 / 8)
    assert p.tokens_per_s == pytest.approx(128 / 6)


def test_energy_and_days_need_a_length() -> None:
    p = by_hand(Layout())
    assert (p.train_time_s, p.energy_j, p.chip_hours, p.cost_usd) == (None,) * 4
    assert replace(p, job=replace(p.job, tokens=256.0)).train_time_s == pytest.approx(12.0)
    assert assumptions("realistic").name in prediction.evidence()
