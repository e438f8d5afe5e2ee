"""Activations cut in two dimensions, B_X and D_Y: what a layer sends and holds, by hand, and when
two dimensions beat one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import MLA, Job, Layout, Model, MoE, Space, plan, predict
from meshwright.count import model as models
from meshwright.count import vocabulary
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.model import layer, parameters
from meshwright.count.work import Op
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.cluster import NOWHERE
from meshwright.describe.layers import Kind
from meshwright.describe.layout import SCHEMES
from meshwright.describe.mixers import Linear
from meshwright.exchange.types import Message
from meshwright.layout import rules
from meshwright.layout.placement import placed
from meshwright.step.activations import backward_bytes
from refusals import refusal

SMALL = Model(
    "small",
    2,
    64,
    8,
    96,
    vocab=128,
    vocab_multiple=1,
    seq=180,
    kv_heads=4,
    norm="layernorm",
    positions="learned",
    gated=False,
    bias=True,
    qkv_bias=True,
)
CUT = Layout(tp=4, cp=2, dp=1, microbatch=1, scheme="gspmd")
"""90 tokens a chip, none of which tp could cut."""
BF16, FP32 = 2, 4
KIND = Kind(None, False)


def of(model: Model, layout: Layout, inputs: str = "regathered") -> Job:
    count = replace(REALISTIC.count, gathered_inputs=inputs)
    return Job(
        model,
        NOWHERE,
        8,
        layout,
        assumptions=replace(REALISTIC, count=count),
    )


def named(job: Job, layout: Layout) -> dict[str, Op]:
    ops = (
        *layer(job, layout, KIND),
        *vocabulary.embedding(DeviceMicrobatch.from_layout(job, layout)),
        *vocabulary.head(DeviceMicrobatch.from_layout(job, layout)),
    )
    return {op.name: op for op in ops}


@pytest.mark.parametrize(
    ("norm", "each"), [("layernorm", 2), ("nonparametric", 2), ("rmsnorm", 1)]
)
def test_a_layer_by_hand(norm: str, each: int) -> None:
    """A sequence of 180 tokens over cp 2: t = 90 tokens a chip, D = 64, 16 features of it."""
    layout = placed(CUT, (1, 8))
    job = of(replace(SMALL, norm=norm), layout)
    ops = named(job, layout)
    # all of a token's 64 features in bf16: 90 x 64 x 2
    gather = Message("all_gather", "tp", 11520)
    scatter = Message("reduce_scatter", "tp", 11520)
    # sums of x^2, and of x unless it is an RMS norm, of each token in fp32
    sums = Message("all_reduce", "tp", 90 * each * FP32)
    sent = {
        name: (op.forward.comm, op.backward.comm)
        for name, op in ops.items()
        if any(m.axis == "tp" for m in (*op.forward.comm, *op.backward.comm))
    }
    three = (Message("all_reduce", "tp", 90 * FP32),) * 3
    assert sent == {
        # the gradient of the sublayer's output is gathered, then that of its input
        "attention/norm": ((sums,), (gather, sums)),
        "attention/qkv": ((gather,), (gather, scatter)),
        "attention/out": ((scatter,), ()),
        "ffn/norm": ((sums,), (gather, sums)),
        "ffn/up": ((gather,), (gather, scatter)),
        "ffn/down": ((scatter,), ()),
        "embedding": ((scatter,), (gather,)),
        "head/norm": ((sums, gather), (sums,)),
        "head/logits": ((), (gather, scatter)),
        "head/loss": (three, ()),
    }
    # kept: 90 tokens of 16 features in front of norms and, gathered again, of matrices
    for name in ("attention/norm", "attention/qkv", "ffn/norm", "ffn/up"):
        assert ops[name].saved == 90 * 16 * BF16
    assert DeviceMicrobatch.from_layout(job, layout).boundary == 90 * 16 * BF16
    # residuals add 90 x 16 numbers, read two and write one
    assert ops["ffn/residual"].forward.memory == 3 * 90 * 16 * BF16


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_weights_of_all_ranks_are_those_of_the_model(tp: int, cp: int) -> None:
    """Each number once in a tp group, but for key heads that are copied."""
    model = replace(SMALL, kv_heads=8, tied_embeddings=False)
    layout = placed(replace(CUT, tp=tp, cp=cp), (1, tp * cp))
    one = replace(model, layers=1)
    held = sum(op.weights for op in named(of(one, layout), layout).values())
    # every rank looks up all positions of its features
    assert held * tp == parameters(one)


BOOK = Model(
    "book",
    1,
    1024,
    64,
    4096,
    vocab=0,
    seq=512,
    gated=False,
    norm="nonparametric",
)


def moved(B: float, X: int, Y: int) -> float:
    """Bytes of full vectors that a chip takes part in, forward, as the book counts them: weights
    over X (ZeRO-3), activations over Y."""
    layout = placed(Layout(tp=Y, dp=X, zero=3, scheme="gspmd"), (1, X * Y))
    layout = replace(layout, microbatch=B / X / 512)
    ops = named(of(BOOK, layout), layout)
    matrices = [ops["ffn/up"], ops["ffn/down"]]
    activations = sum(m.bytes for op in matrices for m in op.forward.comm)
    return activations + BF16 * sum(op.weights for op in matrices)


@pytest.mark.parametrize("chips", [16, 64, 256])
@pytest.mark.parametrize("B", [512, 2048, 8192, 65536, 2**20])
def test_when_two_dimensions_beat_one(B: int, chips: int) -> None:
    """V(X, Y) = 4 B D / X + 4 D F / Y bytes. Of all X Y = N the least is 8 D sqrt(B F / N), at
    X = sqrt(B N / F) (How To Scale Your Model, part 5: X_opt); two dimensions move less than model
    parallelism alone (X = 1) where B > 2 F / N, and less than data parallelism alone (Y = 1) where
    B < N F / 2."""
    D, F, N = BOOK.hidden, BOOK.ffn, chips
    splits = [(2**k, N // 2**k) for k in range(N.bit_length())]
    found = {X: moved(B, X, Y) for X, Y in splits}
    assert found == {
        X: pytest.approx(4 * B * D / X + 4 * D * F / Y) for X, Y in splits
    }
    best = min(found, key=lambda X: found[X])
    floor = 8 * D * sqrt(B * F / N)
    assert all(v >= floor * (1 - 1e-12) for v in found.values())
    ideal = sqrt(B * N / F)
    if 1 <= ideal <= N:
        # a power of two next to it
        assert 0.707 < best / ideal < 1.415
        assert found[best] <= floor * (sqrt(2) + sqrt(0.5)) / 2 * (1 + 1e-12)
    assert (found[2] < found[1]) == (B > 2 * F / N)
    assert (found[N // 2] < found[N]) == (B < N * F / 2)


def test_while_a_layer_runs_backward_its_input_is_whole() -> None:
    """Beside what is kept, a part each: an input of 2 x 4,096 tokens of 4,096 features, gathered
    from 8 parts, and its gradient, both whole."""
    layout = Layout(tp=8, dp=8, microbatch=2, scheme="gspmd")
    job = Job("llama3-8b", "64xh100-sxm", 64, layout, seq=4096)
    more = 2 * (2 * 4096) * 4096 * BF16
    assert (
        backward_bytes(DeviceMicrobatch.from_layout(job, layout), 0.0, 0.0)[
            "gathered over tp"
        ]
        == more
    )


def test_what_it_counts_and_what_it_refuses() -> None:
    """Dense models whose mixers are attention; always cut, whatever the tokens."""
    fine = Job("llama3-8b", "64xh100-sxm", 64)
    cut = Layout(tp=8, dp=8, scheme="gspmd")
    assert rules.broken(fine, cut) == []
    odd = Job("llama3-8b", "64xh100-sxm", 64, seq=1001)
    assert rules.broken(odd, cut) == []
    assert "cannot be split over cp 1 and tp 8" in "".join(
        rules.broken(odd, replace(cut, scheme="megatron"))
    )
    (why,) = rules.broken(fine, replace(cut, sequence_parallel=False))
    assert "sequence_parallel must be true" in why
    part: dict[str, Any]
    for part in (
        {"moe": MoE(8, 2, 64)},
        {"mla": MLA(64, 32, 16, 32)},
        {"pattern": ("linear",), "linear": Linear(8, 8, 8)},
        {"mtp_layers": 1},
    ):
        job = Job(replace(SMALL, bias=False, **part), fine.cluster, 64)
        (why,) = rules.broken(job, replace(cut, tp=2, dp=32))
        assert why.startswith("scheme gspmd is defined for dense models")
    with refusal("scheme megatron, not gspmd"):
        predict(replace(fine, framework="meshwright"), cut)
    with refusal("allows scheme megatron, not gspmd"):
        predict(replace(fine, framework="torchtitan"), cut)


def test_every_scheme_has_a_layer_and_a_row_of_the_documentation() -> None:
    assert [*SCHEMES] == [*models.SCHEMES]
    guide = Path(__file__).parents[2] / "docs" / "extend.md"
    rows = re.findall(r"^\| `(\w+)` \|", guide.read_text("utf-8"), re.M)
    assert rows == [*SCHEMES]


def test_a_plan_may_choose_it() -> None:
    """Beside Megatron's: it takes a little longer where both run, for its statistics; and a model
    that it does not count leaves the other."""
    job = Job("llama3-8b", "16xh100-sxm", 64)
    asked = {"tp": (4,), "pp": (1,), "cp": (1,), "zero": (3,)}
    both = plan(job, Space(scheme=("megatron", "gspmd"), **asked), top=4)
    alone = plan(job, Space(scheme="gspmd", **asked), top=1)
    assert both.best and alone.best
    assert alone.best.layout.scheme == "gspmd"
    assert both.best.layout.scheme == "megatron"
    assert 1.0 < alone.best.step_time_s / both.best.step_time_s < 1.05
