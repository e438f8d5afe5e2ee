"""Primus: one of four trainers under `modules`, with usual settings of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from readings import demand_meaning

from meshwright import catalog
from meshwright.formats import bridge
from meshwright.formats.bridge import launch
from meshwright.formats.bridge.table import wrapper
from refusals import refusal

FILE = """
work_group: amd
modules:
  pre_trainer:
    framework: {framework}
    config: {config}
    model: {model}
    overrides:
"""


def read(
    framework: str,
    model: str,
    overrides: str = "stderr_sink_level: DEBUG",
    config: str = "pre_trainer.yaml",
) -> bridge.ForeignFile:
    text = FILE.format(framework=framework, model=model, config=config)
    lines = "".join(f"      {line}\n" for line in overrides.splitlines())
    return bridge.read_file("exp.yaml", text + lines)


TURBO = "training: {seq_len: 8192}\nprimus_turbo: {enable_primus_turbo: true}"
READ: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    # microbatches of two, BF16 and a sharded optimizer stand in its own file
    "Megatron's settings over those of Primus": (
        (
            "megatron",
            "llama3.1_8B.yaml",
            "global_batch_size: 128\nlog_avg_skip_iterations: 5",
        ),
        {
            "format": "megatron",
            "missing": [],
            "model": "llama3-8b",
            "left": set(),
            "microbatch": 2,
            "zero": 1,
            "batch": "128seq",
            "precision": "bf16",
        },
    ),
    "a patch of Primus": (
        ("megatron", "llama3_8B.yaml", "patch_zero_bubble: true"),
        {"left": {"patch_zero_bubble"}, "says": "--schedule"},
    ),
    "an optimizer that is not sharded": (
        ("megatron", "llama3_8B.yaml", "use_distributed_optimizer: false"),
        {"zero": 0},
    ),
    "a model that the environment may set": (
        ("megatron", "${PRIMUS_MODEL:llama2_7B}.yaml"),
        {"model": "llama2-7b"},
    ),
    "a model that is not known": (
        ("megatron", "zebra_llama_1B.yaml"),
        {"model": None, "says": "zebra_llama_1B"},
    ),
    # as in deepseek_v3.yaml, where it is eight
    "experts in the model's file": (
        ("megatron", "deepseek_v3.yaml"),
        {"unread": {"ep"}},
    ),
    "experts in the file": (
        ("megatron", "deepseek_v3.yaml", "expert_model_parallel_size: 16"),
        {"unread": set(), "ep": 16},
    ),
    "torchtitan's settings": (
        ("torchtitan", "llama3.1_70B.yaml", TURBO),
        {
            "format": "torchtitan-toml",
            "compiled": True,
            "microbatch": 8,
            "zero": 3,
            "recompute": "none",
            "left": {"primus_turbo.enable_primus_turbo"},
            "says": "Primus-Turbo",
        },
    ),
    "torchtitan's 8 bits": (
        ("torchtitan", "llama3.1_70B-fp8.yaml", TURBO),
        {
            "model": "llama3-70b",
            "precision": {"name": "fp8", "gather_bytes": 2.0},
        },
    ),
    "MaxText's axis that takes what is left": (
        (
            "maxtext",
            "qwen3_30B_A3B.yaml",
            "per_device_batch_size: 2\nici_expert_parallelism: -1",
        ),
        {
            "format": "maxtext",
            "unread": {"ep"},
            "ep": None,
            "zero": 3,
            "recompute": "full",
        },
    ),
    "a recipe of Megatron-Bridge by its flavor": (
        (
            "megatron_bridge",
            "qwen3_8b.yaml",
            "flavor: qwen3_8b_pretrain_config\nseq_length: 4096",
            "pretrain_trainer.yaml",
        ),
        {"format": "megatron-bridge", "model": "qwen3-8b", "asks": {"tp"}},
    ),
    # Primus's own tests train four layers; its examples of DeepSeek-V2 for MI300X switch latent
    # attention off; its files of models with experts send tokens to each rank that needs them
    "four layers of a model": (
        ("megatron", "deepseek_v2_lite.yaml", "num_layers: 4"),
        {"says": "num_layers 4"},
    ),
    "a model without its latent attention": (
        ("megatron", "deepseek_v2.yaml", "multi_latent_attention: false"),
        {"says": "multi_latent_attention"},
    ),
    "all layers of a model": (
        (
            "megatron",
            "deepseek_v2_lite.yaml",
            "num_layers: 27\nmulti_latent_attention: true\nexpert_model_parallel_size: 8",
        ),
        {"missing": [], "left": set(), "dispatcher": "alltoall"},
    ),
    "a model with more experts": (
        ("megatron", "mixtral_8x7B_v0.1.yaml", "num_experts: 16"),
        {"says": "num_experts 16"},
    ),
    "a model that has no latent attention": (
        ("megatron", "llama2_7B.yaml", "multi_latent_attention: false"),
        {"missing": []},
    ),
}


@pytest.mark.parametrize("case", READ)
def test_a_file_of_primus_means(case: str) -> None:
    file, fields = READ[case]
    demand_meaning(read(*file), fields)


def test_a_model_of_diffusion_is_refused() -> None:
    with refusal("diffusion"):
        read("megatron", "diffusion/flux_12b.yaml", "vae_scale: 0.3611")


@pytest.mark.parametrize(
    ("framework", "config", "word"),
    [
        ("maxdiffusion", "pre_trainer.yaml", "maxdiffusion"),
        ("megatron", "sft_trainer.yaml", "sft_trainer.yaml"),
    ],
)
def test_what_primus_starts_otherwise_is_refused(
    framework: str, config: str, word: str
) -> None:
    with refusal(word):
        read(framework, "llama3_8B.yaml", config=config)


def test_two_modules_are_refused() -> None:
    text = FILE.format(framework="megatron", model="a", config="b")
    more = "  second: {framework: megatron, config: a, model: b}\n"
    with refusal("pre_trainer, second"):
        bridge.read_file("exp.yaml", text + "      bf16: true\n" + more)


def test_its_file_is_not_edited(tmp_path: Path) -> None:
    from meshwright import Job, Layout

    file = tmp_path / "exp.yaml"
    text = FILE.format(
        framework="megatron", model="llama3_8B.yaml", config="pre_trainer.yaml"
    )
    file.write_text(text + "      global_batch_size: 128\n", "utf-8")
    job = Job("llama3-8b", "8xh100-sxm", 64, Layout(dp=8))
    with refusal("Primus"):
        bridge.write_onto(job, "megatron", launch.Place(1, 8), str(file))


def test_every_model_of_the_table_is_in_the_catalogue() -> None:
    names = wrapper("primus")["models"].values()
    assert all(catalog.has("models", name) for name in names)
