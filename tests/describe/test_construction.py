"""A wrong field is told when a description is made, in one sentence; names stand for what they
name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshwright import (
    Job,
    Layout,
    cluster,
    model,
    plan,
    predict,
)
from meshwright.describe.job import PRECISIONS
from meshwright.formats import parse_json
from refusals import refusal

GOOD: dict[str, Any] = {
    "model": model("llama3-8b"),
    "cluster": cluster("64xh100-sxm"),
    "batch": 512,
}


def test_tf32_is_how_products_are_made_of_what_fp32_keeps() -> None:
    assert replace(PRECISIONS["tf32"], compute="fp32") == PRECISIONS["fp32"]


def test_names_stand_for_what_they_name() -> None:
    named = Job(
        "llama3-8b",
        "64xh100-sxm",
        512,
        precision="fp8",
        optimizer="sgd",
        assumptions="lbl-2024",
        seq="8k",
        tokens="1T",
    )  # type: ignore[arg-type]
    assert named == Job(
        **GOOD,
        precision="fp8",
        optimizer="sgd",
        assumptions="lbl-2024",
        seq=8192,
        tokens=1e12,
    )


def test_whole_numbers_are_kept_as_such() -> None:
    layout = Layout(tp=8.0, dp=np.float64(4))
    assert layout == Layout(tp=8, dp=4) and type(layout.tp) is int
    assert type(Job(**{**GOOD, "batch": np.int64(512)}).batch) is int
    listed = replace(GOOD["model"], hidden=4096.0, pattern=["full"])
    assert type(listed.hidden) is int and listed.pattern == ("full",)
    column = np.array([1.0, 2.0, 0.5])
    assert Layout(tp=column).tp is column, (
        "columns of a table of layouts pass as they are"
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "llama3-7b"}, "did you mean llama3"),
        (
            {"model": 70},
            "job.model must be a Model or the name of one, not 70",
        ),
        ({"cluster": 512}, "job.cluster must be a Cluster"),
        ({"cluster": "h100"}, "such as '8xh100'"),
        ({"batch": "4 many"}, "4 many"),
        ({"batch": 0}, "job.batch must be at least 1, not 0"),
        ({"batch": 1.5}, "job.batch must be a whole number"),
        ({"layout": 8}, "job.layout must be a Layout"),
        ({"seq": "long"}, "job.seq 'long' has no number"),
        (
            {"precision": "bf17"},
            "precision 'bf17' is not known; did you mean bf16",
        ),
        ({"precision": 3}, "job.precision must be a Precision or"),
        ({"optimizer": "adamz"}, "did you mean adam"),
        ({"optimizer": 3}, "job.optimizer must be an Optimizer or"),
        ({"assumptions": "papers"}, "assumption set 'papers' is not known"),
    ],
)
def test_a_wrong_job_is_told_at_once(
    changes: dict[str, Any], says: str
) -> None:
    with refusal(says):
        Job(**{**GOOD, **changes})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"zero": 4}, "layout.zero must be between 0 and 3, not 4"),
        (
            {"recompute": "some"},
            "recompute .some. is not known; did you mean scores or moe. mostly used: none, selective, full",
        ),
        (
            {"scheme": "3d"},
            "scheme .3d. is not known; known: context, gspmd, megatron",
        ),
    ],
)
def test_a_wrong_layout_is_told_at_once(
    fields: dict[str, Any], says: str
) -> None:
    with refusal(says):
        Layout(**fields)


@pytest.mark.parametrize(
    ("text", "kind"), [("3", "a number"), ("null", "null"), ('"a"', "a text")]
)
def test_what_is_no_object_is_told_in_the_words_of_json(
    text: str, kind: str
) -> None:
    with refusal(f"must hold one JSON object, not {kind}"):
        parse_json(text, "runs.json")


def test_verbs_say_what_they_need() -> None:
    for verb in (predict, plan):
        with refusal("a Job is needed.*not 'llama3-70b'"):
            verb("llama3-70b")  # type: ignore[operator]
    with refusal("a Layout is needed.*not '3'"):
        predict(Job(**GOOD), 3)  # type: ignore[arg-type]
    for degree in (2.5, np.ones(3)):
        with refusal("layout.dp must be a whole number"):
            predict(Job(**GOOD), Layout(dp=degree))
