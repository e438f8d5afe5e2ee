"""A question is the same in an address, on a command line, in a file and in Python."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from asking import told

from meshwright import Layout, load_job
from meshwright.formats.toml import dump_job
from meshwright.formats.toml_writer import dumps_toml
from meshwright.web import dropped
from meshwright.web.answers import clusters
from meshwright.web.copies import ways_to_copy
from meshwright.web.question import (
    ask,
    check_question,
    command_of,
    laid_out,
    python_of,
    question_of,
)
from refusals import refusal

EXAMPLES = sorted(
    Path(__file__).parents[2].joinpath("examples").glob("*.toml")
)
NAMED = {
    "model": "mixtral-8x7b",
    "on": "64xh100-sxm",
    "batch": "256seq",
    "seq": "4096",
    "precision": "fp8",
    "tokens": "2T",
    "framework": "torchtitan",
    "cuda_graphs": "full",
    "ep": "2,4",
    "zero": "2",
}


def dropped_as(text: str) -> dict[str, str]:
    return dict(dropped.read_dropped({"text": text}, told)["question"])


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.stem)
def test_file_to_question_and_back(file: Path) -> None:
    job = load_job(file)
    asked, _ = ask(question_of(job), [])
    assert replace(asked, layout=job.layout) == job
    question = question_of(job, layout=True)
    fields = {k: v for k, v in question.items() if hasattr(Layout(), k)}
    assert (
        replace(laid_out(job, fields), placement=job.layout.placement)
        == job.layout
    )


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.stem)
def test_a_dropped_file_is_the_question(file: Path) -> None:
    assert dropped_as(dump_job(load_job(file))) == question_of(
        load_job(file), layout=load_job(file).layout != Layout()
    )


def test_question_to_command_and_back() -> None:
    assert dropped_as(command_of(check_question(NAMED))) == check_question(
        NAMED
    )
    assert shlex.split(command_of(NAMED))[:3] == [
        "meshwright",
        "plan",
        "mixtral-8x7b",
    ]


def test_question_to_toml_and_back() -> None:
    job, space = ask(NAMED, [])
    text = ways_to_copy({"question": NAMED}, told)["toml"]
    again, _ = ask(dropped_as(str(text)), [])
    assert again == job
    assert space.choices == {"ep": (2, 4), "zero": (2,)}


def test_question_to_python() -> None:
    text = python_of(NAMED).replace("found = plan(", "found = (")
    names: dict[str, object] = {}
    exec(text.replace("print(found)", ""), names)
    job, space = names["found"]  # type: ignore[misc]
    assert (job, space) == ask(NAMED, [])


def test_canonical_order_and_no_empty_texts() -> None:
    shuffled = {
        "zero": "1",
        "batch": " 4Mi ",
        "tp": "",
        "on": "8xh100-sxm",
        "model": "llama3-8b",
    }
    assert [*check_question(shuffled).items()] == [
        ("model", "llama3-8b"),
        ("on", "8xh100-sxm"),
        ("batch", "4Mi"),
        ("zero", "1"),
    ]


CONFIG = """{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
 "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
 "vocab_size": 128256, "max_position_embeddings": 8192}"""


def test_a_config_json_is_a_model() -> None:
    kept = {"on": "8xh100-sxm", "batch": "64seq"}
    question = dropped.read_dropped({"text": CONFIG, "question": kept}, told)[
        "question"
    ]
    job, _ = ask(question, [])
    same, _ = ask({**kept, "model": "llama3-8b"}, [])
    assert (job.model.layers, job.model.hidden, job.model.vocab) == (
        32,
        4096,
        128256,
    )
    assert (job.cluster, job.batch) == (same.cluster, same.batch)


def test_a_file_can_be_changed_by_fields() -> None:
    text = dumps_toml(
        {
            "model": {"name": "llama3-8b"},
            "cluster": {"on": "8xh100-sxm"},
            "job": {"batch": "64seq"},
        }
    )
    job, _ = ask({"job": text, "batch": "128seq", "on": "16xh100-sxm"}, [])
    assert (job.batch, job.cluster.chips) == (128, 16)


@pytest.mark.parametrize(
    "text, words",
    {
        "meshwright train job.toml": "must be one of",
        "meshwright plan llama3-8b --onn 8": "--on",
        "{": "not valid JSON",
        "[model": "not valid TOML",
        "hello world": "none of what is read here",
        "base_model: foo/Bar-7B\nsequence_len: 4096\nmicro_batch_size: 1\n": (
            "axolotl trains foo/Bar-7B, which is not in the catalogue: put that into it"
        ),
        "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32": (
            "Megatron-LM leaves the vocabulary to its tokenizer: put that into it"
        ),
        '{"model_type": "unheard-of"}': "unheard-of",
        '{"schema": "meshwright/4", "verb": "plan"}': "paste the JOB.toml of it",
    }.items(),
)
def test_what_cannot_be_read_is_a_sentence(text: str, words: str) -> None:
    with refusal(words.replace("(", r"\(")):
        dropped_as(text)


MEGATRON = """torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 \\
 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --swiglu --seq-length 4096 \\
 --max-position-embeddings 4096 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 \\
 --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer \\
 --vocab-size 32000 --make-vocab-size-divisible-by 128 --disable-bias-linear --use-flash-attn \\
 --normalization RMSNorm --untie-embeddings-and-output-weights --position-embedding-type rope
"""


def test_another_tools_script_is_a_question() -> None:
    kept = {"model": "llama3-8b", "on": "512xh100-sxm", "batch": "4Mi"}
    told_of = dropped.read_dropped({"text": MEGATRON, "question": kept}, told)
    assert "Megatron-LM" in str(told_of["said"])
    question = told_of["question"]
    assert (question["tp"], question["pp"]) == ("4", "2")
    job, space = ask(question, [])
    assert (job.cluster.chips, job.cluster.chip.name, job.batch) == (
        16,
        "h100-sxm",
        128,
    )
    assert (job.model.layers, job.model.hidden) == (32, 4096)
    assert space.choices["tp"] == (4,)


def test_a_plan_is_written_for_other_tools() -> None:
    question = {"model": "llama3-8b", "on": "16xh100-sxm", "batch": "128seq"}
    found = ways_to_copy(
        {"question": question, "layout": {"tp": 4, "zero": 1}}, told
    )
    texts = {tool["name"]: tool for tool in found["tools"]}  # type: ignore[attr-defined]
    assert "--tensor-model-parallel-size 4" in texts["megatron"]["text"]
    back = dropped.read_dropped(
        {"text": texts["megatron"]["text"], "question": question}, told
    )
    assert back["question"]["tp"] == "4"


def test_a_comparison_is_copied_with_its_clusters_and_prices() -> None:
    """The Python finds what the view shows, at the prices that it shows."""
    question = {
        "model": "llama3-8b",
        "on": "8xh100-sxm",
        "batch": "64seq",
        "tokens": "1T",
        "tp": "1,2",
        "recompute": "none",
    }
    names = ["8xh100-sxm", "8xa100-80"]
    prices = {"h100": 2.0, "A100 80GB": 1.5}
    body = {"question": question, "clusters": names, "prices": prices}
    found = ways_to_copy(body, told)
    words = shlex.split(str(found["command"]))
    assert words[:3] == ["meshwright", "sweep", "llama3-8b"]
    assert words[-6:-2] == ["--price", "h100-sxm=2", "--price", "a100-80=1.5"]
    assert words[-2:] == ["--over", "on=8xh100-sxm,8xa100-80"]
    assert "usd_per_hour = 2" in str(found["toml"])
    costs: list[float] = []
    text = str(found["python"]).replace("print(found)", "seen(found)")
    exec(text, {"seen": lambda plan: costs.append(plan.best.cost_usd)})
    assert costs == [row["cost_usd"] for row in clusters(body, told)]
    alone = ways_to_copy({"question": question}, told)
    assert "plan llama3-8b" in str(alone["command"])
    assert "--price" not in str(alone["command"])
