"""What to change of a run, on the page: the same numbers as the library's."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette")

from asking import QUESTION, ask  # noqa: E402

from meshwright import Layout, advise, load_job

JOB = {
    "model": "llama3-8b",
    "cluster": {"on": "8xh100-sxm"},
    "job": {"batch": "64seq"},
}
SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 \\
 --sequence-parallel --use-distributed-optimizer --num-layers 32 --hidden-size 4096 \\
 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention \\
 --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 --swiglu \\
 --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \\
 --position-embedding-type rope --micro-batch-size 1 --global-batch-size 64 --bf16 \\
 --vocab-size 128256
"""
LOG = """--- arguments ---
  tensor_model_parallel_size ... 4
  sequence_parallel ... True
  use_distributed_optimizer ... True
  num_layers ... 32
  hidden_size ... 4096
  ffn_hidden_size ... 14336
  num_attention_heads ... 32
  seq_length ... 4096
  swiglu ... True
  micro_batch_size ... 1
  global_batch_size ... 64
  bf16 ... True
  vocab_size ... 128256
  world_size ... 8
--- end of arguments ---
""" + "\n".join(
    f" iteration {i}/ 500 | elapsed time per iteration (ms): 6000.0 | global batch size: 64 |"
    for i in range(1, 8)
)


def test_the_layout_on_the_page_is_advised_as_by_the_library() -> None:
    told = ask("advise", {"question": QUESTION, "layout": {"tp": 4}}).json
    job = load_job(JOB)
    ours = advise(job.laid_out(Layout(tp=4).filling(8)))
    assert [c["gain"] for c in told["changes"]] == [
        a.gain for a in ours.changes
    ]
    first = told["changes"][0]
    assert first["words"] and " -> " in first["said"]


def test_a_script_that_is_pasted_has_its_own_words() -> None:
    told = ask("advise", {"question": QUESTION, "text": SCRIPT}).json
    assert told["format"] == "megatron"
    assert any(
        "--tensor-model-parallel-size" in c["flags"] for c in told["changes"]
    )
    assert told["run"]["layout"]["tp"] == 4


def test_a_log_that_is_pasted_scales_what_is_predicted() -> None:
    told = ask("advise", {"question": QUESTION, "text": LOG}).json
    assert told["measured"]["step_time_s"] == 6.0
    assert told["run"]["step_time_s"] != told["measured"]["predicted_s"]


def test_a_text_that_is_no_run_is_a_sentence() -> None:
    reply = ask("advise", {"question": QUESTION, "text": "hello"})
    assert "not a script, configuration or log" in reply.refused


def test_the_arguments_of_a_log_are_its_question_and_layout() -> None:
    told = ask("read", {"question": QUESTION, "text": LOG}).json
    assert told["said"].startswith("the log of Megatron")
    assert told["question"]["tp"] == "4"
