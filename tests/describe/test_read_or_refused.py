"""Under every assumption set each of its fields that a file gives changes what `predict` says of
some job under that set, or is refused by a sentence that names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from functools import cache
from typing import Any

import pytest

from by_hand import FREE, set_to
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
    SETS,
    Assumptions,
)
from meshwright.describe.fields import fields_of
from meshwright.describe.framework import framework
from meshwright.describe.holding import Holding
from meshwright.describe.kernels import kernels
from meshwright.describe.precision import PRECISIONS
from meshwright.describe.read import read, tables_merged, to_dict
from meshwright.describe.software import Software
from meshwright.exchange import KERNELS
from meshwright.formats.toml import thing_named
from meshwright.step import oom
from meshwright.sweep import vary
from meshwright_studies.reproduce.lbl.defects import LBL_CODE as DEFECTS
from refusals import refusal

LLAMA, MIXTRAL = model("llama3-8b"), model("mixtral-8x7b")
GPT = replace(model("gpt3-1.3b"), dropout=True)
H100, TPU = cluster("64xh100-sxm"), cluster("64xtpu-v5p")
UNMEASURED = Cluster(
    replace(chip("epoch-h100"), sustained=None),
    network("epoch-h100-superpod"),
    64,
)
"""Nobody measured what it sustains."""


def job(words: str, of: Any = LLAMA, on: Cluster = H100, **layout: Any) -> Job:
    return Job(of, on, 128, replace(cut(words), **layout))


JOBS = (
    job("tp4 cp2 pp2 dp4 zero1"),
    job("tp4 pp2 dp8 zero1 whole"),
    job("tp2 pp4 dp8 zero3 interleave2 interleaved selective"),
    job("tp16 dp4 zero3 full"),
    job("dp64 zero3"),
    job("pp8 dp8 microbatch4 zb-h2"),
    job("pp16 dp4"),
    job("tp4 dp16 zero1", offload="optimizer:0.5"),
    job("tp2 dp32 ep8 zero1", MIXTRAL),
    job("tp4 dp16", GPT),
    # both ends of the pipeline hold its table
    job("pp4 dp16 zero1", replace(GPT, dropout=False)),
    # the trainer has biases, and no dropout
    job("dp64", replace(GPT, dropout=False)),
    replace(job("tp4 dp16", GPT), attention_kernel="unfused"),
    replace(job("tp4 cp2 dp8", GPT), attention_kernel="flash"),
    replace(
        job("tp4 cp2 dp8", GPT, scheme="summa", panels=4),
        attention_kernel="flash",
        seq=4096,
    ),
    # much to send beside little work
    replace(job("tp2 cp8 dp4 zero2"), seq=65536),
    job("tp2 cp32"),
    job("tp64 whole"),
    job("tp4 pp2 dp8", on=UNMEASURED),
    job("tp4 dp16 zero3", on=TPU),
    job("tp32 dp2", on=TPU),
    job("tp4 dp16", on=cluster("64xmi250x")),
)
FRAMEWORK = (
    replace(
        job("tp4 dp16 zero1"),
        software=Software(norm="torch", cuda_graphs="parts"),
    ),
    replace(
        job("tp2 dp32 ep8 zero1", MIXTRAL),
        precision=PRECISIONS["fp8"],
        software=Software(cuda_graphs="full"),
    ),
    *(
        replace(
            job("tp2 dp32 ep8 zero1", MIXTRAL),
            software=Software(cuda_graphs="parts", dispatcher=kernel),
        )
        for kernel in KERNELS
    ),
    *(replace(of, framework=framework("megatron-core")) for of in JOBS),
)
"""Jobs under sets that ask a framework."""


def leaves(
    cls: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """(path, class that has it, type) of every field below a joint that a file can give."""
    for field in fields_of(cls).values():
        kind = field.kind.type
        if field.kind.injected:
            continue
        if is_dataclass(kind):
            yield from leaves(kind, (*path, field.name))
        else:
            yield (*path, field.name), cls, kind


FIELDS = [
    leaf
    for joint in JOINTS
    for leaf in leaves(
        type(getattr(assumptions("realistic"), joint)), (joint,)
    )
]


def others(path: tuple[str, ...], cls: Any, kind: Any, now: Any) -> list[Any]:
    """Other values that the field may have."""
    field = fields_of(cls)[path[-1]].kind
    if kind is bool:
        return [not now]
    if kind is float:
        least, most = field.limits
        tried = (0.0, 0.01, 0.3, 0.9, 1.0, 3.0, 100.0, 3e9)
        return [v for v in tried if least <= v <= most and v != now]
    listed = [text for text in field.words if text != now]
    return listed if kind is str else [{text: 30.0} for text in listed]


CHOSEN = (
    *(("lbl-2024", "network", {"collective": c}) for c in ("best", "free")),
    *(("realistic", "memory", {"resident": r}) for r in ("layers", "held")),
    ("pytorch", "memory", {"resident": "program"}),
)
"""(set, joint, an option there that no set has with it)."""
UNDER = [
    *((name, {}, field) for name in SETS for field in FIELDS),
    *(
        (name, {joint: choice}, field)
        for name, joint, choice in CHOSEN
        for field in FIELDS
        if field[0][0] == joint and field[0][1] not in choice
    ),
]
IDS = [
    f"{'.'.join(field[0])}-{name}-{len(chosen)}"
    for name, chosen, field in UNDER
]


@cache
def jobs(how: Assumptions) -> tuple[tuple[Job, Any], ...]:
    """Jobs under a set, and what is said of them."""
    asks = how.memory.holding is None
    under = [
        of.with_(assumptions=how)
        for of in (*JOBS, *(FRAMEWORK if asks else ()))
    ]
    return tuple(
        (of, said) for of in under if (said := numbers(of)) is not None
    )


def numbers(of: Job) -> Any:
    """What `predict` says; None where it refuses the job."""
    try:
        p = predict(of)
    except BadInput:
        return None
    return p.time_s, p.memory_bytes, p.risk_of_oom, oom.limit(of)


@pytest.mark.parametrize(("name", "chosen", "field"), UNDER, ids=IDS)
def test_a_field_in_a_file_is_read_or_refused(
    name: str, chosen: dict[str, Any], field: tuple[Any, ...]
) -> None:
    path, cls, kind = field
    base = {"name": name, **chosen}
    under = read(Assumptions, base, "set", thing_named)
    now: Any = under
    for step in path:
        now = getattr(now, step, None)
    refusals = []
    for value in others(path, cls, kind, now):
        table: Any = value
        for step in reversed(path):
            table = {step: table}
        told = tables_merged(base, table)
        try:
            how = read(Assumptions, told, "set", thing_named)
        except BadInput as error:
            refusals.append(str(error))
            continue
        if any(
            numbers(of.with_(assumptions=how)) != said
            for of, said in jobs(under)
        ):
            return
        refusals.append(f"{value} changes nothing")
    # itself, or what it is a part of
    groups = [".".join(("set", *path[:n])) for n in range(2, len(path) + 1)]
    for sentence in refusals:
        first = sentence.split()[0].rstrip(":")
        assert first in groups, sentence


@pytest.mark.parametrize(
    ("name", "path", "value", "who"),
    [
        (
            "realistic",
            "chip.stack.step_s",
            "100 s",
            "is decided by the framework",
        ),
        ("realistic", "overlap.tp.share", 0.5, "is decided by the framework"),
        ("scaling-book-sum", "count.residual", True, "chip.model is peak"),
        (FREE, "network.hop", "mean", "collective is free"),
        ("lbl-2024", "memory.holding.norm_extra", 14, "resident is layers"),
    ],
)
def test_a_sweep_of_what_is_not_read_is_refused(
    name: str | Assumptions, path: str, value: Any, who: str
) -> None:
    with refusal(who):
        vary(JOBS[0].with_(assumptions=name), f"assumptions.{path}", value)


def test_a_set_that_says_all_of_itself_may_say_what_it_does_not_use() -> None:
    """As the description of a changed set is written into a file."""
    book = assumptions("scaling-book-sum")
    changed = replace(book, chip=replace(book.chip, matrix_efficiency=0.5))
    assert read(Assumptions, to_dict(changed), "set", thing_named) == changed


OBJECTS = {
    "memory.holding": Holding(),
    "count.summa_width": DEFECTS.count.summa_width,
    "network.algorithm": DEFECTS.network.algorithm,
    "chip.kernels": replace(kernels("h100"), share=0.3),
}
"""Fields that hold what only Python can give, or a framework."""


@pytest.mark.parametrize("path", OBJECTS)
def test_an_object_changes_some_number(path: str) -> None:
    for name in SETS:
        how = set_to(assumptions(name), path, OBJECTS[path])
        for of, said in jobs(assumptions(name)):
            if numbers(of.with_(assumptions=how)) not in (None, said):
                return
    pytest.fail(f"{path} changes nothing in any job")
