"""Context parallelism by gather, ring and all-to-all: bytes by hand, the same work, rules and
seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout
from meshwright.exchange import EXCHANGES, RankHeads
from meshwright.layout.rules import broken
from refusals import refusal

HEADS = RankHeads(b=2, T=64, cp=4, H=8, K=4, q=16, v=8)


@pytest.mark.parametrize("name", EXCHANGES)
def test_each_rank_scores_as_many_pairs(name: str) -> None:
    """Queries x keys x heads are shared out evenly, whatever ranks are cut by."""
    work = EXCHANGES[name].work(HEADS)
    assert work.H * work.queries == HEADS.H * HEADS.T / HEADS.cp
    assert work.H / work.K == HEADS.H / HEADS.K


KEYS = 2 * 4 * 64 * (16 + 8)
INPUTS = 2 * 64 / 4 * (8 * 16 + 4 * (16 + 8))
OUTPUTS = 2 * 64 / 4 * 8 * 8
SENT = {
    "gather": (
        [("all_gather", KEYS)],
        [("all_gather", KEYS), ("reduce_scatter", KEYS)],
    ),
    "ring": ([("ring", KEYS)], [("ring", 2 * KEYS)]),
    "all-to-all": (
        [("all_to_all", INPUTS), ("all_to_all", OUTPUTS)],
        [("all_to_all", OUTPUTS), ("all_to_all", INPUTS)],
    ),
}
"""What each sends for `HEADS` in the forward and in the backward pass, by hand."""


@pytest.mark.parametrize("name", EXCHANGES)
def test_elements_by_hand(name: str) -> None:
    """A new exchange fails here until its numbers stand above: no property knows what it sends."""
    forward, backward = SENT[name]
    assert [*EXCHANGES[name].forward(HEADS)] == forward
    assert [*EXCHANGES[name].backward(HEADS, False)] == backward


JOB = Job("llama3-8b", "64xh100-sxm", 8, seq=65536)


def test_heads_that_cannot_be_cut_are_refused_by_name() -> None:
    layout = Layout(tp=4, cp=4, dp=4, cp_exchange="all-to-all")
    assert "all-to-all cuts heads over tp x cp" in broken(JOB, layout)[0]
    assert broken(JOB, replace(layout, tp=2, dp=8)) == []
    with refusal("did you mean ring|gather, ring, all-to-all"):
        Layout(dp=1, cp_exchange="rings")
    trained = Layout(tp=8, cp=2, dp=4, cp_exchange="ring")
    why = broken(replace(JOB, framework="meshwright"), trained)
    assert "layout.cp_exchange ring is not trained: take gather" in why
