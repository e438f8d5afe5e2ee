"""The documentation as a site: built without a warning, offline, its snippets carried out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HERE = ROOT / "docs" / "site"
DOCS = sorted((ROOT / "docs").glob("*.md"))
pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")
sys.path.insert(0, str(HERE))

import formulas  # noqa: E402
import snippets  # noqa: E402

from meshwright.cli.command import VERBS, app  # noqa: E402
from meshwright.describe.assumptions import SETS  # noqa: E402
from meshwright.describe.framework import frameworks  # noqa: E402
from meshwright.schedule import SCHEDULES  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Built as `python3 run.py docs` builds it; a warning is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    config = load_config(
        str(HERE / "mkdocs.yml"), site_dir=str(folder), strict=True
    )
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    yield folder


def text_of(site: Path, name: str) -> str:
    return (site / name).read_text("utf-8")


@pytest.mark.filterwarnings("ignore")
def test_the_site_is_whole_and_asks_for_nothing_elsewhere(site: Path) -> None:
    for name in SETS:
        assert "<math" in text_of(site, f"sets/{name}.html"), name
    for name in frameworks():
        assert "source" in text_of(site, f"frameworks/{name}.html")
    command = text_of(site, "reference/command.html")
    assert all(f'id="meshwright-{verb}"' in command for verb in VERBS)
    assert "meshwright plan [OPTIONS] MODEL" in command
    python = text_of(site, "reference/python.html")
    assert all(
        f"{n}</" in python for n in ("Layout", "predict", "step_time_s")
    )
    schedules = text_of(site, "schedules.html")
    assert all(f'id="{name}"' in schedules for name in SCHEDULES)
    # the text of the file that orders them, not of what replays them
    for words in ("laid out as a V", "No rank may hold more than p"):
        assert words in schedules
    tutorial = text_of(site, "tutorial.html")
    assert "MFU" in tutorial and "tp=8" in tutorial
    for page in site.rglob("*.html"):
        foreign = re.findall(
            r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']https?://[^"']+""",
            page.read_text("utf-8"),
        )
        assert not foreign, page


def plain(path: str) -> str:
    """The equations of a function as text, operators spaced."""
    tree, _, _ = formulas.function(path)
    found = "".join(formulas.lines(tree.body, "it"))
    return re.sub(r"<[^>]+>", "", found).replace("&#160;", " ")


def test_formulas_are_those_of_the_functions() -> None:
    """Written by hand: the bubble of a flushed pipeline, a ring's bytes, the roofline's max."""
    assert plain("schedule.looped:flush_bubble").startswith(
        "it=(p−1+(v−1)·max(p−m,0))·(f+i+w)"
    )
    fraction = "<mfrac><mrow><mrow><mi>a</mi></mrow></mrow>"
    import ast

    half = formulas.math(ast.parse("a / (b + 1)", mode="eval").body)
    assert fraction in half and "(" not in half, "a fraction needs no fence"
    assert "(b+1)" in re.sub(
        r"<[^>]+>", "", formulas.math(ast.parse("a * (b + 1)").body[0].value)
    )
    assert plain("cost.chip:exposed_memory").endswith("−compute,0)")
    grown = formulas.lines(ast.parse("xs.append(y)").body, "it")
    assert "next" in "".join(grown), "a list that grows is not left out"


@pytest.mark.parametrize("page", [p.name for p in DOCS])
def test_commands_of_pages_are_understood(page: str) -> None:
    """Their flags exist; those that a build can run are run there."""
    markdown = (ROOT / "docs" / page).read_text("utf-8")
    for one in snippets.snippets(markdown):
        for line in one.commands:
            words = snippets.words(line)
            assert words[0] in VERBS, line
            app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize(
    "page", [p.name for p in DOCS if "```python" in p.read_text("utf-8")]
)
def test_python_of_pages_runs(page: str) -> None:
    markdown = (ROOT / "docs" / page).read_text("utf-8")
    for one in snippets.snippets(markdown):
        if one.language == "python":
            exec(compile(one.text, page, "exec"), {})


WIDEST = 100
"""Columns of prose, as of code."""
UNBROKEN = re.compile(r"`[^`]+`|\]\([^)]+\)")
"""Code and addresses, which no line is broken for."""


def prose(markdown: str) -> Iterator[str]:
    """Lines of a page but for code, tables, titles, pictures and what a command made."""
    inside = made = False
    for line in markdown.splitlines():
        if line.startswith(("```", "~~~")):
            inside = not inside
        made = (made or "<!-- made by" in line) and "<!-- end" not in line
        if not (inside or made) and not line.startswith(
            ("|", "#", "!", "<", "    ")
        ):
            yield line


@pytest.mark.parametrize("page", [p.name for p in DOCS])
def test_prose_is_wrapped(page: str) -> None:
    """A change of one word is a change of one line or two."""
    wide = [
        line
        for line in prose((ROOT / "docs" / page).read_text("utf-8"))
        if len(UNBROKEN.sub("", line)) > WIDEST
    ]
    assert not wide


def test_the_tutorial_ends_with_a_run(tmp_path: Path) -> None:
    """What the build leaves out, since it needs PyTorch."""
    pytest.importorskip("torch")
    markdown = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    found = list(snippets.snippets(markdown))
    with snippets.within(tmp_path):
        for one in found:
            if one.label not in ("", "run"):
                file = tmp_path / one.label
                file.parent.mkdir(exist_ok=True)
                file.write_text(one.text, "utf-8")
        for one in found:
            if one.language == "sh" and not one.label:
                for command in one.commands:
                    snippets.output(command)
    assert (tmp_path / "small-run" / "metrics.jsonl").is_file()
