"""ms-swift's two programs, `swift sft` over Hugging Face's Trainer and `megatron sft` over Megatron:
what their flags, defaults and environment mean.
"""

from __future__ import annotations

from typing import Any

import pytest
from readings import demand_meaning

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


TRAINER: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    # checkpointing is on, and accumulation makes 16 sequences, unless told;
    # swift/config/zero3.json, overlap_comm: false
    "the Trainer's flags and defaults": (
        SFT,
        {"deepspeed": "zero3"},
        {
            "format": "ms-swift",
            "chips": 16,
            "model": "qwen2.5-14b",
            "unread": set(),
            "zero": 3,
            "recompute": "full",
            "seq": 4096,
            "batch": "32seq",
            "precision": "bf16",
            "attention_kernel": "fa2",
            "framework": "deepspeed",
            "dp_overlap": "off",
        },
    ),
    "a file of DeepSpeed of one's own": (
        SFT,
        {"deepspeed": "mine_z3.json"},
        {"dp_overlap": None, "gradients": None},
    ),
    "sixteen sequences on one node": (
        SFT.replace("batch_size 2", "batch_size 1").replace("NNODES=2", ""),
        {},
        {"batch": "16seq"},
    ),
    "no checkpointing": (
        SFT,
        {"gradient_checkpointing": "false"},
        {"recompute": "none"},
    ),
    "FSDP": (SFT, {"fsdp": "fsdp2"}, {"zero": 3, "offload": None}),
    "ZeRO-2 with offload": (
        SFT,
        {"deepspeed": "zero2_offload"},
        {"zero": 2, "offload": "optimizer"},
    ),
    "ZeRO-3 with offload": (
        SFT,
        {"deepspeed": "zero3_offload"},
        {"zero": 3, "offload": "optimizer+weights"},
    ),
    "nothing sharded": (SFT, {}, {"zero": 0, "offload": None}),
    # Ulysses: heads go round, and replicas are 16 / 4
    "sequences cut over ranks": (
        SFT,
        {"sequence_parallel_size": "4", "gradient_accumulation_steps": "2"},
        {"cp": 4, "cp_exchange": "all-to-all", "batch": "16seq"},
    ),
    # ZeRO-1, selective recomputation, 16 sequences; nothing overlaps unless told
    "Megatron's flags and defaults": (
        MEGATRON,
        {},
        {
            "format": "ms-swift-megatron",
            "chips": 8,
            "model": "qwen2.5-14b",
            "unread": set(),
            "tp": 4,
            "pp": 1,
            "zero": 1,
            "recompute": "selective",
            "sequence_parallel": True,
            "seq": 8192,
            "batch": "16seq",
            "precision": "bf16",
            "tokens": 100 * 16 * 8192,
            "dp_overlap": "off",
            "takes": {"pp": 1},
        },
    ),
    "Megatron's overlap": (
        MEGATRON,
        {"overlap_grad_reduce": "true", "overlap_param_gather": "true"},
        {"dp_overlap": None},
    ),
    # 8 microbatches a chunk, by the name that Megatron-Bridge has; 48 layers in 2 x 4 chunks
    "Megatron's chunks": (
        MEGATRON.replace("size 4", "size 1"),
        {
            "pipeline_model_parallel_size": "2",
            "num_layers_per_virtual_pipeline_stage": "6",
            "microbatch_group_size_per_vp_stage": "8",
        },
        {"interleave": 4, "microbatch_group": 8},
    ),
    # without a word `swift sft` trains adapters, and `megatron sft` all weights
    "adapters without a word": (
        SFT.replace("--tuner_type full ", ""),
        {},
        {"says": flags.ADAPTERS},
    ),
    "all weights without a word": (MEGATRON, {}, {"silent": flags.ADAPTERS}),
    **{
        f"{name} {more}": (text, more, {said: flags.ADAPTERS})
        for name, text in (
            ("swift", SFT.replace("--tuner_type full ", "")),
            ("megatron", MEGATRON),
        )
        for more, said in (
            ({"train_type": "full"}, "silent"),
            ({"train_type": "lora"}, "says"),
            ({"tuner_type": "adapter"}, "says"),
        )
    },
}


@pytest.mark.parametrize("case", TRAINER)
def test_a_command_means(case: str) -> None:
    text, more, fields = TRAINER[case]
    demand_meaning(read(text, **more), fields)


def test_an_accumulation_that_only_a_run_knows_leaves_the_batch_open() -> None:
    file = read(SFT, gradient_accumulation_steps="$(expr 64 / 16)")
    assert "batch" not in file.tables["job"]
    assert any("global batch" in need for need in flags.missing(file, {}))


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
