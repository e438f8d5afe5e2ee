"""Rules at their corners: models without experts or attention, grids, what a rule is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import CHIP, MODEL
from meshwright import Cluster, Dim, Job, Layout, Network
from meshwright.catalog import model as catalogue
from meshwright.describe.mixers import Indexer
from meshwright.layout import rules, schemes, trainable

NET = Network("n", (Dim("node", 1e9, 0.0, size=999),))
WIDE = replace(MODEL, hidden=96, heads=12, ffn=260, seq=160)
JOB = Job(WIDE, Cluster(CHIP, NET, 40), 40)


def test_no_experts_are_cut_by_no_etp() -> None:
    assert rules.EXPERT_FFN.holds(JOB, Layout(dp=1))
    assert not rules.EXPERT_FFN.holds(JOB, Layout(tp=2, dp=1, etp=2))
    assert "has no experts: etp may be 1" in rules.EXPERT_FFN.sentence(
        JOB, Layout(tp=2, dp=1, etp=2)
    )


def test_a_rule_is_a_key() -> None:
    """Counts are kept of rules, each of which is one of a kind, and stays as it is."""
    every = (*rules.ALWAYS, rules.EVEN_BATCH)
    assert len({*every}) == len(every) == len({rule.name for rule in every})
    with pytest.raises(AttributeError):
        rules.EVEN_BATCH.name = "another"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("zero", "away", "fits"),
    [
        (3, "optimizer+weights", True),
        (2, "optimizer+weights", False),
        (3, "optimizer:0.5+weights", False),
        (2, "optimizer", True),
    ],
)
def test_weights_wait_in_host_memory_where_all_states_do(
    zero: int, away: str, fits: bool
) -> None:
    """Sharded, and updated there: by ZeRO 3, with all of the optimizer."""
    layout = Layout(dp=40, zero=zero, offload=away)
    assert bool(rules.AWAY.holds(JOB, layout)) is fits


@pytest.mark.parametrize("field", ["embedding_width", "token_types", "head_width"])  # fmt: skip
def test_tables_of_embeddings_that_the_trainer_lacks(field: str) -> None:
    of = catalogue("gpt3-175b")
    before = trainable.model_refusals(of)
    (why,) = set(trainable.model_refusals(replace(of, **{field: 2}))) - {
        *before
    }
    assert "embedding_width, token_types and head_width" in why


def test_what_the_layer_of_a_grid_does_not_count() -> None:
    """Each alone is enough: layers of several kinds, scores of chosen tokens, norms inside."""
    assert schemes.plain_dense(WIDE)
    for change in (
        {"pattern": ("full", "none+dense")},
        {"sparse": Indexer(2, 8, 16)},
        {"inner_norms": True},
        {"vectors": 1},
        {"qk_norm": True},
        {"norms_per_layer": 4},
        {"attention_sinks": True},
    ):
        assert not schemes.plain_dense(replace(WIDE, **change)), change
