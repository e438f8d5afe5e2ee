"""The words of a row to the job they describe."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from validate_rows import row

from meshwright import Job, catalog, predict
from meshwright_studies.validate import published, words
from meshwright_studies.validate.hardware import (
    capacity,
    chip_in_words,
    network_of_row,
    note,
)
from meshwright_studies.validate.jobs import job, job_and_notes
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


def test_a_row_becomes_its_job() -> None:
    j = job(row())
    l = j.layout
    assert (j.model.layers, j.model.K, j.T, j.batch) == (32, 8, 8192, 128)
    assert (
        l.tp,
        l.pp,
        l.interleave,
        l.dp,
        l.zero,
        l.schedule,
        l.recompute,
    ) == (
        4,
        4,
        2,
        4,
        1,
        "interleaved",
        "none",
    )
    assert l.sequence_parallel
    assert j.cluster.chip.name == "h100-sxm"
    near, far = j.cluster.network.dims
    assert (near.size, near.bandwidth, far.bandwidth) == (8, 450e9, 50e9)
    assert (j.precision.compute, j.framework.name if j.framework else "") == (
        "bf16",
        "megatron-bridge",
    )


@pytest.mark.parametrize(
    ("far", "per_node", "gigabit"),
    [
        ("8x200Gb HDR InfiniBand per node", 8, 200),
        ("4x200Gb HDR (800 Gb/s) per node", 8, 100),
        ("4 x 100gb omni-path per node", 4, 100),
        ("1600 Gb/s per node RoCE", 8, 200),
        ("200Gb/s HDR InfiniBand (DGX A100)", 8, 200),
        ("400 Gb/s per GPU RDMA", 8, 400),
        ("per-GPU 800Gb (assumed)", 8, 800),
        ("NDR InfiniBand", 8, 400),
        ("RoCE RDMA", 8, 400),  # says nothing: the usual network of the chip
        ("single node", 8, 400),
    ],
)
def test_bandwidth_between_nodes(
    far: str, per_node: int, gigabit: float
) -> None:
    assert (
        network_of_row("H100-80GB-SXM", per_node, "nvlink4", far.lower())
        .dims[-1]
        .bandwidth
        == gigabit * 1e9 / 8
    )


@pytest.mark.parametrize(
    ("gpu", "far", "per_node", "gigabit"),
    [
        ("H100-80GB", "50 GB/s per GPU", 8, 400),  # bytes, not bits
        ("H100-80GB", "3.2Tb/s EFA per node", 8, 400),
        ("H100-80GB", "400 Gb/s per GPU (3.2 Tb/s per node)", 8, 400),
        ("H100-80GB", "8 x 400 Gb/s", 8, 400),
        ("A100-80GB", "HDR100 InfiniBand, one per GPU", 8, 100),
        # whose own machine has two GPUs behind a port
        ("V100-16GB", "4 x 100Gb Omni-Path per node", 4, 100),
        (
            "V100-16GB",
            "EDR InfiniBand (DGX-1)",
            8,
            50,
        ),  # four ports for eight GPUs
        ("A100-40GB", "100 Gb/s (p4d.24xlarge)", 8, 50),
        (
            "A100-80GB",
            "1600 Gb/s (DGX A100)",
            8,
            200,
        ),  # no adapter is that fast: the node's
        ("A100-80GB", "aws-p4d", 8, 50),
    ],
)
def test_rates_between_nodes_as_a_gpu_reaches_them(
    gpu: str, far: str, per_node: int, gigabit: float
) -> None:
    dim = network_of_row(gpu, per_node, "", far).dims[-1]
    assert dim.bandwidth / dim.shared_by == pytest.approx(gigabit * 1e9 / 8)


@pytest.mark.parametrize(
    ("far", "said"),
    [
        ("8x200Gb HDR InfiniBand per node", ""),
        ("400 Gb/s per GPU RDMA", ""),
        ("per-GPU 800Gb (assumed)", ""),
        (
            "200Gb/s HDR InfiniBand (DGX A100)",
            "each of the 8 usual adapters of dgx-a100",
        ),
        ("100 Gb/s (p4d.24xlarge)", "each of the 4 usual adapters of aws-p4d"),
        ("NDR InfiniBand", "each of the 8 usual adapters of dgx-h100"),
        ("8 x 400 Gb/s", "taken as the adapters of a node"),
        ("3200 Gb/s", "taken as a node's"),
        ("RoCE RDMA", "not stated: that of dgx-h100"),
        ("", "not stated: that of dgx-h100"),
    ],
)
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


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        ({"fsdp": "FSDP inside the slice, data parallel across slices"}, 8),
        ({"fsdp": "HYBRID_SHARD"}, 8),
        ({"fsdp": "HSDP"}, 8),
        ({"fsdp": "Megatron-FSDP optim_grads_params, shard group 16"}, 4),
        ({"fsdp": "shard group 64"}, 1),  # that is all of them
        ({"fsdp": "FULL_SHARD"}, 1),
        ({"fsdp": "FULL_SHARD, no hybrid sharding"}, 1),
        ({"fsdp": None}, 1),
    ],
)
def test_sharding_inside_groups_is_read(
    changes: dict[str, Any], copies: int
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
    assert not any("shards inside groups" in n for n in found.notes)
    assert (found.job.layout.zero, found.job.layout.dp_replicate) == (
        3,
        copies,
    )


def test_groups_that_do_not_divide_the_replicas_are_noted() -> None:
    parallel = {
        "tp": 1,
        "pp": 1,
        "vpp": 1,
        "dp": 64,
        "zero_stage": 3,
        "fsdp": "shard group 24",
    }
    found = job_and_notes(row(parallel=parallel, optimizer_sharding="FSDP"))
    assert (
        any("shards inside groups" in n for n in found.notes)
        and found.job.layout.dp_replicate == 1
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


@pytest.mark.parametrize(
    ("software", "tp", "sp", "sequence"),
    [
        (
            "MaxText (JAX)",
            4,
            None,
            True,
        ),  # its tensor axis cuts the activations between layers
        ("MaxText (JAX)", 4, False, False),
        ("MaxText (JAX)", 1, None, False),
        ("Megatron-LM 2022", 4, None, False),
        ("Megatron-LM 2022", 4, True, True),
        (None, 4, None, False),
    ],
)
def test_the_tensor_axis_of_jax_is_sequence_parallel(
    software: str | None, tp: int, sp: object, sequence: bool
) -> None:
    found = job(
        row(
            software=software,
            parallel={"tp": tp, "sp": sp, "pp": 1, "vpp": 1, "dp": 64 // tp},
            recompute="full",
        )
    )
    assert found.layout.sequence_parallel is sequence


@pytest.mark.parametrize(
    ("near", "bandwidth", "size"),
    [
        ("nvlink3 600gb/s", 300e9, 8),
        ("nvlink5 1.8tb/s, nvl72 domain", 900e9, 72),
        ("nvlink2", 150e9, 8),
        ("pcie gen4", 32e9, 8),
        ("nvlink", 450e9, 8),
    ],
)
def test_bandwidth_inside_a_node(
    near: str, bandwidth: float, size: int
) -> None:
    dim = network_of_row("H100-80GB-SXM", 8, near, "").dims[0]
    assert (dim.bandwidth, dim.size) == (bandwidth, size)


@pytest.mark.parametrize(
    ("near", "size", "kind"),
    [
        ("nvlink2", 4, "mesh"),
        ("nvlink2", 8, "mesh"),  # the cube of a DGX-1
        ("nvlink2 nvswitch", 16, "switch"),  # DGX-2
        ("nvlink3 600gb/s", 4, "mesh"),
        ("nvlink3 600gb/s", 8, "switch"),
        ("nvlink4", 4, "mesh"),
        ("nvlink4 900gb/s", 8, "switch"),
        ("nvlink5 1.8tb/s", 4, "switch"),
        ("nvlink5 1.8tb/s, nvl72 domain", 4, "switch"),
        ("pcie gen4", 4, "switch"),
    ],
)
def test_nvlink_without_a_switch_is_a_mesh(
    near: str, size: int, kind: str
) -> None:
    assert network_of_row("A100-80GB-SXM", size, near, "").dims[0].kind == kind


@pytest.mark.parametrize(
    ("far", "like", "gigabit"),
    [
        ("4 x 100Gb Omni-Path per node", "jean-zay-a100", 50),
        ("1600 Gb/s per node RoCE", "oci-a100", 200),
        ("4x100 Gb/s EFA per node", "aws-p4d", 50),
        ("4 x 200 Gb/s Slingshot per node", "perlmutter", 100),
        ("8x200Gb HDR InfiniBand per node", "dgx-a100", 200),
        (
            "8x200Gb per node",
            "dgx-a100",
            200,
        ),  # names no fabric: the usual one
    ],
)
def test_the_fabric_between_nodes_is_the_one_named(
    far: str, like: str, gigabit: float
) -> None:
    """Its share of the rate and its latency are those of a machine of the catalogue with it; the
    rate is the row's.
    """
    dim, known = (
        network_of_row("A100-80GB-SXM", 8, "nvlink3", far).dims[-1],
        catalog.network(like).dims[-1],
    )
    assert (dim.name, dim.efficiency, dim.latency) == (
        known.name,
        known.efficiency,
        known.latency,
    )
    assert dim.bandwidth / dim.shared_by == pytest.approx(gigabit / 8 * 1e9)


@pytest.mark.parametrize(
    ("near", "size", "like"),
    [
        ("nvlink3", 4, "perlmutter"),  # a mesh of four A100
        ("nvlink3", 8, "dgx-a100"),
        ("nvlink4", 8, "dgx-h100"),
        ("pcie gen5", 4, "ethernet-400g-pcie"),
        # no machine has this generation: its rate, the share of its kin
        ("pcie gen4", 4, "ethernet-400g-pcie"),
    ],
)
def test_links_inside_a_node_reach_what_a_machine_with_such_links_does(
    near: str, size: int, like: str
) -> None:
    dim, known = (
        network_of_row("A100-80GB-SXM", size, near, "").dims[0],
        catalog.network(like).dims[0],
    )
    assert (dim.name, dim.efficiency, dim.latency, dim.size) == (
        known.name,
        known.efficiency,
        known.latency,
        size,
    )


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
    ("text", "compute"),
    [
        ("bf16, fp32 grad accumulation", "bf16"),
        ("fp16 mixed", "fp16"),
        ("mxfp8", "fp8"),
        ("nvfp4", "fp4"),
        ("fp8 linear (torchao) + bf16", "fp8"),
        ("", "bf16"),
    ],
)
def test_precision(text: str, compute: str) -> None:
    assert (
        words.precision_in_words(text, "", chip_in_words("B200-180GB")).compute
        == compute
    )


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
    ],
)
def test_a_stated_size_near_the_catalogues_keeps_the_catalogues(
    name: str, mebibytes: float
) -> None:
    assert chip_in_words(name).hbm_bytes == mebibytes * 2**20


def test_a_stated_size_of_another_memory_replaces_the_catalogues() -> None:
    # Leonardo's: a quarter less than 80 GB
    assert chip_in_words("A100-64GB").hbm_bytes == 64e9
    assert chip_in_words("A100 64 GiB").hbm_bytes == 64 * 2**30


@settings(max_examples=100)
@given(st.floats(1e9, 1e12), st.floats(0.5, 2.0))
def test_twelve_percent_decide(known: float, ratio: float) -> None:
    found = capacity(known * ratio, known)
    assert (
        found == (known if abs(ratio - 1) <= 0.12 else known * ratio)
        or abs(abs(ratio - 1) - 0.12) < 1e-9
    )


def test_chips_without_bf16_train_in_fp16() -> None:
    assert (
        words.precision_in_words(
            "", "", chip_in_words("V100-32GB-SXM2")
        ).compute
        == "fp16"
    )


@pytest.mark.parametrize(
    ("text", "software", "fsdp", "gather_bytes"),
    [
        (
            "fp8 (te linear) + bf16 (fsdp default: bf16 compute)",
            "llm-foundry",
            "fsdp full_shard",
            2,
        ),
        ("fp8 linear (torchao) + bf16", "torchtitan", "fsdp2", 2),
        ("float8 tensorwise, float8 all-gather", "torchtitan", "fsdp2", 1),
        (
            "float8 tensorwise",
            "torchtitan",
            "fsdp2, enable_fsdp_float8_all_gather",
            1,
        ),
        ("float8 rowwise without float8 all-gather", "torchtitan", "fsdp2", 2),
        (
            "float8, enable_fsdp_float8_all_gather=false",
            "torchtitan",
            "fsdp2",
            2,
        ),
        ("bf16", "torchtitan", "fsdp2", 2),
        ("mxfp8", "megatron-bridge", None, 1),
    ],
)
def test_fsdp_gathers_in_eight_bits_only_where_the_row_says_so(
    text: str, software: str, fsdp: str | None, gather_bytes: float
) -> None:
    assert (
        words.precision_in_words(
            text, software, chip_in_words("H100-80GB"), fsdp
        ).gather_bytes
        == gather_bytes
    )


def test_a_rows_fsdp_reaches_its_precision() -> None:
    torch = row(
        software="torchtitan",
        precision="float8",
        optimizer_sharding="FSDP2",
        parallel={"pp": 1, "vpp": 1},
    )
    assert job(torch).precision.gather_bytes == 2
    assert (
        job(
            {**torch, "notes": "with float8 all-gather"}
        ).precision.gather_bytes
        == 1
    )
    assert job(row(precision="fp8")).precision.gather_bytes == 1


@pytest.mark.parametrize(
    ("text", "pp", "v", "expected"),
    [
        ("1f1b", 4, 1, ("1f1b", 1)),
        ("", 4, 2, ("interleaved", 2)),
        ("zb-2p", 8, 1, ("zb-h2", 1)),
        ("zb-1p", 8, 1, ("zb-h1", 1)),
        ("zb-v", 8, 1, ("zbv", 2)),
        ("dualpipev", 8, 1, ("dualpipev", 2)),
        ("gpipe", 4, 1, ("gpipe", 1)),
        ("interleaved", 1, 4, ("1f1b", 1)),
    ],
)
def test_schedules(
    text: str, pp: int, v: int, expected: tuple[str, int]
) -> None:
    assert words.schedule(text, pp, v) == expected


@pytest.mark.parametrize(
    ("stage", "sharding", "zero"),
    [
        (1, "", 1),
        (None, "zero-3", 3),
        (None, "fsdp full_shard", 3),
        (None, "distributed optimizer", 1),
        (None, "megatron-fsdp", 3),
        (None, "none (replicated adam)", 0),
        (None, "fsdp shard_grad_op", 2),
    ],
)
def test_zero_stage(stage: int | None, sharding: str, zero: int) -> None:
    assert words.zero_in_words(stage, sharding) == zero


def test_latent_attention_and_experts() -> None:
    moe = {
        "arch": "moe-mla",
        "experts": 256,
        "top_k": 8,
        "expert_ffn": 2048,
        "shared_expert_ffn": 2048,
        "dense_layers": 3,
    }
    m = job(
        row(
            model={
                **moe,
                "mla": {"q_lora_rank": 1536, "kv_lora_rank": 512},
                "kv_heads": 32,
            }
        )
    ).model
    assert m.moe is not None and (m.moe.experts, m.moe.dense_layers) == (
        256,
        3,
    )
    assert m.mla is not None and (
        m.mla.q_lora_rank,
        m.mla.qk_nope_head_dim,
    ) == (1536, 128)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": {"arch": "hybrid-mamba"}}, "state-space"),
        ({"model": {"layers": None}}, "layers is not given"),
        ({"model": {"layers": 10**9}}, "at most"),
        ({"model": {"heads": 7, "kv_heads": 7}}, "7 heads"),
        ({"hardware": {"gpu": "?"}}, "not in the catalogue"),
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


@pytest.mark.parametrize(
    ("layers", "pp", "stages"),
    [
        (40, 1, "40"),
        # 43 modules: the embedding and 21 layers; 19 layers, the last norm and the head
        (40, 2, "21,19"),
        (40, 4, "10,11*2,8"),
        # 63 modules, three on the last stage
        (60, 16, "3,4*14,1"),
        # a stage without layers has the norm, and the head stands alone
        (4, 7, "0,1*4,0*2"),
    ],
)
def test_a_pipeline_of_modules_is_cut_into_stages_of_as_many(
    layers: int, pp: int, stages: str
) -> None:
    of = row(
        software="AA-Scaling (Megatron-LM based)",
        model={"layers": layers},
        parallel={"pp": pp, "vpp": 1, "dp": 1},
    )
    assert job(of).layout.stages == stages


def test_attention_in_eight_bits() -> None:
    notes = "fp8_dot_product_attention=True"
    assert job(row(notes=notes)).attention_kernel == "cudnn-fp8"
    notes = "fp8_dot_product_attention=False"
    assert job(row(notes=notes)).attention_kernel == "framework"
