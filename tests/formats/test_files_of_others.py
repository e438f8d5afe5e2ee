"""Files that look like a run that is predicted and are another: recipes that set a layout of their
own, adapters, evaluations, models of images, settings that stand in a second file.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from readings import demand_meaning, layout, unread
from test_tabled import FILES, read

from meshwright import Job, Layout
from meshwright.describe.framework import framework
from meshwright.formats import bridge, flags
from meshwright.formats.bridge import table
from meshwright.formats.bridge.reading import FileKeys
from meshwright.layout.rules import framework_refusals
from refusals import refusal
from shell import Shell

BRIDGE = """
train: {train_iters: 10, global_batch_size: 8, micro_batch_size: 1}
model: {seq_length: 4096, tensor_model_parallel_size: 2, pipeline_model_parallel_size: 1}
scheduler: {lr_warmup_iters: 3}
logger: {log_interval: 1}
rng: {seed: 1}
"""
"""Changes to a recipe that the file does not name."""
RECIPE = (
    "torchrun --nproc_per_node 8 scripts/training/run_recipe.py --recipe {}"
)


# ---------------------------------------------------------------- Megatron-Bridge


def test_what_a_recipe_sets_is_asked_for() -> None:
    """One in tp, pp and cp, no recomputation: no reader knows that of a recipe."""
    file = bridge.read_file("changes.yaml", BRIDGE)
    assert unread(file) == {"cp", "ep", "recompute"}
    assert layout(file)["tp"] == 2 and not unread(file) & {*layout(file)}
    assert not {"cp", "ep", "tp"} & {*file.taken}
    assert any("run_config.yaml" in note for note in file.notes)
    needs = " ".join(flags.missing(file, {"on": "8xh100", "model_": "x"}))
    assert "--cp 1 --ep 1 --recompute full" in needs


# ---------------------------------------------------------------- NeMo

NEMO = """
trainer: {devices: 8, num_nodes: 1, precision: bf16}
exp_manager: {name: a}
model:
  mcore_gpt: true
  megatron_amp_O2: true
  encoder_seq_length: 512
  micro_batch_size: 4
  global_batch_size: 32
  num_layers: 12
  hidden_size: 768
  num_attention_heads: 12
  tensor_model_parallel_size: 2
  make_vocab_size_divisible_by: 128
  optim: {name: fused_adam}
"""


# ---------------------------------------------------------------- vocabularies


LEVANTER = """
model: {type: llama, hidden_dim: 64, num_layers: 2, num_heads: 4}
trainer: {mp: "p=f32,c=bfloat16", train_batch_size: 8, num_train_steps: 3}
"""


# ---------------------------------------------------------------- Hugging Face

TRAIN = "train.py --model_name_or_path /a/b --per_device_train_batch_size 2 --lr_scheduler_type cosine"


@pytest.mark.parametrize(
    ("start", "asked"),
    [
        ("accelerate launch --config_file a.yaml", {"zero", "precision"}),
        ("accelerate launch --use_deepspeed --zero_stage 3", {"precision"}),
        ("accelerate launch --config_file a.yaml --mixed_precision bf16", {"zero"}),
        ("accelerate launch --use_deepspeed --mixed_precision no", {"zero"}),
        ("accelerate launch --num_processes 8", set()),
        ("torchrun --nproc_per_node 8", set()),
    ],
)  # fmt: skip
def test_what_accelerates_settings_decide_is_asked_for(
    start: str, asked: set[str]
) -> None:
    file = bridge.read_file("run.sh", f"{start} {TRAIN}")
    assert unread(file) == asked
    assert not asked & {*file.taken}
    said = bridge.read_file(
        "run.sh", f"{start} {TRAIN} --bf16 --deepspeed z3.json"
    )
    assert not said.unread and layout(said)["zero"] == 3


# ---------------------------------------------------------------- others


@pytest.mark.parametrize(
    ("said", "numbers", "alone"),
    [
        ("bf16: true", "bf16", "bf16-pure"),
        ("bfloat16: true", "bf16", "bf16-pure"),
        ("fp16: true", "fp16", "fp16"),
        ("float16: true", "fp16-pure", "fp16-pure"),
        ("bf16: true\nfloat16: true", "bf16", "bf16-pure"),
        ("bf16: true\noptimizer: adamw_8bit", "bf16", "bf16-pure"),
        ("bf16: true\noptimizer: lion_8bit", "bf16", "bf16"),
    ],
)
def test_axolotls_words_for_numbers(
    said: str, numbers: str, alone: str
) -> None:
    """float16 loads the weights so and trains without a copy (core/builders/base.py); what is
    loaded in bf16 has gradients and states in it too, unless somebody shards it.
    """
    text = f"base_model: a/b\nmicro_batch_size: 1\nsequence_len: 8\n{said}\n"
    file = bridge.read_file("a.yaml", text)
    job = file.tables["job"]
    assert job["precision"] == alone
    kept = "no fp32 masters"
    assert any(kept in note for note in file.notes) == (alone != "bf16-pure")
    if alone == "bf16-pure":
        eight = "-8bit" if "8bit" in said else ""
        assert job["optimizer"] == f"adamw{eight}-pure"
    sharded = bridge.read_file("a.yaml", text + "fsdp_version: 2\n")
    assert sharded.tables["job"]["precision"] == numbers
    assert not any(kept in note for note in sharded.notes)


SWIFT = """swift sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type full --torch_dtype bfloat16 \\
 --max_length 2048 --per_device_train_batch_size 1 --gradient_accumulation_steps 16 {}
"""
FACTORY = """
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
finetuning_type: full
cutoff_len: 2048
bf16: true
"""


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_deepspeed_runs_the_kernels_of_pytorch(stage: int) -> None:
    """Scores of 8192 x 8192 in memory, as Megatron's kernels of 2022 have them, are no part of
    a model of Hugging Face; what a file says of attention stands."""
    named = f"{FACTORY}deepspeed: ds_z{stage}_config.json\n"
    accelerated = (
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\n"
        f"deepspeed_config: {{zero_stage: {stage}}}\nnum_processes: 8\n"
    )
    for text in (named, accelerated):
        made = bridge.read_file("a.yaml", text)
        assert made.tables["job"]["framework"] == "deepspeed"
        assert not any("profile" in note for note in made.notes)
    by = framework("deepspeed")
    assert (by.attention, by.loss) == ("fa2", "eager")
    eager = bridge.read_file("a.yaml", f"{named}flash_attn: disabled\n")
    assert eager.tables["job"]["attention_kernel"] == "unfused"


def test_deepspeeds_zero_1_is_about_as_fast_as_fsdp_without_gathers(
    shell: Shell, tmp_path: Path
) -> None:
    seconds = {}
    for stage in (1, 2):
        path = tmp_path / f"z{stage}.yaml"
        text = FACTORY.replace("2048", "8192")
        path.write_text(f"{text}deepspeed: ds_z{stage}.json\n")
        out = shell(
            f"predict {path} --on 8xh200-sxm --microbatch 1 --json"
        ).out
        seconds[stage] = json.loads(out)["step_time_s"]
    assert abs(seconds[1] / seconds[2] - 1.0) < 0.2


def test_the_example_of_one_gpu_fits_where_it_ran(
    shell: Shell, tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SWIFT.format(""))
    told = shell(f"predict {script} --on 1xa100-80").out
    assert "yes     fits in memory: 64.2 of 80 GiB" in told


NANOTRON = """
general: {run: a}
parallelism: {dp: 2, tp: 1, pp: 1, tp_mode: REDUCE_SCATTER, pp_engine: 1f1b}
tokens: {micro_batch_size: 1, sequence_length: 8, batch_accumulation_per_replica: 1}
model: {dtype: bfloat16, model_config: {num_hidden_layers: 2, hidden_size: 64, vocab_size: 64}}
"""


TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 4
seq_len = 8192
steps = 10
tensor_parallel_degree = 8
data_parallel_shard_degree = 4
data_parallel_replicate_degree = 2
[experimental]
pipeline_parallel_degree = 1
context_parallel_degree = 2
[float8]
enable_float8_linear = true
"""
"""In the sections of 2024."""


# ---------------------------------------------------------------- who refuses


# ---------------------------------------------------------------- LLaMA-Factory v1

V1 = """
model: Qwen/Qwen2.5-7B
model_class: llm
train_dataset: data/some.yaml
micro_batch_size: 2
cutoff_len: 4096
{}
"""


# ---------------------------------------------------------------- torchtitan's registry

REGISTRY = "torchrun --nproc_per_node 16 -m torchtitan.train --module llama3 --config {} {}"


def test_each_configuration_of_the_table_is_read_as_it_stands() -> None:
    format = table.get("torchtitan")
    configs = {name.split("/")[1] for name in format.models}
    assert configs == {*format.configs["config"]}
    for name in format.models:
        module, config = name.split("/")
        text = REGISTRY.replace("llama3", module).format(config, "")
        file = bridge.read_file("run.sh", text)
        assert not file.unread and not file.missing and not file.left, name


# ---------------------------------------------------------------- settings that stand elsewhere


OLMO = """
torchrun --nproc_per_node 8 --nnodes 4 scripts/train.py configs/own.yaml --run_name=a \\
    --device_train_microbatch_size=2 --optimizer.learning_rate=1e-4
"""
OWN = """
model: {d_model: 2048, n_heads: 16, n_layers: 16, mlp_ratio: 8, max_sequence_length: 4096,
        vocab_size: 50280, embedding_size: 50304, activation_type: swiglu, rope: true}
global_train_batch_size: 512
device_train_microbatch_size: 4
precision: amp_bf16
fsdp: {sharding_strategy: SHARD_GRAD_OP}
"""


RUN = "NGPU=8 {} ./run_train.sh --parallelism.tensor_parallel_degree 2"


# ---------------------------------------------------------------- Megatron's other programs


TEST = """
ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1}
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --micro-batch-size: 4
  --global-batch-size: 32
  --seq-length: 1024
  --max-position-embeddings: 1024
  --tensor-model-parallel-size: 4
  --use-distributed-optimizer: true
  --sequence-parallel: false
  --bf16: true
"""


def test_what_the_environment_must_set_is_asked_for() -> None:
    """As the MoE ModelZoo has it: `${TP}` is no default, and a value may be quoted for the shell."""
    text = TEST.replace("parallel-size: 4", "parallel-size: ${TP}")
    text = text.replace("seq-length: 1024", "seq-length: ${SEQ_LEN}")
    text += """  --num-experts: 8
  --moe-layer-freq: "'([0]*2+[1]*10)'"
"""
    file = bridge.read_file("a.yaml", text)
    assert {*file.unread} == {"layout.tp", "job.seq"}
    assert file.tables["model"]["moe"]["dense_layers"] == 2


def test_a_batch_that_the_file_leaves_open_is_assumed_aloud(
    shell: Shell, tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(EIGHT.replace("--global-batch-size 1536", ""), "utf-8")
    alone = shell(f"predict {script} --on 128xh100-sxm").out
    assert "zero 0, batch 1seq (not in the file)" in " ".join(alone.split())
    given = shell(f"predict {script} --on 128xh100-sxm --batch 16seq")
    assert "zero 0 (not in the file)" in " ".join(given.out.split())


TUNE = """
tune run --nproc_per_node 4 full_finetune_distributed --config configs/full.yaml \\
    batch_size=4 tokenizer.max_seq_len=4096
"""
FULL = """
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 8192}
batch_size: 2
gradient_accumulation_steps: 8
optimizer: {_component_: torch.optim.AdamW, fused: true, lr: 2e-5}
enable_activation_checkpointing: true
dtype: bf16
"""


OVER: dict[
    str,
    tuple[tuple[str, str], tuple[str, str], dict[str, Any], dict[str, Any]],
]
OVER = {
    "olmo": (
        ("scripts/a.sh", OLMO),
        ("configs/own.yaml", OWN),
        {
            "format": "olmo",
            "chips": 32,
            "microbatch": 2,
            "asks": {"recompute", "precision", "seq"},
        },
        {
            "unread": set(),
            "layers": 16,
            "microbatch": 2,
            "zero": 2,
            "batch": "512seq",
        },
    ),
    # 4 sequences, 8 times, on 4 ranks; without the file its 8 are asked for, too
    "torchtune": (
        ("a.sh", TUNE),
        ("configs/full.yaml", FULL),
        {
            "format": "torchtune",
            "chips": 4,
            "microbatch": 4,
            "asks": {"recompute", "precision", "batch"},
        },
        {
            "unread": set(),
            "recompute": "full",
            "seq": 4096,
            "batch": "128seq",
        },
    ),
    "torchtitan": (
        (
            "a.sh",
            "torchrun -m torchtitan.train --job.config_file a.toml --training.seq_len 4096\n",
        ),
        (
            "a.toml",
            "[parallelism]\npipeline_parallel_degree = 4\n[training]\nseq_len = 8\n",
        ),
        {"asks": {"pp", "batch"}, "seq": "4096"},
        {"unread": set(), "pp": 4, "seq": "4096"},
    ),
}
"""(Script, file that it names, what the script says alone, what both say)."""


@pytest.mark.parametrize("case", OVER)
def test_flags_over_a_file(case: str, tmp_path: Path) -> None:
    """The flags come first, then the file where the script is; without it all of it is asked for,
    and a text from elsewhere opens no file.
    """
    (name, text), beside, alone, both = OVER[case]
    for path, content in ((name, text), beside):
        script = str(tmp_path / name)
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(content, "utf-8")
        meaning = alone if path == name else both
        demand_meaning(bridge.read_file(script), meaning)
        demand_meaning(bridge.read_file(script, text), alone)


def test_recipes_of_torchtune(tmp_path: Path) -> None:
    """Adapters are said first, whatever else is asked for; other recipes are refused."""
    lora = tmp_path / "lora.sh"
    lora.write_text(TUNE.replace("full_f", "lora_f"), "utf-8")
    with refusal("trains adapters alone"):
        flags.foreign_tables(str(lora), {}, [])
    first = TUNE.replace("full_f", "lora_f").replace(
        "--config", "a.b=1 --config"
    )
    assert flags.adapters_alone(bridge.read_file("a.sh", first).left)
    other = TUNE.replace("full_finetune", "knowledge_distillation")
    with refusal("knowledge_distillation_distributed"):
        bridge.read_file("a.sh", other)


EIGHT = """torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers 96 --hidden-size 12288 \\
 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 \\
 --global-batch-size 1536 --vocab-size 51200 --tensor-model-parallel-size 8 \\
 --pipeline-model-parallel-size 16 --fp16
"""
"""As Megatron-LM's examples/gpt3 has it: a pipeline that one node does not hold."""


def test_a_layout_of_more_ranks_than_are_started_says_how_many(
    shell: Shell, tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(EIGHT)
    told = " ".join(shell(f"read {script}").out.split())
    assert "(it starts 8 ranks, tp x cp x pp is 128)" in told
    assert "such as --on 128xh100-sxm" in told
    refused = shell(f"predict {script} --on h100-sxm", ends=2).err
    assert "tp x cp x pp is 128 by itself" in refused
    assert "dp" not in refused


def test_what_lowers_memory_is_said_by_itself() -> None:
    """Every reason of the tables that speaks of less memory is recognised, and none of more; of
    several keys that which saves most stands first.
    """
    reasons = {
        why
        for each in table.formats().values()
        for why in each.matters.values()
    }
    for why in reasons:
        less = "less than predicted" in why and "memory" in why
        away = "to host memory" in why or "are in host memory" in why
        assert bool(flags.lower_memory({"key": why})) == (less or away), why
    said = flags.lower_memory(
        {
            "liger_rope": "fused kernels: memory is a little less than predicted",
            "use_liger": "a fused loss: time and memory are less than predicted",
        }
    )
    assert said == [
        "less memory than predicted with use_liger, not in the prediction (a fused loss)",
        "less memory than predicted with liger_rope, not in the prediction (fused kernels)",
    ]


# ---------------------------------------------------------------- DeepSpeed


def test_deepspeeds_second_stage_waits_unless_it_is_told_to_overlap() -> None:
    """runtime/zero/config.py, overlap_comm_valid: on by default with stage 3 alone, as the profile
    has it; what a file says is said of it."""
    by = framework("deepspeed")
    assert by.dp_hidden.at(3).scope == "pass"
    assert by.dp_hidden.at(2).scope == by.dp_hidden.at(0).scope == "none"
    beside = replace(by, dp_overlap="all").dp_hidden
    assert beside.at(3).scope == "pass" and beside.at(2).scope == "backward"


OF_DEEPSPEED = """torchrun --nproc_per_node 8 {} --num-layers 32 --hidden-size 4096
 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000
 --micro-batch-size 1 --global-batch-size 8 --deepspeed --zero-stage 3 --bf16
"""


ULYSSES = {
    "run.sh": OF_DEEPSPEED.format("pretrain_gpt.py").replace("\n", "")
    + " --ds-sequence-parallel-size {}\n",
    "a.json": '{{"train_micro_batch_size_per_gpu": 1, "bf16": {{"enabled": true}},'
    ' "zero_optimization": {{"stage": 3}}, "sequence_parallel_size": {}}}',
    "a.yaml": "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 4\n"
    "deepspeed_config: {{zero_stage: 3}}\nparallelism_config:\n"
    "  parallelism_config_dp_shard_size: 2\n  parallelism_config_sp_size: {}\n",
}
"""Sequences that DeepSpeed cuts, in three files."""


@pytest.mark.parametrize("name", ULYSSES)
def test_sequences_that_deepspeed_cuts_are_predicted(name: str) -> None:
    """Its ranks were idle, and then its profile refused them. Gradients of cut sequences are summed
    in fp32 (DeepSpeed, runtime/constants.py, seq_parallel_communication_data_type).
    """
    cut = bridge.read_file(name, ULYSSES[name].format(4), chips=8)
    whole = bridge.read_file(name, ULYSSES[name].format(1), chips=8)
    assert layout(cut)["cp"] == 4 and not cut.left
    assert layout(cut)["cp_exchange"] == "all-to-all"
    assert cut.tables["software"]["reduction_numbers"] == "fp32"
    assert "reduction_numbers" not in whole.tables.get("software", {})
    by = cut.tables["job"]["framework"]
    run = Job("llama3-8b", "8xh100-sxm", 8, Layout(), framework=by)
    for cp, way, runs in (
        (4, "all-to-all", True),
        (4, "gather", False),
        (1, "ring", True),
    ):
        at = Layout(cp=cp, dp=8 // cp, cp_exchange=way, zero=3)
        assert (not framework_refusals(run, at)) is runs, (way, cp)


# ---------------------------------------------------------------- MaxText


# ---------------------------------------------------------------- weights in 16 bits


TUNED = """
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 4096}
model: {_component_: torchtune.models.llama3_2.llama3_2_3b}
dataset: {packed: true, source: tatsu-lab/alpaca}
batch_size: 2
gradient_accumulation_steps: 1
optimizer: {_component_: torch.optim.AdamW, lr: 2e-5}
optimizer_in_bwd: false
loss: {_component_: torch.nn.CrossEntropyLoss}
compile: false
enable_activation_checkpointing: false
enable_activation_offloading: false
dtype: bf16
"""


def test_torchtunes_states_take_the_memory_that_its_table_says(
    shell: Shell, tmp_path: Path
) -> None:
    """Llama 3.2 3B on an A100, two sequences of 4,096, packed: 60.0 GiB (pytorch/torchtune@bd2a0fc,
    README.md, Optimization flags). AdamW's moments are like the weights, 4 bytes together.
    """
    (file := tmp_path / "3B_full_single_device.yaml").write_text(TUNED)
    told = shell.json(f"predict {file} --on 1xa100-80")
    memory = told["memory_bytes"]
    assert memory["optimizer"] == 2 * memory["weights"]
    assert memory["allocated"] / 2**30 == pytest.approx(60.0, rel=0.06)


EIGHT_BITS = """
base_model: meta-llama/Llama-2-7b-hf
micro_batch_size: 1
sequence_len: 4096
bf16: true
optimizer: {}
"""
TRAINER = "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 1\nlr_scheduler_type: linear\n"


NORMS = [
    (TUNED, "torch"),
    (TUNED.replace("compile: false", "compile: true"), None),
    (TRAINER, "torch"),
    (f"{TRAINER}use_liger_kernel: true\n", None),
    (f"{TRAINER}torch_compile: true\n", None),
    (
        f"{TRAINER}stage: sft\ntemplate: qwen\nenable_liger_kernel: true\n",
        None,
    ),
    (f"{TRAINER}stage: sft\ntemplate: qwen\n", "torch"),
    (EIGHT_BITS.format("adamw_torch"), "torch"),
    (EIGHT_BITS.format("adamw_torch") + "liger_rms_norm: true\n", "torch"),
    (
        EIGHT_BITS.format("adamw_torch")
        + "liger_rms_norm: true\nplugins: [axolotl.integrations.liger.LigerPlugin]\n",
        None,
    ),
]
"""torchtune's RMSNorm and transformers' LlamaRMSNorm are separate operations, unless they are
compiled or Liger's, which axolotl runs by its plugin alone."""

LAMBDA = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
dtype = "bfloat16"
[parallelism]
data_parallel_shard_degree = 8
"""


# ---------------------------------------------------------------- FlagScale, TRL, BigCode, VeOmni

FLAGSCALE = """
system:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 4
  use_distributed_optimizer: true
  precision: {bf16: true}
  checkpoint: {save_interval: 1000}
model:
  num_layers: 60
  hidden_size: 6144
  num_attention_heads: 48
  num_query_groups: 8
  group_query_attention: true
  hidden_dim_multiplier: 1.3
  multiple_of: 4096
  swiglu: true
  seq_length: 4096
  norm_epsilon: 1.0e-5
  micro_batch_size: 1
  global_batch_size: 1024
data: {split: 1, tokenizer: {tokenizer_type: AquilaTokenizerFS, vocab_size: 100008}}
"""


SANTACODER = (
    "python pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16"
    " --attention-head-type {} --micro-batch-size 2 --seq-length 2048 --vocab-size {}"
)


# ---------------------------------------------------------------- NeMo AutoModel

AUTOMODEL = FILES["automodel"][0]


def test_automodels_published_step(shell: Shell, tmp_path: Path) -> None:
    """Qwen3 MoE 30B on 8 H100, 512 sequences of 4,096: 21.77 s (docs/performance-summary.mdx of
    NVIDIA-NeMo/Automodel@36044ad, the file is examples/llm_benchmark/qwen/
    qwen3_moe_30b_te_deepep.yaml in part); no law here was fitted to it.
    """
    (path := tmp_path / "moe.yaml").write_text(AUTOMODEL)
    told = shell.json(f"predict {path} --on 8xh100-sxm")
    low, high = told["interval_s"]
    assert told["fits"] and low < 21.773 < high
    assert told["step_time_s"] == pytest.approx(21.773, rel=0.2)


# ---------------------------------------------------------------- the fifth draw


def titan(**keys: object) -> bridge.ForeignFile:
    """A file of torchtitan's of 2024."""
    usual = {
        "model.name": "llama3",
        "model.flavor": "8B",
        "training.seq_len": 8,
    }
    said = {**usual, "training.tensor_parallel_degree": 1, **keys}
    return bridge.understood_as("torchtitan-toml", FileKeys(said, 8))


def test_a_model_of_images_in_torchtitan_is_refused() -> None:
    with refusal("model of images"):
        titan(**{"model.name": "flux", "encoder.t5_encoder": "t5"})


def test_eight_bits_of_neox_and_a_null_of_nanotron() -> None:
    neox = read("gpt-neox", use_bnb_optimizer=True, fp32_allreduce=True)
    assert neox.tables["job"]["optimizer"] == "adamw-8bit"
    assert "tensor parallelism" in neox.left["fp32_allreduce"]
    null = read("nanotron", **{"model.model_config.moe_config": None})
    assert null.tables == read("nanotron").tables


NORM, CP = "model.norm_type", "parallelism.context_parallel_degree"
ROTATE = "parallelism.context_parallel_rotate_method"
TITANS_KEYS: list[tuple[dict[str, object], dict[str, Any]]] = [
    # models/norms.py: an RMSNorm in operations of its own, until torch.compile fuses them
    ({NORM: "rmsnorm"}, {"norm": "torch", "left": set()}),
    (
        {NORM: "rmsnorm", "training.compile": True},
        {"norm": None, "left": set()},
    ),
    ({NORM: "fused_rmsnorm"}, {"norm": None, "left": set()}),
    ({NORM: "np_layernorm"}, {"norm": None, "left": {NORM}}),
    # 0.2: blocks go round the ranks, or all are gathered
    ({CP: 2}, {"cp_exchange": "gather", "left": set()}),
    ({CP: 2, ROTATE: "allgather"}, {"cp_exchange": "gather", "left": set()}),
    ({CP: 2, ROTATE: "alltoall"}, {"cp_exchange": "ring", "left": set()}),
]


@pytest.mark.parametrize(("keys", "fields"), TITANS_KEYS)
def test_keys_of_torchtitan_of_2024(
    keys: dict[str, object], fields: dict[str, Any]
) -> None:
    demand_meaning(titan(**keys), fields)


# ---------------------------------------------------------------- tables

LLAMA_8B, QWEN_30B = (
    RECIPE.format("llama3_8b{}_config"),
    RECIPE.format("qwen3_30b_a3b{}_config"),
)
OF_RECIPES = {"tp", "pp", "cp", "microbatch", "recompute"}
DEEPSEEK = RECIPE.format("deepseek_v3_pretrain_1024gpu_h100_bf16_config")
SIZES = "model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, "
ACCELERATE = "python -m accelerate.commands.launch --mixed_precision bf16"
LOADED = f"torchrun {TRAIN} --torch_dtype bfloat16"
AXOLOTL = "base_model: a/b\nmicro_batch_size: 1\nsequence_len: 8\n"
SUMMED = "ddp.grad_reduce_in_fp32"
MIXED = "mixed_precision=null mixed_precision="
KEEPS = "gradient_checkpointing: true\nactivation_offloading: "
FSDP2 = "dist_config: {name: fsdp2}"
FULL_STEP = (
    "--parallelism.tensor_parallel_degree 4 --training.local_batch_size=2"
)
TITANS = {"cp", "ep", "zero", "microbatch", "recompute", "seq", "batch"}
NEOX = """
pipe-parallel-size: 1
model-parallel-size: 1
num-layers: 12
hidden-size: 768
num-attention-heads: 12
seq-length: 2048
max-position-embeddings: 2048
train_micro_batch_size_per_gpu: 4
fp16: {enabled: true, type: bfloat16}
"""
OWN_DEEPSPEED = OF_DEEPSPEED.format("pretrain_gpt.py").replace("\n", "")
NO_STAGE = OWN_DEEPSPEED.replace("--deepspeed --zero-stage 3", "")
SUMS = json.loads(ULYSSES["a.json"].format(1))
BLOOM = "python t-zero/evaluation/{} --model_name_or_path bigscience/bloom-7b1 --report_to none"
BLOOM += " --per_device_eval_batch_size 8 --output_dir out"
LINEAR = TRAINER + "num_train_epochs: 2\nreport_to: wandb\n"
TRL = TRAINER.replace("linear", "cosine") + "report_to: none\n"
TRL_OFF = "max_length: 2048\nbf16: false\ngradient_checkpointing: false\n"
MULTIQUERY = SANTACODER.format("multiquery", 49152)
BLOOM_ROWS = MULTIQUERY.replace(
    "--vocab-size 49152", "--pad-vocab-size-to 250880"
)
PIPE = """pp_size: 4
  pipeline: {pp_schedule: interleaved1f1b, layers_per_stage: 5,
    round_virtual_stages_to_pp_multiple: down}"""
EIGHT_PAGED = TUNED.replace(
    "torch.optim.AdamW", "bitsandbytes.optim.AdamW8bit"
)


def deepspeed(**zero: Any) -> str:
    return json.dumps({"train_batch_size": 64, "zero_optimization": zero})


def maxtext(**more: Any) -> str:
    keys = {"model_name": "mixtral-8x7b", "per_device_batch_size": 1, **more}
    return json.dumps(keys)


def automodel(*changes: tuple[str, str]) -> str:
    text = AUTOMODEL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


READ: dict[str, tuple[str, str, dict[str, Any]]] = {
    # recipes/common.py sets use_distributed_optimizer, which Megatron-LM does not
    "recipes shard the optimizer": ("a.yaml", BRIDGE, {"zero": 1}),
    "a recipe that shards nothing": (
        "a.yaml",
        BRIDGE + "ddp: {use_distributed_optimizer: false}\n",
        {"zero": 0},
    ),
    "a dense recipe asks for no experts": (
        "a.sh",
        LLAMA_8B.format("_pretrain") + " model.seq_length=8",
        {"unread": OF_RECIPES},
    ),
    "a recipe with experts asks for them": (
        "a.sh",
        QWEN_30B.format("_pretrain") + " model.seq_length=8",
        {"unread": {*OF_RECIPES, "ep"}},
    ),
    "a recipe of FSDP asks for its stage": (
        "a.sh",
        QWEN_30B.format("_fsdp_pretrain") + " model.seq_length=8",
        {"unread": {*OF_RECIPES, "ep", "zero"}},
    ),
    "a whole configuration of Bridge asks nothing": (
        "run_config.yaml",
        BRIDGE.replace("model: {", SIZES),
        {"unread": set(), "zero": 0},
    ),
    "adapters of a recipe": (
        "a.sh",
        LLAMA_8B.format("_finetune") + " --peft_scheme lora",
        {"says": flags.ADAPTERS},
    ),
    "a recipe without adapters": (
        "a.sh",
        LLAMA_8B.format("_finetune") + " --peft_scheme none",
        {"silent": flags.ADAPTERS},
    ),
    # deepseek_v3_pretrain_1024gpu_h100_bf16 has tp 2, pp 8 of 4 chunks, ep 64; a flag wins
    "a recipe of the catalogue": (
        "a.sh",
        DEEPSEEK,
        {
            "unread": set(),
            "tp": 2,
            "pp": 8,
            "interleave": 4,
            "ep": 64,
            "etp": 1,
            "recompute": "mla_up_proj+mlp",
            "zero": 1,
            "sequence_parallel": True,
            "seq": 4096,
        },
    ),
    "a flag over a recipe of the catalogue": (
        "a.sh",
        DEEPSEEK + " model.expert_model_parallel_size=32",
        {"ep": 32},
    ),
    "a recipe that is not in the catalogue": (
        "a.sh",
        DEEPSEEK.replace("1024gpu", "1000gpu"),
        {"asks": {"tp"}},
    ),
    # activations_checkpoint_method: block stands in many files beside granularity: null
    "NeMo's method alone": (
        "a.yaml",
        NEMO + "  activations_checkpoint_method: block\n",
        {"recompute": "full"},
    ),
    "NeMo's method of no granularity": (
        "a.yaml",
        NEMO
        + "  activations_checkpoint_granularity: null\n"
        + "  activations_checkpoint_method: block\n"
        + "  activations_checkpoint_num_layers: 2\n",
        {"recompute": "none"},
    ),
    "NeMo's method of all of a layer": (
        "a.yaml",
        NEMO
        + "  activations_checkpoint_granularity: full\n"
        + "  activations_checkpoint_method: block\n"
        + "  activations_checkpoint_num_layers: 2\n",
        {"recompute": "full:2"},
    ),
    "NeMo's own words for biases and rows": (
        "a.yaml",
        NEMO
        + "  bias: false\n  qkv_bias: true\n  override_vocab_size: 65024\n",
        {"qkv_bias": True, "bias": False, "vocab": 65024, "vocab_multiple": 1},
    ),
    "NeMo's adapters": (
        "a.yaml",
        NEMO + "  peft: {peft_scheme: lora, lora_tuning: {adapter_dim: 32}}\n",
        {"says": flags.ADAPTERS},
    ),
    "no adapters of NeMo": (
        "a.yaml",
        NEMO + "  peft: {peft_scheme: null, lora_tuning: {adapter_dim: 32}}\n",
        {"silent": flags.ADAPTERS},
    ),
    "NeMo's experts one by one": (
        "a.yaml",
        NEMO + "  num_moe_experts: 8\n  moe_router_topk: 2\n",
        {"says": "one after the other", "left": set()},
    ),
    "NeMo's experts grouped": (
        "a.yaml",
        NEMO
        + "  num_moe_experts: 8\n  moe_router_topk: 2\n  moe_grouped_gemm: true\n",
        {"silent": "one after the other", "left": set()},
    ),
    # merge_file: null beside SentencePiece is no GPT-2
    "a kind of tokenizer without one vocabulary": (
        "a.yaml",
        BRIDGE.replace(
            "model: {",
            f"{SIZES}tokenizer_type: GPTSentencePieceTokenizer, merge_file: null, ",
        ),
        {"says": "vocabulary"},
    ),
    "Levanter's own tokenizer": (
        "a.yaml",
        LEVANTER + "data: {id: a/b}\n",
        {"vocab": 50257},
    ),
    "Levanter's data in another file": (
        "a.yaml",
        LEVANTER + "data: !include data/rpv1.yaml\n",
        {"says": "vocabulary"},
    ),
    # open-instruct's scripts/train/dgx-spark/sft_no_robots.sh was read in fp32
    "accelerate's numbers": (
        "a.sh",
        f"{ACCELERATE} {TRAIN}",
        {"precision": "bf16"},
    ),
    "the program's numbers over accelerate's": (
        "a.sh",
        f"{ACCELERATE} {TRAIN} --fp16",
        {"precision": "fp16"},
    ),
    "DeepSpeed by accelerate's command line": (
        "a.sh",
        f"{ACCELERATE} --use_deepspeed --deepspeed_config_file a/stage3_no_offload.conf {TRAIN}",
        {"zero": 3, "unread": set(), "framework": "deepspeed"},
    ),
    # run_clm.py --torch_dtype bfloat16 alone was read in fp32; DeepSpeed refuses such weights
    # without bf16.enabled (runtime/engine.py, __check_params)
    "numbers that no flag casts": (
        "a.sh",
        LOADED,
        {"precision": "bf16-pure", "optimizer": "adamw-pure"},
    ),
    "numbers that no flag casts, sharded": (
        "a.sh",
        f"{LOADED} --fsdp 'full_shard auto_wrap'",
        {"precision": "bf16-pure", "optimizer": "adamw-pure"},
    ),
    "numbers that DeepSpeed casts": (
        "a.sh",
        f"{LOADED} --deepspeed z3.json",
        {"precision": "fp32", "optimizer": None},
    ),
    "numbers that a flag casts": (
        "a.sh",
        f"{LOADED} --fsdp 'full_shard auto_wrap' --bf16",
        {"precision": "bf16", "optimizer": None},
    ),
    "a file in place of FSDP's words": (
        "a.sh",
        f"torchrun {TRAIN} --fsdp runs/alt_offload/fsdp.json",
        {"unread": {"zero"}, "offload": None},
    ),
    "FSDP's words": (
        "a.sh",
        f"torchrun {TRAIN} --fsdp 'full_shard auto_wrap offload'",
        {"offload": "optimizer+weights"},
    ),
    # its own flags among those of the Trainer, whatever program takes them
    "ms-swift by its flags": (
        "a.sh",
        f"torchrun {TRAIN} --tuner_type full --split_dataset_ratio 0",
        {"format": "ms-swift"},
    ),
    "a text of escapes is a word": (
        "a.sh",
        f"IFS=$'\\n\\t'\nNAME=$'it\\'s'\ntorchrun {TRAIN}",
        {"format": "transformers"},
    ),
    # overlap_comm is true in axolotl's own files (axolotl@58b1d3a4, deepspeed_configs); what is in
    # a file of another place is not known: DeepSpeed's default stands
    **{
        f"axolotl's DeepSpeed by {file}": (
            "a.yaml",
            f"{AXOLOTL}deepspeed: {file}\n",
            {"dp_overlap": overlap, "zero": int(file[-6])},
        )
        for file, overlap in (
            ("deepspeed_configs/zero1.json", "all"),
            ("deepspeed_configs/zero2.json", "all"),
            ("mine/zero2.json", None),
            ("mine/zero1.json", None),
        )
    },
    "axolotl's packed sequences": (
        "a.yaml",
        f"{AXOLOTL}sample_packing: true\n",
        {"says": "attend less"},
    ),
    "axolotl's sequences one by one": (
        "a.yaml",
        f"{AXOLOTL}sample_packing: false\n",
        {"silent": "attend less"},
    ),
    # ms-swift's examples/train/full/train.sh says 76 GiB on one GPU, where fp32 states would take
    # 137; LLaMA-Factory casts trained weights to fp32 (model/adapter.py)
    **{
        f"norms of a model's own code {i}": ("a.yaml", text, {"norm": norm})
        for i, (text, norm) in enumerate(NORMS)
    },
    # Megatron-Bridge's library fuses by itself; what a recipe does not say is the profile's
    **{
        f"a recipe's loss with {words}": (
            "a.yaml",
            BRIDGE.replace("model: {", f"model: {{{words}"),
            {"loss": loss},
        )
        for words, loss in (
            ("", None),
            ("cross_entropy_fusion_impl: te, ", "in place"),
            ("cross_entropy_fusion_impl: native, ", "fused"),
            ("cross_entropy_loss_fusion: false, ", "passes"),
        )
    },
    **{
        f"axolotl keeps in host memory what {said}": (
            "a.yaml",
            f"{AXOLOTL}{said}\n",
            {"offload": away, "left": left},
        )
        for said, away, left in (
            ("gradient_checkpointing: offload", "activations", set()),
            (KEEPS + "true", "activations", set()),
            (KEEPS + "legacy", "activations", set()),
            (KEEPS + "false", None, set()),
            (KEEPS + "disk", None, {"activation_offloading"}),
        )
    },
    "a switch of torchtitan needs no value": (
        "a.sh",
        REGISTRY.format(
            "llama3_8b",
            "--parallelism.tensor_parallel_degree 2"
            " --parallelism.enable_sequence_parallel",
        ),
        {"sequence_parallel": True, "left": set()},
    ),
    # mixed_precision's own sets that of ddp when the run starts (NVIDIA-NeMo/Megatron-Bridge@067f987,
    # training/config.py, runtime_config_update): a plan with gradients in 16 bits was written, and
    # read, by ddp's word, and ran with 32
    **{
        f"gradients of a recipe by {words}": (
            "a.sh",
            f"run_recipe.py --recipe llama3_70b_pretrain_config {words}",
            {"precision": numbers, "left": left},
        )
        for words, numbers, left in (
            ("mixed_precision=bf16_mixed", "bf16", set()),
            (
                f"mixed_precision=bf16_mixed {SUMMED}=false",
                "bf16",
                {SUMMED},
            ),
            (
                f"{MIXED}{{bf16:true,grad_reduce_in_fp32:false}}",
                "bf16-pure",
                set(),
            ),
            (f"{MIXED}{{bf16:true,grad_reduce_in_fp32:true}}", "bf16", set()),
        )
    },
    "torchtitan's products of 8 bits": (
        "a.sh",
        REGISTRY.format(
            "llama3_8b", "--model.converters quantize.linear.float8"
        ),
        {"precision": {"name": "fp8", "gather_bytes": 2.0}},
    ),
    "axolotl's products of 8 bits": (
        "a.yaml",
        f"{AXOLOTL}bf16: true\nfp8: true\ndp_shard_size: 8\n",
        {"precision": {"name": "fp8", "gather_bytes": 2.0}},
    ),
    "torchtune moves activations and states apart": (
        "config.yaml",
        TUNED.replace("ing: false", "ing: true") + "fsdp_cpu_offload: true\n",
        {"offload": "activations+optimizer+weights"},
    ),
    # DeepSpeed's pipelines stand in the training script
    "what another file decides is taken aloud": (
        "ds.json",
        '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 8,'
        ' "fp16": {"enabled": true}}',
        {"takes": {"pp": 1, "tp": 1}},
    ),
    "a list of windows with words in it is no pattern": (
        "config.yaml",
        "num_layers: 4\nhidden_size: 64\nwindow_size: 8\nseq_length: 8\n"
        "tensor_model_parallel_size: 1\nwindow_attn_skip_freq: [a]",
        {"layers": 4, "full_every": None},
    ),
    "what no one shards is trained as it was loaded": (
        "a.sh",
        SWIFT.format(""),
        {"precision": "bf16-pure", "optimizer": "adamw-pure"},
    ),
    "what DeepSpeed shards is not": (
        "a.sh",
        SWIFT.format("--deepspeed zero2"),
        {"precision": "bf16", "optimizer": None},
    ),
    "LLaMA-Factory casts": (
        "a.yaml",
        FACTORY,
        {"precision": "bf16", "silent": "no fp32 masters"},
    ),
    "a Llama of nanotron": ("a.yaml", NANOTRON, {"layers": 2}),
    "torchtitan of 2024": (
        "a.toml",
        TITAN,
        {
            "tp": 8,
            "cp": 2,
            "pp": 1,
            "microbatch": 4,
            "dp": 8,
            "dp_replicate": 2,
            "zero": 3,
            "precision": {"name": "fp8", "gather_bytes": 2.0},
            "left": set(),
        },
    ),
    "torchtitan of 2024 in 16 bits": (
        "a.toml",
        TITAN.replace("linear = true", "linear = false"),
        {"precision": "bf16"},
    ),
    "replicas that meet now and then": (
        "a.toml",
        TITAN
        + '[fault_tolerance]\nenable = true\nsemi_sync_method = "diloco"\n',
        {"left": {"fault_tolerance.semi_sync_method"}},
    ),
    **{
        f"LLaMA-Factory v1 with {dist}": (
            "a.yaml",
            V1.format(f"dist_config: {dist}"),
            {
                "format": "llama-factory-v1",
                "zero": zero,
                "batch": None,
                "precision": numbers,
                "optimizer": optimizer,
            },
        )
        for dist, zero, numbers, optimizer in (
            ("{name: fsdp2}", 3, "bf16-pure", "adamw-pure"),
            (
                "{name: fsdp2, reshard_after_forward: false}",
                2,
                "bf16-pure",
                "adamw-pure",
            ),
            (
                "{name: deepspeed, config_file: a/ds_z3_config.json}",
                3,
                "bf16-pure",
                None,
            ),
            ("{name: fsdp2}\nbf16: false", 3, "fp32", None),
        )
    },
    "LLaMA-Factory v1 with a plugin that is not known": (
        "a.yaml",
        V1.format("dist_config: {name: other}"),
        {"unread": {"zero"}},
    ),
    "LLaMA-Factory v1 with adapters": (
        "a.yaml",
        V1.format(f"{FSDP2}\npeft_config: {{name: lora, r: 8}}"),
        {"says": flags.ADAPTERS},
    ),
    "LLaMA-Factory v1 with a batch": (
        "a.yaml",
        V1.format(f"global_batch_size: 64\n{FSDP2}"),
        {"batch": "64seq"},
    ),
    # flags come before the registry's function (config/manager.py), not before the command line's
    # own defaults: tp 8 of llama3_70b, whose local batch is 8
    "a registered configuration": (
        "a.sh",
        REGISTRY.format("llama3_70b", ""),
        {"tp": 8, "microbatch": 8, "recompute": "full"},
    ),
    "flags over a registered configuration": (
        "a.sh",
        REGISTRY.format("llama3_70b", FULL_STEP),
        {"tp": 4, "microbatch": 2, "recompute": "full"},
    ),
    "a configuration that nobody knows": (
        "a.sh",
        REGISTRY.format("own_7b", "--parallelism.pipeline_parallel_degree 2"),
        {"unread": {*TITANS, "tp"}, "pp": 2, "batch": None},
    ),
    # MODULE and CONFIG since 0.3, CONFIG_FILE before: what they set is not torchtitan's default
    "a configuration by the environment": (
        "a.sh",
        RUN.format("MODULE=llama3 CONFIG=llama3_8b"),
        {"model": "llama3-8b", "seq": 8192},
    ),
    **{
        f"a configuration that is not known by {said}": (
            "a.sh",
            RUN.format(said),
            {"asks": {"pp", "cp", "recompute", "seq"}, "tp": 2},
        )
        for said in (
            "MODULE=own CONFIG=own_8b",
            "CONFIG_FILE=a.toml",
            "nothing=",
        )
    },
    "Megatron's own tests": (
        "model_config.yaml",
        TEST,
        {
            "format": "megatron",
            "unread": set(),
            "tp": 4,
            "zero": 1,
            "microbatch": 4,
            "sequence_parallel": False,
            "batch": "32seq",
        },
    ),
    # fp16: {type: bfloat16}, with gradients added up in as many bits unless told
    "bfloat16 of GPT-NeoX": (
        "a.yml",
        NEOX,
        {"format": "gpt-neox", "precision": "bf16-pure"},
    ),
    "bfloat16 of GPT-NeoX with wide gradients": (
        "a.yml",
        NEOX + "data_types: {grad_accum_dtype: fp32}\n",
        {"precision": "bf16"},
    ),
    "fp16 of GPT-NeoX": (
        "a.yml",
        NEOX.replace(", type: bfloat16", ""),
        {"precision": "fp16-pure"},
    ),
    # runtime/zero/config.py, overlap_comm_valid: on by default with stage 3 alone, as the profile
    # has it; what a file says is said of it
    **{
        f"DeepSpeed's stage {stage} {told}": (
            "ds.json",
            deepspeed(stage=stage, **told),
            {"dp_overlap": overlap},
        )
        for stage, told, overlap in (
            (2, {}, None),
            (2, {"overlap_comm": True}, "all"),
            (2, {"overlap_comm": False}, None),
            (3, {}, None),
            (3, {"overlap_comm": True}, "all"),
            (3, {"overlap_comm": False}, "off"),
            (1, {"overlap_comm": True}, "all"),
        )
    },
    # older words, and weights with stage 3 alone (runtime/engine.py gives them to no other)
    **{
        f"DeepSpeed keeps {zero}": (
            "ds.json",
            deepspeed(**zero),
            {"offload": offload},
        )
        for zero, offload in (
            ({"stage": 2, "cpu_offload": True}, "optimizer:1"),
            ({"stage": 3, "cpu_offload_params": True}, "weights"),
            ({"stage": 2, "offload_param": {"device": "cpu"}}, None),
            ({"stage": 3, "offload_param": {"device": "cpu"}}, "weights"),
        )
    },
    "a stage in another file of DeepSpeed": (
        "a.yaml",
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
        "deepspeed_config: {deepspeed_config_file: zero3.json}\n",
        {"unread": {"zero"}, "zero": None},
    ),
    # Megatron-DeepSpeed's own arguments.py
    "words of Megatron-DeepSpeed": (
        "a.sh",
        OWN_DEEPSPEED
        + " --num-key-value-heads 8 --ds-sequence-parallel-size 4 --use-flash-attn-v2\n",
        {
            "kv_heads": 8,
            "attention_kernel": "fa2",
            "cp": 4,
            "cp_exchange": "all-to-all",
        },
    ),
    # the stage may stand in its file alone (examples_deepspeed/MoE of Megatron-DeepSpeed): the run
    # was taken for Megatron's own, without ZeRO
    "DeepSpeed's file beside Megatron's arguments": (
        "a.sh",
        NO_STAGE + " --deepspeed --deepspeed_config a.json\n",
        {"unread": {"zero"}, "framework": "megatron-deepspeed"},
    ),
    "DeepSpeed's schedule and length in tokens": (
        "a.sh",
        NO_STAGE
        + " --deepspeed --zero-stage 1 --pipeline-model-parallel-size 2"
        " --enable-zbh1-pipeline --train-tokens 300000000000 --cpu-optimizer\n",
        {
            "unread": set(),
            "schedule": "zb-h1",
            "tokens": 3e11,
            "offload": "optimizer:1",
        },
    ),
    **{
        f"DeepSpeed sums gradients in {word}": (
            "a.json",
            json.dumps({**SUMS, "communication_data_type": word}),
            {"reduction_numbers": sums, "left": left},
        )
        for word, sums, left in (
            ("fp32", "fp32", set()),
            ("bf16", None, set()),
            ("fp16", None, {"communication_data_type"}),
        )
    },
    # QwenLM/Qwen, finetune/finetune_ds.sh: it said that it trains True
    "a name of a model that is set elsewhere": (
        "a.sh",
        "torchrun a.py --model_name_or_path $M --report_to none --num_train_epochs 1",
        {"model": None, "missing": []},
    ),
    "bigscience's training": (
        "a.sh",
        BLOOM.format("run_clm.py"),
        {"format": "transformers"},
    ),
    **{
        f"MaxText's model with {more}": (
            "run.yml",
            maxtext(**more),
            {"model": model},
        )
        for more, model in (
            ({"base_num_decoder_layers": 32}, "mixtral-8x7b"),
            ({"base_num_decoder_layers": 5}, None),
            ({"base_emb_dim": 2048}, None),
        )
    },
    **{
        f"Megatron recomputes {count} layers of each stage": (
            "a.sh",
            EIGHT.strip() + " --recompute-granularity full"
            f" --recompute-method block --recompute-num-layers {count}",
            {"recompute": recompute},
        )
        for count, recompute in ((0, "none"), (3, "full:3"))
    },
    **{
        f"Megatron's --{flag} is said": (
            "a.sh",
            f"{EIGHT.strip()} --{flag}",
            {"left": {flag.partition(" ")[0].replace("-", "_")}},
        )
        for flag in (
            "moe-router-force-biased 1.0",
            "output-logit-dtype fp32",
            "export-force-local-attention",
        )
    },
    "a hybrid recipe of Bridge": (
        "a.sh",
        RECIPE.format("nemotronh_8b_pretrain_config") + " model.seq_length=8",
        {"model": "nemotron-h-8b"},
    ),
    **{
        f"a recipe with next tokens {layers}": (
            "a.sh",
            f"{DEEPSEEK} model.mtp_num_layers={layers}",
            {"missing": [], "left": set()}
            if layers == "1"
            else {"says": "other sizes (mtp_num_layers"},
        )
        for layers in ("1", "2", "null")
    },
    **{
        f"MaxText's one-hot rows {on}": (
            "run.yml",
            maxtext(use_iota_embed=on),
            {"left": {"use_iota_embed"} if on else set()},
        )
        for on in (False, True)
    },
    # base.yml has them on; without sparse products every expert works on every token
    **{
        f"MaxText with {key} {on}": (
            "run.yml",
            maxtext(**{key: on}),
            {"left": set() if on else {key}},
        )
        for key in (
            "sparse_matmul",
            "megablox",
            "context_parallel_load_balance",
        )
        for on in (False, True)
    },
    # configs/base.yml: context_parallel_strategy, use_dpo
    "MaxText's ring": (
        "run.yml",
        maxtext(ici_context_parallelism=2, context_parallel_strategy="ring"),
        {"cp_exchange": "ring"},
    ),
    "MaxText's gathers": (
        "run.yml",
        maxtext(ici_context_parallelism=2),
        {"cp_exchange": "gather"},
    ),
    "MaxText without preferences": (
        "run.yml",
        maxtext(use_dpo=False),
        {"left": set()},
    ),
    # LambdaLabsML/torchtitan, configs/llama3_405b-32xgb300-8k.toml: 405B on 32 GB300
    "torchtitan's weights in 16 bits": (
        "a.toml",
        LAMBDA,
        {"precision": "bf16-pure", "optimizer": "adamw-pure"},
    ),
    "torchtitan's weights in fp32": (
        "a.toml",
        LAMBDA.replace('dtype = "bfloat16"', ""),
        {"optimizer": None},
    ),
    # bitsandbytes, under half of axolotl's examples; fp32 masters were taken on one GPU: 18 bytes
    # for 6, so that a model of 7B did not fit where people train it
    **{
        f"moments of a byte by {word}": (
            "a.yaml",
            EIGHT_BITS.format(word),
            {
                "precision": "bf16-pure",
                "optimizer": "adamw-8bit-pure",
                "left": set(),
            },
        )
        for word in ("adamw_bnb_8bit", "paged_adamw_8bit", "adamw_8bit")
    },
    **{
        f"sharded moments of a byte by {word}": (
            "a.yaml",
            EIGHT_BITS.format(word) + "fsdp_version: 2\n",
            {"precision": "bf16", "optimizer": "adamw-8bit"},
        )
        for word in ("adamw_bnb_8bit", "paged_adamw_8bit", "adamw_8bit")
    },
    "torchtune's moments of a byte": (
        "full.yaml",
        EIGHT_PAGED,
        {"optimizer": "adamw-8bit-pure"},
    ),
    "the Trainer's numbers": ("a.yaml", LINEAR, {"unread": set()}),
    # allenai/open-instruct's configurations, which say no bf16 and run in it
    "a loop without the Trainer": (
        "a.yaml",
        LINEAR + "checkpointing_steps: epoch\n",
        {"unread": {"precision", "zero"}},
    ),
    # examples/aquila/conf/train/34b.yaml of FlagOpen/FlagScale@da4935ec, in part: sections mean
    # nothing, and the feed-forward is 8/3 x 6,144 x 1.3, rounded up to 4,096. It was read as
    # Megatron-Bridge, whose gradients are summed beside the backward pass, with a width of 16,384
    "FlagScale starts Megatron": (
        "34b.yaml",
        FLAGSCALE,
        {
            "format": "megatron",
            "left": set(),
            "ffn": 6 * 4096,
            "dp_overlap": "off",
            "tp": 4,
            "zero": 1,
        },
    ),
    # trl/trainer/base_config.py, f2cd577: bf16 and recomputation; TrainingArguments has neither
    "TRL's keys without its own": (
        "sft.yaml",
        TRL,
        {"precision": "fp32", "recompute": None},
    ),
    "what TRL switches on": (
        "sft.yaml",
        TRL + "max_length: 2048\n",
        {
            "precision": "bf16",
            "recompute": "full",
            "takes": {"precision": "bf16"},
        },
    ),
    "what TRL is told to leave off": (
        "sft.yaml",
        TRL + TRL_OFF + "loss_type: dft\n",
        {"precision": "fp32", "recompute": None},
    ),
    # bigcode-project/Megatron-LM has one key for all heads by this word; BigScience's rows of the
    # embedding are told; OpenGPTX/Megatron-LM, Teuken 7B
    "one key for all heads": ("a.sh", MULTIQUERY, {"kv_heads": 1}),
    "a key for each head": (
        "a.sh",
        MULTIQUERY.replace("query", "head"),
        {"kv_heads": None, "gated": False},
    ),
    "rows that are padded to": ("a.sh", BLOOM_ROWS, {"vocab": 250880}),
    "T5's word for a gate": (
        "a.sh",
        BLOOM_ROWS + " --t5-swiglu",
        {"gated": True},
    ),
    # experts' weights stay gathered unless told, all stay in a pipeline, dense ones do not
    "AutoModel's experts": (
        "run.yaml",
        automodel(),
        {
            "model": "qwen3-30b-a3b",
            "precision": "bf16-pure",
            "zero": 2,
            "routing": "neighbours",
            "recompute": "full",
            "missing": [],
            "says": "of 2 microbatches",
            "left": {"distributed.defer_fsdp_grad_sync"},
        },
    ),
    "AutoModel gathers again": (
        "run.yaml",
        automodel(
            ("reshard_after_forward: false", "reshard_after_forward: true")
        ),
        {"zero": 3},
    ),
    "AutoModel's dense layers": (
        "run.yaml",
        automodel(("ep_size: 8", "ep_size: 1")),
        {"zero": 3},
    ),
    "AutoModel's DDP": (
        "run.yaml",
        automodel(("fsdp2", "ddp")),
        {"zero": 0},
    ),
    # 48 layers in 10 stages, rounded down to 8
    "AutoModel's pipeline": (
        "run.yaml",
        automodel(
            ("pp_size: 1", PIPE),
            ("local_batch_size: 4", "local_batch_size: 32"),
        ),
        {
            "zero": 1,
            "microbatch": 1,
            "interleave": 2,
            "schedule": "interleaved",
        },
    ),
    "AutoModel's masters": (
        "run.yaml",
        automodel(("  backend:", "  torch_dtype: float32\n  backend:")),
        {"precision": "bf16"},
    ),
    # two layers of a model were answered as all of it, with a note on an unknown key
    "AutoModel's model with two layers": (
        "run.yaml",
        automodel(
            ("    pretrained", "    num_hidden_layers: 2\n    pretrained")
        ),
        {"says": "num_hidden_layers 2"},
    ),
    "AutoModel's model with its own layers": (
        "run.yaml",
        automodel(
            ("    pretrained", "    num_hidden_layers: 48\n    pretrained")
        ),
        {"missing": [], "left": {"distributed.defer_fsdp_grad_sync"}},
    ),
    "TRL's fine-tuning": (
        "a.sh",
        TRAIN.replace("train.py", "trl sft"),
        {"format": "transformers"},
    ),
}
"""(File, text, field -> value, as in `demand_meaning`)."""


@pytest.mark.parametrize("case", READ)
def test_a_file_means(case: str) -> None:
    name, text, fields = READ[case]
    chips = 64 if "AutoModel" in case else None
    demand_meaning(bridge.read_file(name, text, chips=chips), fields)


REFUSED: dict[str, tuple[str, str, str]] = {
    **{
        f"Bridge's {words}": (
            "a.yaml",
            BRIDGE.replace("model: {", f"model: {{{key}, "),
            words,
        )
        for key, words in (
            ("teacher: {seq_length: 4096}", "distillation"),
            ("crossattn_emb_size: 64", "diffusion"),
        )
    },
    "NeMo trains nothing": (
        "a.yaml",
        NEMO.replace("  optim: {name: fused_adam}\n", ""),
        "trains none",
    ),
    "NeMo converts": (
        "a.yaml",
        NEMO.replace("exp_m", "run: {nemo_file_name: a.nemo}\nexp_m"),
        "trains none",
    ),
    "NeMo's BERT": ("a.yaml", f"{NEMO}  mcore_bert: true\n", "mcore_bert"),
    "NeMo's Mamba": (
        "a.yaml",
        f"{NEMO}  mamba_ssm_ngroups: 8\n",
        "mamba_ssm_ngroups",
    ),
    "NeMo's images": (
        "a.yaml",
        NEMO + "  mm_cfg: {llm: {freeze: true}}\n",
        "images",
    ),
    # auto_configurator/base_configs/bert.yaml of NeMo's launcher was read as a GPT
    "NeMo's BERT without its second head": (
        "a.yaml",
        NEMO + "  bert_binary_head: false\n  data: {masked_lm_prob: 0.15}\n",
        "only decoders",
    ),
    "Levanter's evaluation": (
        "a.yaml",
        LEVANTER + "checkpoint_is_hf: true\n",
        "trains none",
    ),
    # nanotron takes no key that a configuration lacks: GPT-style ones build another model
    "another model of nanotron": (
        "a.yaml",
        NANOTRON.replace(
            "num_hidden", "activation_function: gelu, num_hidden"
        ),
        "activation_function.*another model",
    ),
    "images in torchtitan": (
        "a.toml",
        TITAN + "[data]\nmax_patches_per_image = 8\n",
        "images",
    ),
    "Python": ("train.py", "raise SystemExit", "Python.*run_config.yaml"),
    # torchtitan's config_registry.py and OLMo-core's scripts are Python
    "Python of torchtitan": (
        "config_registry.py",
        "x = 1\n",
        "--module NAME --config NAME",
    ),
    # LitGPT claims a file with data and train sections, of which it knows nearly no key
    "the tool that explains a file": (
        "a.yaml",
        BRIDGE.replace("model: {", "model: {teacher: {seq_length: 1}, ")
        + "checkpoint_dir: a\ndata: {class_path: b}\n",
        "Megatron-Bridge.*distillation",
    ),
    "LLaMA-Factory v1's classifier": (
        "a.yaml",
        V1.format(FSDP2).replace("llm", "cls"),
        "classifier",
    ),
    "Megatron's test that writes": (
        "a.yaml",
        TEST + "  --inference-max-requests: 4\n",
        "writes text",
    ),
    "Megatron-DeepSpeed's data": (
        "a.sh",
        OF_DEEPSPEED.format("../analyze_data.py").replace("\n", ""),
        "trains nothing",
    ),
    # evaluation/results/tr13/tzeroeval of bigscience was read as training in fp32
    "an evaluation by the Trainer's flags": (
        "a.sh",
        BLOOM.format("run_eval.py"),
        "measures a model",
    ),
    # examples/nemo_gym/grpo_qwen3_30ba3b_instruct.yaml, in part, was read as Megatron-Bridge
    "preferences of NeMo RL": (
        "grpo.yaml",
        "grpo: {num_prompts_per_step: 64}\npolicy: {train_global_batch_size: 512,"
        " megatron_cfg: {tensor_model_parallel_size: 4}}\n",
        "NeMo RL",
    ),
    "MaxText's preferences": ("a.yml", maxtext(use_dpo=True), "preferences"),
    "MaxText's images": ("a.yml", maxtext(use_multimodal=True), "images"),
    "FlagScale's uneven machines": (
        "34b.yaml",
        FLAGSCALE.replace("system:\n", "system:\n  enable_hetero: true\n"),
        "several kinds",
    ),
    "TRL's preferences": (
        "sft.yaml",
        TRL + TRL_OFF + "loss_type: sigmoid\n",
        "preferences",
    ),
    # configs/multimodal/qwen2_vl of ByteDance-Seed/VeOmni, in part, was read as LitGPT
    "VeOmni's images": (
        "qwen2_vl.yaml",
        "model: {model_path: Qwen2-VL}\ntrain: {global_batch_size: 32, micro_batch_size: 1,"
        " accelerator: {ulysses_size: 1}, checkpoint: {output_dir: out}, lr_warmup_ratio: 0.1}\n",
        "VeOmni",
    ),
    **{
        f"AutoModel's {new}": (
            "a.yaml",
            automodel((old, new)),
            "NeMo AutoModel",
        )
        for old, new in (
            ("CausalLM", "ImageTextToText"),
            (
                "BenchmarkingRecipeForNextToken",
                "KnowledgeDistillationRecipeForPairs",
            ),
            ("seed: 1234", "teacher_model: {_target_: a.B}"),
        )
    },
    # MedicalGPT's scripts/run_dpo.sh and run_rm.sh, whose flags are the Trainer's alone
    **{
        f"preferences by {program}": (
            "a.sh",
            TRAIN.replace("train.py", program),
            "preferences or rewards",
        )
        for program in (
            *("python training/dpo_training.py", "python reward_modeling.py"),
            *("python ppo.py", "python grpo.py", "trl dpo"),
        )
    },
}
"""(File, text, what its refusal says)."""


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_of_another_kind_is_refused(case: str) -> None:
    name, text, words = REFUSED[case]
    with refusal(words):
        bridge.read_file(name, text)
