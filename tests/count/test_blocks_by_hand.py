"""Single operations of a layer, multiplied out by hand with sizes that tell every factor apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import by_hand
from meshwright import catalog
from meshwright.count import blocks, vocabulary
from meshwright.count.model import layer
from meshwright.count.moe import expected_reach
from meshwright.describe.layers import Kind
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.layout.placement import placed

T, N = 100.0, 7.0


def test_a_bias_reads_its_input_and_itself_and_keeps_its_input() -> None:
    """Y = X + b over T x N elements of 2 bytes, b in 4: one read of X, N numbers of b."""
    op = blocks.bias("x", T, N, act=2.0, wgt=4.0)
    assert op.forward.vector == T * N
    assert op.forward.memory == T * N * 2 + N * 4
    assert op.needs == T * N * 2
    assert op.weights == N


def test_a_weighed_bias_is_made_in_32_bits_by_operations_of_its_own() -> None:
    """Y = X + p b of 10 elements of 2 bytes. Forward: p b written (4), X and it read and the sum
    written (10), copied (8), cast (6). Backward: the gradient cast up (6) and down (6), copied (4),
    times p (8) and summed over tokens (4), times b (8) and summed over features (4).
    """
    plain = blocks.bias("x", 5.0, 2.0, act=2.0, wgt=4.0)
    op = blocks.weighed_bias(plain, 10.0, act=2.0)
    assert op.forward.memory == 10 * (4 + 10 + 8 + 6)
    assert op.backward.memory == 10 * (6 + 6 + 4 + 8 + 4 + 8 + 4)
    assert (op.weights, op.needs) == (plain.weights, plain.needs)


@pytest.mark.parametrize(
    ("fused", "dropout"), [(True, False), (False, False), (False, True)]
)
def test_attention_reads_grouped_keys_once(fused: bool, dropout: bool) -> None:
    """3 sequences, 8 heads, 2 key heads, 16 queries, 32 keys, widths 5 (q, k) and 6 (v), all seen.

    Forward reads Q, K, V and writes the result, 2 bytes each, and a number a row; unfused kernels
    go over the 3 x 8 x 16 x 32 scores five times.
    """
    op = blocks.attention(
        "a",
        blocks.AttentionShape(
            b=3.0, H=8.0, K=2.0, lq=16.0, l=32.0, q=5.0, v=6.0, seen=1.0
        ),
        one=0.0,
        act=2.0,
        kernel=blocks.AttentionCore(
            dropout=dropout, fused=fused, output_twice=True
        ),
    )
    rows, scores = 3 * 8 * 16, 3 * 8 * 16 * 32
    queries, keys = 3 * 8 * 16 * (5 + 6), 3 * 2 * 32 * (5 + 6)
    assert op.forward.matrix == 2 * scores * (5 + 6)
    assert op.forward.memory == (queries + keys + rows) * 2 + (
        0 if fused else 5 * scores * 2
    )
    assert op.backward.matrix == 2 * op.forward.matrix + (
        2 * scores * 5 if fused else 0
    )
    here = 3 * 2 * 16 * (5 + 6)
    mask = 0 if fused else scores * (5 if dropout else 2)
    assert op.saved == (queries + here + 2 * rows) * 2 + mask


def test_summa_writes_its_output_once_a_panel() -> None:
    """Y[T, n/n1] = X[T, k] W[k, n/n1]: X and W read once, Y written in each of 3 panels."""
    op = blocks.summa_matmul(
        "s",
        T,
        10.0,
        12.0,
        grid=blocks.SummaGrid(n1=2.0, n2=4.0, panels=3.0),
        numbers=blocks.Numbers(one=1.0, act=2.0, wgt=4.0),
    )
    assert op.forward.memory == T * 10 * 2 + 10 * 6 * 4 + 3 * T * 6 * 2
    assert op.forward.matrix == 2 * T * 6 * 10
    assert [m.bytes for m in op.forward.comm] == [T * 10 * 2, 10 * 6 * 4]
    assert op.weights == 10 / 4 * 6


def test_a_loss_over_split_words_needs_three_numbers_a_token() -> None:
    """The largest logit, the sum of exponentials and the target's logit, 4 bytes each, over tp."""
    model = Model("loss", 2, 64, 4, 256, vocab=1000, seq=128)
    job = replace(by_hand(Layout(dp=1)).job, model=model)
    ops = vocabulary.head(job, placed(Layout(tp=2, dp=1), (2,)))
    loss = next(op for op in ops if op.name == "head/loss")
    sent = [m for m in loss.forward.comm if m.axis == "tp"]
    assert [m.kind for m in sent] == ["all_reduce"] * 3
    assert {m.bytes for m in sent} == {job.T * 4.0}


def test_rotation_apart_turns_all_heads() -> None:
    """Queries and keys: (H + K) heads of width q; unlike the product it is a pass of its own."""
    base = by_hand(Layout(dp=1)).job
    model = replace(catalog.model("llama3-8b"), layers=2, seq=64)
    how = replace(
        base.assumptions, count=replace(base.assumptions.count, rotary="apart")
    )
    job = replace(base, model=model, assumptions=how)
    ops = {
        op.name: op
        for op in layer(job, placed(Layout(dp=1), (1,)), Kind(None, False))
    }
    half = replace(model, kv_heads=model.heads)
    more = {
        op.name: op
        for op in layer(
            replace(job, model=half),
            placed(Layout(dp=1), (1,)),
            Kind(None, False),
        )
    }
    turned, all_heads = ops["attention/rotary"], more["attention/rotary"]
    assert turned.forward.vector / all_heads.forward.vector == pytest.approx(
        (32 + 8) / (32 + 32)
    )


def test_a_biased_gate_has_two_biases() -> None:
    """SUMMA's feed-forward: F numbers for the way up, and F more for the gate."""
    base = by_hand(Layout(dp=1)).job
    how = replace(
        base.assumptions,
        count=replace(base.assumptions.count, summa_width=None),
    )
    found = []
    for gated in (False, True):
        model = replace(base.model, bias=True, gated=gated)
        job = replace(base, model=model, assumptions=how)
        lay = placed(Layout(tp=1, dp=1, scheme="summa"), (1,))
        ops = layer(job, lay, Kind(None, False))
        found.append(
            next(op.weights for op in ops if op.name == "ffn/up bias")
        )
    assert found[1] == 2 * found[0]


def test_places_that_hold_one_of_k_experts() -> None:
    """Of one place always that one; of 8 places and 2 experts 8 (1 - (7/8)^2)."""
    assert expected_reach(1.0, 4) == 1.0
    assert expected_reach(8.0, 2) == pytest.approx(8 * (1 - 49 / 64))
