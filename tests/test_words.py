"""The words of the command line: English of the field, next steps, completion."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import meshwright
from shell import Shell

SOURCE = Path(meshwright.__file__).parent
OLD = (
    "eight of ten published runs took",
    "of those looked at fit",
    "combinations of degrees against the rule",
    "nothing that uses all chips evenly fits",
    "the replicas that",
    "Lay a measured training step",
    "hold them against the published",
    "communication starts to bind, in both editions of the scaling book.\n",
    "Model chunks a device holds (virtual",
    "largest tensor-parallel degree that hides",
    "is no folder of a run",
    "parts of the step that wait for nobody took",
    "Chips of the context row",
)
"""What read as a translation; what stands instead says the same in the words of the field."""
HELP = "communication starts to bind, in both editions of the scaling book.\n"


@pytest.mark.parametrize("words", OLD)
def test_translated_words_are_gone(words: str) -> None:
    rooms = [f for f in SOURCE.rglob("*.py") if "web" not in f.parts]
    found = [
        f.name
        for f in rooms
        if words in re.sub(r'"\s*\n\s*f?"', "", f.read_text("utf-8"))
    ]
    assert not found


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
