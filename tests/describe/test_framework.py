"""Frameworks: who answers what a set of assumptions leaves open."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import meshwright
from meshwright import BadInput, Job, cluster, model
from meshwright.describe.assumptions import SETS
from meshwright.describe.fields import ASK
from meshwright.describe.framework import ANSWERS, answered, asked, framework, frameworks
from meshwright.formats.toml import dump_job, load_job

PAPERS = [name for name in SETS if name not in ("realistic", "pytorch")]


def job(**fields: object) -> Job:
    return Job(**{"model": model("llama3-8b"), "cluster": cluster("8xh100-sxm"), "batch": 8, **fields})


def test_realistic_asks_at_every_joint_that_a_framework_answers() -> None:
    every = {(joint, name) for joint, names in ANSWERS.items() for name in names}
    assert set(asked(SETS["realistic"])) == set(asked(SETS["pytorch"])) == every
    assert not [name for name in PAPERS if asked(SETS[name])]


@pytest.mark.parametrize("name", sorted(frameworks()))
def test_a_framework_leaves_nothing_open(name: str) -> None:
    found = job(framework=name)
    assert not asked(found.how)
    assert repr(ASK) not in repr(found.how.count) + repr(found.how.overlap) + repr(found.how.memory)


def test_every_field_has_its_source() -> None:
    for profile in frameworks().values():
        assert set(profile.sources) >= {"*", "gathered_inputs", "stage_message", "resident", "framework_bytes"}


@pytest.mark.parametrize("name", PAPERS)
def test_a_set_that_answers_itself_refuses_a_framework_by_name(name: str) -> None:
    with pytest.raises(BadInput, match=f"assumptions {name} say themselves .* framework meshwright"):
        job(assumptions=name, framework="meshwright")
    assert job(assumptions=name).profile is None


def test_what_the_user_says_is_not_asked() -> None:
    overlap = replace(SETS["realistic"].overlap, dp="first and last microbatch")
    found = job(assumptions=replace(SETS["realistic"], overlap=overlap), framework="meshwright")
    assert (found.how.overlap.dp, found.how.overlap.pp) == ("first and last microbatch", "none")


def test_pytorch_is_realistic_on_the_trainers_framework() -> None:
    """Beside kernels and collectives, which it takes as measured."""
    alias, plain = job(assumptions="pytorch"), job(framework="meshwright")
    assert alias.profile == plain.profile == framework("meshwright")
    for joint in ANSWERS:
        assert getattr(alias.how, joint) == getattr(plain.how, joint)


def test_a_job_keeps_its_framework_in_a_file() -> None:
    described = job(framework="meshwright", layout=meshwright.Layout(dp=8))
    text = dump_job(described)
    assert 'framework = "meshwright"' in text
    import tomllib

    assert load_job(tomllib.loads(text)) == described
    with pytest.raises(BadInput, match="framework 'meshwrigt' is not known; did you mean meshwright"):
        job(framework="meshwrigt")


def test_answers_do_not_change_a_set_without_questions() -> None:
    assert answered(SETS["lbl-2024"], framework("meshwright")) is SETS["lbl-2024"]


def test_the_joints_of_a_job_are_read_with_their_answers() -> None:
    """`job.assumptions.overlap` may hold a question: what a formula reads is `job.how`."""
    read = re.compile(r"\b(?:job|j)\.assumptions\.(?:count|overlap|memory|chip|network)\b")
    source = Path(meshwright.__file__).parent
    raw = {str(f.relative_to(source)): read.findall(f.read_text("utf-8")) for f in source.rglob("*.py")}
    allowed = {"search/plan.py": 1}  # changes one field of the set and keeps the rest
    assert {file: len(found) for file, found in raw.items() if found} == allowed
