"""Megatron-LM's scripts as others write them: commands that `eval` starts, defaults of its
arguments, layers of the first and the last stage.
"""

from __future__ import annotations

from typing import Any

import pytest

from meshwright import Job, Layout, model, parameters
from meshwright.errors import BadInput
from meshwright.formats import bridge
from meshwright.formats.bridge import launch, shell
from meshwright.formats.flags import adapters_alone

START = """torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 \\
 --global-batch-size 256 --vocab-size 32000 --bf16 """


def tables(words: str) -> dict[str, Any]:
    return bridge.read_file("a.sh", START + words).tables


@pytest.mark.parametrize(
    ("tokenizer", "rows"),
    [
        ("NullTokenizer", 32001),
        ("NullMultimodalTokenizer", 32001),
        ("HuggingFaceTokenizer", 32000),
    ],
)
def test_the_tokenizer_of_mock_data_ends_documents_with_a_token_more(
    tokenizer: str, rows: int
) -> None:
    made = tables(f"--tokenizer-type {tokenizer}")["model"]
    assert int(made["vocab"]) == rows


QUOTED = """
MOE="--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm \\
  --moe-layer-freq '([0]*2+[1]*30)'"
CMD="{}${{MOE}}"
echo ${{CMD}}
eval ${{CMD}}
"""


def test_quotes_within_a_command_are_those_of_eval() -> None:
    """As in Pai-Megatron-Patch: it is printed first, quotes and all, and then run."""
    script = QUOTED.format(START.replace("\\\n", " "))
    made = bridge.read_file("a.sh", script).tables["model"]
    assert made["moe"]["experts"] == 8
    assert made["moe"]["dense_layers"] == 2


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ('A="go 1 \\\n 2"\neval "$A"', [["go", "1", "2"]]),
        ('A="go 1\n run 2"\neval "$A"', [["go", "1"], ["run", "2"]]),
        ('eval "go 1; run 2"', [["go", "1"], ["run", "2"]]),
        ('A="1 \\\n 2"\ngo "$A"', [["go", "1  2"]]),
    ],
)
def test_lines_of_a_text_are_those_of_bash(
    text: str, commands: list[list[str]]
) -> None:
    """A line that goes on is one, with or without eval; another line is another command."""
    assert shell.read_script(text).commands == commands


def test_what_eval_cannot_split_is_taken_as_it_stands() -> None:
    """The other quote stands in what only a run knows."""
    script = f'eval "{START.replace(chr(92), " ")}--load \'$UNKNOWN"\n'
    assert bridge.read_file("a.sh", script).tables["model"]["layers"] == "32"


def test_latent_attention_has_the_defaults_of_the_arguments() -> None:
    """arguments.py, _add_mla_args: queries of their whole width, 32 of keys and values; those of
    MLATransformerConfig (512 and 512) are not what a command line gets."""
    mla = tables("--multi-latent-attention")["model"]["mla"]
    assert mla["kv_lora_rank"] == 32
    assert "q_lora_rank" not in mla
    mla = tables(
        "--multi-latent-attention --kv-lora-rank 512 --q-lora-rank 1536"
    )
    assert mla["model"]["mla"]["q_lora_rank"] == 1536


def test_latent_attention_with_whole_queries_is_written_and_read_back() -> (
    None
):
    """DeepSeek-V2-Lite's."""
    lite = model("deepseek-v2-lite")
    job = Job(lite, "8xh100-sxm", 64, Layout(dp=8, ep=8, zero=1))
    text, _ = bridge.write(job, "megatron", launch.Place(1, 8))
    assert "--q-lora-rank" not in text
    assert "--kv-lora-rank 512" in text
    again = bridge.read_file("a.sh", text).tables["model"]
    assert again["mla"]["kv_lora_rank"] == 512
    assert "q_lora_rank" not in again["mla"]
    assert parameters(lite) == pytest.approx(15.7e9, rel=0.01)


PP = "--pipeline-model-parallel-size 4 "
STAGES = {
    "--decoder-first-pipeline-num-layers 5": "5,9*3",
    "--decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 6": "6,10*2,6",
    "--num-layers 31 --account-for-embedding-in-pipeline-split": "7,8*3",
    "--num-layers 63 --account-for-embedding-in-pipeline-split"
    " --num-virtual-stages-per-pipeline-rank 2": "7,8*7",
}
"""What a file says of stages -> their layers (transformer_block.py, get_num_layers_to_build)."""


@pytest.mark.parametrize("said", STAGES)
def test_ends_of_a_pipeline_are_as_megatron_deals_them(said: str) -> None:
    assert tables(PP + said)["layout"]["stages"] == STAGES[said]


@pytest.mark.parametrize(
    "said",
    [
        "--decoder-first-pipeline-num-layers 7",
        "--decoder-last-pipeline-num-layers 5 --num-virtual-stages-per-pipeline-rank 2",
        "--account-for-loss-in-pipeline-split",
    ],
)
def test_ends_that_megatron_cannot_deal_are_said(said: str) -> None:
    """25 layers for three stages, 5 in two chunks, 33 for four stages: even ones are taken, and
    not silently."""
    file = bridge.read_file("a.sh", START + PP + said)
    assert "stages" not in file.tables["layout"]
    assert any(
        "Megatron cannot deal 32 layers" in why for why in file.left.values()
    )


MINDSPEED = (
    "--num-experts 64 --moe-router-topk 6 --moe-grouped-gemm --moe-layer-freq -1"
    " --n-shared-experts 2 "
)
"""Experts in the words of MindSpeed-LLM (c77308a, features_manager/moe/shared_expert.py)."""


@pytest.mark.parametrize(
    ("words", "width", "dense"),
    [
        ("--moe-ffn-hidden-size 1408 --first-k-dense-replace 3", 1408, 3),
        ("--moe-intermediate-size 1408 --first-k-dense-replace -1", 1408, 0),
        ("--ffn-hidden-size 1024 --first-k-dense-replace 0", 1024, 0),
    ],
)
def test_experts_of_mindspeed(words: str, width: int, dense: int) -> None:
    """Shared experts and leading dense layers were listed as unknown, and not in the model."""
    experts = tables(MINDSPEED + words)["model"]["moe"]
    got = [experts[n] for n in ("expert_ffn", "shared_ffn", "dense_layers")]
    assert got == [width, 2 * width, dense]


@pytest.mark.parametrize(
    ("algorithm", "exchange"),
    [("ulysses_cp_algo", "all-to-all"), ("megatron_cp_algo", "ring")],
)
def test_context_parallelism_of_mindspeed(
    algorithm: str, exchange: str
) -> None:
    said = f"--context-parallel-size 4 --context-parallel-algo {algorithm}"
    file = bridge.read_file("a.sh", START + said)
    assert file.tables["layout"]["cp_exchange"] == exchange
    assert "context_parallel_algo" not in file.left


def test_context_parallelism_in_two_ways_is_said() -> None:
    said = "--context-parallel-size 4 --context-parallel-algo hybrid_cp_algo"
    file = bridge.read_file("a.sh", START + said)
    assert "in two ways" in file.left["context_parallel_algo"]


@pytest.mark.parametrize(
    "words",
    [
        "--enable-dsa-indexer",
        "--full-attention-interval 4",
        "--num-zero-experts 256",
        "--enable-mhc",
        "--stage dpo",
        "--rollout-batch-size 128 --advantage-estimator grpo",
    ],
)
def test_another_model_or_loop_of_a_fork_is_refused(words: str) -> None:
    """They were read as Megatron's decoder, with a key that is not known."""
    with pytest.raises(BadInput):
        tables(words)


def test_what_a_fork_trains_and_how_is_read() -> None:
    assert tables("--stage sft")["layout"]["microbatch"] == "1"
    file = bridge.read_file("a.sh", START + "--lora-r 8 --swap-attention")
    assert adapters_alone(file.left) == "lora_r"
    assert "host memory" in file.left["swap_attention"]
    with pytest.raises(BadInput, match="measures a model"):
        bridge.read_file("a.sh", START.replace("pretrain_gpt", "evaluation"))
