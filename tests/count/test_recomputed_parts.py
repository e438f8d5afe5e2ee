"""Recomputation by named parts: what stays and what runs again, counted by hand from the
frameworks' own definitions.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import Job, Layout, catalog, predict
from meshwright.count.megatron import megatron_layer
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.model import kinds
from meshwright.count.recompute import recomputed_ops, saved_bytes_of
from meshwright.count.work import Op
from meshwright.describe.layers import Kind
from meshwright.describe.recompute import (
    OPERATIONS,
    PARTS,
    recompute,
    resolve,
)
from meshwright.layout.placement import placed
from refusals import refusal

BF16 = 2.0
LLAMA = Job("llama3-8b", "8xh100-sxm", 8)
"""h 4096, 32 heads, 8 kv heads, F 14336."""
V3 = Job("deepseek-v3", "8xh100-sxm", 8)


def ops(job: Job, **layout: int) -> tuple[list[Op], float]:
    """Operations of the last layer, and bytes of its input."""
    at = placed(Layout(**{"dp": 1, **layout}), job.cluster.sizes)
    return megatron_layer(
        DeviceMicrobatch.from_layout(job, at), kinds(job.model)[-1]
    ), float(DeviceMicrobatch.from_layout(job, at).boundary)


def a_token(job: Job, parts: str, **layout: int) -> float:
    """Bytes a layer keeps of one token of a device."""
    of, edge = ops(job, **layout)
    return (
        float(saved_bytes_of(of, recomputed_ops(of, parts), edge))
        * layout.get("tp", 1)
        / job.T
    )


def test_names_of_operations_are_known() -> None:
    """Of every model that the catalogue has, under every scheme."""
    for name in catalog.names("models"):
        job = Job(name, "8xh100-sxm", 8)
        microbatch = DeviceMicrobatch.from_layout(
            job, placed(Layout(dp=1), job.cluster.sizes)
        )
        for kind in {*kinds(job.model)}:
            found = {op.name for op in megatron_layer(microbatch, kind)}
            assert found <= {*OPERATIONS}, name


def test_operation_level_checkpointing_of_torchtitan() -> None:
    """The layer's input and the results of wq, wv, attention, w1 and w2: h (4 + K/H + F/h) values a
    token, 63 kB for Llama 3 8B (distributed/activation_checkpoint.py: every second product is
    saved, counted wq wk wv wo w1 w3 w2).
    """
    h, F, share = 4096, 14336, 8 / 32
    statistics = 2 * 32 * BF16  # of attention's rows
    assert a_token(LLAMA, "op") == pytest.approx(
        h * BF16 * (4 + share + F / h) + statistics
    )
    of, _ = ops(LLAMA)
    runs = {
        op.name: one.share
        for op, one in zip(of, recomputed_ops(of, "op"), strict=True)
    }
    assert runs["attention/qkv"] == pytest.approx(8 / (32 + 8 + 8))  # wk
    assert (
        runs["attention/core"],
        runs["attention/out"],
        runs["ffn/up"],
        runs["ffn/down"],
    ) == (
        0,
        1,
        0.5,
        0,
    )


def test_modules_of_megatron_core() -> None:
    """Each drops its result (layernorm, moe_act, mla_up_proj) or what lies inside it (mlp, moe,
    shared_experts).
    """
    h, F = 4096, 14336
    nothing = a_token(LLAMA, "none")
    # inputs of qkv and up
    assert nothing - a_token(LLAMA, "layernorm") == pytest.approx(2 * h * BF16)
    # gate, up, their product
    assert nothing - a_token(LLAMA, "mlp") == pytest.approx(3 * F * BF16)
    assert nothing - a_token(LLAMA, "layernorm+mlp") == pytest.approx(
        (2 * h + 3 * F) * BF16
    )
    # of a fused kernel's own only the sum of exponents of each row and head, of 4 bytes, goes
    assert nothing - a_token(LLAMA, "core_attn") == pytest.approx(32 * 4)
    experts, heads, width = 8, 128, 2048
    plain = a_token(V3, "none")
    assert plain - a_token(V3, "moe_act") == pytest.approx(
        experts * width * BF16
    )
    assert plain - a_token(V3, "shared_experts") == pytest.approx(
        3 * width * BF16
    )
    # queries and keys of 192, values of 128 for every head; the latents' norms are made again too
    latents = 1536 + 512
    assert plain - a_token(V3, "mla_up_proj") == pytest.approx(
        (heads * (192 + 192 + 128) + latents) * BF16
    )


@pytest.mark.parametrize(
    ("framework", "kernel", "again"),
    [
        ("megatron-core", "flash", 1),
        ("megatron-core", "unfused", 1),
        ("megatron-deepspeed", "flash", 0),
        ("megatron-deepspeed", "unfused", 1),
    ],
)
def test_core_of_attention_by_program(
    framework: str, kernel: str, again: int
) -> None:
    """Megatron Core runs it again whatever the kernel, with what it sends (`checkpoint_core_attention`
    in core/transformer/attention.py); Megatron-LM before it not where it is flash attention.
    """
    job = replace(LLAMA, framework=framework, attention_kernel=kernel)
    parts = resolve("selective", job.how.count.selective)
    every, _ = ops(job, cp=2)
    runs = {
        op.name: one.share
        for op, one in zip(every, recomputed_ops(every, parts), strict=True)
    }
    assert {name for name, share in runs.items() if share} == (
        {"attention/core"} if again else set()
    )
    none, selective = (
        predict(
            job,
            Layout(cp=2, dp=4, recompute=how, cp_exchange="all-to-all"),
        )
        for how in ("none", "selective")
    )
    assert (selective.time_s["compute"] > none.time_s["compute"]) == again
    assert (selective.time_s["cp_comm"] > none.time_s["cp_comm"]) == again


def test_remat_policies_of_maxtext() -> None:
    """What a name keeps beside the layer's input (maxtext_utils.py): q, k, v; out; gate and up. The
    last product has a name too, but only the next layer reads its sum with the residual: JAX drops
    it, unless a norm stands between.
    """
    h, F, qkv = 4096, 14336, 4096 * (1 + 2 * 8 / 32)
    for name, values in (
        ("full", h),
        ("save_out_proj", 2 * h),
        ("save_qkv_proj", h + qkv),
        ("save_dot_except_mlp", 2 * h + qkv),
        ("save_dot_except_mlpwi", 2 * h + qkv),
        ("minimal", 2 * h + qkv + 2 * F),
    ):
        assert a_token(LLAMA, name) == pytest.approx(values * BF16), name
    gpt = replace(LLAMA, model=replace(LLAMA.model, dropout=True, bias=True))
    assert a_token(gpt, "minimal") == a_token(LLAMA, "minimal")
    normed = replace(LLAMA, model=replace(LLAMA.model, norms_per_layer=4))
    assert a_token(normed, "minimal") - a_token(
        LLAMA, "minimal"
    ) == pytest.approx(h * BF16)
    with_context = a_token(LLAMA, "minimal_with_context") - a_token(
        LLAMA, "minimal"
    )
    assert with_context == pytest.approx(h * BF16 + 2 * 32 * BF16)


def again(job: Job, parts: str) -> float:
    """FLOPs of matrix products that run again."""
    of, _ = ops(job)
    runs = recomputed_ops(of, parts)
    return sum(
        float(op.forward.matrix * one.share)
        for op, one in zip(of, runs, strict=True)
    )


def shaped(**changes: object) -> Job:
    """Llama 3 8B with another kind of layer."""
    return replace(LLAMA, model=replace(LLAMA.model, **changes))


@pytest.mark.parametrize(
    ("parts", "job", "spared"),
    [
        ("whole", LLAMA, ()),
        # the next layer reads the sum with the residual, nobody what the last product makes
        ("prefix", LLAMA, ("ffn/down",)),
        ("needed", LLAMA, ("ffn/down",)),
        # a bias needs nothing of what it is added to
        ("prefix", shaped(bias=True), ("ffn/down",)),
        # side by side after one norm: the sum reads both, nobody else either
        (
            "needed",
            shaped(norms_per_layer=1),
            ("ffn/down", "attention/out"),
        ),
        # attention is over before the feed-forward that is needed begins
        ("prefix", shaped(norms_per_layer=1), ("ffn/down",)),
        # a norm reads what it normalises
        ("needed", shaped(norms_per_layer=4), ()),
        # a mask is made with the result; XLA makes it again from its seed
        ("prefix", shaped(dropout=True), ()),
        ("needed", shaped(dropout=True), ("ffn/down",)),
        # the gradient of the router needs what experts make, nobody what the shared ones do
        ("prefix", V3, ("shared/down",)),
        ("needed", V3, ("shared/down",)),
    ],
)
def test_what_nobody_reads_need_not_run_again(
    parts: str, job: Job, spared: tuple[str, ...]
) -> None:
    """FLOPs of a layer's forward pass less those of the products named; only its input stays."""
    of, edge = ops(job)
    left = sum(float(op.forward.matrix) for op in of if op.name not in spared)
    assert again(job, parts) == pytest.approx(left, rel=1e-12)
    masks = sum(
        float(op.saved - op.inputs) for op in of if "dropout" in op.name
    )
    kept = float(saved_bytes_of(of, recomputed_ops(of, parts), edge))
    assert kept == pytest.approx(edge) and (masks > 0) == job.model.dropout


def test_frameworks_run_as_much_again_as_they_need() -> None:
    """Full recomputation of Llama 3 8B: Megatron runs a layer as a whole, XLA and compiled layers
    without its last product, F h of the 3 F h + (2 + 2 K / H) h^2 weights."""
    h, F, kv = 4096, 14336, 8 / 32

    def redone(chips: str, **how: object) -> float:
        layout = Layout(dp=8, zero=3, recompute="full")
        p = predict(Job("llama3-8b", chips, 8, layout, **how))
        plain = replace(p.job, layout=replace(layout, recompute="none"))
        return (
            p.hfu
            * p.step_time_s
            / (predict(plain).hfu * predict(plain).step_time_s)
        )

    whole = redone("8xh100-sxm", framework="megatron-core") - 1
    for chips, framework in (("8xtpu-v5p", "maxtext"), ("8xh100-sxm", "fsdp")):
        less = redone(chips, framework=framework) - 1
        part = F * h / (3 * F * h + (2 + 2 * kv) * h**2)
        assert less / whole == pytest.approx(1 - part, rel=0.07), framework


def test_messages_are_sent_again_with_the_matrix_that_needs_them() -> None:
    """The feed-forward gathers its input and scatters its result once more; a norm by itself sends
    nothing.
    """
    of, _ = ops(LLAMA, tp=8)

    def messages(parts: str) -> list[str]:
        runs = zip(of, recomputed_ops(of, parts), strict=True)
        return [
            m.kind
            for op, one in runs
            if one.share
            for m in op.forward.comm
            if m.axis == "tp"
        ]

    assert messages("mlp") == ["all_gather", "reduce_scatter"]
    assert messages("layernorm") == []
    assert messages("full") == ["all_gather", "reduce_scatter"] * 2
    # nobody needs the sum of what the last product makes
    assert messages("needed") == ["all_gather", "reduce_scatter", "all_gather"]


MODULES = ["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act"]


@given(
    st.sampled_from([LLAMA, V3]),
    st.sets(st.sampled_from(MODULES)),
    st.sampled_from(MODULES),
)
def test_more_recomputation_never_keeps_more(
    job: Job, parts: set[str], one: str
) -> None:
    some, more = (
        a_token(job, "+".join(sorted(words)) or "none")
        for words in (parts, parts | {one})
    )
    assert a_token(job, "full") <= more <= some


def test_the_first_layers_of_each_chunk() -> None:
    """2 of 8 layers a stage cost a quarter of what all of them cost, in time and in memory; 8 of 8
    are all.
    """
    model = replace(LLAMA.model, vocab=0)
    job = replace(
        LLAMA, model=model, cluster=catalog.cluster("16xh100-sxm"), batch=32
    )

    def found(text: str) -> tuple[float, float]:
        p = predict(job, Layout(tp=4, pp=4, dp=1, recompute=text))
        return p.time_s["compute"] + p.time_s["memory"], float(
            p.memory_bytes["activations"]
        )

    none, some, every = (found(text) for text in ("none", "full:2", "full"))
    assert some[0] - none[0] == pytest.approx((every[0] - none[0]) / 4)
    assert found("full:8") == pytest.approx(every) and found(
        "full:100"
    ) == pytest.approx(every)
    kept = job.T * job.model.hidden * 2 / 4  # its input
    # what of a layer is made again is there once, however many are
    one = a_token(job, "none", tp=4) * job.T / 4 - kept
    assert some[1] - one - none[1] == pytest.approx(
        (every[1] - one - none[1]) / 4
    )


def test_words_are_read_once_and_refused_by_name() -> None:
    assert (
        Layout(dp=1, recompute="moe_act + layernorm:2").recompute
        == "layernorm+moe_act:2"
    )
    assert recompute("none:3") == recompute("none")
    for wrong, says in (
        ("layernom", "'layernom' is not known; did you mean layernorm"),
        ("full:x", "after the colon comes a number of layers"),
        ("full+mlp", "full cannot be combined with others"),
        ("", "needs a word"),
        (None, "must be a text"),
    ):
        with refusal(says):
            Layout(dp=1, recompute=wrong)  # type: ignore[arg-type]
    assert all(PARTS[name].again for name in PARTS)
    assert Kind(None, False) in kinds(LLAMA.model)
