"""Work and bytes of elementwise operations, counted by hand from what they read and write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import by_hand
from meshwright import assumptions
from meshwright.count import blocks, vocabulary
from meshwright.count.model import kinds, layer, next_token
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.describe.software import Software
from meshwright.layout.placement import placed

X = 1000.0


def test_a_gate_is_an_activation_and_a_product() -> None:
    """y = f(g) u: one multiplication more than f(g); backward dg = dy u f'(g) and du = dy f(g): two
    more than f' dy.
    """
    plain, gated = (
        blocks.gelu("x", X, act=2.0),
        blocks.gated_activation("x", X, act=2.0),
    )
    assert gated.forward.vector == plain.forward.vector + X
    assert gated.backward.vector == plain.backward.vector + 2 * X


def test_what_a_gate_reads_and_writes() -> None:
    """Reads g and u, writes y; backward reads dy, g and u, writes dg and du; keeps g and u."""
    gated = blocks.gated_activation("x", X, act=2.0)
    assert gated.forward.memory == 3 * X * 2
    assert gated.backward.memory == 5 * X * 2
    assert gated.saved == 2 * X * 2


def test_what_a_residual_sum_reads_and_writes() -> None:
    assert blocks.residual("x", X, act=2.0).forward.memory == 3 * X * 2


def test_the_loss_goes_over_its_scores_more_than_once() -> None:
    """The largest score must be known before the exponentials are summed up: fp32 scores are read
    at least twice, and backward reads each and writes its gradient."""
    model = Model("loss", 2, 64, 4, 256, vocab=1000, seq=128)
    job = replace(by_hand(Layout(dp=1)).job, model=model)
    loss = next(
        op
        for op in vocabulary.head(job, placed(Layout(dp=1), (1,)))
        if op.name == "head/loss"
    )
    scores = 128 * 1000 * 4.0
    assert 2 * scores <= loss.forward.memory <= 4 * scores
    assert loss.backward.memory == pytest.approx(2 * scores)


@pytest.mark.parametrize(
    ("framework", "software", "score"),
    [
        ("megatron-core", Software(), 4.0),
        ("megatron-core", Software(loss="in place"), 2.0),
        ("megatron-bridge", Software(), 2.0),
        ("megatron-bridge", Software(loss="own"), 4.0),
    ],
)
def test_a_loss_in_place_goes_over_the_logits_as_they_are(
    framework: str, software: Software, score: float
) -> None:
    """16-bit logits are read, read and overwritten by their gradient, and that is read and written
    again by its factor: as many passes as over a copy in fp32, each of half the bytes."""
    job = replace(
        by_hand(Layout(dp=1)).job,
        model=Model("loss", 2, 64, 4, 256, vocab=1000, seq=128),
        assumptions=REALISTIC,
        framework=framework,
        software=software,
    )
    loss = next(
        op
        for op in vocabulary.head(job, placed(Layout(dp=1), (1,)))
        if op.name == "head/loss"
    )
    scores = 128 * 1000 * score
    assert loss.forward.memory == pytest.approx(3 * scores)
    assert loss.backward.memory == pytest.approx(2 * scores)


def test_a_look_up_reads_rows_and_writes_activations() -> None:
    """Rows in weight bytes; the result is written and read once more for its sum over tp. Backward
    alike.
    """
    job = by_hand(Layout(dp=1), model=Model("m", 1, 64, 4, 256, 1000, 128)).job
    job = replace(job, assumptions=assumptions("realistic"))
    op = vocabulary.embedding(job, placed(Layout(dp=1), (1,)))[0]
    numbers = 128 * 64
    assert op.forward.memory == op.backward.memory == numbers * (2 * 2 + 2)


def test_multi_token_prediction_shares_the_head() -> None:
    """A block holds a layer, two norms and the joining matrix of 2 D x D; its logits are those of
    the model's head.
    """
    model = Model("m", 2, 64, 4, 256, 1000, 128, mtp_layers=1)
    job = replace(
        by_hand(Layout(dp=1), model=model).job,
        assumptions=assumptions("realistic"),
    )
    layout = placed(Layout(dp=1), (1,))
    own = sum(op.weights for op in next_token(job, layout))
    one = sum(op.weights for op in layer(job, layout, kinds(model)[0]))
    assert own == one + 2 * 64 * 64 + 3 * 64, (
        "three norms: hidden state, token and the head's own"
    )
