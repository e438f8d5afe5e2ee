"""--explain: a term with formula, numbers, source and parts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from by_hand import FREE
from meshwright import Job, Layout, Prediction, predict
from meshwright.catalog import chip
from meshwright.cost.chip import MODELS
from meshwright.cost.network import NAMED
from meshwright.describe.assumptions import (
    ELSEWHERE,
    SETS,
    ChipTime,
    NetworkTime,
)
from meshwright.describe.fields import fields_of
from meshwright.report.explain import explanation_to_dict, find, rate_terms
from refusals import refusal

P = predict(
    Job(
        "mixtral-8x7b",
        "64xh100-sxm",
        128,
        Layout(tp=2, pp=2, dp=16, zero=1),
    )
)


def test_exact_names() -> None:
    assert find(P, "step_time")[0][1].value == P.step_time_s
    assert find(P, "compute")[0] == ("step_time/compute", P.term.parts[0])
    assert find(P, "memory")[0][1].unit == "B", (
        "the memory of a chip, not the time of memory traffic"
    )
    assert find(P, "step_time/memory")[0][1].unit == "s"


def test_words_of_a_path() -> None:
    hits = find(P, "compute/attention/qkv")
    assert len(hits) == 2 and {path.rsplit(" ", 1)[1] for path, _ in hits} == {
        "forward",
        "backward",
    }
    assert all(path.startswith("step_time/compute/") for path, _ in hits)


def test_a_term_and_its_parts_are_not_both_listed() -> None:
    paths = [path for path, _ in find(P, "comp")]
    assert "step_time/compute" in paths
    assert not any(path.startswith("step_time/compute/") for path in paths)


def test_parts_add_up() -> None:
    (data,) = explanation_to_dict(P, "compute")
    assert sum(part["value"] for part in data["parts"]) == pytest.approx(
        data["value"]
    )
    assert data["formula"] and data["source"]


def test_rates_repeat_the_prediction() -> None:
    assert {term.name: term.value for term in rate_terms(P)} == {
        "tokens_per_s": P.tokens_per_s,
        "mfu": P.mfu,
        "hfu": P.hfu,
    }


@pytest.mark.parametrize("wanted", ["nope", "", "/", "up/ffn", "x" * 500])
def test_unknown_terms(wanted: str) -> None:
    with refusal("did you mean"):
        find(P, wanted)


PAPERS = {
    "realistic": "NCCL|Subramanian|Lepikhin|laws of kernels",
    "pytorch": "calibrate|NCCL|roofline|Lepikhin",
    "lbl-2024": "Subramanian|Lepikhin",
    "lbl-2024-code": "Subramanian|Lepikhin",
    "megatron-2021": "NCCL|Narayanan|Lepikhin|laws of kernels",
    "epoch-2024": "Erdil",
    "scaling-book-sum": "How To Scale Your Model",
    "scaling-book-max": "How To Scale Your Model",
}
"""Assumption set -> whose options its terms name; any other author of a set in a term is wrong."""
AUTHORS = ("Subramanian", "Narayanan", "Erdil", "How To Scale Your Model")
CHOSEN = (
    "compute",
    "memory",
    "tp_comm",
    "cp_comm",
    "ep_comm",
    "pp_comm",
    "dp_comm",
    "optimizer",
)
"""Causes that an option of the set decides; the bubble is the schedule's."""


def under(name: str, on: str = "64xh100-sxm", etp: int = 1) -> Prediction:
    cp = (
        1 if name == "megatron-2021" else 2
    )  # which has no context parallelism
    layout = Layout(tp=2, cp=cp, pp=2, dp=16 // cp, ep=4, etp=etp, zero=1)
    return predict(
        Job(
            "mixtral-8x7b",
            on,
            128,
            layout,
            assumptions=name,
        )
    )


@pytest.mark.parametrize("name", [*SETS, *ELSEWHERE])
def test_the_source_of_a_term_is_that_of_the_option_that_ran(
    name: str,
) -> None:
    for part in under(name).term.parts:
        if part.name in CHOSEN:
            # a set that was added since names some source, too
            assert re.search(PAPERS.get(name, r"\w"), part.source), (
                part.name,
                part.source,
            )
    if name.startswith(("epoch", "scaling")):
        sources = " ".join(
            part.source
            for part in under(name).term.parts
            if part.name in CHOSEN
        )
        assert "Subramanian" not in sources
    if name.startswith("epoch"):
        assert not any(
            other in sources for other in AUTHORS if other != "Erdil"
        )


def test_every_option_has_its_formula_and_source() -> None:
    assert set(MODELS) == set(fields_of(ChipTime)["model"].kind.words)
    assert set(NAMED) == set(fields_of(NetworkTime)["collective"].kind.words)
    assert all(all(texts) for texts in MODELS.values())
    own = ["title", "source", "laws"]
    for name, algorithm in NAMED.items():
        assert [x for x in own if x in vars(type(algorithm))] == own, name


def test_the_formula_is_that_of_the_chip_model() -> None:
    """With a memory hierarchy every product is a launch and tiles pass every level: rates of the
    chip's own data.
    """
    h100 = chip("h100-sxm")
    terms = {part.name: part for part in under("epoch-2024").term.parts}
    assert "a matrix product" in terms["compute"].formula
    assert (
        f"HBM {h100.hbm_bandwidth:.4g}, L2 {h100.hierarchy.l2_bandwidth:.4g}"
        in terms["memory"].formula
    )
    terms = {part.name: part for part in under("realistic").term.parts}
    # 0.8 x 3352 GB/s
    assert terms["memory"].formula.startswith("bytes / 2.682e+12 B/s")
    free = replace(under("realistic").job, assumptions=FREE)
    terms = {part.name: part for part in predict(free).term.parts}
    assert (
        terms["memory"].formula.startswith("0: memory takes no time")
        and terms["memory"].value == 0
    )
    assert (
        terms["tp_comm"].value == 0 and "no time" in terms["tp_comm"].formula
    )


def test_a_torus_has_its_own_algorithm() -> None:
    terms = {
        part.name: part
        for part in under("realistic", "64xtpu-v5p", etp=2).term.parts
    }
    assert terms["tp_comm"].source == NAMED["book"].source
