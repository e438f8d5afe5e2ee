"""The library as a notebook meets it: tables of layouts, frames, pictures, cells."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from meshwright import (
    Choices,
    Job,
    Layout,
    Space,
    plan,
    predict,
    table,
)
from refusals import refusal

JOB = Job("llama3-8b", "8xh100", 64, Layout(dp=8, zero=3))
NOTEBOOK = Path(__file__).parents[1] / "examples" / "planning.ipynb"


def test_a_row_is_the_prediction_of_its_layout() -> None:
    found = table(JOB, tp=[1, 2], zero=np.array([1, 3]))
    assert len(found) == 4
    for layout, p in zip(found.layouts, found.predictions, strict=True):
        assert layout.dp * layout.tp == 8
        assert (
            p is not None and p.step_time_s == predict(JOB, layout).step_time_s
        )
    assert found["step_time_s"].shape == (4,)
    fits = [p for p in found.predictions if p and p.fits]
    assert found.best == min(fits, key=lambda p: p.step_time_s)


def test_what_cannot_run_is_a_row_that_says_so() -> None:
    found = table(JOB, [Layout(tp=3), Layout(dp=8)])
    assert found.predictions[0] is None and "heads" in found.refused[0]
    assert np.isnan(found["step_time_s"][0]) and not found.refused[1]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "give layouts"),
        ({"tpp": [1]}, "not known"),
        ({"tp": ["many"]}, "whole number"),
    ],
)
def test_wrong_columns_are_sentences(
    columns: dict[str, list[object]], words: str
) -> None:
    with refusal(words):
        table(JOB, **columns)


def test_everything_has_rows_pictures_and_cells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = types.ModuleType("pandas")
    fake.DataFrame = list  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", fake)
    few = Space(Choices(tp=(1,), pp=(1,), cp=(1,), microbatch=(1,)))
    results = [predict(JOB), plan(JOB, few), table(JOB, zero=[1, 3])]
    for thing in results:
        rows = thing.to_frame()
        assert rows[0]["step_time_s"] > 0
        assert all(
            not isinstance(v, (dict, list, tuple))
            for row in rows
            for v in row.values()
        )
        assert "<pre" in thing._repr_html_()
    assert len(results[1].to_frame()) == 1 + len(results[1].alternatives)
    pytest.importorskip("matplotlib")
    file = tmp_path / "p.svg"
    assert results[0].plot(str(file)).axes and file.read_text(
        "utf-8"
    ).startswith("<?xml")


def test_a_frame_without_pandas_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refusal("needs pandas"):
        predict(JOB).to_frame()


def test_the_notebook_runs() -> None:
    """Every cell of examples/planning.ipynb, in order."""
    names: dict[str, object] = {}
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "cell", "exec"), names)
    assert names["found"].best.step_time_s > 0  # type: ignore[attr-defined]


def test_texts_of_the_command_line_make_a_job() -> None:
    """Strings are read alike, and checked when the job is made."""
    job = Job("llama3-8b", "8xh100", batch="64seq", seq="8k", precision="bf16")
    assert (job.batch, job.T) == (64, 8192)
    assert (
        Job("llama3-8b", "8xh100", batch="1Mi", seq="8k").batch
        == 2**20 // 8192
    )
    for wrong in (
        {"batch": "many"},
        {"batch": "64seq", "seq": "long"},
        {"batch": "0seq"},
    ):
        with refusal():
            Job("llama3-8b", "8xh100", **wrong)  # type: ignore[arg-type]
