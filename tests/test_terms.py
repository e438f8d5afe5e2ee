"""The tree of terms, by hand: what a cause is made of, and in which words. That it adds up:
`test_expressions`.
"""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import asdict, replace

import pytest

from by_hand import MODEL, by_hand
from layouts import cut
from meshwright import Job, Layout, Term, catalog, predict
from meshwright.describe.assumptions import HidePass, Overlap


def every(term: Term) -> list[Term]:
    """The term and all below it."""
    return [found for _, found in term.walk()]


def test_recomputed_parts_are_the_forward_ones_again() -> None:
    p = by_hand(
        Layout(recompute="full"),
        1,
        model=replace(MODEL, layers=3),
        overlap=Overlap(dp=HidePass(), pp="none"),
    )
    compute = next(t for t in p.term.parts if t.name == "compute")
    seconds = {
        word: sum(t.value for t in compute.parts if t.name.endswith(word))
        for word in ("forward", "recomputed")
    }
    assert seconds["forward"] == pytest.approx(3.0)
    assert seconds["recomputed"] == pytest.approx(seconds["forward"])


WAYS = ("forward", "backward")


def test_the_bubble_by_hand() -> None:
    """1F1B on four devices with a layer each: a microbatch passes the three other layers, forward
    and backward.
    """
    p = by_hand(Layout(pp=4), 5, model=replace(MODEL, layers=4, vocab=0))
    bubble = next(t for t in p.term.parts if t.name == "bubble")
    one = {
        way: sum(
            t.value
            for t in p.term.find("compute").parts
            if t.name.endswith(way)
        )
        / 5
        for way in WAYS
    }
    assert {t.name: t.value for t in bubble.parts} == pytest.approx(
        {f"layers {w}": 3 * one[w] for w in WAYS}
    )
    for part in bubble.parts:
        often, each = part.formula.split(" x ")
        assert often == "3"
        assert 3 * float(each) == pytest.approx(part.value, rel=1e-4)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_what_zero_cuts_says_over_how_many_ranks(zero: int) -> None:
    """Rajbhandari et al. 2020: stage 1 cuts the states of the optimizer, 2 gradients too, 3 weights
    too; activations never."""
    job = Job("llama3-8b", "16xh100-sxm", 16)
    tree = predict(job, Layout(tp=2, dp=8, zero=zero)).memory_term
    cut = [
        kind
        for kind in ("optimizer", "gradients", "weights", "activations")
        if (term := tree.find(kind)) and "cut over 8 ranks" in term.formula
    ]
    assert cut == ["optimizer", "gradients", "weights"][:zero]


def test_memory_by_hand() -> None:
    """Two layers of 49,152 parameters in 16 bits: weights are theirs, and nothing else grows with
    them.
    """
    p = by_hand(Layout(), 1)
    weights = p.memory_term.find("weights")
    layers = weights.find("layers parameters")
    assert layers.formula == "4 x 49152"
    assert weights.value == layers.value == 2 * 49152 * 2


def test_zero_bubble_fills_with_weight_gradients() -> None:
    """The longest path of ZB-H1 is shorter by the weight gradients that run meanwhile."""
    bubble = by_hand(
        Layout(pp=4, schedule="zb-h1"), 8, model=replace(MODEL, layers=4)
    ).term.find("bubble")
    assert bubble
    assert (
        next(
            t.value
            for t in bubble.parts
            if t.name == "layers weight gradients"
        )
        < 0
    )


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_the_optimizer_names_all_of_its_seconds(precision: str) -> None:
    """fp32 master, two moments and gradient, bf16 weight: 2 x (4 + 12) + 2 B a parameter. In FP8
    weights are quantised once a step too, where the framework keeps them so.
    """
    job = Job(
        "llama3-70b",
        "64xh100-sxm",
        128,
        cut("tp4 pp4 dp4 zero1"),
        precision=precision,
    )
    optimizer = predict(job).term.find("optimizer")
    assert optimizer is not None
    said = optimizer.formula
    assert " 34 B of each " in said
    parameters = float(said.split(" parameters")[0])
    rate = float(said.split("at ")[1].split(" B/s")[0])
    added = [float(x) for x in re.findall(r"\+ ([\d.e+-]+) s ", said)]
    assert len(added) == {"bf16": 1, "fp8": 2}[precision]
    seconds = parameters * 34 * 1.5 / rate + sum(added)
    assert optimizer.value == pytest.approx(seconds, rel=2e-3)


def test_an_optimizer_that_keeps_nothing_is_explained() -> None:
    """Adafactor's state beside weights in fp32 is counted as none."""
    layout = cut("tp2 pp2 dp2")
    job = Job(
        "llama3-8b",
        "8xa100-80",
        64,
        layout,
        precision="fp32",
        optimizer="adafactor",
    )
    assert job.state_bytes == 0
    p = predict(job)
    optimizer = p.term.find("optimizer")
    assert optimizer is not None and "its parameters" in optimizer.formula
    assert optimizer.value == pytest.approx(p.time_s["optimizer"])


def test_what_is_left_of_memory_is_named_as_bytes() -> None:
    """Not as the seconds of the optimizer."""
    job = Job(
        "bloom-176b",
        "12xh800",
        192,
        cut("tp2 cp2 dp3 zero2 microbatch4 zb-h1"),
        precision="fp16",
        optimizer="adafactor",
    )
    kept = predict(job).memory_term.find("optimizer")
    assert kept is not None
    names = {part.name for part in kept.parts}
    assert "constant" in names and not any("launch" in n for n in names)


def test_a_formula_reads_the_same_on_every_way() -> None:
    """It is written when it is first read: a tree that was pickled or copied before is the one that
    was read here, and says so in the same words.
    """
    job = Job("deepseek-v2-lite", "32xa100-80", 64)

    def tree() -> Term:
        return predict(job, cut("tp2 pp2 dp8 ep8 zero2")).term

    read = tree()
    words = [(term.name, term.formula) for term in every(read)]
    assert any("matrix products" in formula for _, formula in words)
    assert any("all_to_all" in formula for _, formula in words)
    for way in (
        lambda term: pickle.loads(pickle.dumps(term)),
        copy.deepcopy,
        copy.copy,
        replace,
    ):
        unread = tree()
        other = way(unread)
        assert [(t.name, t.formula) for t in every(other)] == words
        assert other == read == unread
        assert repr(other) == repr(read)
        assert hash(other) == hash(read)
    assert asdict(tree()) == asdict(read)


def test_how_much_hides_is_said_of_both_sides() -> None:
    """Half of an exchange over cp, however long the attention beside it takes."""
    p = predict(
        Job(
            catalog.model("llama3-8b"),
            catalog.cluster("64xh100-sxm"),
            64,
            cut("cp8 dp8"),
            seq=131072,
        )
    )
    cause = p.term.find("cp_comm")
    assert cause
    *sent, hidden = cause.parts
    assert hidden.value == pytest.approx(-0.5 * sum(x.value for x in sent))
    assert hidden.formula == (
        "while its operation computes, at most 100 % of that, and 50 % of what is sent"
    )
