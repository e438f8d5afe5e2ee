"""What the README and examples/ show runs, as shown."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from shell import Shell

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
README = (ROOT / "README.md").read_text("utf-8")
COMMANDS = re.findall(r"^(?:\$ )?meshwright (.*)$", README, re.MULTILINE)
SLOW = ("reproduce", "validate")
"""Verbs with tests of their own."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that examples write land in a folder of their own, beside a copy of the examples."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "script", sorted(p.name for p in EXAMPLES.glob("*.py"))
)
def test_scripts(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "plots" in (EXAMPLES / script).read_text():
        pytest.importorskip("matplotlib")
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert capsys.readouterr().out
    for made in Path("docs/images").glob("*.png"):
        assert numbers_in(ROOT / made) == numbers_in(made), (
            f"draw anew: {script}"
        )


def numbers_in(picture: Path) -> str:
    """What the file of a picture says that it shows."""
    from PIL import Image

    with Image.open(picture) as image:
        return str(image.info["Description"])


@pytest.mark.parametrize("verb", ["predict", "plan"])
@pytest.mark.parametrize(
    "job", sorted(p.name for p in EXAMPLES.glob("*.toml"))
)
def test_jobs(job: str, verb: str, shell: Shell) -> None:
    assert "does NOT fit" not in shell(f"{verb} examples/{job}").out


def test_commands_of_the_readme(shell: Shell) -> None:
    pytest.importorskip("matplotlib")
    for (
        command
    ) in COMMANDS:  # in order: a later one reads what an earlier one wrote
        words = shlex.split(command, comments=True)
        if words[0] not in SLOW:
            shell(shlex.join(words))


def test_the_readme_shows_what_is_printed(
    shell: Shell,
) -> None:
    blocks = re.findall(r"```console\n\$ meshwright (.*)\n([^`]*)```", README)
    assert len(blocks) >= 2
    for words, shown in blocks:
        assert shell(words).out == shown


def test_python_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks and len(COMMANDS) >= 6
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_pictures_of_the_readme_are_there() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", README)
    assert pictures and all((ROOT / picture).is_file() for picture in pictures)
