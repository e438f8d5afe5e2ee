"""Naming a set gives the paper: its numbers, its layouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshwright import Choices, Job, Layout, dump_job, load_job
from meshwright.describe.assumptions import (
    BOOK_SUM,
    EPOCH,
    LBL,
    demand_read,
)
from meshwright.describe.job import PRECISIONS
from meshwright.formats import parse_toml
from meshwright.sweep import sweep
from meshwright.units import GB
from refusals import refusal
from shell import Shell

PAPER = "gpt3-1t --on 16384xlbl-b200 --batch 4096seq --assumptions lbl-2024"
"""The system of Subramanian et al. 2024, figure 1: GPT3-1T on 16,384 B200 in domains of 8."""
DEGREES = "--tp 8 --pp 64"
PREDICT = f"predict {PAPER} {DEGREES} --zero 1"


def test_the_name_of_the_set_gives_the_numbers_of_the_paper(
    shell: Shell,
) -> None:
    """3.2333444 s, 65.6665619 GB and 4.46 days, as published (figures 1 and 5), with nothing said
    of numbers or bytes.
    """
    found = shell.json(f"{PREDICT} --tokens 1T")
    assert found["step_time_s"] == pytest.approx(3.2333444, rel=1e-8)
    assert found["memory_bytes"]["allocated"] / GB == pytest.approx(
        65.6665619, rel=1e-8
    )
    assert found["train_time_s"] / 86400 == pytest.approx(4.46, abs=0.005)
    # the paper has gradients of 2 bytes
    assert found["precision"] == "fp16-pure"


def test_a_layout_that_the_paper_does_not_search_is_said_to_be_none_of_its(
    shell: Shell,
) -> None:
    """The strategy that comes nearest names what it would not take."""
    notes = shell.json(PREDICT)["notes"]
    assert not [n for n in notes if "it allows" in n]
    notes = shell.json(f"predict {PAPER} {DEGREES} --zero 0")["notes"]
    assert "no layout of lbl-2024's: it allows zero 1, not 0" in notes


def test_numbers_that_are_named_win(
    shell: Shell,
) -> None:
    """fp32 gradients are twice the bytes of 2-byte ones."""
    own, said = (
        shell.json(f"{PREDICT} {more}")["memory_bytes"]
        for more in ("", "--precision bf16")
    )
    assert said["gradients"] == 2 * own["gradients"]


def job(assumptions: str, chip: str = "8xh100-sxm", **more: Any) -> Job:
    return Job(
        "llama3-8b", chip, 8, Layout(dp=8), assumptions=assumptions, **more
    )


def again(job: Job) -> Job:
    """Written as a file and read."""
    return load_job(parse_toml(dump_job(job), "a file"))


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("realistic", "bf16"),
        ("lbl-2024", "fp16-pure"),
        ("megatron-2021", "fp16"),
        ("epoch-2024", "fp16-pure"),
        ("scaling-book-sum", "bf16-pure"),
        ("scaling-book-max", "bf16-pure"),
    ],
)
def test_each_paper_has_its_numbers(name: str, numbers: str) -> None:
    assert job(name).precision == PRECISIONS[numbers]
    assert job(name, precision="fp8").precision == PRECISIONS["fp8"]
    assert again(job(name)) == job(name)
    assert again(job(name, precision="bf16")).precision == PRECISIONS["bf16"]


def test_16_bits_are_of_the_kind_a_chip_has() -> None:
    """A TPU has no fp16: two bytes everywhere all the same."""
    assert job("lbl-2024", "8xtpu-v5p").precision == PRECISIONS["bf16-pure"]


def test_under_another_set_its_numbers_follow_unless_they_were_named() -> None:
    assert job("realistic").with_(assumptions="lbl-2024") == job("lbl-2024")
    assert job("lbl-2024").with_(assumptions="realistic") == job("realistic")
    assert job("lbl-2024", precision="fp8").with_(
        assumptions="realistic"
    ) == job("realistic", precision="fp8")


@pytest.mark.parametrize("named", [{}, {"precision": "fp8"}])
def test_a_sweep_over_sets_is_of_one_run_in_its_numbers(
    named: dict[str, str],
) -> None:
    """Though each set has numbers of its own for jobs that name none."""
    sets = ["realistic", "lbl-2024", "scaling-book-sum"]
    one = job("realistic", **named)
    points = sweep(one, "assumptions", sets, fixed=True).points
    assert [p.job.precision for p in points] == [one.precision] * len(sets)


def test_choices_of_a_set_in_a_file() -> None:
    """A wrong one is a sentence with the path of the field."""
    tables: dict[str, Any] = {"model": "llama3-8b", "cluster": "8xh100-sxm"}
    mine = {
        "name": "lbl-2024",
        "choices": [{"zero": [3], "schedule": ["zbv"]}],
        "precision": "fp8",
    }
    found = load_job({**tables, "job": {"batch": "8seq", "assumptions": mine}})
    assert found.assumptions == replace(
        LBL,
        choices=(Choices(zero=(3,), schedule=("zbv",)),),
        precision=PRECISIONS["fp8"],
    )
    assert found.precision == PRECISIONS["fp8"]
    wrong = {**mine, "choices": [{"zero": [5]}]}
    with refusal(
        r"job.assumptions.choices\[0\]: layout.zero must be between 0 and 3, not 5"
    ):
        load_job({**tables, "job": {"batch": "8seq", "assumptions": wrong}})


def test_a_verb_refuses_numbers_and_choices_that_it_does_not_read() -> None:
    for base in (EPOCH, BOOK_SUM):
        for field, value in (
            ("precision", PRECISIONS["fp8"]),
            ("choices", ()),
            ("strict", True),
        ):
            with refusal(f"would ignore its {field}"):
                demand_read(
                    replace(base, **{field: value}), base, ("count",), "limits"
                )
