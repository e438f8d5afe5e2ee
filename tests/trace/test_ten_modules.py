"""Ten small decoders as people write them, each with its own ways: parameters, FLOPs that PyTorch
counts on numbers, and memory where our own trainer runs the same model.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from decoders import D, H, L, T, V, W, demand_counted, net, row  # noqa: E402

from meshwright import Job, Layout, Model, model_of, predict  # noqa: E402

pytestmark = pytest.mark.oracle

KINDS = [
    "gpt", "llama", "alibi", "parallel", "windows", "normed", "latent", "state",
    "experts", "hybrid",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_products_are_those_of_numbers(kind: str) -> None:
    module = net(kind)
    model = model_of(module, row(T))
    assert next(module.parameters()).device.type == "cpu"  # left as it was
    demand_counted(model, module)
    assert (model.layers, model.hidden, model.vocab, model.seq) == (L, D, V, T)
    assert model.tied_embeddings == (kind in ("gpt", "windows"))
    if kind != "state":
        assert (model.heads, model.h, model.attention) == (H, W, "causal")


@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_memory_is_that_of_the_trainers_walk(kind: str) -> None:
    """Two of them are models that our own trainer runs: every tensor of its step is walked."""
    llama = Model(
        name=kind, layers=L, hidden=D, heads=H, vocab=V, seq=T, ffn=320,
        kv_heads=2, tied_embeddings=False,
    )  # fmt: skip
    gpt = Model(
        name=kind, layers=L, hidden=D, heads=H, vocab=V, seq=T, ffn=4 * D,
        tied_embeddings=True, gated=False, activation="gelu", norm="layernorm",
        positions="learned", bias=True,
    )  # fmt: skip
    traced = model_of(net(kind), row(T))
    layout = Layout(dp=1, microbatch=4)
    bytes_ = [
        predict(
            Job(model, "1xh100-sxm", 32, framework=name), layout
        ).memory_bytes["allocated"]
        for model, name in (
            (traced, "fsdp"),
            ({"llama": llama, "gpt": gpt}[kind], "meshwright"),
        )
    ]
    assert bytes_[0] == pytest.approx(bytes_[1], rel=0.1)
