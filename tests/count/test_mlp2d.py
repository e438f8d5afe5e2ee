"""The MLP block in two dimensions: the paper's totals, and no communication where nothing is
cut.
"""

import pytest

from meshwright.count.mlp2d import block, parameters, training_flops


def test_totals_of_the_paper() -> None:
    """FLOPs 12 b D F a block; words received 4 b [F (n_m - 1) + D (n_f - 1)] a block, as section
    3.1 has them.
    """
    b, D, F, m, f = 4096.0, 1024.0, 4096.0, 4, 8
    ops = block(b, D, F, m, f, act=2.0, wgt=2.0)
    flops = sum(op.forward.matrix + op.backward.matrix for op in ops) * m * f
    assert flops == pytest.approx(training_flops(1, D, F) * b)
    assert sum(op.weights for op in ops) * m * f == parameters(1, 1, D, F)
    ranks = {"tp_model": m, "tp_ff": f}
    messages = [
        x
        for op in ops
        for half in (op.forward, op.backward)
        for x in half.comm
    ]
    # an all-reduce among n ranks brings 2 (n-1)/n of the vector to each of them
    words = (
        sum(
            2 * (ranks[x.axis] - 1) / ranks[x.axis] * x.bytes / 2.0
            for x in messages
        )
        * m
        * f
    )
    assert words == pytest.approx(4 * b * (F * (m - 1) + D * (f - 1)))


def test_six_products() -> None:
    products = [
        p
        for op in block(1000.7, 64.0, 256.0, 2, 4, act=2.0, wgt=2.0)
        for half in (op.forward, op.backward)
        for p in half.products
    ]
    assert sum(p.weight_gradient for p in products) == 2 and len(products) == 6
    assert {(p.out, p.inner) for p in products} == {(64, 32), (32, 64)}
    assert {p.tokens for p in products} == {1000.0}  # whole tokens
