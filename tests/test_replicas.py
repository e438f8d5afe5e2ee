"""One meaning of dp in Python, on the command line, in tables, in files and on the page: the replicas
that fill the cluster, unless it is stated.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright import (
    Job,
    Layout,
    Prediction,
    dump_job,
    load_job,
    predict,
    table,
)
from meshwright.sweep import sweep
from refusals import refusal
from shell import Shell

JOB = Job("llama3-70b", "256xh100-sxm", batch=512)
WORDS = "predict llama3-70b --on {on} --batch 512seq --tp 8 --pp 4 --zero 1"


def test_every_face_fills_the_cluster(tmp_path: Path, shell: Shell) -> None:
    """256 chips / (tp 8 x pp 4) = 8 replicas."""
    given = Layout(tp=8, pp=4, zero=1)
    step = predict(JOB, replace(given, dp=8)).step_time_s
    asked = replace(JOB, layout=given)
    file = tmp_path / "job.toml"
    file.write_text(dump_job(asked))
    assert "dp" not in file.read_text().split("[layout]")[1].split("[")[0]
    found: list[Prediction | None] = [
        predict(JOB, given),
        predict(asked),
        predict(load_job(file)),
        *table(JOB, tp=[8], pp=[4], zero=[1]).predictions,
        *table(JOB, [given]).predictions,
        sweep(asked, "batch", ["512seq"], fixed=True).points[0].prediction,
    ]
    for p in found:
        assert p and p.layout.dp == 8 and p.step_time_s == step
    for line in (WORDS.format(on="256xh100-sxm"), f"predict {file}"):
        assert shell.json(line)["step_time_s"] == step


def test_the_page_fills_the_cluster() -> None:
    pytest.importorskip("starlette")
    from meshwright.web.endpoints import endpoints

    question = {"model": "llama3-70b", "on": "256xh100-sxm", "batch": "512seq"}
    layout = {"tp": "8", "pp": "4", "zero": "1"}
    said = endpoints()["predict"].ask(
        {"question": question, "layout": layout}, lambda *_: None
    )
    assert said["layout"]["dp"] == 8


def test_a_stated_dp_stays() -> None:
    for p in (
        predict(JOB, Layout(tp=8, pp=4, dp=1)),
        *table(JOB, tp=[8], pp=[4], dp=[1]).predictions,
        *table(JOB, [Layout(tp=8, pp=4, dp=1)]).predictions,
    ):
        assert p and p.layout.dp == 1 and p.layout.chips == 32
        assert p.idle == "224 of 256 chips are idle"
    text = dump_job(replace(JOB, layout=Layout(tp=8, pp=4, dp=1)))
    assert "dp = 1" in text


def test_without_a_layout_every_chip_is_a_replica(
    shell: Shell,
) -> None:
    p = predict(Job("llama3.2-1b", "16xh100-sxm", batch=64))
    assert p.layout.dp == 16
    line = "predict llama3.2-1b --on 16xh100-sxm --batch 64seq"
    assert shell.json(line)["step_time_s"] == p.step_time_s


@pytest.mark.parametrize(
    ("chips", "says"),
    [
        (100, "4 of 100 chips are idle"),
        (
            16,
            "tp 8 x cp 1 x pp 4 x dp 1 needs 32 chips, but the cluster has 16: tp x cp x pp may be"
            " at most 16",
        ),
    ],
)
def test_degrees_that_do_not_divide_the_chips_end_in_the_same_words(
    chips: int, says: str, shell: Shell
) -> None:
    """3 replicas of 32 chips in 100; none in 16."""
    job = Job("llama3-70b", f"{chips}xh100-sxm", batch=510)
    layout = Layout(tp=8, pp=4, zero=1)
    row = table(job, [layout])
    words = WORDS.replace("512seq", "510seq").format(on=f"{chips}xh100-sxm")
    if chips < 32:
        with refusal(says):
            predict(job, layout)
        assert row.refused == (says,)
        assert says in shell.refused(words)
        return
    p = predict(job, layout)
    assert p.layout.dp == 3 and p.idle == says
    assert says in shell(words).out


def test_every_repr_says_which_chips_are_idle() -> None:
    job = Job("llama3-70b", "100xh100-sxm", batch=510)
    says = "4 of 100 chips are idle"
    p = predict(job, Layout(tp=8, pp=4, zero=1))
    rows = table(job, [p.layout])
    assert says in repr(p) and says in p._repr_html_()
    assert says in repr(rows) and says in rows._repr_html_()
    points = sweep(
        replace(job, layout=Layout(tp=8, pp=4)), "seq", [4096], fixed=True
    )
    assert "chips are idle at 4096" in repr(points)
    assert says in " ".join(points._repr_html_().split())
    full = predict(JOB, Layout(tp=8, pp=4))
    assert "idle" not in repr(full)


def test_a_placement_states_its_replicas() -> None:
    """Plans of earlier versions leave a dp of 1 to their placement."""
    places = {"tp": (8, 1), "cp": (1, 1), "dp": (1, 2), "pp": (1, 4)}
    p = predict(JOB, Layout(tp=8, pp=4, placement=places))
    assert p.layout.dp == 2 and p.layout.chips == 64


def test_a_layout_alone_has_no_number_of_chips() -> None:
    assert Layout(tp=8).filling(64).dp == 8
    with refusal(r"layout\.dp is not stated"):
        Layout(tp=8).chips  # noqa: B018
    with refusal(r"layout\.tp must be a whole number"):
        Layout(tp=None)  # type: ignore[arg-type]
