"""What lives while an operation goes backward: 128 tokens, width 64, inner width 256, 2 bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import MODEL, SET, by_hand
from meshwright import Layout, MoE
from meshwright.count.model import kinds
from meshwright.describe.job import PRECISIONS
from meshwright.program.operations import (
    OPERATIONS,
    carried_out,
    operations,
    recomputed_prefix,
)
from meshwright.program.tensors import copies_weights, moving, results_kept

WIDE = 2 * 128 * 256
"""Bytes of a tensor of the inner width."""


@pytest.mark.parametrize(
    ("gated", "name", "bytes_"),
    [
        # gradients of the input and of queries, keys and values
        (False, "attention/qkv", 2 * 128 * (64 + 3 * 64)),
        # one tensor in, one out; what is gated keeps three
        (False, "ffn/activation", 2 * WIDE),
        (True, "ffn/activation", 3 * WIDE),
        (False, "ffn/down", WIDE + 2 * 128 * 64),
    ],
)
def test_gradients_beside_that_of_the_residual_stream(
    gated: bool, name: str, bytes_: int
) -> None:
    model = replace(MODEL, gated=gated)
    job = carried_out(by_hand(Layout(dp=1), model=model).job)
    (kind,) = {*kinds(job.model)}
    (op,) = (op for op in operations(job, kind) if op.name == name)
    assert moving(job, 1000.0, op) == 1000 + bytes_


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_every_second_product_and_each_sum_over_tp_stay(tp: int) -> None:
    """Of the products of a layer (queries, keys, values, out, up, down) the first, third and fifth;
    of attention its weights, its result and a logarithm in 4 bytes a head and token."""
    job = carried_out(by_hand(Layout(dp=1, tp=tp)).job)
    (kind,) = {*kinds(job.model)}
    ops = operations(job, kind)
    kept = dict(
        zip(
            (op.name for op in ops),
            results_kept(job, tp, ops, OPERATIONS),
            strict=True,
        )
    )
    hidden = 2 * 128 * 64
    summed = hidden / tp if tp > 1 else 0.0
    assert {name: size for name, size in kept.items() if size} == {
        "attention/qkv": 2 * hidden / tp,
        "attention/core": (4 * (2 * 128 * 128 + 4 * 128) + hidden) / tp,
        "ffn/up": WIDE / tp,
    } | ({"attention/out": summed, "ffn/down": summed} if summed else {})


@pytest.mark.parametrize(
    ("moe", "name"),
    [
        (None, "ffn/down"),
        # what experts say is kept for the gradient of its weight
        (MoE(4, 2, 64), "ffn/residual"),
        (MoE(4, 2, 64, shared_ffn=64), "shared/down"),
    ],
)
def test_a_layer_runs_again_up_to_what_nobody_needs(
    moe: MoE | None, name: str
) -> None:
    model, count = replace(MODEL, moe=moe), replace(SET.count, residual=True)
    job = carried_out(by_hand(Layout(dp=1), model=model, count=count).job)
    (kind,) = {*kinds(job.model)}
    every = operations(job, kind)
    names = [op.name for op in every]
    found = [op.name for op in recomputed_prefix(every, "full")]
    assert found == names[: names.index(name)]
    assert recomputed_prefix(every, "none") == []


def test_weights_are_copied_where_replicas_share_them() -> None:
    """Of two, and of the two of an expert; one that is alone in fp32 uses what it has."""
    fp32 = PRECISIONS["fp32"]
    plain = replace(by_hand(Layout(dp=1)).job, precision=fp32)
    experts = replace(plain, model=replace(MODEL, moe=MoE(4, 2, 64)))
    assert not copies_weights(plain, Layout(dp=1))
    assert copies_weights(plain, Layout(dp=2))
    assert copies_weights(experts, Layout(dp=4, ep=2))
    assert not copies_weights(experts, Layout(dp=1, tp=2, ep=2))
