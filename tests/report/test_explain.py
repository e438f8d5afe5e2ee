"""--explain: a term with formula, numbers, source and parts."""

from __future__ import annotations

import pytest

from meshwright.catalog import cluster, model
from meshwright.errors import BadInput
from meshwright.prediction import predict
from meshwright.report.explain import find, rates, to_dict
from meshwright.spec.job import Job
from meshwright.spec.layout import Layout

P = predict(Job(model("mixtral-8x7b"), cluster("64xh100-sxm"), 128, Layout(tp=2, pp=2, dp=16, zero=1)))


def test_exact_names() -> None:
    assert find(P, "step_time")[0][1].value == P.step_time_s
    assert find(P, "compute")[0] == ("step_time/compute", P.term.parts[0])
    assert find(P, "memory")[0][1].unit == "B", "the memory of a chip, not the time of memory traffic"
    assert find(P, "step_time/memory")[0][1].unit == "s"


def test_words_of_a_path() -> None:
    hits = find(P, "compute/attention/qkv")
    assert len(hits) == 2 and {path.rsplit(" ", 1)[1] for path, _ in hits} == {"forward", "backward"}
    assert all(path.startswith("step_time/compute/") for path, _ in hits)


def test_a_term_and_its_parts_are_not_both_listed() -> None:
    paths = [path for path, _ in find(P, "comp")]
    assert paths == ["step_time/compute"]


def test_parts_add_up() -> None:
    (data,) = to_dict(P, "compute")
    assert sum(part["value"] for part in data["parts"]) == pytest.approx(data["value"])
    assert data["formula"] and data["source"]


def test_rates_repeat_the_prediction() -> None:
    assert {term.name: term.value for term in rates(P)} == {"tokens_per_s": P.tokens_per_s, "mfu": P.mfu, "hfu": P.hfu}


@pytest.mark.parametrize("wanted", ["nope", "", "/", "up/ffn", "x" * 500])
def test_unknown_terms(wanted: str) -> None:
    with pytest.raises(BadInput, match="did you mean"):
        find(P, wanted)
