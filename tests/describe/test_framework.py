"""Frameworks: who answers what a set of assumptions leaves open."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest

import meshwright
from meshwright import Job, cluster, model
from meshwright.describe.assumptions import SETS, HidePass
from meshwright.describe.fields import ASK
from meshwright.describe.framework import (
    ANSWERS,
    framework,
    frameworks,
    questions_of,
    with_answers,
)
from meshwright.describe.holding import Holding
from meshwright.describe.precision import PRECISIONS
from meshwright.describe.software import Software
from meshwright.formats.flags import read_flags
from meshwright.formats.toml import dump_job, load_job
from refusals import refusal

ASKING = ("realistic", "pytorch", "megatron-2021")
PAPERS = [name for name in SETS if name not in ASKING]


def job(**fields: object) -> Job:
    return Job(
        **{
            "model": model("llama3-8b"),
            "cluster": cluster("8xh100-sxm"),
            "batch": 8,
            **fields,
        }
    )


def gradients_of(**fields: object) -> float:
    return job(**fields).precision.gradient_bytes


@pytest.mark.parametrize("name", ["bf16", "fp8"])
def test_gradients_of_a_named_precision_are_the_frameworks(name: str) -> None:
    bridge = {"framework": "megatron-bridge", "precision": name}
    assert gradients_of(**bridge) == 2.0
    assert gradients_of(**{**bridge, "framework": "megatron-core"}) == 4.0
    assert gradients_of(**{**bridge, "framework": "megatron-deepspeed"}) == 2.0
    # the name or the software says them, or all numbers are given
    assert gradients_of(precision=f"{name}-pure") == 2.0
    stated = {**bridge, "software": Software(gradients="fp32")}
    assert gradients_of(**stated) == 4.0
    given = job(**{**bridge, "precision": PRECISIONS[name]})
    assert given.precision == PRECISIONS[name]
    assert given.precision_words == f"{name}, gradients of 4 bytes"
    assert job(**stated).precision_words == given.precision_words
    assert job(**bridge).precision_words == name
    # papers have no framework to ask
    lbl = gradients_of(assumptions="lbl-2024", precision="bf16")
    assert lbl == PRECISIONS["bf16"].gradient_bytes
    for one in (job(**bridge), job(**stated), given):
        text = dump_job(one)
        assert load_job(tomllib.loads(text)) == one
    assert f'precision = "{name}"' in dump_job(job(**bridge))
    flags = {"on": "8xh100-sxm", "batch": "8seq", **bridge}
    read = read_flags("llama3-8b", flags)
    assert read.precision == job(**bridge).precision


def test_gradients_follow_the_framework_of_a_named_precision() -> None:
    named = job(framework="megatron-bridge", precision="fp8")
    other = named.with_(framework="megatron-core")
    assert other.precision == PRECISIONS["fp8"]
    assert other.with_(framework="megatron-bridge") == named
    assert named.with_(batch=16).precision == named.precision


def test_realistic_asks_at_every_joint_that_a_framework_answers() -> None:
    every = {*ANSWERS}
    assert set(questions_of(SETS["realistic"])) == every
    # its kernels, its host and its messages are measured
    measured = {("chip", "stack"), ("network", "send_channels")}
    assert set(questions_of(SETS["pytorch"])) == every - measured
    assert not [name for name in PAPERS if questions_of(SETS[name])]


@pytest.mark.parametrize("name", sorted(frameworks()))
def test_a_framework_leaves_nothing_open(name: str) -> None:
    found = job(framework=name)
    assert not questions_of(found.how)
    assert repr(ASK) not in repr(found.how.count) + repr(
        found.how.overlap
    ) + repr(found.how.memory)


@pytest.mark.parametrize("name", sorted(frameworks()))
def test_every_field_has_its_source(name: str) -> None:
    profile = frameworks()[name]
    about = {f.name for f in fields(profile)} - {
        "name",
        "choices",
        "rules",
        "sources",
        "holding",
    }
    # says nothing: whatever it runs
    about -= {
        n
        for n in ("proposes", "orders", "mesh", "offers", "otherwise")
        if not getattr(profile, n)
    }
    held = profile.holding
    about |= {
        f"holding.{f.name}"
        for f in fields(held)
        if getattr(held, f.name) != getattr(Holding(), f.name)
    }
    assert about <= set(profile.sources)
    assert all(profile.sources[field]["source"] for field in about)


def test_the_usual_framework_is_that_of_the_chip() -> None:
    assert job().profile.name == "megatron-core"
    assert job(cluster=cluster("8xtpu-v5p")).profile.name == "maxtext"
    assert (
        job(cluster=cluster("8xtpu-v5p"), assumptions="pytorch").profile.name
        == "meshwright"
    )


def test_what_a_job_says_of_its_software_stands_before_the_framework() -> None:
    said = Software(cuda_graphs="full", compiled=False, tp_overlap="all")
    found = job(framework="torchtitan", software=said).profile
    assert (found.cuda_graphs, found.compiled, found.tp_overlap) == (
        "full",
        False,
        "all",
    )
    assert (found.name, found.norm, found.host_s) == (
        "torchtitan",
        "fused",
        framework("torchtitan").host_s,
    )


def test_the_attention_kernel_is_named_or_the_frameworks() -> None:
    def kernel(name: str, of: str) -> tuple[str, bool]:
        found = job(framework=of, attention_kernel=name)
        return found.profile.attention, found.fused_attention

    assert (
        kernel("framework", "megatron-core")
        == kernel("flash", "megatron-core")
        == ("cudnn", True)
    )
    assert (
        kernel("framework", "megatron-2021")
        == kernel("unfused", "megatron-core")
        == ("fused-softmax", False)
    )
    assert (
        kernel("flash", "megatron-2021")
        == kernel("fa1", "fsdp")
        == ("fa1", True)
    )
    assert (
        kernel("unfused", "fsdp")
        == kernel("torch", "megatron-core")
        == ("torch", False)
    )
    assert job(assumptions="lbl-2024").fused_attention
    assert not job(
        assumptions="lbl-2024", attention_kernel="unfused"
    ).fused_attention


def test_software_is_refused_by_sets_that_ask_nothing() -> None:
    with refusal("assumptions lbl-2024 say themselves .* no cuda graphs; use"):
        job(assumptions="lbl-2024", software=Software(cuda_graphs="full"))


def test_a_job_takes_its_software_from_flags() -> None:
    words = {
        "on": "8xh100-sxm",
        "batch": "8seq",
        "cuda_graphs": "full",
        "ep_overlap": "false",
    }
    said = Software(cuda_graphs="full", ep_overlap=False)
    assert read_flags("llama3-8b", words).software == said


@pytest.mark.parametrize("name", PAPERS)
def test_a_set_that_answers_itself_refuses_a_framework_by_name(
    name: str,
) -> None:
    with refusal(
        f"assumptions {name} say themselves .* no framework meshwright; use"
    ):
        job(assumptions=name, framework="meshwright")
    assert job(assumptions=name).profile is None


def test_what_the_user_says_is_not_asked() -> None:
    overlap = replace(SETS["realistic"].overlap, dp=HidePass("pass"))
    found = job(
        assumptions=replace(SETS["realistic"], overlap=overlap),
        framework="meshwright",
    )
    assert (found.how.overlap.dp, found.how.overlap.pp) == (
        HidePass("pass"),
        "none",
    )


def test_pytorch_is_realistic_on_the_trainers_framework() -> None:
    """Beside kernels and collectives, which it takes as measured."""
    alias, plain = job(assumptions="pytorch"), job(framework="meshwright")
    assert alias.profile == plain.profile == framework("meshwright")
    for joint in {joint for joint, _ in ANSWERS} - {"chip", "network"}:
        assert getattr(alias.how, joint) == getattr(plain.how, joint)


def test_the_set_of_megatron_has_the_software_of_its_paper() -> None:
    """All of realistic on that framework, but for what a ring takes of the links, and for what
    first and last stage sum of a tied table, which its analysis leaves out.
    """
    alias = job(assumptions="megatron-2021")
    plain = job(framework="megatron-2021", precision="fp16")
    assert alias.profile == plain.profile == framework("megatron-2021")
    assert replace(alias.how, network=plain.how.network) == replace(
        plain.how,
        count=replace(plain.how.count, tied_gradients="none"),
        name=alias.how.name,
        source=alias.how.source,
        choices=alias.how.choices,
        precision=alias.how.precision,
        framework=alias.how.framework,
    )


def test_a_framework_that_is_not_known_is_refused() -> None:
    with refusal(
        "framework 'meshwrigt' is not known; did you mean meshwright"
    ):
        job(framework="meshwrigt")


def test_answers_do_not_change_a_set_without_questions() -> None:
    assert (
        with_answers(SETS["lbl-2024"], framework("meshwright"))
        is SETS["lbl-2024"]
    )


def test_the_joints_of_a_job_are_read_with_their_answers() -> None:
    """`job.assumptions.overlap` may hold a question: what a formula reads is `job.how`."""
    read = re.compile(
        r"\b(?:job|j)\.assumptions\.(?:count|overlap|memory|chip|network)\b"
    )
    source = Path(meshwright.__file__).parent
    raw = {
        str(f.relative_to(source)): read.findall(f.read_text("utf-8"))
        for f in source.rglob("*.py")
    }
    assert not {file for file, found in raw.items() if found}


@pytest.mark.parametrize("name", ["torchtitan", "fsdp", "megatron-2021"])
def test_what_is_compiled_rotates_in_one_pass(name: str) -> None:
    """Operation by operation in eager mode; one kernel where torch.compile fuses them."""
    eager = replace(frameworks()[name], compiled=False)
    assert eager.rotary_meant == eager.rotary in ("complex", "torch")
    assert replace(eager, compiled=True).rotary_meant == "apart"
    fused = replace(eager, rotary="plain", compiled=True)
    assert fused.rotary_meant == "plain"
