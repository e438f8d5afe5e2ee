"""Megatron's flags on what runs beside what, in the prediction.

A 7.5 B dense part of Llama-3-8B on 64 H100, tp 2, 32 replicas, ZeRO-1: a rank sums 4.0 B gradients
of 4 bytes and gathers 4.0 B weights of 2 bytes, over 4 network cards of 50 GB/s that the four
replicas of a node share with nobody.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright import Job, predict
from meshwright.describe.framework import framework, running
from meshwright.describe.software import Software
from meshwright.formats import bridge, flags
from meshwright.formats.bridge import launch
from meshwright.step.sync import sync_wait
from refusals import refusal

DP = """torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --tensor-model-parallel-size 2
--sequence-parallel --use-distributed-optimizer --num-layers 32 --hidden-size 4096
--ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8
--seq-length 8192 --max-position-embeddings 8192 --swiglu --normalization RMSNorm
--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope
--micro-batch-size 1 --global-batch-size 64 --bf16 --attention-dropout 0.0 --hidden-dropout 0.0
--vocab-size 128256 """.replace("\n", " ")
BOTH = "--overlap-grad-reduce --overlap-param-gather"


def job_of(tmp: Path, more: str) -> Job:
    path = tmp / "dp.sh"
    path.write_text(DP + more, "utf-8")
    return flags.read_flags(str(path), {"on": "64xh100-sxm"})


def test_collectives_that_no_flag_overlaps_are_waited_for(
    tmp_path: Path,
) -> None:
    """By hand: (16 GB x 31/32 + 8 GB x 31/32) / 200 GB/s = 0.116 s at the full rate of the cards;
    real collectives reach 0.8 to 1 of it."""
    off, sums, both = (
        predict(job_of(tmp_path, more))
        for more in ("", "--overlap-grad-reduce", BOTH)
    )
    assert 0.11 < off.time_s["dp_comm"] < 0.15
    assert off.time_s["overlap_slowdown"] == 0.0
    assert off.step_time_s > sums.step_time_s > both.step_time_s
    # gathers of 8 GB alone stay: a third, and what is last of the sums
    assert 0.035 < sums.time_s["dp_comm"] < 0.075


def test_no_overlap_is_the_sum_of_both_collectives(tmp_path: Path) -> None:
    p = predict(job_of(tmp_path, ""))
    device = p.step.devices[0]
    every = (
        device.sync.total.reduction.seconds + device.sync.total.gather.seconds
    )
    assert p.time_s["dp_comm"] == pytest.approx(every, rel=1e-12)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_the_more_is_hidden_the_less_shows(tmp_path: Path, zero: int) -> None:
    """Of any ZeRO stage: none is waited for longer than all collectives, one after the other."""
    job = job_of(tmp_path, BOTH)
    p = predict(replace(job, layout=replace(job.layout, zero=zero)))
    device, passes, m = p.step.devices[0], p.costs.microbatch.devices[0], 2.0
    how = framework("megatron-core")
    waits = [
        sync_wait(
            passes,
            device.sync,
            m,
            zero,
            replace(how, dp_overlap=word).dp_hidden,
        )
        for word in ("off", "gradients", "all")
    ]
    off, sums, both = (float(w.total - w.slowdown) for w in waits)
    assert off >= sums >= both >= 0.0
    if zero:
        gather = float(device.sync.total.gather.seconds)
        often = 2 * m if zero == 3 else 1.0
        assert sums >= gather * often


def test_a_program_without_such_a_word_refuses_it() -> None:
    for name, word in (("megatron-2021", "all"), ("meshwright", "gradients")):
        with refusal(f"{name} waits"):
            running(framework(name), "flash", Software(dp_overlap=word))


def test_megatron_of_2021_hides_gradients_on_request() -> None:
    """--DDP-impl torch; its own way, the default, reduces them after the last microbatch."""
    waits = framework("megatron-2021")
    asked = running(waits, "flash", Software(dp_overlap="gradients"))
    assert waits.dp_hidden.scope == "none"
    assert asked.dp_hidden.scope == "backward"


def test_a_recipe_that_says_nothing_keeps_its_own() -> None:
    text = "model: {tensor_model_parallel_size: 2}\ntrain: {micro_batch_size: 1}\n"
    found = bridge.read_file("recipe.yaml", text)
    assert "dp_overlap" not in found.tables.get("software", {})
    off = bridge.read_file(
        "recipe.yaml", text + "ddp: {overlap_grad_reduce: false}\n"
    )
    assert off.tables["software"]["dp_overlap"] == "off"


def test_layers_of_several_sizes_are_another_model() -> None:
    with refusal("layers of several sizes"):
        bridge.read_file(
            "t.sh", f"{DP} --heterogeneous-layers-config-path c.json"
        )


@pytest.mark.parametrize(
    ("flags", "loss"),
    [
        ("", "passes"),
        ("--cross-entropy-loss-fusion", "fused"),
        (
            "--cross-entropy-loss-fusion --cross-entropy-fusion-impl native",
            "fused",
        ),
        (
            "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te",
            "in place",
        ),
        # which fusion it would be, where there is none
        ("--cross-entropy-fusion-impl te", "passes"),
    ],
)
def test_the_loss_that_a_script_runs(
    tmp_path: Path, flags: str, loss: str
) -> None:
    """Megatron-LM fuses its loss on request only, by torch.compile unless Transformer Engine is
    named; nothing of it is left unread."""
    job = job_of(tmp_path, flags)
    assert job.profile is not None and job.profile.loss == loss
    found = bridge.read_file("t.sh", f"{DP} {flags}")
    assert not [key for key in found.left if "cross_entropy" in key]


@pytest.mark.parametrize(
    ("by", "software"),
    [
        ("megatron-core", Software(loss="in place")),
        ("megatron-bridge", Software()),
    ],
)
def test_a_loss_that_megatron_refuses_is_not_written(
    tmp_path: Path, by: str, software: Software
) -> None:
    """arguments.py of d98e8a6 asserts that Transformer Engine does not fuse it; Megatron-Bridge's
    library, whose profile it is, has no such rule.
    """
    job = replace(job_of(tmp_path, BOTH), framework=by, software=software)
    with refusal("loss fused"):
        bridge.write(job, "megatron", launch.Place(8, 8))


@pytest.mark.parametrize(
    ("forced", "routing"), [("true", "neighbours"), ("false", None)]
)
def test_torchtitans_forced_balance_deals_experts_in_turn(
    forced: str, routing: str | None
) -> None:
    """models/common/moe.py: expert (k t + i) mod E is the i-th of token t, so that a token's stand
    side by side."""
    text = (
        "[parallelism]\nexpert_parallel_degree = 8\n[training]\nlocal_batch_size = 4\n"
        f"[debug]\nmoe_force_load_balance = {forced}\n"
    )
    read = bridge.read_file("t.toml", text, named="torchtitan-toml")
    assert read.tables.get("software", {}).get("routing") == routing
    assert "debug.moe_force_load_balance" not in read.left


@pytest.mark.parametrize(
    ("flags", "routing", "left"),
    [
        (("1.0", "--moe-pad-expert-input-to-capacity"), "padded", set()),
        (
            ("1.25", "--moe-pad-expert-input-to-capacity"),
            "padded",
            {"moe_pad_expert_input_to_capacity"},
        ),
        (("1.0",), None, {"moe_expert_capacity_factor"}),
    ],
)
def test_experts_padded_to_their_capacity(
    flags: tuple[str, ...], routing: str | None, left: set[str]
) -> None:
    """core/transformer/moe/token_dispatcher.py: drop-and-pad takes the capacity for the number of
    tokens, what is only dropped is counted. A factor over 1 is more work, which is said."""
    read = bridge.read_file(
        "a.sh",
        "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8"
        " --seq-length 2048 --num-experts 8 --expert-model-parallel-size 8"
        " --moe-token-dispatcher-type alltoall --moe-expert-capacity-factor "
        + " ".join(flags),
    )
    said = read.tables.get("software", {})
    assert said.get("routing") == routing
    assert {key for key in read.left if "capacity" in key} == left
