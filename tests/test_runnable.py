"""Software that a job names and that does not run there is said; what runs is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshwright import Job, catalog, predict
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.framework import frameworks, usual
from meshwright.describe.software import Software
from meshwright.prediction.runnable import not_there
from shell import Shell

LLAMA, EXPERTS = "llama3-8b", "qwen3-30b-a3b"


def narrow(recipe: str) -> dict[str, Any]:
    """FP8 by a recipe."""
    return {"precision": "fp8", "software": Software(float8=recipe)}


def software(**said: Any) -> dict[str, Any]:
    return {"software": Software(**said)}


CASES: list[tuple[str, str, dict[str, Any], str]] = [
    (LLAMA, "8xh100-sxm", narrow("rowwise"), "not rowwise"),
    (LLAMA, "8xh100-sxm", narrow("delayed"), ""),
    (EXPERTS, "16xmi300x", software(dispatcher="deepep"), "not on mi300x"),
    (EXPERTS, "16xgb200", software(dispatcher="deepep"), "not on gb200"),
    (EXPERTS, "16xgb200", software(dispatcher="hybridep"), ""),
    (EXPERTS, "16xh100-sxm", software(ep_overlap=False), ""),
    (EXPERTS, "16xh100-sxm", software(dispatcher="alltoall"), ""),
    (LLAMA, "8xh20", software(tp_overlap="all"), ""),
    (LLAMA, "8xh100-sxm", software(tp_overlap="off"), ""),
    # a framework of other vendors' chips, with the one that is usual there
    *(
        (LLAMA, on, {"framework": framework}, there and f"{there} runs there")
        for on, framework, there in (
            ("8xtpu-v5p", "megatron-core", "maxtext"),
            ("8xtpu-v5p", "maxtext", ""),
            ("8xtpu-v5p", None, ""),
            ("8xtrainium2", "deepspeed", "maxtext"),
            ("8xtrainium2", "torchtitan", ""),
            ("8xgaudi3", "maxtext", "fsdp"),
            ("8xgaudi3", "megatron-core", ""),
            ("8xmi300x", "automodel", "megatron-core"),
            ("8xmi300x", "maxtext", ""),
            ("8xh100-sxm", "maxtext", ""),
        )
    ),
    *(
        (LLAMA, on, {"attention_kernel": kernel}, told)
        for on, kernel, told in (
            ("8xa100-80", "fa3", "does not run on"),
            ("8xb200", "fa3", "does not run on"),
            ("8xh20", "fa3", ""),
            ("8xa100-80", "cudnn", ""),
            ("8xmi300x", "cudnn", "does not run on"),
            ("8xmi300x", "fa2", ""),
            ("8xtpu-v5p", "fa2", "does not run on"),
            ("8xv100-32", "flash", "does not run on"),
            ("8xv100-32", "unfused", ""),
            ("8xt4", "fa2", "does not run on"),
            ("8xt4", "fa1", ""),
            ("8xrtx-3090", "fa2", ""),
            ("8xb300", "cudnn", ""),
            ("8xtpu-v5p", "xla", ""),
            ("8xh100-sxm", "unfused", ""),
        )
    ),
]


@pytest.mark.parametrize(("model", "on", "said", "told"), CASES)
def test_what_does_not_run_there_is_said(
    model: str, on: str, said: dict[str, Any], told: str
) -> None:
    sentences = [*not_there(Job(model, on, 64, **said))]
    assert len(sentences) == bool(told)
    assert all(told in sentence for sentence in sentences)


def test_every_usual_framework_runs_on_its_chip() -> None:
    """No chip of the catalogue has a framework by default that does not run there."""
    named = {vendor for f in frameworks().values() for vendor in f.vendors}
    for name in catalog.names("chips"):
        chip = catalog.chip(name)
        by = frameworks()[usual(REALISTIC, chip)]
        known = chip.vendor in named and by.vendors
        assert not known or chip.vendor in by.vendors, name


@pytest.mark.parametrize(
    "verb",
    ["predict --zero 3", "plan", "sweep --over batch=64seq,128seq"],
)
def test_cards_say_it_before_the_layout(verb: str, shell: Shell) -> None:
    name, _, more = verb.partition(" ")
    said = shell(
        f"{name} llama3-8b --on 64xtpu-v5p --batch 64seq --framework megatron-core {more}"
    ).out
    assert "but     megatron-core does not run on tpu-v5p" in said


def of_vendor(vendor: str) -> list[str]:
    """What is said of Megatron Core on a chip that names no framework, of this vendor."""
    own = replace(catalog.chip("tpu-v5p"), vendor=vendor, framework="")
    job = Job("llama3-8b", "8xtpu-v5p", 64, framework="megatron-core")
    return [*not_there(replace(job, cluster=replace(job.cluster, chip=own)))]


def test_a_user_s_own_chip_of_no_vendor_runs_anything() -> None:
    """Of a chip whose vendor is not said nothing is known."""
    assert of_vendor("") == []


def test_a_vendor_that_no_framework_names_is_no_other_vendor() -> None:
    """What is usual is not said to run where it is said not to."""
    (unknown,) = of_vendor("Example")
    assert unknown == (
        "no framework names chips of Example among those that it runs on:"
        " tpu-v5p is timed as if megatron-core did"
    )
    (google,) = of_vendor("Google")
    assert google.endswith("tpu-v5p: it is timed as if it did")


OTHERWISE = [
    ("8xv100-32", "megatron-core", "fused-softmax"),
    ("8xv100-32", "fsdp", "efficient"),
    ("8xt4", "torchtitan", "efficient"),
    ("8xv100-32", "megatron-deepspeed", "fused-softmax"),
    ("8xa100-80", "megatron-core", "cudnn"),
    ("8xrtx-4090", "fsdp", "fa2"),
    ("8xmi300x", "megatron-core", "cudnn"),
]


@pytest.mark.parametrize(("on", "framework", "kernel"), OTHERWISE)
def test_a_chip_without_the_usual_kernel_runs_another(
    on: str, framework: str, kernel: str
) -> None:
    """No FlashAttention and no attention of cuDNN runs on Volta: Transformer Engine takes its
    unfused one there, PyTorch its memory-efficient one.
    """
    job = Job("llama3-8b", on, 64, framework=framework)
    assert job.profile and job.profile.attention == kernel
    assert not [*not_there(job)]


def test_unfused_attention_of_volta_keeps_scores() -> None:
    """What the layers of Megatron keep on a V100 holds the scores of each head, as unfused attention
    does that somebody asks for; on an A100 it does not.
    """
    job = Job("gpt3-6.7b", "8xv100-32", 64, precision="fp16")
    old = predict(job, tp=8, microbatch=4)
    asked = predict(job, tp=8, microbatch=4, attention_kernel="fused-softmax")
    new = predict(job, on="8xa100-80", tp=8, microbatch=4)
    kept = old.memory_bytes["activations"]
    assert kept == asked.memory_bytes["activations"]
    assert old.step_time_s == asked.step_time_s
    # a 16-bit number for each pair of tokens, of the heads of a rank, in all layers
    scores = 4 * 2048**2 * (32 / 8) * 32 * 2
    assert kept == new.memory_bytes["activations"] + scores
