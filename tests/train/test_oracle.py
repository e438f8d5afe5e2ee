"""The trainer's own program of one rank under a fake process group, beside what `program` says of it:
every axis, schedule and option.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from jobs import (  # noqa: E402
    DEEPSEEK,
    GPT,
    LLAMA,
    MIXTRAL,
    PLAIN_EXPERTS,
    WINDOW,
)

from layouts import cut  # noqa: E402
from meshwright import catalog  # noqa: E402
from meshwright.describe.chip import Chip  # noqa: E402
from meshwright.describe.cluster import Cluster  # noqa: E402
from meshwright.describe.job import Job  # noqa: E402
from meshwright.describe.model import Model, MoE  # noqa: E402
from meshwright.describe.network import Dim, Network  # noqa: E402
from meshwright.describe.training import Settings  # noqa: E402
from meshwright.formats.toml import dump_job  # noqa: E402
from meshwright.program import memory as peak  # noqa: E402
from meshwright.program.operations import carried_out  # noqa: E402
from meshwright.train import oracle  # noqa: E402
from meshwright.train.traffic import Live  # noqa: E402
from shell import Shell  # noqa: E402

pytestmark = pytest.mark.oracle
WIDE = Model(
    "wide enough for buffers to weigh what they weigh",
    4,
    1024,
    16,
    2816,
    4096,
    512,
    kv_heads=4,
)
EIGHT = replace(WIDE, layers=8, seq=256)
ROUTED = replace(WIDE, moe=MoE(8, 2, 1408))
SHARED = replace(
    WIDE,
    moe=MoE(
        16,
        4,
        704,
        shared_ffn=1408,
        dense_layers=1,
        router_bias=True,
        shared_gate=True,
    ),
)
BIASED = replace(
    WIDE,
    gated=False,
    bias=True,
    norm="layernorm",
    moe=MoE(4, 1, 2816, expert_bias=True),
)
MANY = replace(WIDE, seq=4096, moe=MoE(32, 8, 256))
"""Rows on their way to experts weigh more than the experts."""
MANY_AND_SHARED = replace(WIDE, seq=4096, moe=MoE(32, 6, 256, shared_ffn=512))
GPT3 = replace(
    catalog.model("gpt3-175b"),
    vocab=51200,
    tied_embeddings=False,
    dropout=False,
)
LLAMA_405B = Model(
    "llama3-405b-like", 126, 16384, 128, 53248, 128256, 8192, kv_heads=8
)


def job(
    model: Model, words: str, microbatches: int, precision: str = "bf16"
) -> Job:
    """On a cluster that only counts its chips."""
    layout = cut(words)
    chip = Chip("any", {precision: 1e15}, 1e15, 1e12, 1e13)
    cluster = Cluster(
        chip, Network("any", (Dim("any", 1e11, 1e-6),)), int(layout.chips)
    )
    batch = int(layout.dp * layout.microbatch) * microbatches
    return Job(model, cluster, batch, layout, precision=precision)


def differences(
    job: Job, rank: int, memory: bool = True, settings: Settings | None = None
) -> list[str]:
    """Quantities in which the program of a rank differs from what was predicted."""
    (found,) = oracle.compare_ranks(job, settings or Settings(), (rank,))
    return [
        str(row)
        for row in found.rows
        if not row.agrees and (memory or row.quantity != "peak memory")
    ]


COUNTS = {
    "tp2, sequence parallel": (LLAMA, "tp2", 2, 0),
    "tp2, whole sequences, full recomputation": (
        GPT,
        "tp2 full whole",
        2,
        0,
    ),
    "tp2, full recomputation": (
        LLAMA,
        "tp2 full",
        1,
        1,
    ),
    "tp2 sp, selective recomputation": (
        LLAMA,
        "tp2 selective",
        2,
        0,
    ),
    "cp2, selective recomputation": (
        LLAMA,
        "cp2 selective",
        2,
        1,
    ),
    "sliding windows, tp2 cp2 dp2": (
        replace(WINDOW, kv_heads=2),
        "tp2 cp2 dp2 zero1",
        2,
        0,
    ),
    "windows that cut a rank's chunks anywhere, last of cp4": (
        replace(WINDOW, window=5, full_every=0),
        "cp4",
        2,
        3,
    ),
    "tied embeddings on two stages": (GPT, "pp2 dp2 zero2", 3, 3),
    "zero 3, tp2": (LLAMA, "tp2 dp2 zero3", 2, 0),
    "interleaved, zero 3, more chunks than PyTorch keeps": (
        replace(LLAMA, layers=10),
        "pp2 dp2 zero3 interleave5 interleaved",
        4,
        0,
    ),
    "the same, last rank": (
        replace(LLAMA, layers=10),
        "pp2 dp2 zero3 interleave5 interleaved",
        4,
        3,
    ),
    "interleaved, zero 3": (
        LLAMA,
        "pp2 dp2 zero3 interleave2 interleaved",
        4,
        0,
    ),
    "rows that the replicas do not divide, and columns that they do": (
        replace(GPT, vocab=257),
        "pp2 dp4 zero1",
        2,
        0,
    ),
    "zbv": (LLAMA, "pp2 zbv", 3, 1),
    "zbv, tp2, biases": (GPT, "tp2 pp2 zbv", 3, 3),
    "the middle of a pipeline": (LLAMA, "tp2 pp4", 4, 4),
}


EXPERTS = {
    "dp4 ep2, zero 3, computed again": (
        MIXTRAL,
        "dp4 ep2 zero3 full",
        2,
        0,
    ),
    "tp2 dp2 ep4, zero 2, shared experts": (
        DEEPSEEK,
        "tp2 dp2 ep4 zero2",
        2,
        0,
    ),
    "shared experts behind a gate, computed again": (
        DEEPSEEK,
        "dp2 ep2 zero1 full",
        2,
        0,
    ),
    "pp2 dp4 ep2, zero 3, last": (
        DEEPSEEK,
        "pp2 dp4 ep2 zero3",
        2,
        4,
    ),
    "interleaved, dp2 ep2, zero 1": (
        MIXTRAL,
        "pp2 dp2 ep2 zero1 interleave2 interleaved",
        4,
        0,
    ),
    "cp2 dp2 ep2, biases, attention computed again": (
        PLAIN_EXPERTS,
        "cp2 dp2 ep2 zero1 selective",
        2,
        0,
    ),
    "tp2, every expert on both": (DEEPSEEK, "tp2 zero1", 2, 0),
}
COUNTS |= EXPERTS


@pytest.mark.parametrize("name", COUNTS)
def test_flops_and_collectives_are_exact(name: str) -> None:
    model, layout, microbatches, rank = COUNTS[name]
    assert (
        differences(job(model, layout, microbatches), rank, memory=False) == []
    )


@pytest.mark.parametrize(
    ("model", "layout"),
    [(LLAMA, "dp4 zero2"), (GPT, "pp2 dp4 zero1")],
    ids=["", "tied embeddings"],
)
def test_hybrid_sharding(model: Model, layout: str) -> None:
    wanted = job(model, layout, 2)
    assert (
        differences(wanted, 0, memory=False, settings=Settings(shards=2)) == []
    )


MEMORY: dict[str, Any] = {
    "alone": ("dp1", 2, 0),
    "tp2": ("tp2", 2, 0),
    "one microbatch, zero 3": ("dp4 zero3", 1, 0),
    "zero 1, cp2": ("cp2 dp2 zero1", 2, 0),
    "zero 2, full recomputation": (
        "dp4 zero2 full",
        2,
        0,
    ),
    "1f1b, first": ("pp4", 8, 0),
    "zero 3, selective": (
        "dp4 zero3 selective",
        2,
        0,
    ),
    "tp2, op": ("tp2 op", 2, 0),
    "1f1b, middle, selective": (
        "pp4 selective",
        8,
        2,
    ),
    "interleaved, last, shards of gradients": (
        "pp2 dp4 zero2 interleave2 interleaved",
        4,
        4,
    ),
    "zbv, last": ("pp2 zbv", 4, 1),
    "long sequences over cp, every layer computed again": (
        "cp4 zero3 full",
        1,
        1,
        replace(WIDE, seq=16384),
    ),
    "windows over cp, attention computed again": (
        "cp4 zero3 selective",
        1,
        2,
        replace(WIDE, seq=16384, window=1536),
    ),
    "many microbatches": ("pp4", 24, 2),
    "many microbatches, last, shards of gradients": (
        "pp2 dp4 zero2",
        8,
        4,
    ),
    "interleaved, first, shards of gradients": (
        "pp2 dp4 zero3 interleave2 interleaved",
        4,
        0,
    ),
    "more chunks than PyTorch keeps, zero 3, last": (
        "pp2 dp2 zero3 interleave4 interleaved",
        4,
        2,
        EIGHT,
    ),
    "more chunks than PyTorch keeps, zero 0": (
        "pp2 dp2 interleave4 interleaved",
        4,
        0,
        EIGHT,
    ),
    "all microbatches are through a chunk before the next, computed again": (
        "pp2 dp2 zero1 interleave4 interleaved full",
        2,
        2,
        EIGHT,
    ),
    "a large vocabulary, zero 2": (
        "tp2 dp4 zero2",
        2,
        0,
        replace(WIDE, vocab=32768),
    ),
    "a large vocabulary, zero 3": (
        "dp4 zero3",
        1,
        0,
        replace(WIDE, vocab=32768),
    ),
    "one matrix is embedding and head": (
        "dp4 zero3",
        2,
        0,
        replace(WIDE, vocab=32768, tied_embeddings=True),
    ),
    "second halves in a row, last": (
        "pp2 interleave2 interleaved-zb",
        8,
        1,
    ),
    "one layer a stage, shards of gradients": (
        "pp4 dp2 zero2",
        8,
        4,
    ),
    "one layer a stage, zero 3, first": ("pp4 dp4 zero3", 8, 0),
    "experts, all on one rank": ("dp1", 2, 0, ROUTED),
    "experts, zero 3": ("dp4 ep2 zero3", 2, 0, ROUTED),
    "experts, interleaved, zero 3, computed again": (
        "pp2 dp4 ep2 zero3 interleave2 interleaved full",
        4,
        0,
        ROUTED,
    ),
    "shared experts, tp2, zero 2": (
        "tp2 dp2 ep4 zero2",
        2,
        0,
        SHARED,
    ),
    "biases of experts, cp2, attention computed again": (
        "cp2 dp2 ep2 zero1 selective",
        2,
        0,
        BIASED,
    ),
    "many experts, computed again": (
        "dp4 ep2 zero2 full",
        2,
        0,
        MANY,
    ),
    "many experts, a pipeline": ("pp2 dp4 ep2 zero1", 4, 0, MANY),
    "many experts, no exchange": ("dp4 zero3", 2, 0, MANY_AND_SHARED),
}


@pytest.mark.parametrize("name", MEMORY)
def test_peak_of_memory_is_near(name: str) -> None:
    layout, microbatches, rank, *model = MEMORY[name]
    assert (
        differences(job(*(model or [WIDE]), layout, microbatches), rank) == []
    )


LAYOUTS_OF_EXPERTS: dict[str, Any] = {
    "dp2, every expert on both": ("dp2", 2, 0),
    "ep2": ("dp4 ep2", 2, 0),
    "ep2, zero 1": ("dp4 ep2 zero1", 2, 0),
    "ep2, zero 2, one microbatch": ("dp4 ep2 zero2", 1, 0),
    "ep2, zero 3, computed again": (
        "dp4 ep2 zero3 full",
        2,
        0,
    ),
    "ep2, zero 2, attention computed again": (
        "dp4 ep2 zero2 selective",
        2,
        0,
    ),
    "ep4, an expert on one rank only, zero 3": (
        "dp4 ep4 zero3",
        2,
        0,
    ),
    "tp4 ep4": ("tp4 ep4", 2, 0),
    "tp2, zero 1, every expert on both": ("tp2 zero1", 2, 0),
    "cp2 ep2, zero 1, computed again": (
        "cp2 dp2 ep2 zero1 full",
        2,
        0,
    ),
    "pp2 ep2, zero 3, last": ("pp2 dp4 ep2 zero3", 2, 4),
    "one layer a stage, ep4, zero 2, last": (
        "tp2 pp4 dp2 ep4 zero2",
        8,
        12,
    ),
    "pp2 ep2, 32 microbatches": ("pp2 dp2 ep2", 32, 0),
    "one layer a stage, zero 2, 32 microbatches": (
        "pp4 dp2 ep2 zero2",
        32,
        4,
    ),
    "interleaved over tp2 ep2, zero 3, last": (
        "tp2 pp2 dp2 ep2 zero3 interleave2 interleaved",
        4,
        4,
    ),
    "zbv": ("pp2 dp2 ep2 zbv", 4, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS_OF_EXPERTS)
@pytest.mark.parametrize(
    "model",
    [ROUTED, SHARED, BIASED, MANY, MANY_AND_SHARED],
    ids=["routed", "shared", "biased", "many", "many and shared"],
)
def test_peak_of_experts_is_near(model: Model, layout: str) -> None:
    """Where weights are most of it, and where rows are."""
    of, microbatches, rank = LAYOUTS_OF_EXPERTS[layout]
    assert differences(job(model, of, microbatches), rank) == []


@pytest.mark.slow
def test_hundreds_of_microbatches() -> None:
    """256 of them: what waits is that of a few, and every count is 256 times that of one."""
    wanted = job(replace(WIDE, layers=2), "pp2", 256)
    assert differences(wanted, 0) == []


def test_a_shape_takes_no_bytes() -> None:
    """Receive buffers are described for all microbatches before the first one."""
    with Live() as live:
        kept = [torch.empty(1024, device="meta") for _ in range(9)]
        assert (live.now, live.peak) == (0, 0)
        kept.append(torch.empty(1024))
        assert live.now == 4096


def test_peak_in_fp32() -> None:
    assert differences(job(WIDE, "dp2 zero1", 2, "fp32"), 0) == []


LARGE = {
    "GPT-3, 1,024 ranks": (GPT3, "tp8 pp8 dp16", 16, 8),
    "Llama 405B, 1,024 ranks": (
        LLAMA_405B,
        "tp8 pp8 dp16 zero1",
        16,
        8,
    ),
    "GPT-3, 16,384 ranks": (
        GPT3,
        "tp8 pp16 dp128 interleave3 interleaved",
        32,
        16,
    ),
    "Llama 405B, 16,384 ranks": (
        LLAMA_405B,
        "tp8 pp16 dp128 interleave2 interleaved",
        32,
        16,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("end", ["first", "middle", "last"])
def test_large_jobs(name: str, end: str) -> None:
    model, layout, microbatches, pp = LARGE[name]
    wanted = job(model, layout, microbatches)
    ranks = oracle.representative(wanted)
    assert (
        differences(wanted, ranks[["first", "middle", "last"].index(end)])
        == []
    )


def test_command(
    tmp_path: Path,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(dump_job(job(LLAMA, "tp2 dp4", 1)), "utf-8")
    found = shell.json(f"compare --oracle {file} --rank 7")
    assert found["agrees"]
    assert [r["rank"] for r in found["ranks"]] == [7]
    monkeypatch.setattr(
        "meshwright.program.messages.of_norms", lambda *a: Counter()
    )
    assert (
        "differs from the prediction in tp all-reduce"
        in shell(f"compare --oracle {file}", ends=1).out
    )
    assert "rank must be 0 to 7" in shell.refused(
        f"compare --oracle {file} --rank 8"
    )


def test_a_long_pipeline_is_run_with_fewer_microbatches(
    tmp_path: Path, shell: Shell
) -> None:
    """Four rounds of two stages in place of 64 microbatches, said beforehand; the ranks too."""
    file = tmp_path / "job.toml"
    small = replace(LLAMA, layers=2)
    file.write_text(dump_job(job(small, "pp2", 64)), "utf-8")
    out, said = shell(f"compare --oracle {file} --json")
    assert "8 of 64 microbatches are run" in said
    ranks = json.loads(out)["ranks"]
    assert [r["rank"] for r in ranks] == [0, 1]
    sends = next(r for r in ranks[0]["rows"] if r["quantity"] == "pp send")
    assert sends["counted"] == 8


def test_progress_names_the_rank_that_is_run() -> None:
    said: list[tuple[str, float]] = []
    small = job(replace(LLAMA, layers=2), "dp2", 1)
    oracle.compare_ranks(
        small, Settings(), (0, 1), lambda *at: said.append(at)
    )
    assert said == [("rank 0, 1 of 2", 0.0), ("rank 1, 2 of 2", 0.5)]


def test_named_terms_are_the_tensors_that_live() -> None:
    """Of a first stage with 5 microbatches at its peak: each term against the tensors that only
    this buffer makes.
    """
    wanted = job(WIDE, "tp2 pp2", 5)
    live = oracle.run(wanted, 0, Settings()).live.at_peak
    terms = peak.peak(carried_out(wanted), 0).peak
    made: Counter[str] = Counter()
    for site, size in live.items():
        made[site.made_by] += size
        made[f"{site.made_by} {site.shape[0] if site.shape else 0}"] += size
    boundary = 512 // 2 * 1024 * 2
    # a first stage is sent no activation, and one gradient at a time
    assert terms["receive buffers"] == boundary
    assert terms["weights"] == made["empty_like"]
    assert terms["optimizer"] == pytest.approx(made["zeros_like"], rel=1e-6)
    assert (
        terms["vocabulary gradient"] == made[f"_to_copy {WIDE.vocab}"] / 2 > 0
    )
