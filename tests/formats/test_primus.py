"""Primus: one of four trainers under `modules`, with usual settings of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


def layout(file: bridge.ForeignFile) -> dict[str, Any]:
    made: dict[str, Any] = file.tables["layout"]
    return made


def test_megatrons_settings_over_those_of_primus() -> None:
    """Microbatches of two, BF16 and a sharded optimizer stand in its own file."""
    file = read("megatron", "llama3.1_8B.yaml", "global_batch_size: 128")
    assert file.format.name == "megatron" and not file.missing
    assert file.tables["model"] == "llama3-8b" and not file.left
    assert (layout(file)["microbatch"], layout(file)["zero"]) == (2, 1)
    assert file.tables["job"]["batch"] == "128seq"
    assert file.tables["job"]["precision"] == "bf16"
    piped = read("megatron", "llama3_8B.yaml", "patch_zero_bubble: true")
    assert "--schedule" in piped.left["patch_zero_bubble"]
    own = "micro_batch_size: 1\nuse_distributed_optimizer: false"
    assert layout(read("megatron", "llama3_8B.yaml", own))["zero"] == 0


def test_a_model_that_the_environment_may_set_is_its_default() -> None:
    said = "${PRIMUS_MODEL:llama2_7B}.yaml"
    assert read("megatron", said).tables["model"] == "llama2-7b"
    other = read("megatron", "zebra_llama_1B.yaml")
    assert "model" not in other.tables
    assert any("zebra_llama_1B" in why for why in other.missing)


def test_the_degree_of_experts_may_stand_in_the_models_file() -> None:
    """As in deepseek_v3.yaml, where it is eight."""
    assert [*read("megatron", "deepseek_v3.yaml").unread] == ["layout.ep"]
    said = "expert_model_parallel_size: 16"
    file = read("megatron", "deepseek_v3.yaml", said)
    assert not file.unread and layout(file)["ep"] == 16


def test_torchtitans_settings() -> None:
    said = (
        "training: {seq_len: 8192}\nprimus_turbo: {enable_primus_turbo: true}"
    )
    file = read("torchtitan", "llama3.1_70B.yaml", said)
    assert file.format.name == "torchtitan-toml"
    assert file.tables["software"]["compiled"]
    assert (layout(file)["microbatch"], layout(file)["zero"]) == (8, 3)
    assert layout(file)["recompute"] == "none"
    assert ["Primus-Turbo" in why for why in file.left.values()] == [True]
    fp8 = read("torchtitan", "llama3.1_70B-fp8.yaml", said)
    assert fp8.tables["model"] == "llama3-70b"
    assert "fp8" in str(fp8.tables["job"]["precision"])


def test_maxtexts_settings_and_an_axis_that_takes_what_is_left() -> None:
    said = "per_device_batch_size: 2\nici_expert_parallelism: -1"
    file = read("maxtext", "qwen3_30B_A3B.yaml", said)
    assert file.format.name == "maxtext"
    assert [*file.unread] == ["layout.ep"] and "ep" not in layout(file)
    assert layout(file)["zero"] == 3 and layout(file)["recompute"] == "full"


def test_a_recipe_of_megatron_bridge_is_named_by_its_flavor() -> None:
    said = "flavor: qwen3_8b_pretrain_config\nseq_length: 4096"
    config = "pretrain_trainer.yaml"
    file = read("megatron_bridge", "qwen3_8b.yaml", said, config)
    assert file.format.name == "megatron-bridge"
    assert file.tables["model"] == "qwen3-8b" and "layout.tp" in file.unread


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


def test_sizes_beside_the_name_of_a_model() -> None:
    """Primus's own tests train four layers; its examples of DeepSeek-V2 for MI300X switch latent
    attention off. Its files of models with experts send tokens to each rank that needs them.
    """
    file = read("megatron", "deepseek_v2_lite.yaml", "num_layers: 4")
    assert "num_layers 4" in file.missing[0]
    plain = read(
        "megatron", "deepseek_v2.yaml", "multi_latent_attention: false"
    )
    assert "multi_latent_attention" in plain.missing[0]
    same = "num_layers: 27\nmulti_latent_attention: true\nexpert_model_parallel_size: 8"
    file = read("megatron", "deepseek_v2_lite.yaml", same)
    assert not file.missing and not file.left
    assert file.tables["software"]["dispatcher"] == "alltoall"
    other = read("megatron", "mixtral_8x7B_v0.1.yaml", "num_experts: 16")
    assert "num_experts 16" in other.missing[0]
    assert not read(
        "megatron", "llama2_7B.yaml", "multi_latent_attention: false"
    ).missing
    with refusal("diffusion"):
        read("megatron", "diffusion/flux_12b.yaml", "vae_scale: 0.3611")
