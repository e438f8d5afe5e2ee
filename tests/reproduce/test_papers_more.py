"""The book's take-aways by count; Megatron's bisection and checkpoint."""

from dataclasses import replace

import pytest

from meshwright import Layout, predict
from meshwright.describe.assumptions import LBL
from meshwright_studies.reproduce.lbl import figures
from meshwright_studies.reproduce.megatron import traffic
from meshwright_studies.reproduce.scaling_book import published, questions
from shell import Shell


def test_the_backward_pass_of_fsdp_and_tp_sends_4bd() -> None:
    """Two collectives of B / X tokens of 2 D bytes, as forward: not the 8BD/X that is printed."""
    one = 2**20 * 8192 / 512
    assert [*map(questions.tensor_bytes, ("forward", "backward"))] == [
        2 * (2 * one)
    ] * 2
    cases = [c for c in published.shipped() if "takeaways" in c.id]
    status = [c.status for c in published.worked_checks(cases)]
    assert status == ["match", "erratum"]


def test_bisection_by_hand() -> None:
    """48 GPUs of a stage, each over one channel of NCCL, less what a message waits for; rings of six,
    whose slowest link carries 2 x 5/6 of the gradients.
    """
    found = traffic.bisection()
    assert 0.95 * 48 * 18.3e9 < found["stage sends"] <= 48 * 18.3e9
    assert found["gradient all-reduce"] <= 512 * 25e9
    assert {c.source for c in traffic.bisection_checks()} == {"printed"}


def test_the_checkpoint_at_the_measured_speed() -> None:
    value = dict(traffic.checkpoint().rows)
    written = value["s to write, predicted bytes at 273 GB/s"]
    assert written == pytest.approx(1008e9 * 14 / 273e9, rel=1e-3)
    assert 0 < value["share of the time that writes"] < 0.1


def test_a_layout_beside_a_plan_says_what_the_set_forces(
    shell: Shell,
) -> None:
    words = "plan gpt3-175b --on 1024xselene --batch 1536seq --assumptions megatron-2021"
    text = " ".join(shell(f"{words} --against 'tp=8 pp=8'").out.split())
    assert (
        "yours tp 8 · pp 8 · dp 16 · 1f1b · ZeRO-0 · full recomputation"
        in text
    )
    none = shell(f"{words} --against 'tp=8 pp=8 recompute=none'").out
    assert "megatron-2021 allows recompute full, not none" in " ".join(
        none.split()
    )


def test_offload_of_lbls_outlook_under_its_own_set() -> None:
    """Section V names offload to the host: what is away is no longer on the chip."""
    job = figures.paper_job(figures.GPT, "b200", 8, 16384, LBL)
    here = Layout(tp=8, pp=64, dp=32, zero=1)
    away = predict(job, replace(here, offload="optimizer"))
    kept = predict(job, here)
    assert kept.memory_bytes["optimizer"] > 0
    assert away.memory_bytes["optimizer"] == 0
    # states go out and come back, so the step is no faster
    assert away.step_time_s >= kept.step_time_s
