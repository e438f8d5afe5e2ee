"""The words of the command line: English of the field, next steps, completion."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shell import Shell


def test_an_answer_says_what_next(tmp_path: Path, shell: Shell) -> None:
    """The commands it names run as they stand."""
    file = tmp_path / "plan.toml"
    words = "llama3-8b --on 8xh100 --batch 64seq"
    fixed = "--tp 1 --pp 2 --cp 1 --microbatch 1"
    told = shell(f"predict {words} --zero 3").out
    assert (
        "next    meshwright plan llama3-8b --on 8xh100 --batch 64seq -o plan.toml"
        in told
    )
    told = shell(f"plan {words} {fixed} -o {file}").out
    whole = re.sub(r" \\\n +", " ", told)
    commands = re.findall(r"^  (?:next|    )    meshwright (.*)$", whole, re.M)
    assert [c.split()[0] for c in commands] == ["export", "timeline"]
    assert "pretrain_gpt.py" in shell(commands[0]).out


@pytest.mark.parametrize("of", ["bash", "zsh", "fish"])
def test_completion_knows_verbs_and_flags(of: str, shell: Shell) -> None:
    text = shell(f"completion {of}").out
    assert "predict" in text and "global" not in text.split("predict")[0][:40]
    assert re.search(r"microbatch|on", text)
    assert "bash" in shell.refused("completion tcsh")
