"""Parameters of catalogue models against exact counts and published totals
(tests/published/parameters.toml).
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshwright import catalog
from meshwright.count.model import parameters

TABLE: dict[str, Any] = tomllib.loads(
    (Path(__file__).parents[1] / "published" / "parameters.toml").read_text()
)


@pytest.mark.parametrize("name", TABLE["transformers"])
def test_modules_of_transformers(name: str) -> None:
    assert (
        parameters(catalog.model(name))
        == TABLE["transformers"][name]["parameters"]
    )


@pytest.mark.parametrize(
    "row", TABLE["published"], ids=lambda row: row["model"]
)
def test_exact_totals_others_print(row: dict[str, Any]) -> None:
    assert parameters(catalog.model(row["model"])) == row["parameters"]


@pytest.mark.parametrize("row", TABLE["rounded"], ids=lambda row: row["model"])
def test_totals_of_papers(row: dict[str, Any]) -> None:
    model = catalog.model(row["model"])
    assert parameters(model) == pytest.approx(
        row["parameters"], rel=row["within"]
    )
    if "active" in row:
        embedding = (
            model.vocab * model.hidden if row.get("without_embedding") else 0
        )
        assert parameters(model, active=True) - embedding == pytest.approx(
            row["active"], rel=row["active_within"]
        )


def test_every_model_with_a_vocabulary_is_checked() -> None:
    checked = {
        *TABLE["transformers"],
        *(row["model"] for row in TABLE["rounded"]),
        "turing-nlg-530b",
    }
    assert {
        n for n in catalog.names("models") if catalog.model(n).vocab
    } <= checked


def test_norms_without_parameters_have_none() -> None:
    """OLMo's norms neither scale nor shift: L blocks of two and the last one, D parameters each,
    are gone.
    """
    model = catalog.model("llama3-8b")
    bare = replace(model, norm="nonparametric")
    assert (
        parameters(model) - parameters(bare)
        == (2 * model.layers + 1) * model.hidden
    )


def test_shared_experts_have_the_biases_of_a_dense_feed_forward() -> None:
    """Gate, up and down, each with its bias (Ernie4_5_MoeMLP of transformers with use_bias: no
    published model sets it).
    """
    biased = replace(catalog.model("mixtral-8x7b"), bias=True)
    D, F, L = biased.hidden, 2816, biased.layers
    assert biased.moe
    shared = replace(biased, moe=replace(biased.moe, shared_ffn=F))
    more = parameters(shared) - parameters(biased)
    assert more == L * (3 * D * F + 2 * F + D)
