"""A field of an option is read where the option has it, and cannot be written elsewhere; what a
file gives is in test_read_or_refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from by_hand import set_to
from layouts import cut
from meshwright import (
    BadInput,
    Cluster,
    Job,
    assumptions,
    chip,
    cluster,
    model,
    network,
    predict,
)
from meshwright.describe.assumptions import (
    JOINTS,
    Assumptions,
    ChipTime,
    Hide,
    HidePass,
    Overlap,
    Stack,
)
from meshwright.describe.fields import fields_of
from meshwright.describe.holding import Holding
from meshwright.describe.kernels import kernels
from meshwright.describe.precision import PRECISIONS
from meshwright.describe.read import read
from meshwright.step import oom
from meshwright_studies.reproduce.lbl.defects import LBL_CODE as DEFECTS
from refusals import refusal

H100, MODEL = cluster("64xh100-sxm"), model("llama3-8b")
MIXTRAL = model("mixtral-8x7b")
GPT = replace(model("gpt3-1.3b"), dropout=True)
TPU = cluster("64xtpu-v5p")
EPOCH = Cluster(chip("epoch-h100"), network("epoch-h100-superpod"), 64)


def job(
    words: str,
    of: Any = MODEL,
    on: Cluster = H100,
    set_: str = "realistic",
    kernel: str = "flash",
    **layout: Any,
) -> Job:
    return Job(
        of,
        on,
        128,
        replace(cut(words), **layout),
        attention_kernel=kernel,
        assumptions=set_,
    )


def hiding(of: Job) -> Job:
    """The job under a set that hides what it can."""
    layer = Hide("layer", share=0.9)
    overlap = Overlap(
        dp=HidePass("pass", share=0.9), tp=layer, cp=layer, ep=layer
    )
    return replace(of, assumptions=replace(of.assumptions, overlap=overlap))


def running(of: Job, **stack: Any) -> Job:
    """The job under a set that says itself what software adds to kernels."""
    chip = ChipTime("by-shape", Stack(host_s=1e-3, **stack))
    return replace(of, assumptions=replace(of.assumptions, chip=chip))


JOBS = (
    job("tp4 cp2 pp2 dp4 zero1"),
    job("tp4 cp2 pp2 dp4 zero1 whole"),
    job("tp2 pp4 dp8 zero3 interleave2 interleaved selective"),
    job("tp16 dp4 zero3 full"),
    job("pp8 dp8 microbatch4 zb-h2"),
    job("tp2 dp32 ep8 zero1", MIXTRAL),
    job("tp4 dp16", GPT, kernel="unfused"),
    job("tp4 dp16", GPT, kernel="unfused", set_="lbl-2024"),
    replace(
        job("tp4 cp2 dp8", GPT, scheme="summa", panels=4, set_="lbl-2024"),
        seq=4096,
    ),
    job("tp4 pp2 dp8", set_="epoch-2024", on=EPOCH),
    job(
        "tp4 pp2 dp8",
        set_="epoch-2024",
        on=replace(EPOCH, chip=replace(EPOCH.chip, sustained=None)),
    ),
    job("tp4 dp16 zero3", on=TPU, set_="scaling-book-sum"),
    job("tp32 dp2", on=TPU, set_="scaling-book-sum"),
    job("tp4 dp16", on=cluster("64xmi250x")),
    job("pp16 dp4"),
    hiding(job("tp4 cp2 dp8 zero3")),
    hiding(job("tp2 dp32 ep8 zero1", MIXTRAL)),
    running(job("tp4 dp16 zero1"), norm="torch", cuda_graphs="parts"),
    running(
        replace(
            job("tp2 dp32 ep8 zero1", MIXTRAL),
            precision=PRECISIONS["fp8"],
        ),
        cuda_graphs="full",
    ),
)
"""Between them they exercise every option."""


OBJECTS = {
    "MemoryCount.holding": Holding(),
    "Counting.summa_width": DEFECTS.count.summa_width,
    "NetworkTime.algorithm": DEFECTS.network.algorithm,
    "ChipTime.kernels": replace(kernels("h100"), share=0.3),
}
"""Fields that hold what only Python can give, or a framework."""


def others(owner: type, name: str, value: Any) -> list[Any]:
    """Other values that the field may have."""
    kind = fields_of(owner)[name].kind
    listed = kind.words
    if f"{owner.__name__}.{name}" in OBJECTS:
        return [OBJECTS[f"{owner.__name__}.{name}"]]
    if isinstance(value, Mapping):
        return [{name: 30.0} for name in listed or ()]
    if listed:
        return [text for text in listed if text != value]
    if isinstance(value, bool):
        return [not value]
    if value is None or isinstance(value, (int, float)):
        less = [0.0] if owner in (Hide, HidePass) else []
        small = max(kind.limits.least, 0.3)
        return [*less, small if value is None or value > 0.5 else value + 0.3]
    return []


def changed(on: Any, path: tuple[str, ...], value: Any) -> Any:
    """The description with one field changed, without what another option had."""
    return set_to(on, ".".join(path), value)


def numbers(of: Job) -> tuple[Any, ...]:
    p = predict(of)
    return p.time_s, p.memory_bytes, p.risk_of_oom, oom.limit(of)


@pytest.mark.parametrize("field", OBJECTS)
def test_an_object_changes_some_number(field: str) -> None:
    """What only Python can give."""
    name = field.split(".")[1]
    for of in JOBS:
        for joint in JOINTS:
            option = getattr(of.assumptions, joint)
            if f"{type(option).__name__}.{name}" != field:
                continue
            given = changed(of.assumptions, (joint, name), OBJECTS[field])
            try:
                if numbers(replace(of, assumptions=given)) != numbers(of):
                    return
            except BadInput:  # refused by name
                continue
    pytest.fail(f"{field} changes nothing in any job")


NUMBERS = {
    ("chip", "model"): (
        "matrix_efficiency",
        "sustained",
        "vector_efficiency",
        "memory_efficiency",
        "launch_s",
    ),
    ("network", "collective"): ("efficiency", "ring_factor", "hop"),
    ("memory", "resident"): (
        "framework_bytes",
        "capacity_share",
        "working_set",
    ),
}
"""(joint, option) -> fields that not every choice of it may have."""
# these ask what was measured
CASES = [
    (joint, option, choice, field)
    for (joint, option), names in NUMBERS.items()
    for choice in fields_of(type(getattr(assumptions("realistic"), joint)))[
        option
    ].kind.words
    for field in names
    if choice
    not in (
        "framework",
        "measured",
        "calibrated",
    )
]


@pytest.mark.parametrize(("joint", "option", "choice", "field"), CASES)
def test_an_option_has_the_fields_it_reads_and_no_others(
    joint: str, option: str, choice: str, field: str
) -> None:
    """Under each choice a field either changes some number or cannot be written: it stays as it is,
    and files refuse it.
    """
    written = False
    for of in JOBS:
        at = changed(of.assumptions, (joint, option), choice)
        owner = type(getattr(at, joint))
        for other in others(owner, field, getattr(getattr(at, joint), field)):
            try:
                new = changed(at, (joint, field), other)
                written = written or new != at
                if numbers(replace(of, assumptions=new)) != numbers(
                    replace(of, assumptions=at)
                ):
                    return
            except BadInput:  # refused by name
                continue
    assert not written, (
        f"{joint}.{field} can be written where {option} is {choice}, and changes nothing"
    )
    value = others(
        owner, field, getattr(getattr(assumptions("realistic"), joint), field)
    )[0]
    table = {
        "name": "mine",
        "source": "mine",
        joint: {option: choice, field: value},
    }
    with refusal(f"{joint}.{field} means nothing where {option} is {choice}"):
        read(Assumptions, table, "assumptions")
