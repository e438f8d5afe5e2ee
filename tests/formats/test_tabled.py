"""Formats that their table says: what a file says is in the job, said to be left out, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshwright import BadInput, Job, Layout
from meshwright.formats import bridge, flags
from meshwright.formats.bridge import launch, table
from meshwright.formats.bridge.keys import FUNCTIONS, PLAIN, READERS
from meshwright.formats.bridge.reading import FileKeys
from refusals import refusal

JOB = Job("llama3-8b", "8xh100-sxm", 8, Layout(dp=8, zero=3))
TABLED = [
    name
    for name, format in table.formats().items()
    if format.own and format.enough > 1
]
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "nanotron": (
        """
general: {project: p, run: r, seed: 1}
checkpoints: {checkpoint_interval: 10, checkpoints_path: out}
model:
  dtype: bfloat16
  init_method: {std: 0.02}
  model_config: {hidden_size: 512, num_hidden_layers: 8, num_attention_heads: 8,
    num_key_value_heads: 4, intermediate_size: 1536, vocab_size: 32768,
    max_position_embeddings: 2048, tie_word_embeddings: true, is_llama_config: true}
optimizer: {zero_stage: 1, accumulate_grad_in_fp32: true, optimizer_factory: {name: adamW}}
parallelism: {dp: 4, pp: 2, tp: 2, tp_mode: REDUCE_SCATTER, pp_engine: 1f1b,
  tp_linear_async_communication: true, recompute_layer: true}
tokens: {micro_batch_size: 2, sequence_length: 1024, batch_accumulation_per_replica: 8,
  train_steps: 100}
""",
        # 8 layers of (4 x 512 + 3 x 1536) x 512, and a head of 32,768 x 512, in two shares
        {
            "model": {"layers": 8, "ffn": 1536, "tied_embeddings": True},
            "layout": {
                "tp": 2,
                "pp": 2,
                "dp": 4,
                "zero": 1,
                "microbatch": 2,
                "sequence_parallel": True,
                "recompute": "full",
                "schedule": "1f1b",
                "stages": "7,1",
            },
            "job": {"seq": 1024, "batch": "64seq", "precision": "bf16"},
        },
    ),
    "nemo": (
        # launcher_scripts/conf/training/gpt3/175b.yaml of NeMo-Framework-Launcher, 056a90ed, in part
        """
run: {name: gpt3_175b, time_limit: "26-00:00:00"}
trainer: {num_nodes: 128, devices: 8, accelerator: gpu, precision: bf16, max_steps: 75000, accumulate_grad_batches: 1, gradient_clip_val: 1.0}
exp_manager: {name: megatron_gpt, resume_if_exists: true}
model:
  micro_batch_size: 1
  global_batch_size: 2048
  rampup_batch_size: null
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 8
  virtual_pipeline_model_parallel_size: 12
  encoder_seq_length: 2048
  max_position_embeddings: 2048
  num_layers: 96
  hidden_size: 12288
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 96
  init_method_std: 0.006
  hidden_dropout: 0.1
  kv_channels: null
  apply_query_key_layer_scaling: true
  layernorm_epsilon: 1e-5
  make_vocab_size_divisible_by: 128
  pre_process: true
  gradient_accumulation_fusion: true
  activations_checkpoint_granularity: selective
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 0
  num_micro_batches_with_partial_activation_checkpoints: null
  sequence_parallel: true
  tokenizer: {library: megatron, type: GPT2BPETokenizer, vocab_file: "${data_dir}/vocab.json"}
  fp32_residual_connection: false
  megatron_amp_O2: true
  grad_allreduce_chunk_size_mb: 125
  transformer_engine: true
  fp8: false
  fp8_hybrid: true
  ub_tp_comm_overlap: true
  seed: 1234
  overlap_p2p_comm: true
  nsys_profile: {enabled: false, ranks: [0]}
  optim:
    name: distributed_fused_adam
    bucket_cap_mb: 100
    overlap_grad_sync: true
    overlap_param_sync: true
    lr: 0.9e-4
    sched: {name: CosineAnnealing, warmup_steps: 115}
  data: {data_impl: mmap, seq_length: 2048, data_prefix: [.5, a]}
""",
        {
            "model": {
                "layers": 96,
                "hidden": 12288,
                "ffn": 4 * 12288,
                "vocab": 50257,
            },
            "layout": {
                "tp": 4,
                "pp": 8,
                "interleave": 12,
                "zero": 1,
                "microbatch": 1,
                "sequence_parallel": True,
                "recompute": "selective",
            },
            "job": {"seq": 2048, "batch": "2048seq", "precision": "bf16"},
        },
    ),
    "gpt-neox": (
        """{
  "pipe-parallel-size": 2, "model-parallel-size": 4, "num-layers": 24, "hidden-size": 1536,
  "num-attention-heads": 16, "num_kv_heads": 4, "seq-length": 2048,
  "max-position-embeddings": 2048, "norm": "rmsnorm", "pos-emb": "rotary",
  "no-weight-tying": True, "activation": "swiglu", "intermediate_size": 12288,
  "use_bias_in_mlp": False, "use_bias_in_attn_linear": False,
  "attention-config": [[["flash"], 24]], "checkpoint-activations": True,
  "zero_optimization": {"stage": 1, "reduce_scatter": True},
  "fp16": {"enabled": True, "loss_scale": 0}, "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 3, "optimizer": {"type": "Adam", "params": {"lr": 1.0e-4}},
  "global_num_gpus": 32, "train-iters": 10,
}""",
        {
            "model": {
                "ffn": 4096,
                "gated": True,
                "vocab": 50257,
                "bias": False,
            },
            "layout": {"tp": 4, "pp": 2, "zero": 1, "recompute": "full"},
            "job": {
                "batch": "48seq",
                "precision": "fp16-pure",
                "attention_kernel": "fa2",
            },
        },
    ),
    "transformers": (
        """
model_name_or_path: Qwen/Qwen2.5-7B
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
gradient_checkpointing: true
max_length: 4096
bf16: true
packing: true
num_train_epochs: 1
lr_scheduler_type: cosine
optim: adamw_torch_fused
fsdp: full_shard auto_wrap
attn_implementation: flash_attention_2
""",
        {
            "layout": {"zero": 3, "microbatch": 2, "recompute": "full"},
            "job": {
                "seq": 4096,
                "batch": "512seq",
                "precision": "bf16",
                "attention_kernel": "fa2",
            },
        },
    ),
    "olmo-core": (
        """
model:
  _CLASS_: olmo_core.nn.transformer.config.TransformerConfig
  d_model: 4096
  vocab_size: 100352
  n_layers: 32
  block:
    name: reordered_norm
    attention: {n_heads: 32, n_kv_heads: 8, bias: false, rope: {name: default, theta: 500000},
      qk_norm: {name: rms, eps: 1.0e-06, bias: false}, use_flash: true}
    feed_forward: {hidden_size: 11008, bias: false}
    layer_norm: {name: rms, eps: 1.0e-06, bias: false}
  lm_head: {bias: false}
data_loader: {global_batch_size: 4194304, work_dir: a}
train_module:
  rank_microbatch_size: 16384
  max_sequence_length: 4096
  compile_model: true
  dp_config: {name: hsdp, param_dtype: bfloat16, reduce_dtype: float32, num_replicas: 4,
    wrapping_strategy: blocks}
  ac_config: {mode: selected_blocks, block_interval: 4}
  optim: {_CLASS_: olmo_core.optim.adamw.SkipStepAdamWConfig, lr: 3.0e-4}
trainer: {max_duration: {value: 1000, unit: steps}}
""",
        # 4,194,304 tokens of 4,096; every fourth of 32 blocks runs again
        {
            "model": {
                "layers": 32,
                "ffn": 11008,
                "kv_heads": 8,
                "vocab": 100352,
                "norm": "rmsnorm",
                "qk_norm_whole": True,
                "rope_base": 500000,
                "qkv_bias": False,
            },
            "layout": {
                "tp": 1,
                "microbatch": 4,
                "zero": 3,
                "dp_replicate": 4,
                "recompute": "full:8",
            },
            "job": {
                "seq": 4096,
                "batch": "1024seq",
                "tokens": 1000 * 4194304,
                "precision": "bf16",
                "attention_kernel": "fa2",
            },
            "software": {"compiled": True},
        },
    ),
    "ms-swift": (
        """
model: Qwen/Qwen2.5-7B
tuner_type: full
torch_dtype: bfloat16
attn_impl: flash_attn
split_dataset_ratio: 0.01
dataset: [a]
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
max_length: 4096
deepspeed: zero2
max_steps: 10
num_train_epochs: 1
""",
        {
            "layout": {
                "tp": 1,
                "microbatch": 2,
                "zero": 2,
                "recompute": "full",
            },
            "job": {
                "seq": 4096,
                "batch": "512seq",
                "precision": "bf16",
                "attention_kernel": "fa2",
                "framework": "deepspeed",
            },
        },
    ),
    "ms-swift-megatron": (
        """
model: Qwen/Qwen2.5-7B
mcore_adapter: null
save_safetensors: true
dataset: [a]
max_length: 8192
tensor_model_parallel_size: 2
sequence_parallel: true
micro_batch_size: 2
global_batch_size: 64
recompute_granularity: full
recompute_method: uniform
recompute_num_layers: 1
train_iters: 10
lr: 1.0e-5
min_lr: 1.0e-6
no_save_optim: true
""",
        {
            "layout": {
                "tp": 2,
                "microbatch": 2,
                "zero": 1,
                "recompute": "full",
            },
            "job": {"seq": 8192, "batch": "64seq", "precision": "bf16"},
            "software": {"dp_overlap": "off", "loss": "fused"},
        },
    ),
    "llama-factory-v1": (
        """
model: Qwen/Qwen2.5-7B
model_class: llm
flash_attn: flash_attention_2
kernel_config: {name: auto}
dist_config: {name: fsdp2, dcp_path: null}
cp_mode: ulysses
cp_size: 2
train_dataset: data/some.yaml
micro_batch_size: 2
cutoff_len: 4096
batching_strategy: padding_free
max_steps: 10
""",
        # weights stay in the numbers of their checkpoint; FSDP2 beside cp is torchtitan's
        {
            "layout": {
                "cp": 2,
                "cp_exchange": "all-to-all",
                "microbatch": 2,
                "zero": 3,
                "recompute": "full",
            },
            "job": {
                "seq": 4096,
                "batch": "64seq",
                "precision": "bf16-pure",
                "optimizer": "adamw-pure",
                "attention_kernel": "fa2",
                "framework": "torchtitan",
            },
        },
    ),
    "llama-factory": (
        """
stage: sft
do_train: true
finetuning_type: full
template: qwen
model_name_or_path: Qwen/Qwen2.5-7B
cutoff_len: 8192
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
deepspeed: somewhere/ds_z3_config.json
bf16: true
packing: true
""",
        {
            "layout": {"zero": 3, "microbatch": 1, "recompute": "full"},
            "job": {
                "seq": 8192,
                "batch": "128seq",
                "precision": "bf16",
                "framework": "deepspeed",
            },
        },
    ),
    "torchtune": (
        """
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 8192}
optimizer: {_component_: torch.optim.AdamW, lr: 2e-5}
loss: {_component_: torch.nn.CrossEntropyLoss}
dataset: {_component_: torchtune.datasets.alpaca_dataset, packed: true}
batch_size: 2
gradient_accumulation_steps: 8
enable_activation_checkpointing: true
compile: true
dtype: bf16
""",
        {
            "layout": {"zero": 3, "microbatch": 2, "recompute": "full"},
            "job": {
                "seq": 8192,
                "batch": "1024seq",
                "precision": "bf16-pure",
                "optimizer": "adamw-pure",
            },
            "software": {"compiled": True},
        },
    ),
    "litgpt": (
        """
checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B
out_dir: out
precision: bf16-true
devices: 8
num_nodes: 2
data: {class_path: litgpt.data.Alpaca2k}
train: {global_batch_size: 64, micro_batch_size: 4, max_seq_length: 1024, lr_warmup_steps: 5}
optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 1e-4}}
""",
        {
            "layout": {"zero": 3, "microbatch": 4, "recompute": "full"},
            "job": {
                "seq": 1024,
                "batch": "64seq",
                "precision": "bf16-pure",
                "optimizer": "adamw-pure",
            },
        },
    ),
    "automodel": (
        # examples/llm_benchmark/qwen/qwen3_moe_30b_te_deepep.yaml of NeMo AutoModel, 36044ad, in part
        """
recipe: BenchmarkingRecipeForNextTokenPrediction
seed: 1234
step_scheduler: {global_batch_size: 512, local_batch_size: 4, ckpt_every_steps: 1000, max_steps: 30}
distributed:
  strategy: fsdp2
  tp_size: 1
  cp_size: 1
  pp_size: 1
  ep_size: 8
  activation_checkpointing: true
  moe: {reshard_after_forward: false}
dist_env: {backend: nccl, timeout_minutes: 10}
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_config
  config:
    _target_: transformers.AutoConfig.from_pretrained
    pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B
  backend: {attn: te, linear: te, experts: gmm, dispatcher: deepep, fake_balanced_gate: true}
loss_fn: {_target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy}
dataset: {seq_len: 4096}
optimizer: {_target_: torch.optim.Adam, lr: 0.0001}
""",
        {
            "layout": {
                "ep": 8,
                "zero": 2,
                "microbatch": 4,
                "recompute": "full",
            },
            "job": {
                "seq": 4096,
                "batch": "512seq",
                "precision": "bf16-pure",
                "optimizer": "adamw-pure",
                "attention_kernel": "cudnn",
            },
            "software": {"compiled": False, "dispatcher": "deepep"},
        },
    ),
    "olmo": (
        """
run_name: r
model: {d_model: 1024, n_heads: 16, n_layers: 16, mlp_hidden_size: 8192, weight_tying: false,
  rope: true, alibi: false, flash_attention: true, attention_dropout: 0.0, residual_dropout: 0.0,
  embedding_dropout: 0.0, include_bias: false, layer_norm_type: rms, block_type: sequential,
  attention_layer_norm: true, activation_type: swiglu, max_sequence_length: 4096,
  vocab_size: 50280, embedding_size: 50304}
fsdp: {wrapping_strategy: by_block, precision: mixed, sharding_strategy: SHARD_GRAD_OP}
activation_checkpointing: one_in_four
global_train_batch_size: 512
device_train_microbatch_size: 2
device_eval_batch_size: 2
precision: amp_bf16
optimizer: {name: adamw, learning_rate: 3e-4}
max_duration: 1e9T
""",
        {
            "model": {
                "ffn": 4096,
                "vocab": 50304,
                "qk_norm_whole": True,
                "tied_embeddings": False,
                "bias": False,
            },
            "layout": {"zero": 2, "microbatch": 2, "recompute": "full:4"},
            "job": {"seq": 4096, "batch": "512seq", "tokens": 1e9},
        },
    ),
    "levanter": (
        """
model: {type: llama, hidden_dim: 1024, num_layers: 12, num_heads: 16, num_kv_heads: 8,
  intermediate_dim: 4096, seq_len: 2048, gradient_checkpointing: true}
data: {tokenizer: meta-llama/Llama-3.1-8B}
trainer: {mp: "p=f32,c=bfloat16", train_batch_size: 256, model_axis_size: 2,
  per_device_parallelism: -1, num_train_steps: 10, tensor_parallel_axes: [mlp, heads]}
optimizer: {type: adam, learning_rate: 1e-3}
""",
        {
            "model": {"ffn": 4096, "vocab": 128256, "gated": True},
            "layout": {
                "tp": 2,
                "zero": 3,
                "microbatch": 8,
                "recompute": "full",
            },
            "job": {"seq": 2048, "batch": "256seq", "precision": "bf16"},
        },
    ),
}
"""Format -> a file, and what it says on 64 chips (or as many as it names): worked out by hand."""
NONSENSE = "zz9,-7"
WORDED = {
    *("fsdp_version", "fsdp_config.fsdp_version", "fsdp_config.version"),
    *("fsdp_config.activation_checkpointing", "use_flash_attention_2"),
}
"""Keys that are on with any word, as in the tool."""


def read(name: str, **more: object) -> bridge.ForeignFile:
    """The file of a format, with some of its keys changed."""
    keys = bridge._tree(FILES[name][0], "yaml", "a.yaml")
    said = bridge.tool_named(name).of_tree(keys, "a.yaml")
    chips = said.chips or 64
    return bridge.understood_as(name, FileKeys({**said.keys, **more}, chips))


def test_every_format_of_the_table_has_a_file() -> None:
    assert {*FILES} == {*TABLED}


@pytest.mark.parametrize("name", TABLED)
def test_a_file_is_read_as_what_it_is(name: str, tmp_path: Path) -> None:
    """By its own keys, as no other format; and what it says is what its tool would do."""
    text, expected = FILES[name]
    file = bridge.read_file("a.yaml", text, chips=None)
    file = bridge.read_file("a.yaml", text, chips=file.chips or 64)
    assert file.format.name == name
    for section, said in expected.items():
        assert {k: file.tables[section][k] for k in said} == said
    assert not file.unread and not flags.missing(file, {"on": "64xh100-sxm"})
    path = tmp_path / "a.yaml"
    path.write_text(text, "utf-8")
    job = flags.read_flags(str(path), {"on": f"{file.chips}xh100-sxm"})
    assert f"{job.batch}seq" == expected["job"].get("batch", f"{job.batch}seq")
    assert expected["job"].get("seq", job.T) == job.T


@pytest.mark.parametrize("name", [n for n in TABLED if not table.get(n).like])
def test_a_value_that_nobody_knows_is_said(name: str) -> None:
    """Each key that a field is read from, given a value that means nothing: the key is said, its
    field is asked for, or the file is refused.  Names of models, tokenizers and paths are free.
    """
    free = {"model", "model.vocab", "model.moe", "job.tokens"}
    keys_free = {"devices", "num_nodes", *WORDED}
    plain = read(name)
    silent = []
    for path, cell in table.get(name).cells.items():
        if path in free or cell.where or cell.always is not table.UNSAID:
            continue
        for key in {*cell.keys} - keys_free:
            try:
                file = read(name, **{key: NONSENSE})
            except BadInput:
                continue
            told = key in file.left or key in file.unread.values()
            told = told or NONSENSE in str(file.tables)  # its type refuses it
            if not told and file.notes == plain.notes:
                silent.append((path, key))
    assert not silent


@pytest.mark.parametrize("name", TABLED)
def test_a_key_that_nobody_knows_is_said(name: str) -> None:
    assert "zz_nine" in read(name, zz_nine=3).left
    plain = read(name)
    assert read(name, zz_nine=None).left == plain.left


@pytest.mark.parametrize("name", TABLED)
def test_a_key_that_matters_is_said_and_one_that_refuses_refuses(
    name: str,
) -> None:
    format = table.get(name)
    for key in format.matters:
        if {*key} & {*"*?"} or key in format.read_keys:
            continue
        if key in format.refuses:
            with refusal():
                read(name, **{key: NONSENSE})
        else:
            assert key in read(name, **{key: NONSENSE}).left, key
    for key in format.refuses:
        if not {*key} & {*"*?"}:
            with refusal(r"\w+ \w+ \w+"):
                read(name, **{key: NONSENSE})


def test_a_name_of_a_format_hides_none_that_all_have() -> None:
    """One that did would never be asked for."""
    for name, format in table.formats().items():
        assert not {*FUNCTIONS, *READERS, *PLAIN} & {*format.let}, name


def test_no_two_formats_have_the_same_evidence() -> None:
    """But those that are built on another."""
    for name in TABLED:
        for other in TABLED:
            if name < other:
                a, b = table.get(name), table.get(other)
                assert len({*a.own} & {*b.own}) < 2


@pytest.mark.parametrize("name", TABLED)
def test_a_file_that_is_not_written_is_refused_by_name(
    name: str, tmp_path: Path
) -> None:
    if not table.get(name).written:
        with refusal("is read here, not written"):
            bridge.write(JOB, name, launch.Place(1, 8))


def test_a_key_said_twice_is_refused() -> None:
    text = FILES["gpt-neox"][0].replace("{", '{"seq_length": 1024,', 1)
    with refusal("seq_length twice, 1024 and 2048"):
        bridge.read_file("a.yaml", text, named="gpt-neox")


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("llama-factory", "stage", "dpo", "run other passes"),
        ("llama-factory", "task", "mmlu_test", "evaluates a model"),
        ("transformers", "vision_tower", "openai/clip", "images beside text"),
        ("transformers", "num_generations", 8, "generates completions"),
        ("gpt-neox", "attention_config", [[["mamba"], 24]], "another model"),
        ("levanter", "model.type", "whisper", "is not read"),
        (
            "nanotron",
            "model.model_config.is_mamba_config",
            True,
            "state-space",
        ),
    ],
)
def test_a_run_that_is_no_such_training_is_refused(
    name: str, key: str, value: object, words: str
) -> None:
    with refusal(words):
        read(name, **{key: value})


def test_adapters_that_are_the_default_are_said() -> None:
    """LLaMA-Factory trains adapters where a file says nothing (hparams/finetuning_args.py)."""
    text = FILES["llama-factory"][0].replace("finetuning_type: full\n", "")
    assert "finetuning_type" in bridge.read_file("a.yaml", text, chips=8).left
