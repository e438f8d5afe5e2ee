"""Megatron-LM's scripts as others write them: commands that `eval` starts, defaults of its
arguments, layers of the first and the last stage.
"""

from __future__ import annotations

from typing import Any

import pytest
from readings import demand_meaning

from meshwright import Job, Layout, model, parameters
from meshwright.formats import bridge
from meshwright.formats.bridge import launch
from meshwright.formats.flags import ADAPTERS
from refusals import refusal

START = """torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 \\
 --global-batch-size 256 --vocab-size 32000 --bf16 """


QUOTED = """
MOE="--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm \\
  --moe-layer-freq '([0]*2+[1]*30)'"
CMD="{}${{MOE}}"
echo ${{CMD}}
eval ${{CMD}}
"""


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
    # the norms of its latents, not of all heads' queries and keys
    assert "--qk-layernorm" in text
    assert not again["qk_norm"]
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


MINDSPEED = (
    "--num-experts 64 --moe-router-topk 6 --moe-grouped-gemm --moe-layer-freq -1"
    " --n-shared-experts 2 "
)
"""Experts in the words of MindSpeed-LLM (c77308a, features_manager/moe/shared_expert.py)."""
CUT = "--context-parallel-size 4 --context-parallel-algo "
EXPERTS = "--num-experts 64 --moe-router-topk 8 "
GROUPED = f"{EXPERTS}--moe-grouped-gemm "
DEALT = f"{GROUPED}--expert-model-parallel-size 2 "
WIDE = {"name": "fp8", "gather_bytes": 2.0}
FLASH = "--use-flash-attn "
READ: dict[str, dict[str, Any]] = {
    # the bytes of Adam's stand for those of an unknown one, which is said
    "--optimizer adam": {"optimizer": None, "left": set()},
    "--optimizer sgd": {"optimizer": "sgd"},
    "--optimizer dist_muon": {"optimizer": "muon"},
    "--optimizer lion": {"optimizer": None, "says": "'lion' is not known"},
    # stages that are dealt as usual say nothing
    f"{PP}--pipeline-model-parallel-layout 'Ett|tt|tt|ttL' --num-layers 8": {
        "stages": None
    },
    f"{PP}--pipeline-model-parallel-layout 'Et|ttt|tt|ttL' --num-layers 8": {
        "stages": "1,3,2*2"
    },
    # a ring unless --cp-comm-type says otherwise; what differs by layer is said
    "--context-parallel-size 2": {"cp_exchange": "ring"},
    "--context-parallel-size 2 --cp-comm-type all_gather": {
        "cp_exchange": "gather"
    },
    "--context-parallel-size 2 --cp-comm-type a2a a2a": {
        "cp_exchange": "all-to-all"
    },
    "--context-parallel-size 2 --cp-comm-type p2p a2a": {
        "left": {"cp_comm_type"}
    },
    # --use-flash-attn is of the older layers; Transformer Engine takes cuDNN's on Hopper
    **{
        FLASH + words: {"attention_kernel": kernel}
        for words, kernel in (
            ("", None),
            ("--transformer-impl transformer_engine", None),
            ("--attention-backend auto", None),
            ("--attention-backend flash", "fa2"),
            ("--transformer-impl local", "fa2"),
            ("--use-legacy-models", "fa2"),
            ("--DDP-impl local", "fa2"),
        )
    },
    # what changes time is not called harmless
    **{
        f"--{words}": {
            "left": {words.split()[0].replace("-", "_")},
            "silent": "not known",
        }
        for words in (
            "no-overlap-p2p-communication",
            "moe-expert-capacity-factor 4",
            "moe-pad-expert-input-to-capacity",
            "use-legacy-models",
            "transformer-impl local",
            "no-gradient-accumulation-fusion",
        )
    },
    # products of 8 bits, of weights that are gathered in 16
    "--fp8-format hybrid": {"precision": WIDE},
    "--fp8-format e4m3 --fp8-recipe mxfp8": {"precision": WIDE},
    "--fp8-format hybrid --fp8-param-gather": {"precision": "fp8"},
    EXPERTS: {"says": "too fast"},
    # the default dispatcher is allgather; one rank of experts sends nothing
    GROUPED: {"silent": "too fast", "left": set(), "dispatcher": None},
    DEALT: {"dispatcher": "allgather"},
    f"{DEALT}--moe-token-dispatcher-type alltoall": {"dispatcher": "alltoall"},
    f"{DEALT}--moe-enable-deepep": {"dispatcher": "deepep"},
    f"{DEALT}--moe-token-dispatcher-type flex"
    " --moe-flex-dispatcher-backend hybridep": {"dispatcher": "hybridep"},
    # a number of groups limits nothing by itself
    **{
        GROUPED + words: {
            "moe.groups": groups,
            "moe.top_groups": top,
            "left": set(),
        }
        for words, groups, top in (
            ("", 1, 1),
            ("--moe-router-num-groups 8 --moe-router-group-topk 4", 8, 4),
            ("--moe-router-num-groups 8", 1, 1),
            (
                "--moe-router-topk-limited-devices 3"
                " --expert-model-parallel-size 8",
                8,
                3,
            ),
        )
    },
    # the tokenizer of mock data ends documents with a token more
    "--tokenizer-type NullTokenizer": {"vocab": 32001},
    "--tokenizer-type NullMultimodalTokenizer": {"vocab": 32001},
    "--tokenizer-type HuggingFaceTokenizer": {"vocab": 32000},
    **{PP + words: {"stages": dealt} for words, dealt in STAGES.items()},
    # 25 layers for three stages, 5 in two chunks, 33 for four stages: even ones are taken, and not
    # silently
    **{
        PP + words: {
            "stages": None,
            "says": "Megatron cannot deal 32 layers",
        }
        for words in (
            "--decoder-first-pipeline-num-layers 7",
            "--decoder-last-pipeline-num-layers 5 --num-virtual-stages-per-pipeline-rank 2",
            "--account-for-loss-in-pipeline-split",
        )
    },
    f"{CUT}ulysses_cp_algo": {"cp_exchange": "all-to-all", "left": set()},
    f"{CUT}megatron_cp_algo": {"cp_exchange": "ring", "left": set()},
    f"{CUT}hybrid_cp_algo": {"says": "in two ways"},
    "--stage sft": {"microbatch": 1},
    "--lora-r 8": {"says": ADAPTERS},
    "--swap-attention": {"says": "host memory", "left": {"swap_attention"}},
    # arguments.py, _add_mla_args: queries of their whole width, 32 of keys and values; those of
    # MLATransformerConfig (512 and 512) are not what a command line gets
    "--multi-latent-attention": {
        "mla.kv_lora_rank": 32,
        "mla.q_lora_rank": None,
    },
    "--multi-latent-attention --kv-lora-rank 512 --q-lora-rank 1536": {
        "mla.q_lora_rank": 1536
    },
    # shared experts and leading dense layers were listed as unknown, and not in the model
    **{
        MINDSPEED + words: {
            "moe.expert_ffn": width,
            "moe.shared_ffn": 2 * width,
            "moe.dense_layers": dense,
        }
        for words, width, dense in (
            ("--moe-ffn-hidden-size 1408 --first-k-dense-replace 3", 1408, 3),
            (
                "--moe-intermediate-size 1408 --first-k-dense-replace -1",
                1408,
                0,
            ),
            ("--ffn-hidden-size 1024 --first-k-dense-replace 0", 1024, 0),
        )
    },
}
"""Arguments -> what they mean, as in `demand_meaning`."""


@pytest.mark.parametrize("words", READ)
def test_arguments_mean(words: str) -> None:
    demand_meaning(bridge.read_file("a.sh", START + words), READ[words])


# as in Pai-Megatron-Patch: it is printed first, quotes and all, and then run; where the other quote
# stands in what only a run knows, a command is taken as it stands
@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            QUOTED.format(START.replace("\\\n", " ")),
            {"moe.experts": 8, "moe.dense_layers": 2},
        ),
        (
            f'eval "{START.replace(chr(92), " ")}--load \'$UNKNOWN"\n',
            {"layers": "32"},
        ),
    ],
)
def test_a_command_that_eval_starts(text: str, fields: dict[str, Any]) -> None:
    demand_meaning(bridge.read_file("a.sh", text), fields)


# they were read as Megatron's decoder, with a key that is not known
@pytest.mark.parametrize(
    ("program", "words", "why"),
    [
        ("pretrain_gpt", "--enable-dsa-indexer", "."),
        ("pretrain_gpt", "--full-attention-interval 4", "."),
        ("pretrain_gpt", "--num-zero-experts 256", "."),
        ("pretrain_gpt", "--enable-mhc", "."),
        (
            "pretrain_gpt",
            f"{GROUPED}--moe-router-group-topk 4",
            "moe_router_group_topk 4 needs moe_router_num_groups",
        ),
        ("pretrain_gpt", "--stage dpo", "."),
        (
            "pretrain_gpt",
            "--rollout-batch-size 128 --advantage-estimator grpo",
            ".",
        ),
        ("evaluation", "", "measures a model"),
    ],
)
def test_another_model_or_loop_of_a_fork_is_refused(
    program: str, words: str, why: str
) -> None:
    with refusal(why):
        bridge.read_file(
            "a.sh", START.replace("pretrain_gpt", program) + words
        )


def test_layers_that_arguments_do_not_describe_are_named() -> None:
    """Without a value of Python's, and without a way that no model has."""
    job = Job("qwen3-next-80b-a3b", "16xh100-sxm", 64, Layout(dp=16, ep=8))
    says = r"no key for model\.linear, which this model has"
    with refusal(says) as error:
        bridge.write(job, "megatron", launch.Place(2, 8))
    assert "(" not in str(error.value)
