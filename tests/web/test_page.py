"""The files of the page: small, closed to the outside, and one file if need be."""

from __future__ import annotations

import gzip
import json
import re
from importlib import resources

import pytest

from meshwright.web import page

STATIC = resources.files("meshwright.web") / "static"
FILES = {f.name: f.read_text("utf-8") for f in STATIC.iterdir()}
MOST = 100_000
"""Bytes of everything a browser loads, compressed."""


def test_everything_is_small() -> None:
    assert sum(len(gzip.compress(text.encode(), 9)) for text in FILES.values()) < MOST


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_fetched_from_elsewhere(name: str) -> None:
    """The only addresses are names of XML spaces, and what a reader may paste."""
    found = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"'`)]*", FILES[name]))
    assert found <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_scripts_keep_to_the_policy(name: str) -> None:
    """No text becomes code, markup or an inline style."""
    for word in (
        "eval(",
        "new Function",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
    ):
        assert word not in FILES[name]
    assert not re.search(r"\bstyle:\s*[\"'`]", FILES[name])


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_what_is_imported_is_exported(name: str) -> None:
    for names, other in page.IMPORT.findall(FILES[name]):
        for taken in (word.split(" as ")[0].strip() for word in names.split(",")):
            assert re.search(
                rf"^export (async )?(function\*?|const|class) \*?{taken}\b", FILES[other], re.M
            ), f"{name}: {taken} of {other}"


def test_modules_come_after_what_they_import() -> None:
    order = page.modules()
    assert order[-1] == "main.js"
    assert {*order} == {name for name in FILES if name.endswith(".js")}
    for name in order:
        for _, other in page.IMPORT.findall(FILES[name]):
            assert order.index(other) < order.index(name)


def test_one_file_holds_the_page_and_its_answers() -> None:
    text = page.single("#v=1&view=plan", {"plan{}": {"note": "</script><b>"}})
    assert "src=" not in text.replace("default-src", "").replace("-src", "")
    assert "<link" not in text
    held = re.search(r'id="recorded">(.*?)</script>', text, re.S)
    assert held and json.loads(held[1])["answers"]["plan{}"]["note"] == "</script><b>"
    assert not re.search(r"^\s*(import|export) ", text, re.M)
