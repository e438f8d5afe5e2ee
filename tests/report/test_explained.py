"""A result in Python says what the command line says: its card, its terms, days, money, risk."""

from __future__ import annotations

import doctest

import pytest

from meshwright import (
    Job,
    Layout,
    Prediction,
    Space,
    plan,
    predict,
)
from meshwright.describe.display import Displayed
from meshwright.prediction import prediction
from meshwright.report.card import MOST, NARROW
from meshwright.sweep import sweep
from refusals import refusal

JOB = Job("llama3-8b", "16xh100-sxm", batch=64, tokens=1e12)
FSDP = Layout(dp=16, zero=3)


def test_a_result_has_the_card_of_the_command() -> None:
    p = predict(JOB, FSDP)
    space = Space(tp=(1, 2), pp=1, cp=1)
    for result, first in (
        (p, "Predict llama3-8b for 1 T tokens on 16 x h100-sxm"),
        (plan(JOB, space), "Plan llama3-8b for 1 T tokens on 16 x h100-sxm"),
        (
            sweep(JOB, "chips", [16, 32], space),
            "llama3-8b for 1 T tokens: the best",
        ),
    ):
        lines = result.explain().splitlines()
        assert lines[0].startswith(first) and len(lines) <= MOST
        assert max(map(len, lines)) <= NARROW


def test_a_prediction_explains_a_term() -> None:
    text = predict(JOB, FSDP).explain("compute")
    assert text.startswith("step_time/compute = ") and "layers" in text
    with refusal("only a prediction has terms"):
        plan(JOB, Space(tp=1, pp=1, cp=1)).explain("compute")


@pytest.mark.parametrize("name", ["days", "usd", "risk"])
def test_examples_of_a_prediction_run(name: str) -> None:
    run_examples(getattr(Prediction, name).fget, vars(prediction))


def test_the_example_of_an_explanation_runs() -> None:
    run_examples(Displayed.explain, {})


def run_examples(thing: object, names: dict[str, object]) -> None:
    """Every example of a docstring, of which there must be one."""
    (case,) = doctest.DocTestFinder(recurse=False).find(
        thing, "example", globs=dict(names)
    )
    result = doctest.DocTestRunner().run(case)
    assert result.attempted and not result.failed
