"""Every operation of a layer on one device written down once more: FLOPs and bytes of both passes,
what it keeps, its weights and its messages, with sizes that tell every factor apart.

Counts: Subramanian et al. 2024 (arXiv 2410.00273), appendix A; Korthikanti et al. 2022 (arXiv
2205.05198); of mixtures Lepikhin et al. 2020; of latent attention DeepSeek-AI 2024; of state spaces
Dao & Gu 2024.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from by_hand import CHIP, SET
from meshwright import Cluster, Dim, Layout, Network
from meshwright.count import model, optimizer, recompute, vocabulary
from meshwright.count.microbatch import DeviceMicrobatch, moved_gradient_bytes
from meshwright.count.work import Op, Product
from meshwright.describe.assumptions import REALISTIC, Counting
from meshwright.describe.framework import frameworks
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layers import kinds
from meshwright.describe.mixers import Convolution, Indexer, Linear, StateSpace
from meshwright.describe.model import MLA, Model, MoE, RopeScaling
from meshwright.describe.software import Software
from meshwright.layout.placement import placed

D, F, T, V = 96, 260, 96, 1000
TP, CP, B = 2, 3, 5
N = B * T // CP
"""Tokens of a device: 160; of its shard half of them."""
S = N // TP
A, W, G = 2, 2, 4
"""Bytes of an activation, a weight and a gradient."""
LLAMA = Model("llama", 2, D, 12, F, V, T, kv_heads=4, norm="rmsnorm")
HERE = Layout(tp=TP, cp=CP, dp=1, microbatch=B)
WHOLE = replace(HERE, sequence_parallel=False)


class Row(NamedTuple):
    """One operation: (forward, backward) each."""

    matrix: tuple[float, float] = (0, 0)
    vector: tuple[float, float] = (0, 0)
    bytes: tuple[float, float] = (0, 0)
    kept: float = 0
    weights: float = 0
    sent: str = ""
    back: str = ""


def job(of: Model, layout: Layout = HERE, **how: Any) -> Job:
    """Two microbatches, so that gradients are added up, in fp32."""
    net = Network("n", (Dim("switch", 1e9, 0.0),))
    kernel = how.pop("kernel", "flash")
    profile = how.pop("framework", None)
    count = replace(Counting(), **how)
    return Job(
        of,
        Cluster(CHIP, net, int(layout.chips)),
        2 * B * int(layout.dp),
        attention_kernel=kernel,
        assumptions=replace(SET, count=count),
        framework=profile,
    )


def told(messages: Any) -> str:
    return " ".join(f"{m.kind}@{m.axis}:{m.bytes:g}" for m in messages)


def rows(ops: list[Op]) -> dict[str, Row]:
    found = {
        op.name: Row(
            (op.forward.matrix, op.backward.matrix),
            (op.forward.vector, op.backward.vector),
            (op.forward.memory, op.backward.memory),
            op.saved,
            op.weights,
            told(op.forward.comm),
            told(op.backward.comm),
        )
        for op in ops
    }
    assert len(found) == len(ops), "names are different"
    return found


def check(found: dict[str, Row], expected: dict[str, Row]) -> None:
    assert list(found) == list(expected)
    for name, row in expected.items():
        for field, mine, other in zip(
            Row._fields, found[name], row, strict=True
        ):
            same = mine == other
            if not isinstance(mine, str):
                same = mine == pytest.approx(other, rel=1e-12)
            assert same, f"{name} {field}: {mine}, by hand {other}"


def of_layer(
    of: Model, layout: Layout = HERE, which: int = 0, **how: Any
) -> list[Op]:
    layout = placed(layout, (int(layout.chips),))
    return model.layer(job(of, layout, **how), layout, kinds(of)[which])


def gather(volume: float, axis: str = "tp") -> str:
    return f"all_gather@{axis}:{volume:g}"


def scatter(volume: float, axis: str = "tp") -> str:
    return f"reduce_scatter@{axis}:{volume:g}"


def summed(volume: float) -> str:
    return f"all_reduce@tp:{volume:g}"


def product(
    t: float,
    k: float,
    n: float,
    sent: str = "",
    back: str = "",
    kept: float | None = None,
    copies: float = 1,
) -> Row:
    """2 t k n FLOPs and twice that; X, Y and W; then dY, dX and W, X, dY, and dW read and
    written."""
    io = (t * k + t * n) * A
    return Row(
        (2 * t * k * n, 4 * t * k * n),
        (0, 0),
        (io + copies * k * n * W, 2 * io + copies * k * n * (W + 2 * G)),
        (t if kept is None else kept) * k * A,
        copies * k * n,
        sent,
        back,
    )


def norm(
    t: float, w: float, parameters: int = 1, back: str = "", sent: str = ""
) -> Row:
    return Row(
        (0, 0),
        (9 * t * w, 8 * t * w + 4 * t * (w - 1)),
        (
            (2 * t * w + 2 * t) * A + parameters * w * W,
            5 * t * w * A + parameters * w * W,
        ),
        t * w * A,
        parameters * w,
        sent,
        back,
    )


def added(x: float) -> Row:
    return Row((0, 0), (x, x), (3 * x * A, 3 * x * A))


def bias(t: float, w: float) -> Row:
    return Row((0, 0), (t * w,) * 2, (t * w * A + w * W,) * 2, 0, w)


def dropped(x: float) -> Row:
    return Row((0, 0), (x, x), (x * (2 * A + 1),) * 2, x)


def silu(x: float) -> Row:
    return Row((0, 0), (9 * x, 15 * x), (3 * x * A, 5 * x * A), 2 * x * A)


def gelu(x: float) -> Row:
    return Row((0, 0), (8 * x, 13 * x), (2 * x * A, 3 * x * A), x * A)


def gated(x: float, g: float) -> Row:
    return Row(
        (0, 0),
        (x + 4 * g, 2 * x + 4 * g),
        ((2 * x + g) * A, (3 * x + 2 * g) * A),
        (x + g) * A,
    )


def core(
    h: float, k: float, q: float, v: float, seen: float, sent: str, back: str
) -> Row:
    """Flash: the scores once more in backward; each rank has T/cp queries and all keys."""
    lq = T / CP
    r = B * h * lq
    p = r * T * seen
    o, kv, mine = r * (q + v), B * k * T * (q + v), B * k * lq * (q + v)
    softmax = 2 * p + r * (T * seen - 1)
    kept = o + mine + 2 * r
    return Row(
        (2 * p * (q + v), 2 * p * (3 * q + 2 * v)),
        (softmax, 3 * p + r * (T * seen - 1) + softmax),
        ((o + kv + r) * A, (kv + o + kept) * A),
        (kept - r * v) * A,
        0,
        sent,
        back,
    )


HALF = (T + 1) / (2 * T)
ALL = N * D * A
"""Bytes of all tokens between two layers."""
KEYS = B * 2 * T * 16 * A
"""Keys and values of two heads of 8 and 8."""


def test_a_layer_with_grouped_queries() -> None:
    both = f"{gather(ALL)} {scatter(ALL)}"
    check(
        rows(of_layer(LLAMA)),
        {
            "attention/norm": norm(S, D, back=gather(ALL)),
            "attention/qkv": product(N, D, 80, gather(ALL), both, S),
            "attention/core": core(
                6, 2, 8, 8, HALF, gather(KEYS, "cp"),
                f"{gather(KEYS, 'cp')} {scatter(KEYS, 'cp')}",
            ),
            "attention/out": product(N, 48, D, scatter(ALL)),
            "attention/residual": added(S * D),
            "ffn/norm": norm(S, D, back=gather(ALL)),
            "ffn/up": product(N, D, F, gather(ALL), both, S),
            "ffn/activation": silu(N * F / 2),
            "ffn/down": product(N, F / 2, D, scatter(ALL)),
            "ffn/residual": added(S * D),
        },
    )  # fmt: skip
    calls = {op.name: op.forward.calls for op in of_layer(LLAMA)}
    assert (calls["attention/qkv"], calls["ffn/up"]) == (3, 2)
    columns = {op.name: op.columns for op in of_layer(LLAMA)}
    assert columns["attention/qkv"] == (48, 16, 16)
    assert columns["ffn/up"] == (130, 130)


GPT = replace(
    LLAMA,
    kv_heads=None,
    norm="layernorm",
    gated=False,
    bias=True,
    qkv_bias=True,
    dropout=True,
    attention="full",
)


def test_a_layer_with_biases_and_dropout_without_sequence_parallelism() -> (
    None
):
    """Nothing is gathered, everything reduced; norms, biases and sums act on all tokens."""
    keys = f"{gather(3 * KEYS, 'cp')} {scatter(3 * KEYS, 'cp')}"
    attention = core(6, 6, 8, 8, 1.0, gather(3 * KEYS, "cp"), keys)
    scores = B * 6 * 32 * T
    attention = attention._replace(
        vector=(
            attention.vector[0] + scores,
            attention.vector[1] + 2 * scores,
        )
    )
    expected = {
        "attention/norm": norm(N, D, 2),
        "attention/qkv": product(N, D, 144, "", summed(ALL)),
        "attention/qkv bias": bias(N, 144),
        "attention/core": attention,
        "attention/out": product(N, 48, D, summed(ALL)),
        "attention/bias": bias(N, D),
        "attention/dropout": dropped(N * D),
        "attention/residual": added(N * D),
        "ffn/norm": norm(N, D, 2),
        "ffn/up": product(N, D, F / 2, "", summed(ALL)),
        "ffn/up bias": bias(N, F / 2),
        "ffn/activation": gelu(N * F / 2),
        "ffn/activation dropout": dropped(N * F / 2),
        "ffn/down": product(N, F / 2, D, summed(ALL)),
        "ffn/bias": bias(N, D),
        "ffn/dropout": dropped(N * D),
        "ffn/residual": added(N * D),
    }
    check(rows(of_layer(GPT, WHOLE, dropout="lbl")), expected)
    usual = {k: v for k, v in expected.items() if "activation d" not in k}
    check(rows(of_layer(GPT, WHOLE)), usual)
    bare = rows(of_layer(GPT, WHOLE, residual=False))
    assert not [name for name in bare if "residual" in name]


def test_biases_after_a_scatter_as_papers_count_them() -> None:
    """On a shard; "replicated" on all tokens; LBL's 2D cuts that of attention by columns."""
    names = ("attention/bias", "ffn/bias")
    for layout, how, expected in (
        (HERE, "sharded", (bias(S, D), bias(S, D))),
        (HERE, "replicated", (bias(N, D), bias(N, D))),
        (
            replace(HERE, scheme="context"),
            "replicated",
            (bias(N, D / 2), bias(S, D)),
        ),
    ):
        found = rows(of_layer(GPT, layout, output_bias=how))
        check(
            {n: found[n] for n in names},
            dict(zip(names, expected, strict=True)),
        )


def test_inputs_kept_whole_are_not_gathered_again() -> None:
    found = rows(of_layer(LLAMA, gathered_inputs="kept", gathered_keys="kept"))
    for name in ("attention/qkv", "ffn/up"):
        assert found[name].kept == N * D * A
        assert found[name].back == scatter(ALL)
    assert found["attention/core"].back == scatter(KEYS, "cp")


def test_what_is_one_pass_writes_its_gradient_once() -> None:
    ops = of_layer(LLAMA, weight_gradient="one pass")
    up = next(op for op in ops if op.name == "ffn/up")
    io = (N * D + N * F) * A
    assert up.backward.memory == 2 * io + 2 * D * F * W
    assert not up.backward.parts
    apart = next(op for op in of_layer(LLAMA) if op.name == "ffn/up")
    back, weights = apart.backward.parts
    assert back.matrix == weights.matrix == 2 * N * D * F
    assert back.memory == io + D * F * W
    assert weights.memory == io + D * F * 2 * G
    assert back.products == (Product(D, F, N, backward=True),)
    assert weights.products == (
        Product(D, F, N, True, backward=True, sums=D * F * 2 * G),
    )
    assert apart.forward.products == (Product(F, D, N),)
    assert apart.forward.sizes == (N, D, F / 2)
    one = placed(HERE, (6,))
    alone = replace(job(LLAMA), batch=B)
    assert (
        moved_gradient_bytes(DeviceMicrobatch.from_layout(alone, one)) == G
    ), "it only writes it"


def test_dot_products_of_papers_add_one_number_less() -> None:
    """2k - 1: a FLOP less for each number that a product or the attention makes."""
    two, less = (
        {op.name: op for op in of_layer(LLAMA, dot_product=name)}
        for name in ("2k", "2k-1")
    )
    scores, out = B * 6 * 32 * T * HALF, B * 6 * 32 * 8
    for name, forward, back in (
        ("ffn/up", N * F, N * D + D * F),
        ("ffn/down", N * D, N * F / 2 + D * F / 2),
        # backward: dQ, dK, dV, dP and the scores again
        (
            "attention/core",
            scores + out,
            out + 2 * B * 6 * T * 8 + 2 * scores,
        ),
    ):
        for half, fewer in (("forward", forward), ("backward", back)):
            a, b = (getattr(of[name], half).matrix for of in (two, less))
            assert a - b == pytest.approx(fewer), (name, half)


@pytest.mark.parametrize("twice", ["once", "twice"])
def test_unfused_attention_keeps_its_scores(twice: str) -> None:
    of = replace(LLAMA, dropout=True)
    how = {"attention_output": twice}
    plain, fused = (
        next(
            op
            for op in of_layer(of, kernel=kernel, causal="full", **how)
            if op.name == "attention/core"
        )
        for kernel in ("unfused", "flash")
    )
    scores, out = B * 6 * 32 * T, B * 6 * 32 * 8
    assert plain.saved - fused.saved == scores * (2 * A + 1)
    assert plain.forward.memory - fused.forward.memory == 5 * scores * A
    assert plain.backward.memory - fused.backward.memory == 8 * scores * A
    assert fused.backward.matrix - plain.backward.matrix == 2 * scores * 8
    assert plain.selective and not fused.selective
    assert plain.forward.engine == plain.backward.engine == "wide"
    assert fused.backward.engine == "attention backward"
    once = B * (6 * 32 * 8 + 2 * 32 * 16) + 2 * B * 6 * 32
    assert fused.saved == A * (once + (out if twice == "twice" else 0))
    assert fused.inputs == A * (out + B * 2 * 32 * 16)
    assert plain.forward.sizes == (B * 6, T * T, 32 / T, 8)


def test_what_autograd_keeps() -> None:
    """Keys and values of all ranks, statistics in fp32, SiLU, and norms twice in fp32."""
    plain, auto = (
        rows(of_layer(LLAMA, backward_needs=name))
        for name in ("fused", "autograd")
    )
    rows_, mine, every = B * 6 * 32, B * 2 * 32 * 16, B * 2 * T * 16
    assert auto["attention/core"].kept - plain["attention/core"].kept == (
        (every - mine) * A + rows_ * 4 - 2 * rows_ * A
    )
    assert auto["ffn/activation"].kept == 3 * N * F / 2 * A
    assert auto["ffn/norm"].kept == 2 * 4 * S * D
    layer_norm = rows(of_layer(GPT, backward_needs="autograd"))
    assert layer_norm["ffn/norm"].kept == S * D * A


def test_norms_gates_and_rotation_between() -> None:
    """Of queries and keys: each head by itself with 2 x 8 numbers (a shift: twice as many), or all
    together; a gate for each element or head; rotation of 8 heads; norms before the projections
    out.
    """
    of = replace(
        LLAMA, qk_norm=True, attention_gate="element", inner_norms=True
    )
    found = rows(of_layer(of, rotary="apart"))
    both = f"{gather(ALL)} {scatter(ALL)}"
    expected = {
        "attention/qk norm": norm(N * 8, 8)._replace(weights=16),
        "attention/rotary": Row(
            (0, 0), (3 * N * 64,) * 2, (2 * N * 64 * A,) * 2
        ),
        "attention/gate": product(N, D, 48, "", both, 0),
        "attention/gated": gated(N * 48, N * 48),
        "attention/inner norm": norm(N, 48),
        "ffn/inner norm": norm(N, F / 2),
    }
    check({name: found[name] for name in expected}, expected)
    whole = replace(
        of, attention_gate="head", qk_norm_whole=True, qk_norm_shift=True
    )
    found = rows(of_layer(whole))
    numbers = summed(2 * N * 4)
    expected = {
        "attention/qk norm": norm(N * 8, 8, 1, numbers, numbers)._replace(
            weights=2 * 8 * 8
        ),
        "attention/gate": product(N, D, 6, "", both, 0),
        "attention/gated": gated(N * 48, N * 6),
    }
    check({name: found[name] for name in expected}, expected)
    sinks = replace(LLAMA, attention_sinks=True, vectors=7)
    assert rows(of_layer(sinks))["attention/core"].weights == 6 + 7
    post = rows(of_layer(replace(LLAMA, norms_per_layer=4)))
    assert post["ffn/post norm"] == norm(S, D)


def test_a_parallel_block_has_one_norm() -> None:
    """Its feed-forward gathers, keeps and reduces for both."""
    found = rows(of_layer(replace(LLAMA, norms_per_layer=1)))
    both = f"{gather(ALL)} {scatter(ALL)}"
    assert "ffn/norm" not in found
    expected = {
        "attention/norm": norm(S, D, back=gather(ALL)),
        "attention/qkv": product(N, D, 80, gather(ALL), "", 0),
        "attention/out": product(N, 48, D),
        "ffn/up": product(N, D, F, "", both, S),
    }
    check({name: found[name] for name in expected}, expected)


def test_few_key_heads_are_copied_and_values_may_be_keys() -> None:
    of = replace(LLAMA, kv_heads=2)
    four = Layout(tp=4, dp=1, microbatch=B)
    found = rows(of_layer(of, four))["attention/qkv"]
    assert found.weights == D * (3 + 1 + 1) * 8
    shared = replace(LLAMA, key_is_value=True)
    op = next(o for o in of_layer(shared) if o.name == "attention/qkv")
    assert op.weights == D * (6 + 2) * 8
    assert op.forward.calls == 2 and op.columns == (48, 16)
    wide = replace(LLAMA, v_head_dim=5)
    found = rows(of_layer(wide))
    assert found["attention/qkv"].weights == D * (6 * 8 + 2 * 8 + 2 * 5)
    assert found["attention/out"].weights == 6 * 5 * D


# Exchange of keys.


@pytest.mark.parametrize(
    ("way", "sent", "back"),
    [
        ("ring", f"ring@cp:{KEYS}", f"ring@cp:{2 * KEYS}"),
        # 6 x 8 of queries, 2 x 16 of keys and values, a third of the tokens each
        (
            "all-to-all",
            f"all_to_all@cp:{N * 80 * A} all_to_all@cp:{N * 48 * A}",
            f"all_to_all@cp:{N * 48 * A} all_to_all@cp:{N * 80 * A}",
        ),
    ],
)
def test_exchange_of_keys(way: str, sent: str, back: str) -> None:
    found = rows(of_layer(LLAMA, replace(HERE, cp_exchange=way)))
    core_ = found["attention/core"]
    assert (core_.sent, core_.back) == (sent, back)
    usual = rows(of_layer(LLAMA))["attention/core"]
    assert core_.matrix[0] == pytest.approx(usual.matrix[0])


# Mixtures of experts.
EXPERTS = replace(
    LLAMA,
    moe=MoE(
        12, 2, 40, shared_ffn=24, router_bias=True, shared_gate=True,
        expert_bias=True, post_norm=True,
    ),
)  # fmt: skip
SPREAD = replace(HERE, dp=4, ep=4, etp=1)


def test_a_mixture_of_experts() -> None:
    """Three of twelve experts on a rank; the shard's 80 tokens go to two each."""
    x = 2 * S
    both = f"{gather(ALL)} {scatter(ALL)}"
    way = f"all_to_all@ep:{x * D * A}"
    travel = Row((0, 0), (0, 0), (4 * x * D * A,) * 2, 0, 0, way, way)
    router = product(S, D, 12)
    found = rows(of_layer(EXPERTS, SPREAD))
    after_attention = {
        name: row for name, row in found.items() if "attention" not in name
    }
    up, down = bias(x, 80), bias(x, D)
    check(
        after_attention,
        {
            "ffn/norm": norm(S, D, back=gather(ALL)),
            "experts/router": router._replace(weights=12 * D + 12),
            "experts/dispatch": travel,
            "experts/etp": Row(
                sent=f"{gather(x * D * A, 'etp')} {scatter(x * D * A, 'etp')}",
                back=f"{gather(x * D * A, 'etp')} {scatter(x * D * A, 'etp')}",
            ),
            "experts/up": product(x, D, 80, copies=3),
            "experts/up bias": up._replace(
                bytes=(x * 80 * A + 3 * 80 * W,) * 2, weights=3 * 80
            ),
            # clamped in passes of their own, and kept twice
            "experts/activation": clamped(x * 40),
            "experts/down": product(x, 40, D, copies=3),
            # weighed by the tokens' probabilities, in 32 bits
            "experts/down bias": down._replace(
                vector=(2 * x * D, 6 * x * D),
                bytes=(x * D * (2 * A + 24), x * D * (4 * A + 32)),
                weights=3 * D,
            ),
            "experts/combine": travel,
            "experts/post norm": norm(S, D),
            "shared/up": product(N, D, 24, gather(ALL), both, S),
            "shared/activation": silu(N * 12),
            "shared/down": product(N, 12, D, scatter(ALL)),
            "shared/gate": product(S, D, 1),
            "ffn/residual": added(S * D),
        },
    )
    ops = {op.name: op for op in of_layer(EXPERTS, SPREAD)}
    assert ops["experts/up"].expert and not ops["experts/router"].expert
    assert ops["experts/up"].forward.sizes == (x / 3, D, 80)
    assert ops["experts/dispatch"].needs == S * D * A
    assert ops["experts/combine"].needs == x * D * A
    assert ops["experts/router"].source == "ffn/norm"


def clamped(x: float) -> Row:
    """Gate and input are 2 x numbers; read and written twice, backward five times in all."""
    plain = silu(x)
    return plain._replace(
        bytes=(plain.bytes[0] + 8 * x * A, plain.bytes[1] + 10 * x * A),
        kept=plain.kept + 2 * x * A,
    )


def test_experts_as_one_kernel() -> None:
    """The activation is a part of the products beside it, which quantise what the next one reads:
    the one down in the forward pass, the one up in the backward pass; a bias is added there too."""
    x = 2 * S
    layout = placed(SPREAD, (int(SPREAD.chips),))

    def ops(fused: bool) -> dict[str, Op]:
        asked = replace(
            job(EXPERTS, SPREAD),
            assumptions=REALISTIC,
            framework="megatron-core",
            software=Software(experts_fused=fused),
        )
        layer = model.layer(asked, layout, kinds(EXPERTS)[0])
        return {op.name.removeprefix("experts/"): op for op in layer}

    found, apart = ops(True), ops(False)
    plain = silu(x * 40)
    activation = found["activation"]
    assert (activation.forward.memory, activation.backward.memory) == (
        0,
        2 * x * 40 * A,
    )
    assert activation.saved == plain.kept
    assert apart["activation"].saved == clamped(x * 40).kept
    assert found["down bias"].forward.memory == x * D * A + 3 * D * W

    def ready(name: str) -> tuple[list[bool], list[bool]]:
        op = found[name]
        parts = op.backward.parts or (op.backward,)
        return (
            [p.ready for p in op.forward.products],
            [p.ready for part in parts for p in part.products],
        )

    assert ready("up") == ([False], [True, True])
    assert ready("down") == ([True], [False, False])


@pytest.mark.parametrize(
    ("framework", "precision", "float8", "fused", "room", "copies"),
    [
        ("megatron-core", "bf16", None, False, 1, False),
        ("megatron-core", "fp8", "tensorwise", False, 16, True),
        ("megatron-core", "fp8", "mxfp8", False, 32, True),
        ("megatron-core", "fp8", "mxfp8", True, 32, False),
        ("megatron-core", "fp4", None, False, 128, True),
        ("torchtitan", "fp8", "rowwise", False, 16, False),
        ("fsdp", "fp8", "tensorwise", False, 1, False),
    ],
)
def test_experts_get_whole_blocks_of_tokens(
    framework: str,
    precision: str,
    float8: str | None,
    fused: bool,
    room: int,
    copies: bool,
) -> None:
    """The rest of an expert's tokens over a block is as likely one number as another: half a block
    less half a token more, of each of the rank's three experts; copied in and out, each read and
    written both ways."""
    x = 2 * S
    layout = placed(SPREAD, (int(SPREAD.chips),))
    asked = replace(
        job(EXPERTS, SPREAD),
        assumptions=REALISTIC,
        framework=framework,
        precision=precision,
        software=Software(float8=float8, experts_fused=fused),
    )
    layer = model.layer(asked, layout, kinds(EXPERTS)[0])
    ops = {op.name.removeprefix("experts/"): op for op in layer}
    (up,) = ops["up"].forward.products
    assert up.tokens == x + 3 * (room - 1) / 2
    assert ops["dispatch"].forward.comm[0].bytes == x * D * A
    assert ("pad" in ops) is ("unpad" in ops) is copies
    if copies:
        for name in ("pad", "unpad"):
            assert ops[name].forward.memory == 2 * x * D * A
            assert ops[name].backward.memory == 2 * x * D * A


def test_yarn_is_rotated_by_passes_of_its_own() -> None:
    """No fused kernel scales what it rotates: queries and keys (8 + 4 heads of 16, over tp) are read
    and written twelve times each way."""
    scaled = replace(LLAMA, rope_scaling=RopeScaling("yarn", 32.0))
    plain = rows(of_layer(LLAMA, rotary="plain"))
    assert "attention/rotary" not in plain
    assert rows(of_layer(scaled, rotary="fused")) == plain
    x = N * (LLAMA.heads + LLAMA.K) / TP * LLAMA.h
    turned = rows(of_layer(scaled, rotary="plain"))["attention/rotary"]
    assert turned.bytes == (12 * x * A,) * 2


def test_experts_in_parts_latent_or_idle() -> None:
    """etp 2: twice the tokens, half the width. A latent of 32: narrow before, wide after. Four idle
    ones of sixteen choices: 3/4 of the copies travel."""
    cut = replace(SPREAD, etp=2)
    ops = {op.name: op for op in of_layer(EXPERTS, cut)}
    assert ops["experts/up"].forward.matrix == 2 * (4 * S) * D * 40
    assert ops["experts/up"].weights == 3 * D * 40
    of = replace(
        EXPERTS, moe=replace(EXPERTS.moe, latent=32, router_bias=False)
    )
    found = rows(of_layer(of, SPREAD))
    assert found["experts/narrow"] == product(S, D, 32)
    assert found["experts/wide"] == product(S, 32, D)
    assert found["experts/dispatch"].sent == f"all_to_all@ep:{2 * S * 32 * A}"
    assert found["experts/up"].weights == 3 * 32 * 80
    assert found["experts/router"].weights == 12 * D
    idle = replace(EXPERTS, moe=replace(EXPERTS.moe, idle_experts=4))
    found = rows(of_layer(idle, SPREAD))
    assert found["experts/router"].weights == 16 * D + 16
    assert found["experts/up"].matrix[0] == 2 * (2 * S * 12 / 16) * D * 80
    alone = replace(EXPERTS.moe, shared_ffn=0, shared_gate=False)
    none = replace(EXPERTS, moe=alone)
    assert rows(of_layer(none, SPREAD))["ffn/norm"].back == ""
    beside = replace(none, norms_per_layer=1)
    assert "ffn/norm" not in rows(of_layer(beside, SPREAD))


# Latent attention and what has a state.


@pytest.mark.parametrize("rank", [40, None])
def test_latent_attention(rank: int | None) -> None:
    """Queries by a latent of 40 or from the hidden state, keys and values by one of 24; heads of
    16 + 8 and 10. With sequence parallelism the latents are gathered where they go up, and the
    rotated part's gradient is scattered."""
    of = replace(
        LLAMA, qkv_bias=True, mla=MLA(24, 16, 8, 10, q_lora_rank=rank)
    )
    found = rows(of_layer(of))
    kv, rope = gather(N * 24 * A), gather(N * 8 * A)
    wide = f"{kv} {scatter(N * 24 * A)}"
    expected = {
        "attention/kv down": product(
            S, D, 32, rope, scatter(N * 8 * A), kept=0
        ),
        "attention/down bias": bias(S, (rank or 0) + 32),
        "attention/kv norm": norm(S, 24),
        "attention/kv up": product(N, 24, 6 * 26, kv, wide, S),
        "attention/out": product(N, 60, D, scatter(ALL)),
    }
    if rank:
        q = gather(N * 40 * A)
        both = f"{q} {scatter(N * 40 * A)}"
        expected |= {
            "attention/q down": product(S, D, 40),
            "attention/q norm": norm(S, 40),
            "attention/q up": product(N, 40, 6 * 24, q, both, S),
        }
    else:
        both = f"{gather(ALL)} {scatter(ALL)}"
        expected["attention/q"] = product(N, D, 6 * 24, gather(ALL), both, S)
    check({name: found[name] for name in expected}, expected)
    assert found["attention/core"].matrix[0] == pytest.approx(
        2 * B * 6 * 32 * T * HALF * (24 + 10)
    )


@pytest.mark.parametrize(
    ("rotary", "queries", "times"),
    [
        ("plain", 8 + 8, (0, 0)),
        ("apart", 48, (0, 0)),
        ("torch", 48, (10, 15)),
        ("complex", 48, (10, 10)),
        ("halves", 48, (9, 10)),
    ],
)
def test_heads_of_latent_attention_are_put_together(
    rotary: str, queries: int, times: tuple[int, int]
) -> None:
    """Of each of 6 heads: 16 numbers of a key and 10 of a value are read, 24 and 10 written; a
    query's last 8 are turned where they are, or all 24 copied; operations of their own turn the 8
    of each query, and of one key for all heads, before. Papers count none of it."""
    of = replace(LLAMA, mla=MLA(24, 16, 8, 10, q_lora_rank=40))
    found = rows(of_layer(of, rotary=rotary))["attention/rotary"]
    moved = N * 6 * (16 + 10 + 24 + 10 + queries) * A
    turned = [moved + n * N * 7 * 8 * A for n in times]
    assert found.bytes == pytest.approx(turned)
    assert "attention/rotary" not in rows(of_layer(of, rotary="fused"))


def test_a_gated_convolution() -> None:
    of = replace(LLAMA, pattern=("conv",), conv=Convolution(5, bias=True))
    both, x = f"{gather(ALL)} {scatter(ALL)}", N * 48
    found = rows(of_layer(of))
    assert list(found)[-5:] == list(rows(of_layer(LLAMA)))[-5:]
    check(
        {k: v for k, v in found.items() if "ffn" not in k},
        {
            "conv/norm": norm(S, D, back=gather(ALL)),
            "conv/in": product(N, D, 144, gather(ALL), both, S),
            "conv/in bias": bias(N, 144),
            "conv/gate in": gated(x, x),
            "conv/taps": Row(
                (0, 0), (14 * x, 28 * x),
                (2 * x * A + 48 * 6 * W, 3 * x * A + 48 * 6 * W),
                x * A, 48 * 6,
            ),
            "conv/gate out": gated(x, x),
            "conv/out": product(N, 48, D, scatter(ALL)),
            "conv/bias": bias(S, D),
            "conv/residual": added(S * D),
        },
    )  # fmt: skip


def linear_model(**fields: Any) -> Model:
    """4 heads of 16 and 24, two of keys."""
    of = Linear(4, 16, 24, **{"key_heads": 2, "chunk": 20, **fields})
    return replace(LLAMA, pattern=("linear+none",), linear=of)


def test_the_delta_rule() -> None:
    """On a device 2 heads and 1 of keys: 16 + 16 + 48 numbers mixed, 2 x 2 gates; 96 tokens are 5
    chunks of 20; each rank of cp does 2/3 of a head.

    A chunk and head: 2 C^2 (2 k + v) + 6 C k v FLOPs, and C^2 (k + v) of the triangular systems.
    Moved a token and head: 7 k + 6 v, two states of k v / C, 4 C scores.
    """
    found = rows(
        of_layer(linear_model(conv=4, vectors=10, gate_rank=6, decay_rank=8))
    )
    both = f"{gather(ALL)} {scatter(ALL)}"
    up = N * 8 * A, N * 6 * A
    padded, h, k, v, c = B * 100, 2 / 3, 16, 24, 20
    matrix = padded * h * (2 * c * (2 * k + v) + 6 * k * v)
    vector = padded * h * c * (k + v)
    moved = padded * h * (7 * k + 6 * v + 2 * k * v / c + 4 * c) * A
    kept = B * T * h * ((2 * k + v + c) * A + 2 * 4)
    way, out = (f"all_to_all@cp:{n * A:g}" for n in (N * 84, N * 48))
    check(
        found,
        {
            "linear/norm": norm(S, D, back=gather(ALL)),
            "linear/in": product(
                N, D, 16 + 16 + 48 + 2, gather(ALL), both, S
            ),
            "linear/decay down": product(S, D, 8, kept=0),
            "linear/decay up": product(
                N, 8, 2, gather(up[0]), f"{gather(up[0])} {scatter(up[0])}", S
            ),
            "linear/gate down": product(S, D, 6, kept=0),
            "linear/gate up": product(
                N, 6, 48, gather(up[1]), f"{gather(up[1])} {scatter(up[1])}", S
            ),
            "linear/conv": Row(
                (0, 0), (12 * N * 80, 24 * N * 80),
                (2 * N * 80 * A + 320 * W, 3 * N * 80 * A + 320 * W),
                N * 80 * A, 320, way, way,
            ),
            "linear/scan": Row(
                (matrix, 3 * matrix), (vector, 3 * vector),
                (moved, 3 * moved), kept, 5, out, out,
            ),
            "linear/head norm": norm(N * 2, 24),
            "linear/gated": gated(N * 48, N * 48),
            "linear/out": product(N, 48, D, scatter(ALL)),
            "linear/residual": added(S * D),
        },
    )  # fmt: skip
    assert of_layer(linear_model())[1].columns == (16, 16, 48, 2, 2, 48)


@pytest.mark.parametrize("kind", ["lightning", "gated"])
def test_other_linear_attention(kind: str) -> None:
    """2 C^2 (k + v) + 4 C k v a chunk and head, of mLSTM 2 k a token for what is divided by; two
    states and q, k, v, o move; nothing but the inputs and gates is kept. Without a convolution the
    all-to-all before it stands at the scan too."""
    decay = "fixed" if kind == "lightning" else "channel"
    of = linear_model(
        kind=kind, decay=decay, write_gate=kind == "gated",
        output_gate="none", norm="whole", chunk=24,
    )  # fmt: skip
    # heads cannot be cut here, so on one device
    alone = Layout(dp=1, microbatch=B)
    found = rows(of_layer(of, alone))
    padded, h, k, v, c = B * T, 4, 16, 24, 24
    more = 2 * k if kind == "gated" else 0
    matrix = padded * h * (2 * c * (k + v) + 4 * k * v + more)
    vector = padded * h * 2 * c
    moved = padded * h * (2 * k + 2 * v + 2 * k * v / c) * A
    gates = 17 if kind == "gated" else 0
    kept = padded * h * ((2 * k + v) * A + gates * 4)
    scan = found["linear/scan"]
    for mine, other in zip(
        scan[:3],
        ((matrix, 3 * matrix), (vector, 3 * vector), (moved, 3 * moved)),
        strict=True,
    ):
        assert mine == pytest.approx(other)
    assert scan.kept == pytest.approx(kept)
    assert found["linear/head norm"] == norm(B * T, 96, sent="")
    assert "linear/gated" not in found
    mixed = 2 * 32 + 96 + gates * 4
    sent = B * T * (96 + mixed) * A
    assert scan.sent == scan.back == f"all_to_all@cp:{sent:g}"
    unfused = rows(of_layer(of, alone, kernel="unfused"))["linear/scan"]
    assert unfused.matrix == pytest.approx((matrix, 2 * matrix))


def ssm_model(**fields: Any) -> Model:
    return replace(
        LLAMA,
        pattern=("ssm+none",),
        ssm=StateSpace(120, 10, **{"heads": 12, "groups": 6, **fields}),
    )


def test_mamba_2() -> None:
    """On a device 60 channels in 6 heads of 10, 3 groups, 10 states; chunks of 20: 96 tokens are 5
    of them; each rank of cp has 2 heads and 1 group.

    A chunk: 2 Q^2 N a group; 2 Q^2 P + 4 Q N P a head. Moved a token: 3 H P, 4 G N, 2 G Q, and four
    states in fp32."""
    of = ssm_model(chunk=20, bias=True)
    both = f"{gather(ALL)} {scatter(ALL)}"
    padded, h, g, q, n, p = B * 100, 2, 1, 20, 10, 10
    matrix = padded * (2 * q * n * g + h * (2 * q * p + 4 * n * p))
    vector = padded * h * (q + 4 * p)
    moved = padded * (
        (3 * h * p + 4 * g * n + 2 * g * q) * A + 4 * h * p * n / q * 4
    )
    kept = N * ((60 + 2 * 3 * n) * A + 6 * 4)
    wide = 2 * 60 + 2 * 3 * 10 + 6
    conv, x = 60 + 60, N * 120
    way, out = (f"all_to_all@cp:{N * w * A:g}" for w in (wide - 60, 60))
    check(
        rows(of_layer(of)),
        {
            "ssm/norm": norm(S, D, back=gather(ALL)),
            "ssm/in": product(N, D, wide, gather(ALL), both, S),
            "ssm/in bias": bias(N, wide),
            "ssm/conv": Row(
                (0, 0), (12 * x, 24 * x),
                (2 * x * A + conv * 5 * W, 3 * x * A + conv * 5 * W),
                x * A, conv * 5, way, way,
            ),
            "ssm/scan": Row(
                (matrix, 3 * matrix), (vector, 3 * vector),
                (moved, 3 * moved), kept, 3 * 6, out, out,
            ),
            "ssm/gated": gated(N * 60, N * 60),
            "ssm/inner norm": norm(N, 60),
            "ssm/out": product(N, 60, D, scatter(ALL)),
            "ssm/bias": bias(S, D),
            "ssm/residual": added(S * D),
        },
    )  # fmt: skip
    scan = {op.name: op for op in of_layer(of)}["ssm/scan"]
    assert scan.inputs == scan.saved and scan.forward.engine == "wide"
    twice = {op.name: op for op in of_layer(ssm_model(chunk=20, groups=12))}
    more = twice["ssm/scan"].forward.matrix - scan.forward.matrix
    assert more == padded * 2 * q * n, "of a second group"
    few = ssm_model(chunk=20, groups=1, norm=False, conv_bias=False)
    found = rows(of_layer(few))
    assert found["ssm/in"].weights == D * (120 + 20 + 6), "groups are copied"
    assert found["ssm/conv"].weights == 80 * 4
    assert "ssm/inner norm" not in found


def test_mamba() -> None:
    """60 channels: 9 FLOPs a channel and state; x, dt and y, B and C move; steps by a rank of 7."""
    of = ssm_model(kind="mamba", dt_rank=7, inner_norms=True)
    found = rows(of_layer(of))
    each = B * T * 20
    vector, narrow = 9 * each * 10, 7 + 2 * 10
    moved = (3 * each + 2 * B * T * 10) * A
    out, reduced = f"all_to_all@cp:{N * 60 * A}", summed(N * narrow * A)
    expected = {
        "ssm/in": product(
            N, D, 120, gather(ALL), f"{gather(ALL)} {scatter(ALL)}", S
        ),
        "ssm/x": product(N, 60, narrow, reduced),
        "ssm/x norm": norm(N, narrow),
        "ssm/dt": product(N, 7, 60, "", reduced),
        "ssm/dt bias": bias(N, 60),
        "ssm/scan": Row(
            (0, 0), (vector, 3 * vector), (moved, 3 * moved),
            (2 * each + 2 * N * 10) * A, 60 * 11, out, out,
        ),
    }  # fmt: skip
    check({name: found[name] for name in expected}, expected)
    assert "ssm/inner norm" not in found
    assert found["ssm/conv"].weights == 60 * 5


def test_an_indexer_scores_all_keys() -> None:
    """Three heads of 14 with one key a token: 2 (14 + 1) FLOPs a head and pair; queries from the
    latent of 40; its best 24 keys are named in 4 bytes."""
    of = replace(
        LLAMA,
        pattern=("sparse",),
        mla=MLA(24, 16, 8, 10, q_lora_rank=40),
        sparse=Indexer(3, 14, 24),
    )
    found = rows(of_layer(of))
    pairs, narrow = N * T * HALF, 4 * 14 * N * A
    expected = {
        "indexer/queries": product(N, 40, 42, kept=0),
        "indexer/key": product(N, D, 14, kept=0),
        "indexer/norm": norm(N, 14, 2),
        "indexer/weights": product(N, D, 3, kept=0),
        "indexer/scores": Row(
            (2 * 15 * 3 * pairs, 4 * 15 * 3 * pairs), (9 * pairs,) * 2,
            (narrow + 2 * pairs * A, 2 * narrow + 2 * pairs * A),
            narrow + N * 24 * 4, 0, gather(B * T * 14 * A, "cp"),
        ),
    }  # fmt: skip
    check({name: found[name] for name in expected}, expected)
    seen = (24 * 25 / 2 + (T - 24) * 24) / T**2
    assert found["attention/core"].matrix[0] == pytest.approx(
        2 * B * 6 * 32 * T * seen * 34
    )
    plain = replace(of, mla=None)
    assert rows(of_layer(plain))["indexer/queries"].weights == D * 42


def test_a_kept_share_of_the_layer_is_a_gated_one() -> None:
    """Other heads in sliding layers: 6 and 3 of 10, values of 14."""
    from meshwright.describe.mixers import SlidingHeads

    of = replace(
        LLAMA,
        pattern=("sliding", "full"),
        window=24,
        sliding=SlidingHeads(6, 3, 10, v_head_dim=14, sinks=True),
    )
    alone = Layout(dp=1, microbatch=B)
    sliding, full = (rows(of_layer(of, alone, i)) for i in (0, 1))
    assert sliding["attention/qkv"].weights == D * (60 + 30 + 42)
    assert sliding["attention/core"].weights == 6
    assert full["attention/qkv"].weights == D * 20 * 8
    assert full["attention/core"].weights == 0
    three = Layout(tp=6, dp=1, microbatch=B)
    assert rows(of_layer(of, three))["attention/qkv"].weights == D * (
        10 + 10 + 14
    ), "key heads are copied"


# SUMMA and blocks sliced both ways.


def test_a_layer_by_summa() -> None:
    """A 2 x 3 grid, 4 panels: X broadcast over n1, W over n2, and back with their gradients; each
    rank keeps half of X's width and a third of its W.
    """
    layout = replace(HERE, scheme="summa", panels=4)
    keys = B * 6 * T * 16 * A

    def by(k: int, n: int) -> Row:
        mine, x, w = n / 2, N * k * A, k * n / 2 * W
        memory = x + w + 4 * N * mine * A
        b1, b2 = f"broadcast@tp:{x:g}", f"broadcast@cp:{w:g}"
        r1, r2 = f"reduce@tp:{x:g}", f"reduce@cp:{w:g}"
        weights = k / 3 * mine
        return Row(
            (2 * N * k * mine, 4 * N * k * mine), (0, 0),
            (memory, 2 * memory + weights * (2 * G - W)),
            N * k / 2 * A, weights, f"{b1} {b2}", f"{b2} {r1} {b1} {r2}",
        )  # fmt: skip

    def normed() -> Row:
        return norm(
            N, 48, 2, summed(2 * 48 * A + 2 * N * A), summed(2 * N * A)
        )

    attention = core(
        6, 6, 8, 8, 1.0, gather(keys, "cp"),
        f"{gather(keys, 'cp')} {scatter(keys, 'cp')}",
    )  # fmt: skip
    scores = B * 6 * 32 * T
    attention = attention._replace(
        vector=(attention.vector[0] + scores, attention.vector[1] + 2 * scores)
    )
    expected = {
        "attention/norm": normed(),
        "attention/qkv": by(D, 288),
        "attention/qkv bias": bias(N, 144),
        "attention/core": attention,
        "attention/out": by(96, D),
        "attention/bias": bias(N, 48),
        "attention/dropout": dropped(N * 48),
        "attention/residual": added(N * 48),
        "ffn/norm": normed(),
        "ffn/up": by(D, F),
        "ffn/up bias": bias(N, F / 2),
        "ffn/activation": gelu(N * F / 2),
        "ffn/activation dropout": dropped(N * F / 2),
        "ffn/down": by(F, D),
        "ffn/bias": bias(N, 48),
        "ffn/dropout": dropped(N * 48),
        "ffn/residual": added(N * 48),
    }
    check(rows(of_layer(GPT, layout, dropout="lbl")), expected)
    two = rows(of_layer(replace(GPT, gated=True, kv_heads=4), layout))
    assert two["ffn/up"].weights == D / 3 * F
    assert two["ffn/up bias"].weights == F
    assert two["ffn/activation"] == silu(N * F / 2)
    assert two["attention/qkv bias"].weights == (6 + 2 * 2) * 8
    assert two["attention/qkv"].weights == D / 3 * (12 + 8) * 8 / 2


# The ends of the model.


def test_embedding_head_and_loss() -> None:
    """1000 words in multiples of 64 are 1024, 512 on a rank; learned positions on each."""
    of = replace(
        LLAMA,
        vocab_multiple=64,
        positions="learned",
        head_bias=True,
        embedding_norm=True,
    )
    layout = placed(HERE, (6,))
    at = job(of)
    x, both = N * D, f"{gather(ALL)} {scatter(ALL)}"
    look_up = 2 * x * A + x * W
    check(
        rows(vocabulary.embedding(DeviceMicrobatch.from_layout(at, layout))),
        {
            "embedding": Row(
                (0, 0), (0, 0), (look_up, look_up), 0, (512 + T) * D,
                scatter(ALL), gather(ALL),
            ),
            "embedding/norm": norm(S, D),
        },
    )  # fmt: skip
    scores, three = N * 512, " ".join([summed(N * 4)] * 3)
    check(
        rows(vocabulary.head(DeviceMicrobatch.from_layout(at, layout))),
        {
            "head/norm": norm(S, D, sent=gather(ALL)),
            "head/logits": product(N, D, 512, "", both, S),
            "head/bias": bias(N, 512),
            "head/loss": Row(
                (0, 0), (5 * scores, 2 * scores),
                (3 * scores * 4, 2 * scores * 4), scores * 4, 0, three,
            ),
        },
    )  # fmt: skip
    rowed = replace(of, position_rows=50)
    (first, _) = vocabulary.embedding(
        DeviceMicrobatch.from_layout(job(rowed), layout)
    )
    assert first.weights == (512 + 50) * D
    bare = replace(LLAMA, final_norm=False)
    assert (
        vocabulary.head(DeviceMicrobatch.from_layout(job(bare), layout))[
            0
        ].weights
        == 0
    )
    odd = replace(LLAMA, vocab=1001)
    assert vocabulary.rows(odd, None, layout.tp) == 501
    for none in (replace(LLAMA, vocab=0), LLAMA):
        without = job(none, vocabulary=none is not LLAMA)
        assert (
            vocabulary.embedding(DeviceMicrobatch.from_layout(without, layout))
            == []
        )
        assert (
            vocabulary.head(DeviceMicrobatch.from_layout(without, layout))
            == []
        )


def test_a_block_that_predicts_a_further_token() -> None:
    """Two norms, a matrix of 2 D x D cut by columns, a layer, and the head without its matrix."""
    layout = placed(HERE, (6,))
    joined = rows(
        vocabulary.join(DeviceMicrobatch.from_layout(job(LLAMA), layout))
    )
    columns, two = gather(ALL), gather(2 * ALL)
    check(
        joined,
        {
            "mtp/hidden norm": norm(S, D),
            "mtp/token norm": norm(S, D),
            "mtp/project": product(
                N, 2 * D, D / 2, f"{two} {columns}",
                f"{columns} {two} {scatter(2 * ALL)}", S,
            ),
        },
    )  # fmt: skip
    ops = model.next_token(DeviceMicrobatch.from_layout(job(LLAMA), layout))
    head = {op.name: op for op in ops}
    assert head["head/logits"].weights == 0
    assert head["head/norm"].weights == D
    assert len(ops) == 3 + 3
    # and one more of the last layer, whatever the first one is
    of = replace(LLAMA, pattern=("full+none", "none+dense"), mtp_layers=1)
    often = Counter[str]()
    for op, n in model.operations(of):
        often[op.name.split("/")[0]] += n
    plain = Counter[str]()
    for op, n in model.operations(replace(of, mtp_layers=0)):
        plain[op.name.split("/")[0]] += n
    assert often["attention"] == plain["attention"] > 0
    assert often["ffn"] == 2 * plain["ffn"] > 0


# Whole models, the optimizer, what runs again.


def test_products_of_newton_and_schulz() -> None:
    """Five iterations on m x n numbers: 4 m^2 n and 2 m^3 FLOPs, of every matrix of a model."""

    def each(a: int, b: int) -> int:
        m, n = min(a, b), max(a, b)
        return 5 * (4 * m * m * n + 2 * m**3)

    shapes = each(D, 160) + each(96, D) + each(D, 2 * F) + each(F, D)
    assert optimizer.orthogonal_flops(LLAMA, 5) == pytest.approx(2 * shapes)
    moe = replace(LLAMA, moe=MoE(12, 3, 40))
    shapes = each(D, 160) + each(96, D) + each(D, 12)
    shapes += 12 * (each(D, 80) + each(40, D))
    assert optimizer.orthogonal_flops(moe, 5) == pytest.approx(2 * shapes)


def chain(*kept: float) -> list[Op]:
    """Operations one after the other: each keeps its input and 1000 of its own."""
    return [
        Op(f"op {i}", "vector", *([Op("", "", None, None).forward] * 2),  # type: ignore[arg-type]
           saved=size + 1000, inputs=size, needs=size)
        for i, size in enumerate(kept)
    ]  # fmt: skip


def test_what_stays_when_parts_run_again() -> None:
    """Of three operations with inputs of 1, 20 and 300 bytes the middle runs again: its own 1000
    go, and the input of the next, which it makes; its own input stays. All: the layer's input
    only.
    """
    never, all_ = recompute.NEVER, recompute.Again(1.0, 1.0)
    ops = chain(1.0, 20.0, 300.0)
    assert recompute.saved_bytes_of(ops, [never] * 3, 7.0) == 3321
    assert (
        recompute.saved_bytes_of(ops, [never, all_, never], 7.0)
        == 1001 + 20 + 1000
    )
    assert recompute.saved_bytes_of(ops, [all_] * 3, 7.0) == 7
    half = recompute.Again(0.5, 0.5)
    assert recompute.saved_bytes_of(ops, [never, half, never], 7.0) == (
        1001 + (20 + 500) + (1000 + 150)
    )
    inner = recompute.Again(1.0, 0.0)
    assert (
        recompute.saved_bytes_of(ops, [never, inner, never], 7.0)
        == 1001 + 20 + 1300
    )


def test_the_head_of_bert_is_not_quantised() -> None:
    """A matrix, an activation and a norm before the words; its input is kept as activations are."""
    of = replace(LLAMA, head_width=48)
    layout = placed(HERE, (6,))
    for precision in ("bf16", "fp8"):
        at = replace(job(of), precision=PRECISIONS[precision])
        found = {
            op.name: op
            for op in vocabulary.head(DeviceMicrobatch.from_layout(at, layout))
        }
        transform = found["head/transform"]
        assert transform.saved == S * D * at.precision.activation_bytes
        assert transform.weights == D * 48


def test_plain_torch_rotates_and_gates_operation_by_operation() -> None:
    """x cos + rotate_half(x) sin is 10 reads and writes of queries and keys, 15 back. SiLU (2) and
    the product (3), back three gradients (3 each) and, of one matrix, 4 to put two side by side;
    the product keeps SiLU(gate) too.
    """
    fused = rows(of_layer(LLAMA, rotary="fused"))
    x = N * (LLAMA.heads + LLAMA.K) / TP * LLAMA.h * A
    turned = rows(of_layer(LLAMA, rotary="torch"))["attention/rotary"]
    assert turned.bytes == (10 * x, 15 * x)
    # widened to fp32 (1 + 2), multiplied (2 + 2), narrowed (2 + 1)
    wide = rows(of_layer(LLAMA, rotary="complex"))["attention/rotary"]
    assert wide.bytes == (10 * x, 10 * x)
    # each half: two products (1), a sum (1.5); then side by side (2); back the same and a sign (1)
    halves = rows(of_layer(LLAMA, rotary="halves"))["attention/rotary"]
    assert halves.bytes == (9 * x, 10 * x)
    F = N * LLAMA.ffn / TP * A
    one = fused["ffn/activation"]
    assert (*one.bytes, one.kept) == (3 * F, 5 * F, 2 * F)
    two = rows(of_layer(LLAMA, gate="torch"))["ffn/activation"]
    assert (*two.bytes, two.kept) == (5 * F, 13 * F, 3 * F)
    apart = rows(of_layer(LLAMA, gate="torch", input_gradients="apart"))
    assert apart["ffn/activation"].bytes == (5 * F, 9 * F)
    experts = {
        gate: rows(of_layer(EXPERTS, gate=gate))["experts/activation"].bytes[1]
        for gate in ("fused", "torch")
    }
    assert experts["torch"] - experts["fused"] == (13 - 5) * 2 * S * 40 * A


@pytest.mark.parametrize(
    ("framework", "multiple", "tp", "expected"),
    [
        ("megatron-core", None, 8, 6400),  # 50,257 / 8 is 6,283
        ("megatron-2021", None, 1, 50304),
        ("megatron-deepspeed", 8, 4, 12568),
        ("megatron-core", 1, 8, 6283),
        ("megatron-bridge", None, 8, 6283),
        ("megatron-bridge", 128, 8, 6288),
        ("fsdp", None, 8, 6283),
    ],
)
def test_megatron_pads_the_vocabulary_of_each_rank(
    framework: str, multiple: int | None, tp: int, expected: int
) -> None:
    """Rows are a multiple of 128, or of what the model says, times tp; others cut what there is."""
    of = replace(LLAMA, vocab=50257, vocab_multiple=multiple)
    assert vocabulary.rows(of, frameworks()[framework], tp) == expected


def test_a_rank_that_gathers_tokens_picks_the_copies_of_its_experts() -> None:
    """80 tokens of each of two ranks of an expert, and of four such pairs, are gathered, two copies
    a token are picked; back, zeros of all are written and copies added, and all are scattered.
    """
    spread = replace(SPREAD, etp=2)
    asked = replace(
        job(EXPERTS, spread),
        assumptions=REALISTIC,
        framework="megatron-core",
        software=Software(dispatcher="allgather"),
    )
    layout = placed(spread, (int(spread.chips),))
    one = rows(model.layer(asked, layout, kinds(EXPERTS)[0]))
    near, whole = 2 * S * D * A, 2 * 4 * S * D * A
    copies = 2 * near
    gathers = f"{gather(near, 'etp')} {gather(whole, 'ep')}"
    scatters = f"{scatter(whole, 'ep')} {scatter(near, 'etp')}"
    to, back = one["experts/dispatch"], one["experts/combine"]
    assert to.bytes == (2 * copies, whole + 3 * copies)
    assert back.bytes == to.bytes[::-1]
    assert (to.sent, to.back) == (gathers, scatters)
    assert (back.sent, back.back) == (scatters, gathers)
    assert "experts/etp" not in one
