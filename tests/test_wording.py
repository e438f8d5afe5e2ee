"""Texts that read as a translation, and were replaced: none of them comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import meshwright
from meshwright import Job
from meshwright.formats import parse_json
from refusals import refusal

SOURCE = "\n".join(
    path.read_text("utf-8")
    for path in sorted(Path(meshwright.__file__).parent.rglob("*.py"))
)
REPLACED = (
    "times what is predicted for",
    "attention uncut by the mask, nothing recomputed)",
    "besides arithmetic",
    "of those looked at fit",
    "combinations of degrees against the rule",
    "nothing that uses all chips evenly fits",
    "the replicas that",
    "the runner-up,",
    "Lay a measured training step",
    "Make the tables and figures of the papers again",
    "At which batch and split communication starts to bind",
    "Model chunks a device holds (virtual",
    '"smooth: last"',
    "tensor-parallel degree that hides",
    "is no folder of a run",
    "parts of the step that wait for nobody",
    "Chips of the context row, and of the expert row",
    "no published run shards so",
    "they are no advice on where",
    "whatever the risk that is reckoned",
    "batches cut unevenly",
    "hand each other whole sequences",
    "and weights never",
    "What is told of each step",
    "share out the experts",
    "and chips fail more the more",
    "a comma that parts no thousands",
    "are answers of their own",
    "One scale comes out",
    "Whose engine trains",
    "file does not say it: ",
)


@pytest.mark.parametrize("text", REPLACED)
def test_no_text_reads_as_a_translation(text: str) -> None:
    assert text not in SOURCE


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
