"""The command line as a format: what it reads, what it writes, and that both agree."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.describe.assumptions import (
    BOOK_SUM,
    EPOCH,
    LBL,
    MEGATRON,
    REALISTIC,
    Assumptions,
    assumptions,
)
from meshwright.describe.fields import meanings
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.formats import STDIN
from meshwright.formats.flags import (
    command_line,
    job_and_space,
    layout_of,
    placement,
    read_flags,
    whole_numbers,
    write_flags,
)
from meshwright.layout.placement import launched, placed
from meshwright.prediction.prediction import Prediction
from refusals import refusal

BASE = {"on": "64xh100-sxm", "batch": "128seq"}
JOB = Job("llama3-8b", "64xh100-sxm", batch=128)


def parsed(words: list[str]) -> dict[str, str]:
    """Flags and their values, as the parser hands them on."""
    return {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(words[::2], words[1::2], strict=True)
    }


LAYOUTS = st.builds(
    Layout,
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2]),
    microbatch=st.integers(1, 4),
    interleave=st.sampled_from([1, 2, 4]),
    zero=st.integers(0, 3),
    schedule=st.sampled_from(["1f1b", "gpipe", "interleaved"]),
    recompute=st.sampled_from(
        ["none", "selective", "full", "layernorm+mlp:2"]
    ),
    sequence_parallel=st.booleans(),
)


@given(
    LAYOUTS,
    st.sets(st.sampled_from([f.name for f in fields(Layout)])),
    st.sampled_from([REALISTIC, MEGATRON, LBL, EPOCH, BOOK_SUM]),
)
def test_a_written_layout_is_read_again(
    layout: Layout, named: set[str], under: Assumptions
) -> None:
    job = replace(JOB, assumptions=under)
    given_ = parsed(write_flags(layout, job, named))
    spelled = {name.replace("_", "-") for name in named - {"placement"}}
    assert spelled <= {name.replace("_", "-") for name in given_}
    if "interleave" in given_ and "schedule" not in given_:
        given_["schedule"] = (
            "1f1b"  # a lone --interleave asks for the interleaved schedule
        )
    given_["assumptions"] = under.name
    assert read_flags("llama3-8b", {**BASE, **given_}).layout == layout


@pytest.mark.parametrize(
    "under, said, taken, sentence",
    [
        (
            "megatron-2021",
            {"tp": "8"},
            {"recompute": "full", "sequence_parallel": False},
            "recompute full, sequence_parallel false, because megatron-2021 allows no"
            " other",
        ),
        ("megatron-2021", {"recompute": "none"}, {"recompute": "none"}, ""),
        ("lbl-2024", {"cp": "2"}, {"zero": 1, "sequence_parallel": True}, ""),
        ("lbl-2024", {"zero": "0"}, {"zero": 0}, ""),
        (
            "lbl-2024",
            {"scheme": "summa"},
            {"zero": 1, "sequence_parallel": False},
            "zero 1, sequence_parallel false, because lbl-2024 allows no other",
        ),
        ("realistic", {"tp": "8"}, {"zero": 0, "recompute": "none"}, ""),
    ],
)
def test_what_a_set_alone_allows_is_taken_and_said(
    under: str, said: dict[str, str], taken: dict[str, object], sentence: str
) -> None:
    notes: list[str] = []
    given_ = {**BASE, "assumptions": under, **said}
    layout = read_flags("gpt3-175b", given_, notes).layout
    assert {name: getattr(layout, name) for name in taken} == taken
    assert not sentence or sentence in notes
    words = " ".join(f"{name}={text}" for name, text in said.items())
    job = replace(JOB, assumptions=assumptions(under))
    beside = layout_of(words, job)
    assert {name: getattr(beside, name) for name in taken} == taken
    if under == "realistic":
        assert not any("allows no other" in note for note in notes)


def test_a_set_takes_nothing_that_a_model_cannot_have() -> None:
    notes: list[str] = []
    said = {**BASE, "assumptions": "megatron-2021", "tp": "2"}
    layout = read_flags("mixtral-8x7b", said, notes).layout
    assert layout.sequence_parallel and layout.recompute == "none"
    assert not any("allows no other" in note for note in notes)


@pytest.mark.parametrize(
    ("on", "framework", "tp", "dp", "pp"),
    [
        ("64xh100-sxm", "megatron-core", 2, 16, 2),
        ("48xtpu-v5e", "maxtext", 4, 12, 1),
        ("24xb200", "maxtext", 4, 3, 2),
    ],
)
def test_the_usual_order_by_its_name_is_the_usual_placement(
    on: str, framework: str, tp: int, dp: int, pp: int
) -> None:
    said = {"on": on, "batch": "96seq", "framework": framework}
    said |= {"tp": str(tp), "dp": str(dp), "pp": str(pp)}
    job = read_flags("llama3-8b", said)
    named = read_flags("llama3-8b", {**said, "placement": "tp-cp-dp-pp"})
    assert named.layout.placement == launched(job, job.layout).placement


def test_a_placement_is_written_only_if_it_is_unusual() -> None:
    usual = placed(Layout(tp=2, dp=32), JOB.cluster.sizes)
    assert "--placement" not in write_flags(usual, JOB)
    odd = replace(
        usual, placement={**usual.placement, "tp": (1, 2), "dp": (8, 4)}
    )
    words = parsed(write_flags(odd, JOB))
    assert words["placement"] == "tp=1x2,cp=1x1,dp=8x4,pp=1x1"
    assert dict(
        read_flags("llama3-8b", {**BASE, **words}).layout.placement
    ) == dict(odd.placement)


def test_a_command_line_repeats_what_the_user_wrote() -> None:
    layout = Layout(tp=2, dp=32)
    line = command_line(
        "my model", {**BASE, "precision": "fp8"}, Prediction(JOB, layout)
    )
    assert shlex.split(line) == [
        "meshwright",
        "predict",
        "my model",
        "--on",
        "64xh100-sxm",
        "--batch",
        "128seq",
        "--precision",
        "fp8",
        "--tp",
        "2",
        "--dp",
        "32",
    ]
    assert command_line(STDIN, {}, Prediction(JOB, layout)).startswith(
        "meshwright predict - --tp 2 --cp 1"
    )


def test_replicas_fill_the_cluster_unless_they_are_given() -> None:
    assert (
        read_flags("llama3-8b", {**BASE, "tp": "2", "pp": "4"}).layout.dp == 8
    )
    assert read_flags("llama3-8b", {**BASE, "dp": "3"}).layout.dp == 3
    assert (
        read_flags("llama3-8b", {**BASE, "tp": "2"}, fill=False).layout.dp
        is None
    )
    notes: list[str] = []
    read_flags("llama3-8b", {**BASE, "tp": "2"}, notes)
    assert notes == ["dp not given: 64 / (tp 2 x cp 1 x pp 1) = 32"]


def test_ranges() -> None:
    assert whole_numbers("tp", "8") == (8,)
    assert whole_numbers("tp", "4,1,2") == (1, 2, 4)
    assert whole_numbers("tp", "1..3, 8") == (1, 2, 3, 8)
    for wrong in ("3..1", "x", "1..", "0", "1..9999999", "", "1.5"):
        with refusal():
            whole_numbers("tp", wrong)


def test_split() -> None:
    rest, space = job_and_space(
        {
            **BASE,
            "tp": "1..4",
            "pp": "1,2..4",
            "zero": "0..2",
            "schedule": "gpipe",
            "sequence_parallel": "true",
            "scheme": "summa",
        },
        True,
    )
    assert rest == BASE
    assert space.choices == {
        "tp": (1, 2, 3, 4),
        "pp": (1, 2, 3, 4),
        "zero": (0, 1, 2),
        "schedule": ("gpipe",),
        "sequence_parallel": (True,),
        "scheme": ("summa",),
    }
    assert space.relaxed
    for wrong in (
        {"zero": "4"},
        {"schedule": "nope"},
        {"recompute": "some"},
        {"panels": "0"},
        {"placement": "tp=8x1"},
        {"sequence_parallel": "maybe"},
    ):
        with refusal():
            job_and_space(wrong)


def test_placement() -> None:
    assert placement("tp=8x1, dp=1x4") == {"tp": ["8", "1"], "dp": ["1", "4"]}
    for wrong in ("", "tp", "tp=", "=8"):
        with refusal():
            read_flags("llama3-8b", {**BASE, "placement": wrong})


def test_docs_are_read_from_the_fields() -> None:
    assert meanings(Layout)["pp"] == "Pipeline stages."
    assert set(meanings(Layout)) == {f.name for f in fields(Layout)}
    assert meanings(int) == {}


@pytest.mark.parametrize(
    "text",
    [
        "tp=8 pp=4 zero=1",
        "tp 8, pp 4, zero 1",
        "tp8 pp4 zero1",
        "TP=8; PP=4; ZeRO-1",
        "--tp 8 --pp 4 --zero 1",
    ],
)
def test_a_layout_as_people_write_it(text: str) -> None:
    assert layout_of(text, JOB) == Layout(tp=8, pp=4, dp=2, zero=1)


def test_megatrons_letters_and_words_with_digits() -> None:
    found = layout_of("tp 2 pp 4 vpp 2 mbs2 schedule zb-h1", JOB)
    assert (found.interleave, found.microbatch) == (2, 2)
    assert (found.schedule, found.dp) == ("zb-h1", 8)
    with refusal("did you mean tp"):
        layout_of("tpp=8", JOB)
    with refusal("cannot be read"):
        layout_of("nowhere/plan.toml", JOB)
