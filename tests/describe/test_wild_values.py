"""Whatever is given in Python ends in a sentence or in a finite number: models, layouts, jobs,
clusters, spaces, and what is asked of them.

    python tests/describe/test_wild_values.py 600       as many as the release is tried with
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from meshwright import (
    Choices,
    Job,
    Layout,
    MeshwrightError,
    MoE,
    Prediction,
    Space,
    Sweep,
    cluster,
    model,
    plan,
    predict,
    table,
)
from meshwright.describe.assumptions import ChipTime, NetworkTime
from meshwright.sweep import sweep
from refusals import refusal

SEED = 26
WILD: tuple[Any, ...] = (
    *(0, -1, -5, 3, 7, 10**9, 2**63, 10**400, True, None),
    *(0.0, 0.5, 1.5, 8.0, -2.5, 1e-320, 1e308),
    *(math.nan, math.inf, -math.inf, 1 + 2j),
    *("", "8", "x", "nan", "inf", "-1", "full", b"2"),
    *([], [1], [None], (1, 2), ("x",), {}, {"a": 1}, {1: 2}, {3}, range(3)),
    *(object(), len, Layout, ...),
)
MODELS = ("llama3.2-1b", "mixtral-8x7b", "deepseek-v2-lite", "gemma2-2b")
ON = "8xh100-sxm"


def one(r: random.Random, thing: Any) -> Any:
    """The thing with one or two wild fields."""
    names = [f.name for f in fields(thing) if f.init]
    some = r.sample(names, r.choice((1, 1, 2)))
    return replace(thing, **{name: r.choice(WILD) for name in some})


def wild_model(r: random.Random) -> Any:
    return predict(Job(one(r, model(r.choice(MODELS))), ON, 32), Layout(tp=2))


def wild_part(r: random.Random) -> Any:
    m = model(r.choice(("mixtral-8x7b", "deepseek-v2-lite")))
    part = r.choice([name for name in ("moe", "mla") if getattr(m, name)])
    return predict(Job(replace(m, **{part: one(r, getattr(m, part))}), ON, 32))


def wild_layout(r: random.Random) -> Any:
    start = r.choice((Layout(), Layout(tp=2, dp=4), Layout(pp=2, zero=1)))
    return predict(Job(r.choice(MODELS), ON, 32), one(r, start))


def wild_job(r: random.Random) -> Any:
    return predict(one(r, Job(r.choice(MODELS), ON, 32)))


def wild_cluster(r: random.Random) -> Any:
    on = cluster(ON)
    (dim, *far) = on.network.dims
    made: Callable[[], Any] = r.choice(
        (
            lambda: one(r, on),
            lambda: replace(on, chip=one(r, on.chip)),
            lambda: replace(on, network=one(r, on.network)),
            lambda: replace(
                on, network=replace(on.network, dims=(one(r, dim), *far))
            ),
        )
    )
    return predict(Job("llama3.2-1b", made(), 32), Layout(tp=2))


def wild_set(r: random.Random) -> Any:
    return one(r, r.choice((ChipTime(), NetworkTime(), MoE(8, 2, 64))))


def wild_space(r: random.Random) -> Any:
    names = [f.name for f in fields(Layout)] + ["choices", "placements", "x"]
    given = {r.choice(names): r.choice(WILD) for _ in range(2)}
    more = {r.choice(names): (1, r.choice(WILD))} if r.random() < 0.5 else {}
    space = Space(**{**given, **more})
    job = Job("llama3.2-1b", "2xh100-sxm", 4)
    return plan(job, space, top=1, families=False).best


def wild_question(r: random.Random) -> Any:
    job = Job("llama3.2-1b", "2xh100-sxm", 4)
    a, b = r.choice(WILD), r.choice(WILD)
    name = r.choice([f.name for f in fields(Layout)])
    asked: tuple[Callable[[], Any], ...] = (
        lambda: plan(job, Space(tp=1), top=a, families=False).best,
        lambda: plan(job, a),
        lambda: plan(a),
        lambda: predict(job, a) if a is not None else None,
        lambda: predict(a),
        lambda: table(job, **{name: [a, b]}).best,
        lambda: table(job, a),
        lambda: sweep(job, r.choice((a, "chips")), [b], fixed=True),
        lambda: sweep(job, "batch", a),
        lambda: Sweep(a, b),
        lambda: Choices(a),
        lambda: model(a),
        lambda: cluster(a),
        lambda: Job(a, b, 4),
        lambda: Job("llama3.2-1b", ON, a, Layout(), b),
    )
    return r.choice(asked)()


KINDS = (
    *(wild_model, wild_model, wild_part, wild_layout, wild_layout),
    *(wild_job, wild_cluster, wild_set, wild_space, wild_question),
)


def outcome(index: int) -> str:
    """What the input of that number ends in: "", or the exception or number that is no answer."""
    r = random.Random(SEED * 1_000_000 + index)
    ask = KINDS[index % len(KINDS)]
    try:
        found = ask(r)
        step = found.step_time_s if isinstance(found, Prediction) else 1.0
    except MeshwrightError as error:
        long = len(str(error)) > 2000 or "\n" in str(error)
        return f"{ask.__name__}: {str(error)[:80]}..." if long else ""
    except Exception as error:
        return f"{ask.__name__}: {type(error).__name__}: {str(error)[:200]}"
    wrong = not (math.isfinite(step) and step > 0)
    return f"{ask.__name__}: a step of {step} s" if wrong else ""


@pytest.mark.parametrize("part", range(6))
def test_wild_values_end_in_a_sentence_or_a_number(part: int) -> None:
    wrong = {i: said for i in range(part, 120, 6) if (said := outcome(i))}
    assert not wrong


def test_what_a_job_only_carries_is_as_it_was_given() -> None:
    """Table [train] is the trainer's to judge; degrees have a range."""
    train = {"eval_every": 0, "lr": 1e-3}
    job = Job("llama3.2-1b", "8xh100-sxm", 32, train=train)
    assert dict(job.train) == train
    with refusal("layout.tp must be between 1 and"):
        Layout(tp=10**400)


def test_questions_that_none_is() -> None:
    job = Job("llama3.2-1b", "8xh100-sxm", 32)
    for top in (0, -1):
        with refusal(f"top must be .* not {top}"):
            plan(job, top=top)
    with refusal("layout.interleave must be a whole number"):
        Space(tp=(1, 7.0, 2), interleave=(b"2", 4))
    with refusal("layout.pp must be a whole number"):
        Space(pp=(None, 2))
    with refusal("a Sweep is what .* gives"):
        Sweep(job, "chips", [64, 128])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: NetworkTime("free", hop="mean"),
            "networktime.hop means nothing where collective is free",
        ),
        (
            lambda: NetworkTime("free", efficiency=0.8),
            "networktime.efficiency means nothing where collective is free",
        ),
        (
            lambda: ChipTime(matrix_efficiency=0.5, sustained=0.9),
            "chiptime.sustained means nothing where matrix_efficiency is 0.5",
        ),
    ],
)
def test_an_option_that_is_not_the_choices_is_refused(
    make: Callable[[], Any], says: str
) -> None:
    """Where it would be dropped, a file is refused with the same words (`describe.fields.With`)."""
    with refusal() as error:
        make()
    assert str(error.value).startswith(says)


if __name__ == "__main__":
    count = int(sys.argv[1])
    said = [text for i in range(count) if (text := outcome(i))]
    print(f"{len(said)} of {count} end in no sentence and no number")
    print("\n".join(said))
