"""ms-swift's two programs, `swift sft` over Hugging Face's Trainer and `megatron sft` over Megatron:
what their flags, defaults and environment mean.
"""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.formats import bridge, flags
from refusals import refusal

SFT = """
NPROC_PER_NODE=8 NNODES=2 \\
swift sft --model Qwen/Qwen2.5-14B --tuner_type full --dataset a --torch_dtype bfloat16 \\
    --per_device_train_batch_size 2 --max_length 4096 --attn_impl flash_attn \\
    --num_train_epochs 1 --save_total_limit 2 --split_dataset_ratio 0.01
"""
MEGATRON = """
NPROC_PER_NODE=4 NNODES=2 \\
megatron sft --model Qwen/Qwen2.5-14B --dataset a --split_dataset_ratio 0.01 --max_length 8192 \\
    --tensor_model_parallel_size 4 --sequence_parallel true --num_train_epochs 3 \\
    --save_safetensors true --train_iters 100
"""


def read(text: str, **more: str) -> bridge.ForeignFile:
    """The script with further flags."""
    added = "".join(f" --{name} {value}" for name, value in more.items())
    return bridge.read_file("a.sh", text.rstrip() + added + "\n")


def layout(file: bridge.ForeignFile) -> dict[str, Any]:
    """Degrees as numbers."""
    made = file.tables["layout"].items()
    return {k: int(v) if str(v).isdigit() else v for k, v in made}


def test_flags_and_defaults_of_the_trainer() -> None:
    """Checkpointing is on, and accumulation makes 16 sequences, unless told."""
    file = read(SFT, deepspeed="zero3")
    assert file.format.name == "ms-swift" and file.chips == 16
    assert file.tables["model"] == "qwen2.5-14b" and not file.unread
    assert layout(file)["zero"] == 3 and layout(file)["recompute"] == "full"
    job = file.tables["job"]
    assert (job["seq"], job["batch"]) == (4096, "32seq")
    assert (job["precision"], job["attention_kernel"]) == ("bf16", "fa2")
    assert job["framework"] == "deepspeed"
    # swift/config/zero3.json, overlap_comm: false
    assert file.tables["software"]["dp_overlap"] == "off"
    other = read(SFT, deepspeed="mine_z3.json").tables["software"]
    assert "dp_overlap" not in other and "gradients" not in other
    small = SFT.replace("batch_size 2", "batch_size 1").replace("NNODES=2", "")
    assert read(small).tables["job"]["batch"] == "16seq"
    off = read(SFT, gradient_checkpointing="false")
    assert layout(off)["recompute"] == "none"


@pytest.mark.parametrize(
    ("flag", "zero", "offload"),
    [
        ({"fsdp": "fsdp2"}, 3, None),
        ({"deepspeed": "zero2_offload"}, 2, "optimizer"),
        ({"deepspeed": "zero3_offload"}, 3, "optimizer+weights"),
        ({}, 0, None),
    ],
)
def test_its_own_words_of_sharding(
    flag: dict[str, str], zero: int, offload: str | None
) -> None:
    made = layout(read(SFT, **flag))
    assert (made["zero"], made.get("offload")) == (zero, offload)


def test_a_sequence_cut_over_ranks_takes_them_from_the_batch() -> None:
    """Ulysses: heads go round, and replicas are 16 / 4."""
    file = read(
        SFT, sequence_parallel_size="4", gradient_accumulation_steps="2"
    )
    assert layout(file)["cp"] == 4
    assert file.tables["layout"]["cp_exchange"] == "all-to-all"
    assert file.tables["job"]["batch"] == "16seq"


def test_an_accumulation_that_only_a_run_knows_leaves_the_batch_open() -> None:
    file = read(SFT, gradient_accumulation_steps="$(expr 64 / 16)")
    assert "batch" not in file.tables["job"]
    assert any("global batch" in need for need in flags.missing(file, {}))


@pytest.mark.parametrize(
    "text", [SFT.replace("--tuner_type full ", ""), MEGATRON]
)
def test_adapters_are_said_by_either_name(text: str) -> None:
    """Without a word `swift sft` trains adapters, and `megatron sft` all weights."""
    alone = flags.adapters_alone(read(text).left)
    assert bool(alone) == (text is not MEGATRON)
    assert not flags.adapters_alone(read(text, train_type="full").left)
    assert flags.adapters_alone(read(text, train_type="lora").left)
    assert flags.adapters_alone(read(text, tuner_type="adapter").left)


def test_flags_and_defaults_of_megatron() -> None:
    """ZeRO-1, selective recomputation, 16 sequences; nothing overlaps unless told."""
    file = read(MEGATRON)
    assert file.format.name == "ms-swift-megatron" and file.chips == 8
    assert file.tables["model"] == "qwen2.5-14b" and not file.unread
    made = layout(file)
    assert (made["tp"], made["pp"], made["zero"]) == (4, 1, 1)
    assert made["recompute"] == "selective" and made["sequence_parallel"]
    job = file.tables["job"]
    assert (job["seq"], job["batch"], job["precision"]) == (
        8192,
        "16seq",
        "bf16",
    )
    assert job["tokens"] == 100 * 16 * 8192
    assert file.tables["software"]["dp_overlap"] == "off"
    assert "pp" in file.taken and "tp" not in file.taken
    both = {"overlap_grad_reduce": "true", "overlap_param_gather": "true"}
    assert "dp_overlap" not in read(MEGATRON, **both).tables["software"]


def test_names_of_megatrons_settings() -> None:
    """8 microbatches a chunk, by the name that Megatron-Bridge has; 48 layers in 2 x 4 chunks."""
    chunks = {
        "pipeline_model_parallel_size": "2",
        "num_layers_per_virtual_pipeline_stage": "6",
        "microbatch_group_size_per_vp_stage": "8",
    }
    one = MEGATRON.replace("size 4", "size 1")
    made = layout(read(one, **chunks))
    assert (made["interleave"], made["microbatch_group"]) == (4, 8)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        (SFT, "device_map", "auto"),
        (SFT, "trainable_parameters_regex", "head"),
        (SFT, "use_logits_to_keep", "true"),
        (MEGATRON, "megatron_extra_kwargs", "{}"),
        (MEGATRON, "mtp_shared_weights", "true"),
    ],
)
def test_what_a_job_cannot_express_is_said(
    text: str, key: str, value: str
) -> None:
    assert read(text, **{key: value}).left[key]


@pytest.mark.parametrize("text", [SFT, MEGATRON])
def test_training_on_preferences_is_another_program(text: str) -> None:
    with refusal("rlhf: it trains on preferences"):
        read(text.replace(" sft ", " rlhf "))


@pytest.mark.parametrize("text", [SFT, MEGATRON])
@pytest.mark.parametrize(
    "more",
    [{"rlhf_type": "dpo"}, {"task_type": "embedding"}, {"num_labels": "3"}],
)
def test_other_kinds_of_training_are_refused(
    text: str, more: dict[str, str]
) -> None:
    with refusal("ms-swift"):
        read(text, **more)


def test_a_file_of_megatron_sft_without_its_command_is_asked_about() -> None:
    """examples/yaml/megatron/sft.yaml, in part, was read as `swift sft`: no degree of it."""
    text = "model: Qwen/Qwen3-30B-A3B\ntuner_type: full\nsplit_dataset_ratio: 0.01\n"
    text += "max_length: 2048\nmicro_batch_size: 1\nglobal_batch_size: 4\n"
    text += "expert_model_parallel_size: 4\nsequence_parallel: true\n"
    with refusal("--as ms-swift-megatron"):
        bridge.read_file("sft.yaml", text)
    file = bridge.read_file("sft.yaml", text, named="ms-swift-megatron")
    assert file.tables["layout"]["ep"] == 4
