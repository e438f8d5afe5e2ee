"""Models counted by a trace of their code: what needs no torch, and a module of the test itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from layouts import cut
from meshwright import (
    Job,
    Layout,
    Model,
    MoE,
    Space,
    parameters,
    plan,
    predict,
)
from meshwright.count.model import layer, operations
from meshwright.describe.layers import kinds, mix
from meshwright.describe.read import read, to_dict
from meshwright.describe.traced import Traced, TracedLayer, TracedOp
from meshwright.formats.bridge import write
from meshwright.formats.export import launch_place
from meshwright.layout import cuts
from meshwright.trace.hf import demand_sane, read_traced
from refusals import refusal

D, F, H, K, h, V = 256, 1024, 8, 2, 32, 1000


def matrix(name: str, inner: int, outer: int, **fields: object) -> TracedOp:
    shape = {"rows": 1.0, "weights": float(inner * outer)} | fields
    return TracedOp(name, "matmul", inner=inner, outer=outer, **shape)  # type: ignore[arg-type]


ATTENTION = (
    TracedOp("norm", "vector", weights=float(D), moved=4.0 * D, saved=2.0 * D),
    matrix("q", D, H * h, cut="column"),
    matrix("k", D, K * h, cut="column", pieces=K, keeps=False),
    matrix("v", D, K * h, cut="column", pieces=K, keeps=False),
    TracedOp(
        "core",
        "attention",
        cut="inside",
        heads=H,
        kv_heads=K,
        query=h,
        value=h,
    ),
    matrix("o", H * h, D, cut="row"),
)
EXPERTS = (
    matrix("router", D, 4),
    TracedOp(
        "up", "experts", cut="column", inner=D, outer=F, rows=2.0, copies=4,
        weights=4.0 * D * F,
    ),
    TracedOp(
        "down", "experts", cut="row", inner=F, outer=D, rows=2.0, copies=4,
        weights=4.0 * D * F,
    ),
)  # fmt: skip
BODY = Traced(
    (
        TracedLayer(ATTENTION),
        TracedLayer((*ATTENTION, *EXPERTS), experts=True),
    ),
    (0, 1, 1),
)
MODEL = Model(
    "odd", layers=3, hidden=D, heads=H, kv_heads=K, head_dim=h, ffn=F, vocab=V,
    seq=512, moe=MoE(4, 2, F), traced=BODY, final_norm=False,
)  # fmt: skip


def test_parameters_and_products_are_those_of_the_trace() -> None:
    """3 layers of attention, 2 with experts, embedding and head."""
    attention = D + 2 * D * H * h + 2 * D * K * h
    experts = 4 * D + 8 * D * F
    assert parameters(MODEL) == 3 * attention + 2 * experts + 2 * V * D
    T = 512
    flops = sum(float(op.forward.matrix) * n for op, n in operations(MODEL, T))
    a = 2 * T * (2 * D * H * h + 2 * D * K * h) + 4 * T * T * H * h
    e = 2 * T * (4 * D + 2 * 2 * D * F)
    assert flops == 3 * a + 2 * e + 2 * T * D * V


def test_tensor_parallelism_cuts_pairs_and_leaves_the_rest_whole() -> None:
    job = Job(MODEL, "8xh100-sxm", 8)
    whole, cut = (
        {
            op.name: op
            for op in layer(job, Layout(tp=tp, dp=8 // tp), kinds(MODEL)[2])
        }
        for tp in (1, 4)
    )
    for name in ("q", "o"):
        assert cut[name].weights == whole[name].weights / 4
    for name in ("k", "v"):  # two heads on four ranks: one each, copied
        assert cut[name].weights == whole[name].weights / 2
    assert cut["router"].weights == whole["router"].weights
    assert cut["core"].forward.matrix == whole["core"].forward.matrix / 4
    assert [m.axis for m in cut["o"].forward.comm] == ["tp"]
    assert not cut["k"].forward.comm  # what q gathered


def test_experts_are_dealt_to_their_ranks() -> None:
    job = Job(MODEL, "8xh100-sxm", 8)
    ops = {op.name: op for op in layer(job, cut("dp8 ep4"), kinds(MODEL)[2])}
    assert ops["up"].weights == D * F and ops["up"].expert
    assert ops["experts/dispatch"].forward.comm[0].bytes == 2 * 512 * D * 2


def test_heads_limit_the_cuts() -> None:
    assert cuts.most_tp(MODEL) == 8
    narrow = replace(
        BODY, kinds=(TracedLayer(ATTENTION[:1]),), order=(0, 0, 0)
    )
    assert cuts.most_tp(replace(MODEL, traced=narrow)) == 1


def test_it_is_written_and_read_again() -> None:
    text = json.dumps(to_dict(MODEL))
    again = read(Model, json.loads(text))
    assert again == MODEL and hash(again) == hash(MODEL)
    with refusal("each of the 4 layers"):
        replace(MODEL, layers=4)


def test_a_prediction_says_that_it_rests_on_a_trace() -> None:
    known = predict(Job(MODEL, "8xh100-sxm", 8, Layout(dp=8)))
    low, high = known.interval_s
    assert low < known.step_time_s < high
    assert "counted by a trace" in known.evidence["note"]
    assert "experts" in " ".join(mix(MODEL))


@pytest.mark.parametrize(
    "key", ["num_hidden_layers", "num_experts", "n_layer"]
)
def test_counts_that_no_model_has_are_refused(key: str) -> None:
    with refusal(key):
        demand_sane({"text_config": {key: 10**9}})
    demand_sane({key: 61})


def test_a_kept_trace_is_read_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a trace gave stands in a file, and is asked first."""
    from meshwright.trace import hf

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(hf, "versions", lambda: {"torch": "0"})
    asked = []

    def run(text: str) -> dict[str, object]:
        asked.append(text)
        return to_dict(MODEL)

    monkeypatch.setattr(hf, "trace_of", run)
    config = {"model_type": "odd", "hidden_size": D}
    assert read_traced(config) == MODEL
    assert read_traced(config, "mine").name == "mine"
    assert read_traced({**config, "hidden_size": 8}) == MODEL
    assert len(asked) == 2


def test_a_trace_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from meshwright.trace import hf

    monkeypatch.setattr(hf, "kept_at", lambda text: None)
    monkeypatch.setattr(
        hf, "trace_of", lambda text: {"error": "it asks for numbers"}
    )
    with refusal(r"config.json: it asks for numbers"):
        read_traced({"model_type": "odd"})


def test_without_a_framework_one_that_runs_its_code_is_asked() -> None:
    dense = replace(
        MODEL,
        moe=None,
        traced=Traced((TracedLayer(ATTENTION),), (0, 0, 0)),
    )
    plain = Job(dense, "8xh100-sxm", 8, Layout(dp=8))
    assert plain.usual_framework == "fsdp"
    assert "timed as fsdp" in " ".join(predict(plain).notes)
    # FSDP cuts no matrix, and gathers all experts of a layer at once
    assert plain.with_(layout=Layout(tp=2)).usual_framework == "torchtitan"
    assert plain.with_(model=MODEL).usual_framework == "torchtitan"
    named = plain.with_(framework="megatron-core")
    assert "timed as" not in " ".join(predict(named).notes)
    assert plain.with_(model="llama3-8b").usual_framework == "megatron-core"


def test_scans_that_wait_for_memory_are_said() -> None:
    def notes(moved: float) -> str:
        scan = TracedOp("scan", "product", flops=1e5, moved=moved)
        body = Traced(
            (TracedLayer((*ATTENTION, scan)),), (0,) * 3, states=True
        )
        model = replace(MODEL, moe=None, traced=body)
        job = Job(model, "8xh100-sxm", 512, Layout(dp=8))
        return " ".join(predict(job).notes)

    assert "a fused kernel" in notes(1e7)
    assert "a fused kernel" not in notes(1e2)


def test_megatron_has_no_file_for_it() -> None:
    job = Job(MODEL, "8xh100-sxm", 8, Layout(dp=8))
    with refusal() as error:
        write(job, "megatron", launch_place(job, "megatron", None, None))
    said = str(error.value)
    assert said.startswith("model odd is counted by a trace")
    assert "TracedOp" not in said and ";" not in said


def test_a_search_cuts_no_state_over_cp() -> None:
    mixing = TracedOp("scan", "product", flops=1e5, moved=1e4)
    body = Traced((TracedLayer((*ATTENTION, mixing)),), (0,) * 3, states=True)
    model = replace(MODEL, moe=None, traced=body)
    job = Job(model, "8xh100-sxm", 2, framework="megatron-core")
    assert plan(job, Space(cp=1)).best is not None
    assert plan(job, Space(cp=2)).best is None
    predict(replace(job, model=MODEL, batch=8), cut("cp2 dp4"))
    with refusal(r"odd has products .* cp must be 1"):
        predict(job, cut("cp2 dp4"))
