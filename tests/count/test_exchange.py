"""Keys and values over cp by gather, ring and all-to-all, and tokens to experts: bytes by hand, the
same work, rules and seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, Layout
from meshwright.exchange import DISPATCHERS, EXCHANGES, RankHeads
from meshwright.exchange.experts import Tokens
from meshwright.exchange.reach import Draw
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


TOKENS = Tokens(own=100.0, copies=200.0, ep=4, etp=2, draw=Draw(2))
ONCE = 200.0 * (1 + 4 * (1 - (3 / 4) ** 2) / 2)
DISPATCHED = {
    "alltoall": [([("all_to_all", "ep", 200.0)], 800.0)] * 2,
    "allgather": [
        ([("all_gather", "etp", 200.0), ("all_gather", "ep", 800.0)], 800.0),
        (
            [
                ("reduce_scatter", "ep", 800.0),
                ("reduce_scatter", "etp", 200.0),
            ],
            800.0 + 3 * 400.0,
        ),
    ],
    "deepep": [([("deepep", "ep", 200.0)], ONCE)] * 2,
    "hybridep": [([("hybridep", "ep", 200.0)], ONCE)] * 2,
}
"""What each sends of `TOKENS`, and moves in memory: to the experts, and back."""


@pytest.mark.parametrize("name", DISPATCHERS)
def test_a_dispatcher_by_hand(name: str) -> None:
    """A new dispatcher fails here until its numbers stand above."""
    it = DISPATCHERS[name]
    for way, (sent, moved) in zip(
        (it.away, it.back), DISPATCHED[name], strict=True
    ):
        traffic = way(TOKENS)
        assert [m[:3] for m in traffic.messages] == sent
        assert all(
            m.draw.copies == (2 if it.kernels else 1) for m in traffic.messages
        )
        assert traffic.moved == pytest.approx(moved)


JOB = Job("llama3-8b", "64xh100-sxm", 8, seq=65536)


def test_heads_that_cannot_be_cut_are_refused_by_name() -> None:
    layout = Layout(tp=4, cp=4, dp=4, cp_exchange="all-to-all")
    assert "all-to-all cuts heads over tp x cp" in broken(JOB, layout)[0]
    assert broken(JOB, replace(layout, tp=2, dp=8)) == []
    with refusal("did you mean ring|gather, ring, all-to-all"):
        Layout(dp=1, cp_exchange="rings")
    trained = Layout(tp=8, cp=2, dp=4, cp_exchange="ring")
    why = broken(replace(JOB, framework="meshwright"), trained)
    assert "meshwright allows cp_exchange gather, not ring" in why
