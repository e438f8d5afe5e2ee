"""Logs of other tools beside predictions of their jobs: the lines are made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright import Job, Layout, predict
from meshwright.compare.installation import MeasuredStep, installation
from meshwright.compare.logged import compare_log
from meshwright.formats.logs import steps_of
from meshwright.formats.toml import dump_job
from refusals import refusal
from shell import Shell

JOB = Job("llama3-8b", "8xh100-sxm", 64, Layout(tp=2, dp=4))
LINE = (
    " [2026-01-01 10:00:0{i}] iteration {i:8d}/ 100 | consumed samples: 640 |"
    " elapsed time per iteration (ms): {ms} | throughput per GPU"
    " (TFLOP/s/GPU): 400.1 | global batch size: {batch:5d} | lm loss: 9.1E+00 |"
)
SCRIPT = """#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
    --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention \\
    --num-query-groups 8 --vocab-size 128256 --seq-length 8192 --swiglu \\
    --max-position-embeddings 8192 --normalization RMSNorm --disable-bias-linear \\
    --untie-embeddings-and-output-weights --position-embedding-type rope --bf16 \\
    --tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64
"""


def lines(*ms: float, batch: int = 64) -> str:
    return "\n".join(
        LINE.format(i=i, ms=t, batch=batch) for i, t in enumerate(ms)
    )


def test_a_log_is_compared_with_what_is_predicted_for_its_job() -> None:
    """The first line, which compiles, does not count; the median of the others does."""
    found = compare_log(
        "log", steps_of(lines(99e3, 5100, 5000, 5200)), predict(JOB)
    )
    assert found.measured_s == pytest.approx(5.1)
    data = found.to_dict()
    assert data["step_time_s"]["predicted"] == predict(JOB).step_time_s
    assert data["timed_steps"] == 3 and data["causes"] is None
    assert found.series["step_time_s"][0] == pytest.approx(99)


def test_a_log_that_says_tokens_a_second_is_seconds_by_the_batch() -> None:
    """torchtitan: 64 x 8192 tokens of 8 ranks at 8,192 tokens a second each take 8 s."""
    titan = "\n".join(
        f"step: {i}  loss: 9.9  memory: 40.0GiB(50%)  tps: 8,192  mfu: 40%"
        for i in (1, 10, 20)
    )
    found = compare_log("log", steps_of(titan), predict(JOB))
    assert found.measured_s == pytest.approx(8.0)
    assert found.memory == 40 * 2**30


def test_flops_of_a_log_tell_another_model() -> None:
    """400.1 TFLOP/s on each of 8 chips in 9 s are .949 of this job's 3.04e16 FLOPs, in 3 s a
    third."""
    slow, fast = (
        compare_log("log", steps_of(lines(ms, ms, ms)), predict(JOB))
        for ms in (9000, 3000)
    )
    assert slow.flops_ratio == pytest.approx(0.949, abs=0.001)
    assert not slow.other_work
    assert fast.other_work in fast.to_dict()["why"]


def test_a_log_of_another_batch_is_refused() -> None:
    with refusal("global batch of 128"):
        compare_log("log", steps_of(lines(1, 2, batch=128)), predict(JOB))


def test_compare_and_calibrate_take_a_log(
    tmp_path: Path, shell: Shell
) -> None:
    log, script = tmp_path / "train.log", tmp_path / "train.sh"
    job = tmp_path / "job.toml"
    log.write_text(lines(99e3, 5100, 5000, 5200))
    script.write_text(SCRIPT)
    job.write_text(dump_job(JOB))
    assert "--job" in shell.refused(f"compare {log}")
    words = ["compare", str(log), "--job", str(script), "--on", "h100-sxm"]
    assert "median of the log" in shell(*words).out
    data = shell.json(f"compare {log} --job {job}")
    assert data["step_time_s"]["measured"] == pytest.approx(5.1)
    out = tmp_path / "ours.toml"
    words = ["calibrate", "--from", str(job), "--steps", str(log)]
    told = shell.json(*words, f"-o {out}")
    assert told["steps"] == 3
    plain = predict(JOB).step_time_s
    assert min(told["ratios"]) == pytest.approx(5.0 / plain, rel=1e-6)


ARGUMENTS = """--- arguments ---
  add_bias_linear ... False
  bf16 ... True
  ffn_hidden_size ... 14336
  global_batch_size ... 64
  group_query_attention ... True
  hidden_size ... 4096
  max_position_embeddings ... 8192
  micro_batch_size ... 1
  normalization ... RMSNorm
  num_attention_heads ... 32
  num_layers ... 32
  num_query_groups ... 8
  position_embedding_type ... rope
  seq_length ... 8192
  swiglu ... True
  tensor_model_parallel_size ... 2
  untie_embeddings_and_output_weights ... True
  use_distributed_optimizer ... False
  vocab_size ... 128256
  world_size ... 8
--- end of arguments ---
"""


def test_a_log_that_begins_with_its_arguments_needs_no_job(
    tmp_path: Path, shell: Shell
) -> None:
    """The same as with the script that it ran."""
    script, log = tmp_path / "run.sh", tmp_path / "run.log"
    script.write_text(SCRIPT)
    log.write_text(ARGUMENTS + lines(5100, 5000, 5200))
    answers = []
    for job in ([], ["--job", str(script)]):
        words = ["compare", str(log), *job, "--on", "8xh100-sxm", "--json"]
        answers.append(json.loads(shell(*words).out)["step_time_s"])
    assert answers[0] == answers[1]


NANOTRON = (
    "parallelism=ParallelismArgs(dp=4, pp=1, tp=2), tokens=TokensArgs(sequence_length=2048,"
    " micro_batch_size=2, batch_accumulation_per_replica=8), num_hidden_layers=24,"
    " hidden_size=2048, num_attention_heads=16, num_key_value_heads=16, intermediate_size=8192,"
    " vocab_size=49152\n"
)
STEPS = "\n".join(
    f"[INFO|DP=0]: iteration: {i} / 9 | consumed_tokens: 85.8G |"
    " elapsed_time_per_iteration_ms: 1.5K | global_batch_size: 64 |"
    for i in range(1, 6)
)


def test_a_log_whose_head_says_the_job_needs_none(
    tmp_path: Path, shell: Shell
) -> None:
    """nanotron writes its configuration first; without it the log says no job."""
    log, bare = tmp_path / "head.log", tmp_path / "bare.log"
    log.write_text(NANOTRON + STEPS)
    bare.write_text(STEPS)
    data = shell.json(f"compare {log} --on 8xh100-sxm")
    assert data["step_time_s"]["measured"] == pytest.approx(1.5)
    assert "--job says what it ran" in shell.refused(f"compare {bare}")


def doubts(*ms: float) -> str:
    """Of steps whose lines say no FLOPs."""
    text = lines(*ms).replace("throughput per GPU", "")
    return " ".join(compare_log("log", steps_of(text), predict(JOB)).doubts)


def test_a_run_that_slows_down_is_told() -> None:
    """Half as slow again from the middle on: the median is of neither half."""
    even = [5000.0] * 40
    assert doubts(99e3, *even) == ""
    later = doubts(99e3, *even, *(7500.0,) * 40)
    assert "became slower: 5 s a step in the first quarter" in later
    assert "7.5 s in the last" in later
    assert "became faster" in doubts(99e3, *(7500.0,) * 40, *even)


def test_steps_that_do_something_else_are_told() -> None:
    """Every tenth step writes a checkpoint of 15 s; single ones change nothing."""
    told = doubts(*([5000.0] * 9 + [20000.0]) * 10)
    assert "9 of 90 lines take more than 1.5 times the median" in told
    assert "6.5 s on average" in told
    assert doubts(*[5000.0] * 99, 6000.0) == ""


def test_milliseconds_are_no_seconds() -> None:
    """No run of the same job takes a hundred times as long."""
    found = compare_log("log", steps_of(lines(5.1e6, 5e6)), predict(JOB))
    assert "or not in seconds" in found.other_work
    with refusal("times the .* predicted.*not in seconds"):
        installation([MeasuredStep("log", JOB, s) for s in (5100, 5000, 5200)])


def test_steps_of_a_smaller_batch_do_not_count() -> None:
    """While the batch ramps up, steps are shorter."""
    steps = [(1000.0, 16)] * 30 + [(5000.0, 64)] * 20
    text = "\n".join(
        LINE.format(i=i, ms=ms, batch=batch)
        for i, (ms, batch) in enumerate(steps)
    )
    found = compare_log("log", steps_of(text), predict(JOB))
    assert found.measured_s == pytest.approx(5.0)
    assert len(found.log.steps) == 20


def test_a_single_line_is_said_to_be_the_first(
    tmp_path: Path, shell: Shell
) -> None:
    log, job = tmp_path / "one.log", tmp_path / "job.toml"
    log.write_text(lines(5000))
    job.write_text(dump_job(JOB))
    said = shell.json(f"compare {log} --job {job}")["why"]
    assert any("its only line, which also has" in each for each in said)
    assert "(megatron, 1 step)" in shell(f"compare {log} --job {job}").out


def test_nothing_of_an_impossible_log_is_calibrated_to(
    tmp_path: Path, shell: Shell
) -> None:
    log, job = tmp_path / "ms.log", tmp_path / "job.toml"
    log.write_text(lines(5e6, 5e6, 5e6))
    job.write_text(dump_job(JOB))
    card = shell(f"compare {log} --job {job}").out
    assert "calibrate" not in card and "not in seconds" in " ".join(
        card.split()
    )
    possible = lines(5e3, 5e3, 5e3).replace("400.1", "757.0")
    log.write_text(possible)
    assert "calibrate" in shell(f"compare {log} --job {job}").out
