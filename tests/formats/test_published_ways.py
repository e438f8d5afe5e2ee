"""Ways of launch scripts and files that people publish: ranks behind another shell, DeepSpeed's
words among Megatron's, defaults of the environment, programs that train no decoder.
"""

from __future__ import annotations

import pytest

from meshwright.formats import bridge
from refusals import refusal

HEAD = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
ARGS="--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 \\
 --max-position-embeddings 2048 --vocab-size 50257 --micro-batch-size 2 --global-batch-size 64 \\
 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --bf16"
"""
START = 'export LAUNCHER="torchrun --nproc_per_node 8 --nnodes 4"\n'


def script(start: str, more: str = "") -> bridge.ForeignFile:
    """A script that starts training in a way."""
    text = HEAD + f'export CMD="pretrain_gpt.py $ARGS {more}"\n' + START
    return bridge.read_file("run.slurm", text + start + "\n")


@pytest.mark.parametrize(
    "start",
    [
        "srun bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD'",
        'srun bash -c "$LAUNCHER --node_rank \\$SLURM_PROCID $CMD" 2>&1',
        "srun /bin/bash -lc '$LAUNCHER $CMD' 2>&1 | tee log",
        "srun $LAUNCHER $CMD",
    ],
)
def test_ranks_behind_another_shell(start: str) -> None:
    """As BLOOM's scripts start: not one rank a node, as Slurm's own tasks would be."""
    assert script(start).chips == 32


def test_one_task_with_several_gpus_says_no_number_of_ranks() -> None:
    assert script("srun start.sh $CMD").chips is None
    alone = (
        HEAD.replace("gpu:8", "gpu:1") + "srun python pretrain_gpt.py $ARGS\n"
    )
    assert bridge.read_file("run.slurm", alone).chips == 4


@pytest.mark.parametrize(
    "more, zero",  # None: in the file of --deepspeed_config
    [
        ("", 0),
        ("--deepspeed --zero-stage 1", 1),
        ("--deepspeed --zero-stage 0", 0),
        ("--zero-stage 1", 0),
        ("--deepspeed --use-distributed-optimizer", None),
    ],
)
def test_deepspeeds_stage_among_megatrons_arguments(
    more: str, zero: int | None
) -> None:
    file = script("srun $LAUNCHER $CMD", more)
    assert file.tables["layout"].get("zero") == zero
    assert ("layout.zero" in file.unread) == (zero is None)
    assert ("zero" in file.taken) == (more == "")


def test_deepspeeds_experts_are_another_model() -> None:
    start = "srun $LAUNCHER $CMD"
    with refusal("other numbers of experts"):
        script(start, "--num-experts 32 32 64 64")
    with refusal("in every second layer"):
        script(start, "--num-experts 64 --moe-expert-parallel-size 8")
    dense = script(start, "--num-experts 1 --moe-expert-parallel-size 1")
    assert not dense.tables["model"].get("moe")


@pytest.mark.parametrize(
    "program, word",
    [
        ("tasks/main.py", "trains classifiers"),
        ("/opt/Megatron-LM/tasks/msdp/main.py", "trains classifiers"),
        ("pretrain_mamba.py", "state-space"),
        ("examples/generate-1.3b.py", "only training"),
        ("run_text_generation_server.py", "only training"),
        ("-m examples.inference.gpt_dynamic_inference", "only training"),
        ("pretrain_bert.py", "only decoders"),
        ("pretrain_t5.py", "only decoders"),
        ("pretrain_gpt.py --img-h 336", "beside text"),
        ("tools/merge_mp_partitions.py", "converts"),
        ("tools/create_doc_index.py", "trains nothing"),
    ],
)
def test_programs_that_train_no_decoder(program: str, word: str) -> None:
    text = HEAD + f"torchrun --nproc_per_node 8 {program} $ARGS\n"
    with refusal(word):
        bridge.read_file("run.sh", text)
    named = text.replace(program, "/home/bert/mamba/pretrain_gpt.py")
    assert (
        bridge.read_file("run.sh", named).chips == 32
    )  # folders are no programs


@pytest.mark.parametrize(
    "said, tp",
    [("2", 2), ("${TP:2}", 2), ("${TP:-2}", 2), ("${TP:null}", 1)],
)
def test_a_value_that_the_environment_may_set_is_its_default(
    said: str, tp: int
) -> None:
    text = f"""
modules:
  pre_trainer:
    overrides:
      micro_batch_size: 1
      global_batch_size: 16
      seq_length: 4096
      tensor_model_parallel_size: {said}
      pipeline_model_parallel_size: 1
      expert_model_parallel_size: 1
"""
    file = bridge.read_file("run.yaml", text)
    assert file.tables["layout"]["tp"] == tp


def test_batches_in_tokens_of_a_later_torchtitan_are_refused() -> None:
    text = (
        "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b"
        " --training.seq_len 2048 --parallelism.tensor_parallel_degree 2 "
    )
    assert bridge.read_file("run.sh", text).chips == 8
    with refusal("batches in tokens"):
        bridge.read_file(
            "run.sh",
            text + "--training.num_tokens_per_microbatch_per_dp_rank 8192",
        )
