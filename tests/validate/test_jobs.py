"""The words of a row to the job they describe."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from validate_rows import cases, row

from meshwright import Job, catalog, predict
from meshwright_studies.validate import published
from meshwright_studies.validate.hardware import (
    capacity,
    chip_in_words,
    network_of_row,
    note,
)
from meshwright_studies.validate.jobs import job, job_and_notes
from meshwright_studies.validate.software import software_of
from refusals import refusal


@pytest.mark.parametrize("software", ["torchtitan", "MaxText", "PyTorch FSDP"])
def test_a_row_of_fsdp_keeps_what_a_users_job_keeps(software: str) -> None:
    """What is validated is what is answered."""
    described = job(
        row(
            software=software,
            optimizer_sharding="FSDP2",
            parallel={"tp": 1, "pp": 1, "vpp": 1, "dp": 64, "zero_stage": 3},
        )
    )
    assert described.framework
    own = Job(
        described.model,
        described.cluster,
        described.batch,
        described.layout,
        framework=described.framework.name,
    )
    theirs, ours = (predict(j).memory_bytes for j in (described, own))
    for kind in ("weights", "gradients", "optimizer"):
        assert theirs[kind] == ours[kind], kind


def said(thing: object, fields: dict[str, Any]) -> dict[str, Any]:
    """What fields of it are; "" for None, as cases have it."""
    values = {name: attrgetter(name)(thing) for name in fields}
    return {name: "" if v is None else v for name, v in values.items()}


@cases
def test_a_row_is_the_job_that_it_describes(
    changes: dict[str, Any], fields: dict[str, Any]
) -> None:
    described = row(**changes)
    assert said(job(described), fields) == fields
    notes = " ".join(software_of(described).notes)
    if any(name.startswith("software.") for name in fields):
        assert "not understood" not in notes


@cases
def test_a_machine_has_the_links_that_a_row_names(
    gpu: str, per_node: int, near: str, far: str, fields: dict[str, Any]
) -> None:
    found = network_of_row(gpu, per_node, near, far)
    for name, value in fields.items():
        place, _, what = name.partition(".")
        which = {"near": 0, "far": -1}[place]
        dim = found.dims[which]
        if what == "rate":
            assert dim.bandwidth / dim.shared_by == pytest.approx(value)
        elif what == "like":
            known = catalog.network(value).dims[which]
            assert (dim.name, dim.efficiency, dim.latency) == (
                known.name,
                known.efficiency,
                known.latency,
            )
        else:
            assert getattr(dim, what) == value


@cases
def test_a_rate_that_is_of_a_gpu_or_a_node_unsaid_is_noted(
    far: str, said: str
) -> None:
    found = note(row(hardware={"inter_node": far}))
    assert said in found if said else found == ""
    assert (
        any(
            said in n
            for n in job_and_notes(row(hardware={"inter_node": far})).notes
        )
        == bool(said)
        or not said
    )
    # one node: it does not matter
    assert note(row(hardware={"inter_node": far, "count": 8})) == ""


def test_a_row_of_a_machine_has_its_links() -> None:
    near, far = job(row()).cluster.network.dims
    assert (near.size, near.bandwidth, far.bandwidth) == (8, 450e9, 50e9)


def test_what_is_between_slices_is_noted_or_read() -> None:
    slices = {
        "gpu": "TPUv5p",
        "gpus_per_node": 64,
        "intra_node": "ICI 3D torus",
        "inter_node": "DCN between slices",
    }
    assert "not stated: that of tpu-v5p-pod" in note(
        row(hardware={**slices, "count": 128})
    )
    assert note(row(hardware={**slices, "count": 64})) == ""
    assert (
        network_of_row("TPUv5p", 64, "ICI 3D torus", "DCN, 100 Gb/s per chip")
        .dims[-1]
        .bandwidth
        == 12.5e9
    )


@cases
def test_sharding_inside_groups_is_read(
    changes: dict[str, Any], copies: int, noted: bool
) -> None:
    """64 replicas, nodes of 8."""
    parallel = {
        "tp": 1,
        "pp": 1,
        "vpp": 1,
        "dp": 64,
        "zero_stage": 3,
        **changes,
    }
    found = job_and_notes(row(parallel=parallel, optimizer_sharding="FSDP"))
    assert any("shards inside groups" in n for n in found.notes) is noted
    assert (found.job.layout.zero, found.job.layout.dp_replicate) == (
        3,
        copies,
    )


def test_a_row_may_state_how_fast_its_machine_sustains_products() -> None:
    usual, slow = job(row()), job(row(hardware={"clock": 0.7}))
    assert usual.cluster.chip.clock is None
    assert slow.cluster.chip == replace(usual.cluster.chip, clock=0.7)
    assert (
        predict(slow, slow.layout).step_time_s
        > 1.05 * predict(usual, usual.layout).step_time_s
    )


def test_groups_inside_the_only_node_are_all_ranks() -> None:
    one = row(
        parallel={"tp": 1, "pp": 1, "vpp": 1, "dp": 8, "fsdp": "HYBRID_SHARD"},
        hardware={"count": 8},
    )
    assert job_and_notes(one).notes == ()


def test_states_in_host_memory_are_noted_and_their_memory_is_not_judged() -> (
    None
):
    found = job_and_notes(
        row(optimizer_sharding="ZeRO-2, optimizer offloaded to CPU")
    )
    assert "host memory" in " ".join(found.notes) and not found.memory
    assert job_and_notes(row(optimizer_sharding="ZeRO-1, no offload")).memory


def test_a_size_of_maxtext_is_its_own_decoder() -> None:
    """MaxText/layers/models.py at 76bd53b0f, DecoderLayer: one RMS norm, then attention and
    feed-forward side by side; dropout_rate 0. The same row of Megatron-LM is a GPT."""
    rows = {r["id"]: r for r in published()}
    of = rows["maxtext-tpu-003"]
    model = job(of).model
    assert (model.norm, model.norms_per_layer) == ("rmsnorm", 1)
    assert model.positions == "rope" and model.tied_embeddings
    assert not (model.bias or model.qkv_bias or model.dropout)
    gpt = job({**of, "software": "Megatron-LM"}).model
    assert (gpt.norms_per_layer, gpt.bias, gpt.dropout) == (2, True, True)


def test_two_gpus_of_a_node_without_a_switch_share_a_third_of_their_links() -> (
    None
):
    """V100: 6 links of 25 GB/s, 2 to each of the 3 other GPUs of a node of 4."""
    near = network_of_row("V100-32GB-SXM2", 4, "nvlink2", "").dims[0]
    assert near.bandwidth * near.used(2) == pytest.approx(2 * 25e9)
    assert near.bandwidth * near.used(4) == pytest.approx(6 * 25e9)


def test_a_torus_is_cut_to_its_slice() -> None:
    dims = network_of_row(
        "TPUv5p", 512, "ici 3d torus", "dcn between slices"
    ).dims
    assert [d.size for d in dims] == [8, 8, 8, None]


def test_the_name_of_a_chip_states_its_memory() -> None:
    assert chip_in_words("A100-80GB-SXM").name == "a100-80"
    assert chip_in_words("A100-40GB-SXM").name == "a100-40"
    special = chip_in_words("H100-96GB (HBM2e 2.4TB/s, 500W)")
    assert (special.hbm_bandwidth, special.power_w) == (2.4e12, 500)
    with refusal("not in the catalogue"):
        chip_in_words("Abacus 3000")


@pytest.mark.parametrize(
    ("name", "mebibytes"),
    [
        ("A100-80GB", 81920),  # nvidia-smi's total, not 80e9 B
        ("A100 40 GB", 40960),
        ("H100-80GB-SXM", 81559),
        ("V100-16GB-SXM2", 16160),
        ("V100-32GB-SXM2", 32510),
        ("H200-141GB-SXM", 143771),
        ("B200-180GB", 183359),
        ("B200-192GB", 183359),
        ("GB200-186GB", 189471),
        ("H100-96GB (HBM2e 2.4TB/s, 500W)", 95 * 1024),
        ("B200 179 GiB", 183359),
        # of another memory: Leonardo's is a quarter less than 80 GB
        ("A100-64GB", 64e9 / 2**20),
        ("A100 64 GiB", 64 * 2**10),
    ],
)
def test_a_stated_size_near_the_catalogues_keeps_the_catalogues(
    name: str, mebibytes: float
) -> None:
    assert chip_in_words(name).hbm_bytes == mebibytes * 2**20


@settings(max_examples=100)
@given(st.floats(1e9, 1e12), st.floats(0.5, 2.0))
def test_twelve_percent_decide(known: float, ratio: float) -> None:
    found = capacity(known * ratio, known)
    assert (
        found == (known if abs(ratio - 1) <= 0.12 else known * ratio)
        or abs(abs(ratio - 1) - 0.12) < 1e-9
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": {"arch": "hybrid-mamba"}}, "state-space"),
        ({"model": {"layers": None}}, "layers is not given"),
        ({"model": {"layers": 10**9}}, "at most"),
        ({"model": {"heads": 7, "kv_heads": 7}}, "7 heads"),
        ({"hardware": {"gpu": "?"}}, "not in the catalogue"),
        ({"hardware": {"clock": 1.2}}, "clock must be"),
        ({"global_batch": 1.5}, "whole number"),
        ({"micro_batch": -1}, "at least 1"),
    ],
)
def test_what_cannot_be_described_is_refused_with_a_sentence(
    changes: dict[str, Any], why: str
) -> None:
    with refusal(why):
        job(row(**changes))


def of_bridge(notes: str = "", **model: Any) -> dict[str, Any]:
    """gpt-oss-120b as a row of Megatron Bridge has it: no word of biases or positions."""
    shape = {
        "name": "gpt-oss-120b",
        "arch": "moe",
        "layers": 36,
        "hidden": 2880,
        "heads": 64,
        "head_dim": 64,
        "ffn_hidden": 2880,
        "vocab": 201088,
        "seq_len": 4096,
        "experts": 128,
        "top_k": 4,
        "expert_ffn": 2880,
        "attention": "alternating sliding-window-128 / full, learned sinks",
        **model,
    }
    return row(model=shape, notes=notes, parallel={"pp": 4, "vpp": 1})


def test_what_a_row_leaves_out_of_a_public_model_is_the_catalogues() -> None:
    of = job(of_bridge()).model
    known = catalog.model("gpt-oss-120b")
    assert of.moe and of.moe.expert_bias and of.moe.router_bias
    assert (of.bias, of.qkv_bias, of.rope_scaling) == (
        True,
        True,
        known.rope_scaling,
    )
    v3 = {"name": "deepseek-v3", "hidden": 7168, "ffn_hidden": 18432}
    v3 |= {"experts": 256, "top_k": 8, "expert_ffn": 2048}
    grouped = job(of_bridge(**v3)).model.moe
    assert grouped and (grouped.groups, grouped.top_groups) == (8, 4)
    smaller = job(of_bridge(**v3 | {"experts": 30})).model.moe
    assert smaller and (smaller.groups, smaller.top_groups) == (1, 1)
    other = job(of_bridge(hidden=2944)).model  # not that model
    assert other.moe and not (other.moe.expert_bias or other.bias)


@pytest.mark.parametrize(
    ("notes", "stages"),
    [
        ("pp_layout=Et*9|(t*9|)*2t*9L; uneven", "9*4"),
        ("pp_layout=Et*12|(t*12|)*1t*9|t*3mL", "12*2,9,3"),
        ("pp_layout=Et*4|(t*4|)*2t*4L", "even"),  # of another model
        ("", "even"),
    ],
)
def test_layers_of_each_stage(notes: str, stages: str) -> None:
    assert job(of_bridge(notes)).layout.stages == stages
