"""Files that look like a run that is predicted and are another: recipes that set a layout of their
own, adapters, evaluations, models of images, settings that stand in a second file.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
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


def unread(file: bridge.ForeignFile) -> set[str]:
    return {path.partition(".")[2] for path in file.unread}


def layout(file: bridge.ForeignFile) -> dict[str, Any]:
    """The layout, degrees as numbers: a script has them as text."""
    made = file.tables["layout"].items()
    return {k: int(v) if str(v).isdigit() else v for k, v in made}


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


def test_recipes_shard_the_optimizer() -> None:
    """recipes/common.py sets use_distributed_optimizer, which Megatron-LM does not."""
    assert layout(bridge.read_file("changes.yaml", BRIDGE))["zero"] == 1
    off = BRIDGE + "ddp: {use_distributed_optimizer: false}\n"
    assert layout(bridge.read_file("changes.yaml", off))["zero"] == 0


def test_a_dense_recipe_asks_for_no_experts_and_fsdps_for_its_stage() -> None:
    said = RECIPE.format("llama3_8b_pretrain_config") + " model.seq_length=8"
    file = bridge.read_file("run.sh", said)
    assert unread(file) == {"tp", "pp", "cp", "microbatch", "recompute"}
    mixed = bridge.read_file(
        "run.sh", said.replace("llama3_8b", "qwen3_30b_a3b")
    )
    assert "ep" in unread(mixed) and "zero" not in unread(mixed)
    fsdp = said.replace("llama3_8b", "qwen3_30b_a3b_fsdp")
    assert "zero" in unread(bridge.read_file("run.sh", fsdp))


def test_a_whole_configuration_of_bridge_asks_nothing() -> None:
    whole = BRIDGE.replace(
        "model: {",
        "model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4, ",
    )
    file = bridge.read_file("run_config.yaml", whole)
    assert not file.unread and layout(file)["zero"] == 0


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ("model: {teacher: {seq_length: 4096}}", "distillation"),
        ("model: {crossattn_emb_size: 64}", "diffusion"),
    ],
)
def test_runs_of_two_models_and_of_diffusion_are_refused(
    more: str, word: str
) -> None:
    name = more.removeprefix("model: {").removesuffix("}")
    text = BRIDGE.replace("model: {", f"model: {{{name}, ")
    with refusal(word):
        bridge.read_file("changes.yaml", text)


def adapters(path: str, text: str) -> bool:
    """The file trains adapters alone, and is refused for it."""
    file = bridge.read_file(path, text)
    return any(flags.ADAPTERS in why for why in file.left.values())


def test_adapters_of_a_recipe_are_said() -> None:
    said = RECIPE.format("llama3_8b_finetune_config")
    assert adapters("run.sh", said + " --peft_scheme lora")
    assert not adapters("run.sh", said + " --peft_scheme none")


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


def test_nemo_recomputes_nothing_without_a_granularity() -> None:
    """activations_checkpoint_method: block stands in many files beside granularity: null."""
    some = "  activations_checkpoint_method: block\n"
    more = some + "  activations_checkpoint_num_layers: 2\n"
    off = "  activations_checkpoint_granularity: null\n"
    on = "  activations_checkpoint_granularity: full\n"
    said = [
        layout(bridge.read_file("a.yaml", NEMO + text))["recompute"]
        for text in (some, off + more, on + more)
    ]
    assert said == ["full", "none", "full:2"]


def test_nemos_own_words_for_biases_and_rows() -> None:
    more = "  bias: false\n  qkv_bias: true\n  override_vocab_size: 65024\n"
    model: Any = bridge.read_file("a.yaml", NEMO + more).tables["model"]
    assert model["qkv_bias"] and not model["bias"]
    assert model["vocab"] == 65024 and model["vocab_multiple"] == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  optim: {name: fused_adam}\n", ""),
        ("exp_manager", "run: {nemo_file_name: a.nemo}\nexp_manager"),
    ],
)
def test_nemo_files_that_train_nothing_are_refused(old: str, new: str) -> None:
    with refusal("trains none"):
        bridge.read_file("a.yaml", NEMO.replace(old, new))


@pytest.mark.parametrize("key", ["mcore_bert: true", "mamba_ssm_ngroups: 8"])
def test_nemo_files_of_other_models_are_refused(key: str) -> None:
    with refusal(key.partition(":")[0]):
        bridge.read_file("a.yaml", f"{NEMO}  {key}\n")


def test_nemos_adapters_and_images() -> None:
    scheme = "  peft: {peft_scheme: lora, lora_tuning: {adapter_dim: 32}}\n"
    assert adapters("a.yaml", NEMO + scheme)
    assert not adapters("a.yaml", NEMO + scheme.replace("lora,", "null,"))
    with refusal("images"):
        bridge.read_file("a.yaml", NEMO + "  mm_cfg: {llm: {freeze: true}}\n")


# ---------------------------------------------------------------- vocabularies


def test_a_kind_of_tokenizer_without_one_vocabulary_is_asked_for() -> None:
    """merge_file: null beside SentencePiece is no GPT-2."""
    more = "{num_layers: 2, hidden_size: 64, num_attention_heads: 4, "
    kind = "tokenizer_type: GPTSentencePieceTokenizer, merge_file: null, "
    text = BRIDGE.replace("model: {", f"model: {more}{kind}")
    file = bridge.read_file("a.yaml", text)
    assert any("vocabulary" in why for why in file.missing)


LEVANTER = """
model: {type: llama, hidden_dim: 64, num_layers: 2, num_heads: 4}
trainer: {mp: "p=f32,c=bfloat16", train_batch_size: 8, num_train_steps: 3}
"""


def test_data_in_another_file_says_the_tokenizer_there() -> None:
    file = bridge.read_file("a.yaml", LEVANTER + "data: {id: a/b}\n")
    assert file.tables["model"]["vocab"] == 50257  # Levanter's own default
    file = bridge.read_file(
        "a.yaml", LEVANTER + "data: !include data/rpv1.yaml\n"
    )
    assert any("vocabulary" in why for why in file.missing)


def test_an_evaluation_of_levanter_is_refused() -> None:
    with refusal("trains none"):
        bridge.read_file("a.yaml", LEVANTER + "checkpoint_is_hf: true\n")


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


def test_what_accelerate_is_told_on_its_command_line_counts() -> None:
    """open-instruct's scripts/train/dgx-spark/sft_no_robots.sh was read in fp32."""
    start = "python -m accelerate.commands.launch --mixed_precision bf16"
    file = bridge.read_file("run.sh", f"{start} {TRAIN}")
    assert file.tables["job"]["precision"] == "bf16"
    own = bridge.read_file("run.sh", f"{start} {TRAIN} --fp16")
    assert own.tables["job"]["precision"] == "fp16"
    start += (
        " --use_deepspeed --deepspeed_config_file a/stage3_no_offload.conf"
    )
    file = bridge.read_file("run.sh", f"{start} {TRAIN}")
    assert (layout(file)["zero"], {*file.unread}) == (3, set())
    assert file.tables["job"]["framework"] == "deepspeed"


@pytest.mark.parametrize(
    ("more", "numbers", "optimizer"),
    [
        ("", "bf16-pure", "adamw-pure"),
        ("--fsdp 'full_shard auto_wrap'", "bf16-pure", "adamw-pure"),
        ("--deepspeed z3.json", "fp32", None),
        ("--fsdp 'full_shard auto_wrap' --bf16", "bf16", None),
    ],
)
def test_numbers_that_no_flag_casts_are_those_of_the_weights(
    more: str, numbers: str, optimizer: str | None
) -> None:
    """run_clm.py --torch_dtype bfloat16 alone was read in fp32; DeepSpeed refuses such weights
    without bf16.enabled (runtime/engine.py, __check_params)."""
    loaded = f"torchrun {TRAIN} --torch_dtype bfloat16 {more}"
    job = bridge.read_file("run.sh", loaded).tables["job"]
    assert (job["precision"], job.get("optimizer")) == (numbers, optimizer)


def test_a_file_in_place_of_fsdps_words_is_asked_for() -> None:
    path = "--fsdp runs/alt_offload/fsdp.json"
    file = bridge.read_file("run.sh", f"torchrun {TRAIN} {path}")
    assert unread(file) == {"zero"} and "offload" not in layout(file)
    words = "--fsdp 'full_shard auto_wrap offload'"
    file = bridge.read_file("run.sh", f"torchrun {TRAIN} {words}")
    assert layout(file)["offload"] == "optimizer+weights"


def test_flags_of_another_tool_in_a_script_name_it() -> None:
    """ms-swift's own flags among those of the Trainer, whatever program takes them."""
    text = f"torchrun {TRAIN} --tuner_type full --split_dataset_ratio 0"
    assert bridge.read_file("a.sh", text).format.name == "ms-swift"


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


@pytest.mark.parametrize(
    ("file", "overlap"),
    [
        ("deepspeed_configs/zero1.json", "all"),
        ("deepspeed_configs/zero2.json", "all"),
        ("mine/zero2.json", None),
        ("mine/zero1.json", None),
    ],
)
def test_axolotls_own_files_of_deepspeed_overlap(
    file: str, overlap: str | None
) -> None:
    """overlap_comm is true in those (axolotl@58b1d3a4, deepspeed_configs); what is in a file of
    another place is not known: DeepSpeed's default stands.
    """
    text = f"base_model: a/b\nmicro_batch_size: 1\nsequence_len: 8\ndeepspeed: {file}\n"
    tables = bridge.read_file("a.yaml", text).tables
    assert tables.get("software", {}).get("dp_overlap") == overlap
    assert tables["layout"]["zero"] == int(file[-6])


def test_axolotls_packed_sequences_are_said_to_attend_less() -> None:
    text = "base_model: a/b\nmicro_batch_size: 1\nsequence_len: 8\nsample_packing: {}\n"
    notes = [
        bridge.read_file("a.yaml", text.format(word)).notes
        for word in ("true", "false")
    ]
    packed = [any("attend less" in note for note in each) for each in notes]
    assert packed == [True, False]


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


def test_what_no_one_shards_is_trained_as_it_was_loaded() -> None:
    """ms-swift's examples/train/full/train.sh says 76 GiB on one GPU, where fp32 states would take
    137; LLaMA-Factory casts trained weights to fp32 (model/adapter.py)."""
    one = bridge.read_file("a.sh", SWIFT.format("")).tables["job"]
    assert one["precision"] == "bf16-pure"
    assert one["optimizer"] == "adamw-pure"
    eight = bridge.read_file("a.sh", SWIFT.format("--deepspeed zero2"))
    assert eight.tables["job"]["precision"] == "bf16"
    assert "optimizer" not in eight.tables["job"]
    factory = bridge.read_file("a.yaml", FACTORY)
    assert factory.tables["job"]["precision"] == "bf16"
    assert not any("no fp32 masters" in note for note in factory.notes)


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


def test_another_models_keys_are_no_llama() -> None:
    """nanotron takes no key that a configuration lacks: GPT-style ones build another model."""
    assert bridge.read_file("a.yaml", NANOTRON).tables["model"]["layers"] == 2
    other = NANOTRON.replace(
        "num_hidden", "activation_function: gelu, num_hidden"
    )
    with refusal("activation_function.*another model"):
        bridge.read_file("a.yaml", other)


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


def test_a_torchtitan_of_2024() -> None:
    file = bridge.read_file("a.toml", TITAN)
    l = layout(file)
    assert (l["tp"], l["cp"], l["pp"], l["microbatch"]) == (8, 2, 1, 4)
    assert (l["dp"], l["dp_replicate"], l["zero"]) == (8, 2, 3)
    assert file.tables["job"]["precision"] != "bf16" and not file.left
    off = bridge.read_file(
        "a.toml", TITAN.replace("linear = true", "linear = false")
    )
    assert off.tables["job"]["precision"] == "bf16"


def test_replicas_that_meet_now_and_then_are_said() -> None:
    more = '[fault_tolerance]\nenable = true\nsemi_sync_method = "diloco"\n'
    left = bridge.read_file("a.toml", TITAN + more).left
    assert [*left] == ["fault_tolerance.semi_sync_method"]
    with refusal("images"):
        bridge.read_file(
            "a.toml", TITAN + "[data]\nmax_patches_per_image = 8\n"
        )


def test_python_is_not_run() -> None:
    with refusal("Python.*run_config.yaml"):
        bridge.read_file("train.py", "raise SystemExit")


# ---------------------------------------------------------------- who refuses


def test_the_tool_that_explains_a_file_refuses_it() -> None:
    """LitGPT claims a file with data and train sections, of which it knows nearly no key."""
    text = BRIDGE.replace("model: {", "model: {teacher: {seq_length: 1}, ")
    text += "checkpoint_dir: a\ndata: {class_path: b}\n"
    with refusal("Megatron-Bridge.*distillation"):
        bridge.read_file("a.yaml", text)


def test_a_text_of_escapes_is_a_word() -> None:
    text = "IFS=$'\\n\\t'\nNAME=$'it\\'s'\n"
    file = bridge.read_file("run.sh", text + f"torchrun {TRAIN}")
    assert file.format.name == "transformers"


# ---------------------------------------------------------------- LLaMA-Factory v1

V1 = """
model: Qwen/Qwen2.5-7B
model_class: llm
train_dataset: data/some.yaml
micro_batch_size: 2
cutoff_len: 4096
{}
"""


@pytest.mark.parametrize(
    ("dist", "zero", "numbers", "optimizer"),
    [
        ("dist_config: {name: fsdp2}", 3, "bf16-pure", "adamw-pure"),
        (
            "dist_config: {name: fsdp2, reshard_after_forward: false}",
            *(2, "bf16-pure", "adamw-pure"),
        ),
        (
            "dist_config: {name: deepspeed, config_file: a/ds_z3_config.json}",
            *(3, "bf16-pure", None),
        ),
        ("dist_config: {name: fsdp2}\nbf16: false", 3, "fp32", None),
    ],
)
def test_llama_factory_v1_shards_by_its_plugin(
    dist: str, zero: int, numbers: str, optimizer: str | None
) -> None:
    file = bridge.read_file("a.yaml", V1.format(dist))
    job = file.tables["job"]
    assert file.format.name == "llama-factory-v1"
    assert layout(file)["zero"] == zero and job["precision"] == numbers
    assert job.get("optimizer") == optimizer and "batch" not in job


def test_llama_factory_v1_says_what_it_does_not_know() -> None:
    said = V1.format("dist_config: {name: other}")
    assert unread(bridge.read_file("a.yaml", said)) == {"zero"}
    lora = "dist_config: {name: fsdp2}\npeft_config: {name: lora, r: 8}"
    assert adapters("a.yaml", V1.format(lora))
    whole = bridge.read_file(
        "a.yaml",
        V1.format("global_batch_size: 64\ndist_config: {name: fsdp2}"),
    )
    assert whole.tables["job"]["batch"] == "64seq"
    with refusal("classifier"):
        bridge.read_file(
            "a.yaml",
            V1.format("dist_config: {name: fsdp2}").replace("llm", "cls"),
        )


# ---------------------------------------------------------------- torchtitan's registry

REGISTRY = "torchrun --nproc_per_node 16 -m torchtitan.train --module llama3 --config {} {}"


def test_what_a_registered_configuration_sets_stands_where_no_flag_does() -> (
    None
):
    """Flags come before the registry's function (config/manager.py), not before the command line's
    own defaults: tp 8 of llama3_70b, whose local batch is 8.
    """
    text = REGISTRY.format("llama3_70b", "")
    l = layout(bridge.read_file("run.sh", text))
    assert (l["tp"], l["microbatch"], l["recompute"]) == (8, 8, "full")
    more = (
        "--parallelism.tensor_parallel_degree 4 --training.local_batch_size=2"
    )
    l = layout(bridge.read_file("run.sh", REGISTRY.format("llama3_70b", more)))
    assert (l["tp"], l["microbatch"], l["recompute"]) == (4, 2, "full")


def test_a_configuration_that_nobody_knows_is_asked_for() -> None:
    more = "--parallelism.pipeline_parallel_degree 2"
    file = bridge.read_file("run.sh", REGISTRY.format("own_7b", more))
    asked = {"tp", "cp", "ep", "zero", "microbatch", "recompute", "seq"}
    assert unread(file) == {*asked, "batch"} and layout(file)["pp"] == 2
    assert "batch" not in file.tables["job"]


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


def test_a_recipe_of_the_catalogue_is_read_with_its_settings() -> None:
    """deepseek_v3_pretrain_1024gpu_h100_bf16 has tp 2, pp 8 of 4 chunks, ep 64; a flag wins."""
    name = "deepseek_v3_pretrain_1024gpu_h100_bf16_config"
    file = bridge.read_file("a.sh", RECIPE.format(name))
    made = layout(file)
    assert not file.unread and made["interleave"] == 4
    assert (made["tp"], made["pp"], made["ep"], made["etp"]) == (2, 8, 64, 1)
    assert made["recompute"] == "mla_up_proj+mlp" and made["zero"] == 1
    assert made["sequence_parallel"] and file.tables["job"]["seq"] == 4096
    other = RECIPE.format(name) + " model.expert_model_parallel_size=32"
    assert layout(bridge.read_file("a.sh", other))["ep"] == 32
    strange = name.replace("1024gpu", "1000gpu")
    assert "tp" in unread(bridge.read_file("a.sh", RECIPE.format(strange)))


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


def test_flags_over_a_file_of_olmo(tmp_path: Path) -> None:
    """The flags come first, then the file where the script is; without it all of it is asked for,
    and a text from elsewhere opens no file.
    """
    script = tmp_path / "scripts" / "a.sh"
    script.parent.mkdir()
    script.write_text(OLMO, "utf-8")
    alone = bridge.read_file(str(script))
    assert alone.format.name == "olmo" and alone.chips == 32
    assert layout(alone)["microbatch"] == 2
    assert {"recompute", "precision", "seq"} <= unread(alone)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "own.yaml").write_text(OWN, "utf-8")
    file = bridge.read_file(str(script))
    assert not file.unread and file.tables["model"]["layers"] == 16
    assert layout(file)["microbatch"] == 2 and layout(file)["zero"] == 2
    assert file.tables["job"]["batch"] == "512seq"
    assert unread(bridge.read_file(str(script), OLMO)) == unread(alone)


RUN = "NGPU=8 {} ./run_train.sh --parallelism.tensor_parallel_degree 2"


def test_the_environment_names_a_configuration_of_torchtitan() -> None:
    """MODULE and CONFIG since 0.3, CONFIG_FILE before: what they set is not torchtitan's default."""
    known = bridge.read_file(
        "a.sh", RUN.format("MODULE=llama3 CONFIG=llama3_8b")
    )
    assert known.tables["model"] == "llama3-8b"
    assert known.tables["job"]["seq"] == 8192
    for said in ("MODULE=own CONFIG=own_8b", "CONFIG_FILE=a.toml", ""):
        file = bridge.read_file("a.sh", RUN.format(said))
        assert {"pp", "cp", "recompute", "seq"} <= unread(file), said
        assert layout(file)["tp"] == 2


def test_flags_over_torchtitans_file(tmp_path: Path) -> None:
    script = tmp_path / "a.sh"
    command = "torchrun -m torchtitan.train --job.config_file a.toml"
    script.write_text(f"{command}\n", "utf-8")
    assert {"pp", "batch"} <= unread(bridge.read_file(str(script)))
    script.write_text(f"{command} --training.seq_len 4096\n", "utf-8")
    text = "[parallelism]\npipeline_parallel_degree = 4\n[training]\nseq_len = 8\n"
    (tmp_path / "a.toml").write_text(text, "utf-8")
    file = bridge.read_file(str(script))
    assert not file.unread and layout(file)["pp"] == 4
    assert int(file.tables["job"]["seq"]) == 4096


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


def test_arguments_of_megatrons_own_tests() -> None:
    file = bridge.read_file("model_config.yaml", TEST, chips=8)
    assert file.format.name == "megatron" and not file.unread
    made = layout(file)
    assert (made["tp"], made["zero"], made["microbatch"]) == (4, 1, 4)
    assert not made["sequence_parallel"]
    assert file.tables["job"]["batch"] == "32seq"
    with refusal("writes text"):
        bridge.read_file("a.yaml", TEST + "  --inference-max-requests: 4\n")


def test_sixteen_bits_of_gpt_neox_may_be_bfloat16() -> None:
    """`fp16: {type: bfloat16}`, with gradients added up in as many bits unless told."""
    text = """
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
    file = bridge.read_file("a.yml", text)
    assert file.format.name == "gpt-neox"
    assert file.tables["job"]["precision"] == "bf16-pure"
    wide = text + "data_types: {grad_accum_dtype: fp32}\n"
    assert bridge.read_file("a.yml", wide).tables["job"]["precision"] == "bf16"
    half = text.replace(", type: bfloat16", "")
    plain = bridge.read_file("a.yml", half).tables["job"]["precision"]
    assert plain == "fp16-pure"


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


def test_words_over_a_file_of_torchtune(tmp_path: Path) -> None:
    """4 sequences, 8 times, on 4 ranks; without the file its 8 are asked for, too."""
    script = tmp_path / "a.sh"
    script.write_text(TUNE, "utf-8")
    alone = bridge.read_file(str(script))
    assert alone.format.name == "torchtune" and alone.chips == 4
    assert {"recompute", "precision", "batch"} <= unread(alone)
    assert layout(alone)["microbatch"] == 4
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "full.yaml").write_text(FULL, "utf-8")
    file = bridge.read_file(str(script))
    assert not file.unread and layout(file)["recompute"] == "full"
    job = file.tables["job"]
    assert (job["seq"], job["batch"]) == (4096, "128seq")
    first = TUNE.replace("full_f", "lora_f").replace(
        "--config", "a.b=1 --config"
    )
    assert flags.adapters_alone(bridge.read_file("a.sh", first).left)


def test_recipes_of_torchtune(tmp_path: Path) -> None:
    """Adapters are said first, whatever else is asked for; other recipes are refused."""
    lora = tmp_path / "lora.sh"
    lora.write_text(TUNE.replace("full_f", "lora_f"), "utf-8")
    with refusal("trains adapters alone"):
        flags.foreign_tables(str(lora), {}, [])
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


def deepspeed(**zero: Any) -> bridge.ForeignFile:
    text = json.dumps({"train_batch_size": 64, "zero_optimization": zero})
    return bridge.read_file("ds.json", text)


def test_deepspeeds_second_stage_waits_unless_it_is_told_to_overlap() -> None:
    """runtime/zero/config.py, overlap_comm_valid: on by default with stage 3 alone, as the profile
    has it; what a file says is said of it."""
    for stage, said, overlap in (
        *((2, None, None), (2, True, "all"), (2, False, None)),
        *((3, None, None), (3, True, "all"), (3, False, "off")),
        (1, True, "all"),
    ):
        told = {} if said is None else {"overlap_comm": said}
        made = deepspeed(stage=stage, **told).tables.get("software", {})
        assert made.get("dp_overlap") == overlap
    by = framework("deepspeed")
    assert by.dp_hidden.at(3).scope == "pass"
    assert by.dp_hidden.at(2).scope == by.dp_hidden.at(0).scope == "none"
    beside = replace(by, dp_overlap="all").dp_hidden
    assert beside.at(3).scope == "pass" and beside.at(2).scope == "backward"


@pytest.mark.parametrize(
    "zero, offload",
    [
        ({"stage": 2, "cpu_offload": True}, "optimizer:1"),
        ({"stage": 3, "cpu_offload_params": True}, "weights"),
        ({"stage": 2, "offload_param": {"device": "cpu"}}, None),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, "weights"),
    ],
)
def test_what_deepspeed_keeps_in_host_memory(
    zero: dict[str, Any], offload: str | None
) -> None:
    """Older words, and weights with stage 3 alone (runtime/engine.py gives them to no other)."""
    assert deepspeed(**zero).tables["layout"].get("offload") == offload


def test_a_stage_in_another_file_of_deepspeed_is_asked_for() -> None:
    text = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
    text += "deepspeed_config: {deepspeed_config_file: zero3.json}\n"
    file = bridge.read_file("accelerate.yaml", text)
    assert unread(file) == {"zero"} and "zero" not in layout(file)


OF_DEEPSPEED = """torchrun --nproc_per_node 8 {} --num-layers 32 --hidden-size 4096
 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000
 --micro-batch-size 1 --global-batch-size 8 --deepspeed --zero-stage 3 --bf16
"""


def test_words_of_megatron_deepspeed() -> None:
    """Its own arguments.py: grouped queries, sequences by all-to-all, FlashAttention 2."""
    more = " --num-key-value-heads 8 --ds-sequence-parallel-size 4 --use-flash-attn-v2\n"
    line = OF_DEEPSPEED.format("pretrain_gpt.py").replace("\n", "") + more
    file = bridge.read_file("run.sh", line)
    assert file.tables["model"]["kv_heads"] == 8
    assert file.tables["job"]["attention_kernel"] == "fa2"
    made = layout(file)
    assert (made["cp"], made["cp_exchange"]) == (4, "all-to-all")
    line = OF_DEEPSPEED.format("../analyze_data.py").replace("\n", "")
    with refusal("trains nothing"):
        bridge.read_file("run.sh", line)


def test_deepspeed_beside_megatrons_arguments() -> None:
    """Its stage may stand in its file alone (examples_deepspeed/MoE of Megatron-DeepSpeed): the run
    was taken for Megatron's own, without ZeRO. Its schedule, and a length in tokens, are read.
    """
    line = OF_DEEPSPEED.format("pretrain_gpt.py").replace("\n", "")
    line = line.replace("--deepspeed --zero-stage 3", "")
    file = bridge.read_file(
        "run.sh", line + " --deepspeed --deepspeed_config a.json\n"
    )
    assert unread(file) == {"zero"}
    assert file.tables["job"]["framework"] == "megatron-deepspeed"
    more = " --deepspeed --zero-stage 1 --pipeline-model-parallel-size 2"
    more += (
        " --enable-zbh1-pipeline --train-tokens 300000000000 --cpu-optimizer\n"
    )
    file = bridge.read_file("run.sh", line + more)
    assert not file.unread and layout(file)["schedule"] == "zb-h1"
    assert layout(file)["offload"] == "optimizer:1"
    assert file.tables["job"]["tokens"] == 3e11


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


def test_numbers_in_which_deepspeed_sums_gradients() -> None:
    said = json.loads(ULYSSES["a.json"].format(1))
    for word, sums, left in (
        ("fp32", "fp32", False),
        ("bf16", None, False),
        ("fp16", None, True),
    ):
        text = json.dumps({**said, "communication_data_type": word})
        file = bridge.read_file("a.json", text)
        made = file.tables.get("software", {}).get("reduction_numbers")
        assert (made, bool(file.left)) == (sums, left), word


def test_a_name_of_a_model_that_is_set_elsewhere_is_none() -> None:
    """QwenLM/Qwen, finetune/finetune_ds.sh: it said that it trains True."""
    text = "torchrun a.py --model_name_or_path $M --report_to none --num_train_epochs 1"
    file = bridge.read_file("a.sh", text)
    assert "model" not in file.tables and not file.missing


def test_an_evaluation_by_trainers_flags_is_refused() -> None:
    """evaluation/results/tr13/tzeroeval of bigscience was read as training in fp32."""
    text = (
        "python t-zero/evaluation/{} --model_name_or_path bigscience/bloom-7b1"
    )
    text += " --per_device_eval_batch_size 8 --report_to none --output_dir out"
    with refusal("measures a model"):
        bridge.read_file("a.sh", text.format("run_eval.py"))
    assert bridge.read_file("a.sh", text.format("run_clm.py"))


def test_preferences_of_nemo_rl_are_named() -> None:
    """examples/nemo_gym/grpo_qwen3_30ba3b_instruct.yaml, in part, was read as Megatron-Bridge."""
    keys = {
        "grpo": {"num_prompts_per_step": 64},
        "policy": {
            "megatron_cfg": {"tensor_model_parallel_size": 4},
            "train_global_batch_size": 512,
        },
    }
    with refusal("NeMo RL"):
        bridge.read_file("grpo.yaml", json.dumps(keys))


# ---------------------------------------------------------------- MaxText


def maxtext(**more: Any) -> bridge.ForeignFile:
    keys = {"model_name": "mixtral-8x7b", "per_device_batch_size": 1, **more}
    return bridge.read_file("run.yml", json.dumps(keys))


def test_a_model_of_maxtext_with_other_sizes_is_asked_for() -> None:
    assert maxtext(base_num_decoder_layers=32).tables["model"]
    assert "model" not in maxtext(base_num_decoder_layers=5).tables
    assert "model" not in maxtext(base_emb_dim=2048).tables


@pytest.mark.parametrize(
    "key", ["sparse_matmul", "megablox", "context_parallel_load_balance"]
)
def test_what_maxtext_does_unless_it_is_told_not_to(key: str) -> None:
    """base.yml has them on; without sparse products every expert works on every token."""
    assert key in maxtext(**{key: False}).left
    assert not maxtext(**{key: True}).left


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


@pytest.mark.parametrize(
    ("text", "norm"),
    [
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
    ],
)
def test_norms_of_a_models_own_code(text: str, norm: str | None) -> None:
    """torchtune's RMSNorm and transformers' LlamaRMSNorm are separate operations, unless they are
    compiled or Liger's, which axolotl runs by its plugin alone.
    """
    software = bridge.read_file("a.yaml", text).tables.get("software", {})
    assert software.get("norm") == norm


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


def test_torchtitans_weights_in_16_bits_have_no_masters() -> None:
    """As in LambdaLabsML/torchtitan, configs/llama3_405b-32xgb300-8k.toml: 405B on 32 GB300."""
    job = bridge.read_file("job.toml", LAMBDA).tables["job"]
    assert (job["precision"], job["optimizer"]) == ("bf16-pure", "adamw-pure")
    plain = LAMBDA.replace('dtype = "bfloat16"', "")
    assert "optimizer" not in bridge.read_file("job.toml", plain).tables["job"]


@pytest.mark.parametrize(
    "word", ["adamw_bnb_8bit", "paged_adamw_8bit", "adamw_8bit"]
)
def test_moments_of_a_byte(word: str) -> None:
    """bitsandbytes, under half of axolotl's examples; fp32 masters were taken on one GPU: 18 bytes
    for 6, so that a model of 7B did not fit where people train it.
    """
    file = bridge.read_file("a.yaml", EIGHT_BITS.format(word))
    job = file.tables["job"]
    assert (job["precision"], job["optimizer"]) == (
        "bf16-pure",
        "adamw-8bit-pure",
    )
    sharded = EIGHT_BITS.format(word) + "fsdp_version: 2\n"
    job = bridge.read_file("a.yaml", sharded).tables["job"]
    assert (job["precision"], job["optimizer"]) == ("bf16", "adamw-8bit")
    paged = TUNED.replace("torch.optim.AdamW", "bitsandbytes.optim.AdamW8bit")
    job = bridge.read_file("full.yaml", paged).tables["job"]
    assert job["optimizer"] == "adamw-8bit-pure"
    assert not file.left


def test_a_loop_without_the_trainer_leaves_its_numbers_to_accelerate() -> None:
    """As allenai/open-instruct's configurations, which say no bf16 and run in it."""
    text = "model_name_or_path: allenai/OLMo-2-1124-7B\nper_device_train_batch_size: 1\n"
    text += (
        "lr_scheduler_type: linear\nnum_train_epochs: 2\nreport_to: wandb\n"
    )
    assert not unread(bridge.read_file("a.yaml", text))
    text += "checkpointing_steps: epoch\n"
    assert unread(bridge.read_file("a.yaml", text)) == {"precision", "zero"}


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


def test_flagscale_starts_megatron_with_its_arguments() -> None:
    """examples/aquila/conf/train/34b.yaml of FlagOpen/FlagScale@da4935ec, in part: sections mean
    nothing, and the feed-forward is 8/3 x 6,144 x 1.3, rounded up to 4,096. It was read as
    Megatron-Bridge, whose gradients are summed beside the backward pass, with a width of 16,384.
    """
    file = bridge.read_file("34b.yaml", FLAGSCALE)
    assert (file.format.name, file.left) == ("megatron", {})
    assert file.tables["model"]["ffn"] == 6 * 4096
    assert file.tables["software"]["dp_overlap"] == "off"
    assert layout(file)["tp"] == 4 and layout(file)["zero"] == 1
    uneven = FLAGSCALE.replace("system:\n", "system:\n  enable_hetero: true\n")
    with refusal("several kinds"):
        bridge.read_file("34b.yaml", uneven)


def test_what_trl_switches_on_by_itself() -> None:
    """trl/trainer/base_config.py, f2cd577: bf16 and recomputation; TrainingArguments has neither."""
    text = (
        "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 2\n"
    )
    text += "lr_scheduler_type: cosine\nreport_to: none\n"
    plain = bridge.read_file("sft.yaml", text).tables
    assert plain["job"]["precision"] == "fp32"
    assert plain["layout"].get("recompute", "none") == "none"
    file = bridge.read_file("sft.yaml", text + "max_length: 2048\n")
    assert file.tables["job"]["precision"] == "bf16"
    assert layout(file)["recompute"] == "full"
    assert file.taken["precision"] == "bf16" and "seq" not in file.taken
    off = (
        text + "max_length: 2048\nbf16: false\ngradient_checkpointing: false\n"
    )
    file = bridge.read_file("sft.yaml", off + "loss_type: dft\n")
    assert file.tables["job"]["precision"] == "fp32"
    assert layout(file).get("recompute", "none") == "none"
    with refusal("preferences"):
        bridge.read_file("sft.yaml", off + "loss_type: sigmoid\n")


SANTACODER = (
    "python pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16"
    " --attention-head-type {} --micro-batch-size 2 --seq-length 2048 --vocab-size {}"
)


def test_words_of_forks_of_megatron() -> None:
    """bigcode-project/Megatron-LM has one key for all heads by this word; BigScience's rows of the
    embedding are told.
    """
    text = SANTACODER.format("multiquery", 49152)
    model = bridge.read_file("a.sh", text).tables["model"]
    assert model["kv_heads"] == 1
    model = bridge.read_file("a.sh", text.replace("query", "head")).tables
    assert "kv_heads" not in model["model"]
    text = text.replace("--vocab-size 49152", "--pad-vocab-size-to 250880")
    assert bridge.read_file("a.sh", text).tables["model"]["vocab"] == 250880
    # OpenGPTX/Megatron-LM, Teuken 7B
    gated = bridge.read_file("a.sh", text + " --t5-swiglu").tables["model"]
    assert gated["gated"] and not model["model"]["gated"]


def test_an_omni_configuration_of_veomni_is_not_litgpts() -> None:
    """configs/multimodal/qwen2_vl of ByteDance-Seed/VeOmni, in part, was read as LitGPT."""
    keys = {
        "model": {"model_path": "Qwen2-VL"},
        "train": {
            "global_batch_size": 32,
            "micro_batch_size": 1,
            "accelerator": {"ulysses_size": 1},
            "checkpoint": {"output_dir": "out"},
            "lr_warmup_ratio": 0.1,
        },
    }
    with refusal("VeOmni"):
        bridge.read_file("qwen2_vl.yaml", json.dumps(keys))


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


def automodel(*changes: tuple[str, str]) -> bridge.ForeignFile:
    text = AUTOMODEL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return bridge.read_file("run.yaml", text, chips=64)


def test_automodel_shards_as_its_parallelizers_do() -> None:
    """Experts' weights stay gathered unless told, all stay in a pipeline, dense ones do not."""
    file = automodel()
    assert file.tables["model"] == "qwen3-30b-a3b"
    assert file.tables["job"]["precision"] == "bf16-pure"
    assert file.tables["software"]["routing"] == "neighbours"
    assert layout(file)["zero"] == 2 and layout(file)["recompute"] == "full"
    assert "of 2 microbatches" in file.left["distributed.defer_fsdp_grad_sync"]
    told = automodel(
        ("reshard_after_forward: false", "reshard_after_forward: true")
    )
    assert layout(told)["zero"] == 3
    dense = automodel(("ep_size: 8", "ep_size: 1"))
    assert layout(dense)["zero"] == 3
    assert layout(automodel(("fsdp2", "ddp")))["zero"] == 0
    piped = automodel(
        (
            "pp_size: 1",
            "pp_size: 4\n  pipeline: {pp_schedule: interleaved1f1b, layers_per_stage: 5,"
            " round_virtual_stages_to_pp_multiple: down}",
        ),
        ("local_batch_size: 4", "local_batch_size: 32"),
    )  # 48 layers in 10 stages, rounded down to 8
    made = layout(piped)
    assert (made["zero"], made["microbatch"]) == (1, 1)
    assert (made["interleave"], made["schedule"]) == (2, "interleaved")
    masters = automodel(("  backend:", "  torch_dtype: float32\n  backend:"))
    assert masters.tables["job"]["precision"] == "bf16"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("CausalLM", "ImageTextToText"),
        (
            "BenchmarkingRecipeForNextToken",
            "KnowledgeDistillationRecipeForPairs",
        ),
        ("seed: 1234", "teacher_model: {_target_: a.B}"),
    ],
)
def test_automodels_other_recipes_are_refused(old: str, new: str) -> None:
    with refusal("NeMo AutoModel"):
        automodel((old, new))


def test_a_model_by_name_with_other_sizes_is_asked_for() -> None:
    """Two layers of a model were answered as all of it, with a note on an unknown key."""
    assert not automodel().missing
    small = automodel(
        ("    pretrained", "    num_hidden_layers: 2\n    pretrained")
    )
    assert "num_hidden_layers 2" in small.missing[0]
    same = automodel(
        ("    pretrained", "    num_hidden_layers: 48\n    pretrained")
    )
    assert not same.missing and not same.left.keys() - {
        "distributed.defer_fsdp_grad_sync"
    }


# ---------------------------------------------------------------- the fifth draw


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (
            "transformers",
            {"vision_tower": "openai/clip"},
            "images beside text",
        ),
        ("llama-factory", {"task": "mmlu_test"}, "evaluates a model"),
    ],
)
def test_what_is_no_training_of_a_text_model_is_refused(
    name: str, changes: dict[str, Any], words: str
) -> None:
    with refusal(words):
        read(name, **changes)


@pytest.mark.parametrize(
    "program",
    ["training/dpo_training.py", "reward_modeling.py", "ppo.py", "grpo.py"],
)
def test_a_program_of_preferences_is_no_fine_tuning(program: str) -> None:
    """MedicalGPT's scripts/run_dpo.sh and run_rm.sh, whose flags are the Trainer's alone."""
    with refusal("preferences or rewards"):
        bridge.read_file(
            "run.sh", TRAIN.replace("train.py", f"python {program}")
        )
    with refusal("preferences or rewards"):
        bridge.read_file("run.sh", TRAIN.replace("train.py", "trl dpo"))
    sft = bridge.read_file("run.sh", TRAIN.replace("train.py", "trl sft"))
    assert sft.format.name == "transformers"


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


def test_a_bert_of_nemo_without_its_second_head_is_no_decoder() -> None:
    """auto_configurator/base_configs/bert.yaml of NeMo's launcher was read as a GPT."""
    bert = NEMO + "  bert_binary_head: false\n  data: {masked_lm_prob: 0.15}\n"
    with refusal("only decoders"):
        bridge.read_file("a.yaml", bert)


def test_experts_of_nemo_run_one_by_one_unless_they_are_grouped() -> None:
    experts = "  num_moe_experts: 8\n  moe_router_topk: 2\n"
    for more, told in (("", True), ("  moe_grouped_gemm: true\n", False)):
        file = bridge.read_file("a.yaml", NEMO + experts + more)
        assert any("one after the other" in n for n in file.notes) is told
        assert "moe_grouped_gemm" not in file.left


def test_eight_bits_of_neox_and_a_null_of_nanotron() -> None:
    neox = read("gpt-neox", use_bnb_optimizer=True, fp32_allreduce=True)
    assert neox.tables["job"]["optimizer"] == "adamw-8bit"
    assert "tensor parallelism" in neox.left["fp32_allreduce"]
    null = read("nanotron", **{"model.model_config.moe_config": None})
    assert null.tables == read("nanotron").tables


@pytest.mark.parametrize(
    ("norm", "more", "runs", "told"),
    [
        ("rmsnorm", False, "torch", False),
        ("rmsnorm", True, None, False),
        ("fused_rmsnorm", False, None, False),
        ("np_layernorm", False, None, True),
    ],
)
def test_norms_of_torchtitan_of_2024(
    norm: str, more: bool, runs: str | None, told: bool
) -> None:
    """models/norms.py: an RMSNorm in operations of its own, until torch.compile fuses them."""
    file = titan(**{"model.norm_type": norm, "training.compile": more})
    assert file.tables["software"].get("norm") == runs
    assert ("model.norm_type" in file.left) is told


@pytest.mark.parametrize(
    ("word", "way"),
    [(None, "gather"), ("allgather", "gather"), ("alltoall", "ring")],
)
def test_how_torchtitan_exchanges_keys(word: str | None, way: str) -> None:
    """context_parallel_rotate_method of 0.2: blocks go round the ranks, or all are gathered."""
    keys: dict[str, object] = {"parallelism.context_parallel_degree": 2}
    if word:
        keys["parallelism.context_parallel_rotate_method"] = word
    file = titan(**keys)
    assert (layout(file)["cp_exchange"], file.left) == (way, {})


def test_how_maxtext_exchanges_keys_and_what_else_it_trains() -> None:
    """configs/base.yml: context_parallel_strategy, use_dpo, use_multimodal."""
    two: dict[str, Any] = {"ici_context_parallelism": 2}
    ring = maxtext(**two, context_parallel_strategy="ring")
    assert layout(ring)["cp_exchange"] == "ring"
    assert layout(maxtext(**two))["cp_exchange"] == "gather"
    assert "use_dpo" in maxtext(use_dpo=False).harmless
    with refusal("preferences"):
        maxtext(use_dpo=True)
    with refusal("images"):
        maxtext(use_multimodal=True)


def test_the_sentence_for_python_names_the_commands_that_start_it() -> None:
    """torchtitan's config_registry.py and OLMo-core's scripts are Python."""
    with refusal("--module NAME --config NAME"):
        bridge.read_file("config_registry.py", "x = 1\n")
