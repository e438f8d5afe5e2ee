"""What devices hold and compute adds up to the whole model, for every layout; what an operation
does follows its formula.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import MLA, Job, Layout, Model, MoE
from meshwright.count import vocabulary
from meshwright.count.mask import seen
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.model import kind_counts, layer
from meshwright.count.work import Op
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.cluster import NOWHERE
from meshwright.describe.layers import Kind
from meshwright.describe.software import Software
from meshwright.layout.placement import placed

FULL = replace(REALISTIC, count=replace(REALISTIC.count, causal="full"))
BASE = Model("base", 4, 512, 16, 1536, 4096, 256)
DENSE = replace(
    BASE,
    name="dense",
    kv_heads=16,
    qkv_bias=True,
    bias=True,
    norm="layernorm",
    gated=False,
)
GROUPED = replace(BASE, name="grouped", kv_heads=4, head_dim=64, qk_norm=True)
LATENT = replace(BASE, name="latent", mla=MLA(64, 32, 16, 32, q_lora_rank=96))
SPARSE = replace(
    BASE,
    name="sparse",
    moe=MoE(16, 4, 256, shared_ffn=512, shared_gate=True),
)
POWERS = st.sampled_from([1, 2, 4, 8])
CUT_BY_TP = (
    "qkv",
    "q up",
    "kv up",
    "out",
    "up",
    "down",
    "up bias",
    "qkv bias",
    "logits",
    "embedding",
    "core",
)


def job_of(model: Model, layout: Layout) -> Job:
    return Job(model, NOWHERE, 64, layout, assumptions=FULL)


def ops_of(model: Model, layout: Layout) -> dict[str, Op]:
    """One layer of each kind, embedding and head, by name."""
    layout = placed(layout, (1, int(layout.chips)))
    job = job_of(model, layout)
    ops = [
        op
        for kind, _ in kind_counts(model)[1]
        for op in layer(job, layout, kind)
    ]
    return {
        op.name: op
        for op in (
            *ops,
            *vocabulary.embedding(DeviceMicrobatch.from_layout(job, layout)),
            *vocabulary.head(DeviceMicrobatch.from_layout(job, layout)),
        )
    }


@given(
    st.sampled_from([DENSE, GROUPED, LATENT, SPARSE]),
    POWERS,
    POWERS,
    st.booleans(),
    st.sampled_from([1, 3]),
)
def test_work_and_weights_of_all_ranks_are_the_whole(
    model: Model, tp: int, cp: int, sequence: bool, b: int
) -> None:
    """tp cuts the matrices of heads and feed-forward, cp their tokens; what tp does not cut is done
    once with sequence parallelism.
    """
    one = ops_of(model, Layout(dp=1, microbatch=b))
    for name, op in ops_of(
        model,
        Layout(
            tp=tp,
            cp=cp,
            dp=1,
            microbatch=b,
            sequence_parallel=sequence or model.moe is not None,
        ),
    ).items():
        whole, last = one[name], name.split("/")[-1]
        copied = (
            max(tp / model.K, 1)
            if last in ("qkv", "qkv bias", "qk norm") and not model.mla
            else 1
        )
        alone = last in (
            "norm",
            "q norm",
            "kv norm",
            "q down",
            "kv down",
            "router",
            "gate",
            "bias",
            "residual",
        )
        ranks = cp * tp if not alone or sequence or model.moe else cp
        if copied == 1:
            assert op.forward.matrix * ranks == pytest.approx(
                whole.forward.matrix
            )
            assert op.backward.matrix * ranks == pytest.approx(
                whole.backward.matrix
            )
        if (
            last in CUT_BY_TP
            and not name.startswith("experts")
            and copied == 1
        ):
            assert op.weights * tp == whole.weights
        elif not name.startswith("experts") and copied == 1:
            assert op.weights == whole.weights


@given(
    st.integers(1, 300),
    st.one_of(st.none(), st.integers(1, 400)),
    st.sampled_from(["causal", "full"]),
)
def test_share_of_keys_seen(
    T: int, window: int | None, attention: str
) -> None:
    """Against counting them one by one."""
    job = replace(
        job_of(replace(DENSE, attention=attention), Layout(dp=1)),
        seq=T,
        assumptions=REALISTIC,
    )
    w = window or T
    if attention == "causal":
        pairs = sum(min(i + 1, w) for i in range(T))
    else:
        pairs = T * min(2 * window + 1, T) if window else T * T
    layout = Layout(dp=1)
    share = seen(DeviceMicrobatch.from_layout(job, layout), window)
    assert share * T * T == pytest.approx(pairs)
    # as papers count it: all keys, or those of the window
    for causal, pairs in (("full", 1.0), ("window", min(w, T) / T)):
        count = replace(REALISTIC.count, causal=causal)
        how = replace(REALISTIC, count=count)
        at = DeviceMicrobatch.from_layout(
            replace(job, assumptions=how), layout
        )
        if causal == "full" or attention == "causal":
            assert seen(at, window) == pytest.approx(pairs)


@pytest.mark.parametrize(
    ("model", "sequence", "apart"),
    [
        (GROUPED, False, 2),  # gate and up
        (DENSE, False, 1),  # one matrix reads the input
        (GROUPED, True, 1),  # it was gathered once for both
    ],
)
def test_modules_of_their_own_reduce_the_gradient_of_their_input_each(
    model: Model, sequence: bool, apart: int
) -> None:
    """Ranks hold T D numbers of the input's gradient, and send them once a module; what other
    operations send is the same.
    """
    layout = placed(Layout(tp=4, dp=1, sequence_parallel=sequence), (4,))
    said = Software(gathered_inputs="kept")
    job = replace(job_of(model, layout), software=said)

    def sent(how: str) -> dict[str, list[tuple[str, float]]]:
        settings = replace(said, input_gradients=how)
        return {
            op.name: [
                (m.kind, float(m.bytes))
                for m in op.backward.comm
                if m.axis == "tp"
            ]
            for op in layer(
                replace(job, software=settings), layout, Kind(None, False)
            )
        }

    once, each = sent("together"), sent("apart")
    kind = "reduce_scatter" if sequence else "all_reduce"
    T, D = 256, 512
    assert once["ffn/up"] == [(kind, 2.0 * T * D)]
    assert each == {**once, "ffn/up": once["ffn/up"] * apart}
