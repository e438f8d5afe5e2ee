"""Arguments in logs: the lines are made up in the formats of the sources that `dumps` names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.formats import bridge
from meshwright.formats.bridge.dumps import dump, headed
from meshwright.formats.flags import read_flags
from meshwright.formats.logs import steps_of
from refusals import refusal

SCRIPT = """torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --tensor-model-parallel-size 4 \\
 --pipeline-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer \\
 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \\
 --group-query-attention --num-query-groups 8 --seq-length 8192 --swiglu \\
 --max-position-embeddings 8192 --normalization RMSNorm --disable-bias-linear \\
 --untie-embeddings-and-output-weights --position-embedding-type rope --micro-batch-size 1 \\
 --global-batch-size 256 --recompute-granularity selective --bf16 --vocab-size 128256 \\
 --overlap-grad-reduce --attention-dropout 0.0 --hidden-dropout 0.0
"""
PARSED: dict[str, Any] = {
    "add_bias_linear": False,
    "attention_dropout": 0.0,
    "bf16": True,
    "data_parallel_size": 8,
    "ffn_hidden_size": 14336,
    "fp8": None,
    "global_batch_size": 256,
    "gradient_accumulation_fusion": True,
    "group_query_attention": True,
    "hidden_dropout": 0.0,
    "hidden_size": 4096,
    "kv_channels": 128,
    "kv_lora_rank": 32,
    "max_position_embeddings": 8192,
    "micro_batch_size": 1,
    "moe_router_topk": 2,
    "multi_latent_attention": False,
    "normalization": "RMSNorm",
    "num_attention_heads": 32,
    "num_experts": None,
    "num_layers": 32,
    "num_query_groups": 8,
    "overlap_grad_reduce": True,
    "overlap_p2p_comm": False,
    "overlap_param_gather": False,
    "padded_vocab_size": 128256,
    "params_dtype": "torch.bfloat16",
    "pipeline_model_parallel_size": 2,
    "position_embedding_type": "rope",
    "recompute_granularity": "selective",
    "seq_length": 8192,
    "sequence_parallel": True,
    "swiglu": True,
    "tensor_model_parallel_size": 4,
    "untie_embeddings_and_output_weights": True,
    "use_distributed_optimizer": True,
    "virtual_pipeline_model_parallel_size": None,
    "vocab_size": 128256,
    "world_size": 64,
}
STEP = (
    " iteration {i}/ 500 | consumed samples: 1 | elapsed time per iteration (ms): 4800.0 |"
    " global batch size:  256 | lm loss: 9.8E+00 |"
)


def log() -> str:
    head = "------------------------ arguments ------------------------"
    lines = [
        f"  {k} {'.' * max(48 - len(k), 3)} {v}" for k, v in PARSED.items()
    ]
    end = "-------------------- end of arguments ---------------------"
    steps = [STEP.format(i=i) for i in range(10, 60, 10)]
    return "\n".join(f"0: {line}" for line in [head, *lines, end, *steps])


def test_a_log_is_the_script_that_it_ran(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(SCRIPT)
    (tmp_path / "a.log").write_text(log())
    on = {"on": "h100-sxm"}
    script = read_flags(str(tmp_path / "a.sh"), on, [])
    assert read_flags(str(tmp_path / "a.log"), on, []) == script


def test_flags_that_switch_something_off_are_read() -> None:
    found = dump(log())
    assert found and found.format == "megatron" and found.said.chips == 64
    assert found.said.keys["disable_bias_linear"] is True
    assert {"kv_lora_rank", "moe_router_topk", "world_size"}.isdisjoint(
        found.said.keys
    )
    assert {"kv_lora_rank", "world_size"} <= found.said.names


def test_megatron_of_2021_and_deepspeed() -> None:
    """What runs is told by the arguments that a version has, and by DeepSpeed's stage."""
    head, end = "--- arguments ---\n", "--- end of arguments ---\n"
    old = f"{head}  model_parallel_size ............. 4\n"
    found = dump(old + end)
    assert found and found.said.known == {
        "job": {"framework": "megatron-2021"}
    }
    assert found.said.keys == {"tensor_model_parallel_size": "4"}
    for stage, program in ((1, "megatron-deepspeed"), (3, "deepspeed-zero3")):
        more = f"  deepspeed ....... True\n  zero_stage ...... {stage}.0\n"
        file = bridge.arguments_of_log(old + more + end, None)
        assert file.tables["job"]["framework"] == program
        assert file.tables["layout"]["zero"] == stage
        flags = f"--num-layers 2 --deepspeed --zero-stage {stage}"
        script = bridge.read_file("a.sh", f"deepspeed pretrain_gpt.py {flags}")
        assert script.tables["job"]["framework"] == program


def test_torchtitan_and_maxtext() -> None:
    data = {"parallelism": {"tensor_parallel_degree": 8}}
    text = f"[rank0]:[titan] root - INFO - Running with args: {json.dumps(data, indent=2)}\n"
    found = dump(text + "step: 1  loss: 12.2  memory: 4GiB(5%)  tps: 900\n")
    assert found and found.format == "torchtitan-toml"
    assert found.said.keys == {"parallelism.tensor_parallel_degree": 8}
    text = "I08 12:00:00 pyconfig.py:1] Config param ici_fsdp_parallelism: 8\n"
    found = dump(text + "Config param remat_policy: full\n")
    assert found and found.format == "maxtext"
    assert found.said.keys["remat_policy"] == "full"


def test_yaml_of_bridge() -> None:
    text = (
        "------- Task Configuration -------\nmodel:\n  tensor_model_parallel_size: 2\n"
        "train:\n  global_batch_size: 128\n----------------------------------\nstarting\n"
    )
    found = dump(text)
    assert found and found.format == "megatron-bridge"
    assert found.said.keys == {
        "model.tensor_model_parallel_size": 2,
        "train.global_batch_size": 128,
    }


def test_the_heads_of_other_tools() -> None:
    """32 sequences on each of 8 ranks in 2 parts; replicas x microbatch x accumulation."""
    text = (
        "  Instantaneous batch size per device = 4\n"
        "  Total train batch size (w. parallel, distributed & accumulation) = 64\n"
        "  Gradient Accumulation steps = 2\n"
    )
    trainer = headed("trainer", text)
    assert trainer and trainer.chips == 8
    assert trainer.tables["job"]["batch"] == "64seq"
    assert trainer.tables["layout"] == {"microbatch": 4, "zero": 3}
    text = (
        "parallelism=ParallelismArgs(dp=4, pp=1, tp=2), tokens=TokensArgs(sequence_length=2048,"
        " micro_batch_size=2, batch_accumulation_per_replica=8), num_hidden_layers=24,"
        " hidden_size=2048"
    )
    nanotron = headed("nanotron", text)
    assert nanotron and nanotron.chips == 8
    assert nanotron.tables["job"]["batch"] == "64seq"
    assert headed("megatron", text) is None


@pytest.mark.parametrize(
    ("line", "kind", "seconds"),
    [
        (
            "[INFO|DP=0]: iteration: 7 / 9 | consumed_tokens: 85.8G |"
            " elapsed_time_per_iteration_ms: 11.5K | global_batch_size: 64 |",
            "nanotron",
            11.5,
        ),
        (
            " iteration    12/  99 | elapsed time per iteration (s): 105.22 | lm loss: 2.4",
            "megatron-deepspeed",
            105.22,
        ),
        (
            "completed step: 2, seconds: 10.228, TFLOP/s/device: 350.869, loss: 12.9",
            "maxtext",
            10.228,
        ),
        ("  5%|# | 50/1000 [06:40<2:06:40,  8.00s/it]", "trainer", 8.0),
        ("  5%|# | 50/1000 [06:40<2:06:40,  1.25it/s]", "trainer", 0.8),
        (
            "[step=12/99,epoch=1,eta=2:00]\n    train/CE loss=2.4\n"
            "    throughput/device/TPS=12,500",
            "olmo-core",
            64 * 4096 / 8 / 12500,
        ),
    ],
)
def test_steps_of_more_tools(line: str, kind: str, seconds: float) -> None:
    found = steps_of(line)
    assert found.kind == kind
    [step] = found.steady
    rate = step.tokens_per_s_per_chip
    taken = 64 * 4096 / (rate * 8) if rate else step.seconds
    assert taken == pytest.approx(seconds)


def test_progress_of_other_things_is_no_step() -> None:
    with refusal("no steps"):
        steps_of("Loading shards: 100%|##| 4/4 [00:10<00:00, 2.5s/it]")


def test_a_log_without_arguments_asks_for_the_script(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(STEP.format(i=10))
    with refusal("give its script with --steps"):
        read_flags(str(path), {"on": "8xh100-sxm"}, [])
