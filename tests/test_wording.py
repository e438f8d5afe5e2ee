"""Errors have the article of what they name and the words of the format that was read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meshwright import Job
from meshwright.formats import parse_json
from refusals import refusal


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda: Job("gpt2", "8xh100-sxm", 8, optimizer=3),
            "job.optimizer must be an Optimizer or",
        ),
        (
            lambda: Job("gpt2", "8xh100-sxm", 8, precision=3),
            "job.precision must be a Precision or",
        ),
        (lambda: parse_json("3", "runs.json"), "not a number"),
        (lambda: parse_json("null", "runs.json"), "not null"),
        (lambda: parse_json('"a"', "runs.json"), "not a text"),
    ],
)
def test_errors_have_the_article_and_the_words_of_the_format(
    wrong: Callable[[], object], said: str
) -> None:
    with refusal(said):
        wrong()
