"""Every term is the sum of its parts, and without parts holds an expression with its numbers that
evaluates to its value: of jobs drawn at random, under every framework and set of assumptions.

The evaluator is this file's own: numbers, names that have a value, + - * / **, and seven functions.
"""

from __future__ import annotations

import ast
import io
import math
import operator
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from rich.console import Console

from by_hand import by_hand
from meshwright import BadInput, Job, Layout, Prediction, Term, num, predict
from meshwright.describe.assumptions import SETS
from meshwright.describe.software import Software
from meshwright.prediction.expression import written
from meshwright.prediction.recorded import Recorded
from meshwright.report.explain import explanation_report, explanation_to_dict

DRAWN = 300
PARTS = 10
"""Tests that the jobs are dealt to."""
KINDS = 15
"""Branches of the trees of step and memory: each test sees more of them."""
MODELS = (
    "llama2-7b",
    "llama3-8b",
    "gpt3-13b",
    "gemma2-9b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "jamba-1.5-mini",
)
CHIPS = (
    "h100-sxm",
    "a100-80",
    "b200",
    "gb200",
    "mi300x",
    "tpu-v5p",
    "perlmutter-a100",
)
SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-1p", "zbv", "v-half")
FRAMEWORKS = (
    "megatron-core",
    "megatron-bridge",
    "megatron-2021",
    "torchtitan",
    "fsdp",
    "deepspeed-zero3",
    "maxtext",
    "meshwright",
    None,
)
OF_OPERATIONS = ("compute", "memory", "tp_comm", "cp_comm", "ep_comm")
OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
FUNCTIONS: dict[str, Any] = {
    "max": max,
    "min": min,
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "log2": math.log2,
}


def value_of(text: str, values: Mapping[str, float | str]) -> float:
    """What an expression evaluates to."""

    def number(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as x):
                return float(x)
            case ast.Name(id=name):
                named = values[name]
                if isinstance(named, str):
                    return number(ast.parse(named, mode="eval").body)
                return named
            case ast.BinOp(left=a, op=op, right=b):
                return float(OPERATORS[type(op)](number(a), number(b)))
            case ast.UnaryOp(op=op, operand=a):
                return float(OPERATORS[type(op)](number(a)))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return float(FUNCTIONS[name](*map(number, args)))
        raise ValueError(ast.dump(node))

    return number(ast.parse(text, mode="eval").body)


def test_the_evaluator_by_hand() -> None:
    assert (
        value_of("2 * (x + max(y, 1)) / 4 - -1", {"x": 3.0, "y": "x - 1"})
        == 3.5
    )
    with pytest.raises(KeyError):
        value_of("rate", {})
    with pytest.raises(ValueError, match="Attribute"):
        value_of("x.real", {"x": 1.0})


def drawn(rng: random.Random) -> Prediction | None:
    """A prediction at random; None of what is not legal."""
    chips = rng.choice((16, 64, 256, 1024))
    model = rng.choice(MODELS)
    experts = model in ("mixtral-8x7b", "deepseek-v2-lite", "jamba-1.5-mini")
    tp, pp = rng.choice((1, 2, 4, 8)), rng.choice((1, 1, 2, 4, 8))
    cp = rng.choice((1, 1, 2, 4))
    schedule = rng.choice(SCHEDULES) if pp > 1 else "1f1b"
    layout = {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "dp": max(chips // (tp * pp * cp), 1),
        "ep": rng.choice((1, 2, 8)) if experts else 1,
        "zero": rng.choice((0, 1, 2, 3)),
        "microbatch": rng.choice((1, 2)),
        "recompute": rng.choice(("none", "selective", "full", "full:2")),
        "schedule": schedule,
        "interleave": 2 if schedule in ("interleaved", "zbv", "v-half") else 1,
        "sequence_parallel": rng.choice((True, True, False)),
        "offload": rng.choice(("none",) * 8 + ("optimizer", "activations")),
    }
    framework = rng.choice(FRAMEWORKS)
    assumptions = "realistic" if framework else rng.choice(sorted(SETS))
    hidden = rng.choice((None, "all", "backward", "off"))
    software = (
        Software(tp_overlap=hidden, ep_overlap=rng.choice((None, experts)))
        if framework and hidden
        else Software()
    )
    try:
        return predict(
            Job(
                model,
                f"{chips}x{rng.choice(CHIPS)}",
                rng.choice((64, 512)),
                Layout(**layout),
                framework=framework,
                assumptions=assumptions,
                seq=rng.choice((1024, 2048, 8192)),
                precision=rng.choice(("bf16", "bf16", "bf16", "fp8")),
                software=software,
            )
        )
    except BadInput:
        return None


def predictions(seed: int, number: int) -> Iterator[Prediction]:
    """So many."""
    rng = random.Random(seed)
    while number:
        if p := drawn(rng):
            number -= 1
            yield p


def leaves(tree: Term) -> Iterator[tuple[str, Term]]:
    """(kind, term) of all that count and have no parts: a kind is the tree and its branch."""
    for branch in tree.parts:
        for _, term in branch.walk():
            if not term.parts and abs(term.value) > 1e-12 * tree.value:
                yield f"{tree.name}/{branch.name}", term


def check_sums(p: Prediction) -> None:
    """Every term is the sum of its parts; what counts has some, with formula and source; together
    they are what the prediction says."""
    for tree in (p.term, p.memory_term):
        for _, term in tree.walk():
            if term.parts:
                assert term.value == pytest.approx(
                    sum(part.value for part in term.parts), rel=1e-9
                ), (term.name, p.job)
        for term in tree.parts:
            if term.value:
                assert term.parts and term.formula and term.source, term.name
            if term.name in OF_OPERATIONS:
                assert all(part.formula for part in term.parts), term.name
    # what its host launches at once is no operation
    host = p.term.find("host")
    assert host and all(part.value for part in host.parts)
    assert p.term.value == pytest.approx(p.step_time_s)
    assert {t.name: t.value for t in p.term.parts} == pytest.approx(p.time_s)
    assert p.memory_term.value == pytest.approx(p.memory_bytes["needed"])


def right(term: Term) -> bool:
    """Whether the expression gives the value."""
    if term.expression is None:
        return False
    return value_of(*term.expression) == pytest.approx(term.value, rel=1e-9)


def shares(
    seed: int, number: int
) -> tuple[Counter[str], Counter[str], dict[str, Any]]:
    """Kind of a leaf (its cause, or "memory ...") -> leaves, and those that evaluate."""
    every: Counter[str] = Counter()
    some: Counter[str] = Counter()
    wrong: dict[str, Any] = {}
    for p in predictions(seed, number):
        check_sums(p)
        for tree in (p.term, p.memory_term):
            for kind, leaf in leaves(tree):
                every[kind] += 1
                if right(leaf):
                    some[kind] += 1
                else:
                    wrong[f"{kind}: {leaf.name}"] = p, leaf
    return every, some, wrong


@pytest.mark.parametrize("seed", range(PARTS))
def test_every_leaf_evaluates_to_its_value(seed: int) -> None:
    every, some, wrong = shares(seed, DRAWN // PARTS)
    assert not wrong, {k: (leaf, p.job) for k, (p, leaf) in wrong.items()}
    assert every == some and len(every) > KINDS


def test_what_hides_in_a_head_that_predicts_two_tokens() -> None:
    """The messages of head and second prediction are a sum, of either of which a part hides."""
    layout = Layout(tp=2, dp=4, zero=1)
    p = predict(Job("deepseek-v3", "8xh100-sxm", 8, layout, seq=4096))
    (leaf,) = (
        term
        for _, term in p.term.walk()
        if term.name == "hidden behind compute" and not term.parts
    )
    assert right(leaf)


def test_an_operation_by_hand() -> None:
    """Queries, keys and values: 2 x 3 x 64 x 64 FLOPs for each of 128 tokens, at 2^24 a second,
    of 2 layers for 3 microbatches."""
    leaf = by_hand(Layout(), 3).term.find(
        "compute/layers/attention/qkv forward"
    )
    assert leaf is not None
    text, values = leaf.expression
    assert text == "times * (FLOPs / rate)"
    assert values == {
        "times": 6.0,
        "FLOPs": 2 * 3 * 64 * 64 * 128,
        "rate": 2.0**24,
    }


def test_what_an_operation_leaves_as_it_is_is_not_written() -> None:
    """A maximum with 0 of what is above it, either way round; with 1 it is an operation."""
    x = Recorded(3.0, name="x")
    assert num.maximum(x, 0.0) is x and num.maximum(0.0, x) is x
    assert num.maximum(x, 1.0).does == "max"
    assert x + 0.0 is x and x * 1.0 is x


def test_what_is_recorded_is_written_as_it_was_computed() -> None:
    x, y = (Recorded(v, name=n) for v, n in ((3.0, "x"), (8.0, "y")))
    law = num.maximum(x * y - 4, num.sqrt(x)) / num.ceil(y / 3)
    text, values = written(law + 2.0 ** num.log2(y))
    assert (
        text == "max(x * y - 4, sqrt(x)) / ceil(y / 3 - 1e-09) + 2 ** log2(y)"
    )
    assert values == {"x": 3.0, "y": 8.0}
    assert value_of(text, values) == 20 / 3 + 8
    z = x + y
    twice, values = written(z * z)
    assert (twice, values["a"]) == ("a * a", "x + y")
    assert written(x - (y - 1) / (x / y)).text == "x - (y - 1) / (x / y)"


def test_equal_names_with_other_values_are_told_apart() -> None:
    a, b = (Recorded(v, name="bytes") for v in (1.0, 2.0))
    text, values = written(a + b)
    assert text == "bytes + bytes_2" and values["bytes_2"] == 2.0


def test_long_sums_inside_are_their_number() -> None:
    """So a law stays readable: of w it is enough to say what it is."""
    w = num.total([Recorded(float(i), name=f"op{i}") for i in range(1, 30)])
    text, values = written(num.sqrt(w * w + 1))
    assert text == "sqrt(a * a + 1)" and values == {"a": 435.0}


def test_an_explanation_prints_and_lists_it() -> None:
    p = by_hand(Layout())
    (found,) = explanation_to_dict(p, "compute/layers/attention/core forward")
    assert value_of(**found["expression"]) == pytest.approx(found["value"])
    shown = io.StringIO()
    Console(file=shown, width=100).print(
        explanation_report(p, "attention/core/forward")
    )
    assert "= times * (FLOPs / rate_16bit)" in shown.getvalue()
    assert "rate_16bit = 1.67772e+07" in shown.getvalue()
