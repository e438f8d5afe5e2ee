"""The files of the page: small, closed to the outside, and one file if need be."""

from __future__ import annotations

import gzip
import json
import re
from importlib import resources

import pytest
from asking import told

from meshwright.search import selectors
from meshwright.web import answers, bundle, changes, page
from meshwright.web import recorded as web
from meshwright.web.opened import machine
from meshwright.web.question import OPENING
from refusals import refusal

STATIC = resources.files("meshwright.web") / "static"
FILES = {f.name: f.read_text("utf-8") for f in STATIC.iterdir()}
MODULES = [name for name in FILES if name.endswith(".js")]
MOST = 90_000
"""Bytes of all that a browser loads for the page and its first answers, compressed."""


def test_everything_is_small() -> None:
    """Files, and what stands on the first screen until the other choices are worked out."""
    question = {"question": OPENING}
    quickly = {**question, "families": False, "top": 1}
    plan = answers.answer_plan(quickly, told)
    laid_out = {**question, "layout": plan["best"]["layout"]}
    loaded = (
        page.index(page.answers_script(None, {"plan": plan})),
        page.script(),
        page.static("style.css"),
        *(
            json.dumps(answer)
            for answer in (
                answers.catalogue({}, told),
                answers.neighbours_of(laid_out, told),
                answers.answer_plan(question, told),
                machine(laid_out, told),
            )
        ),
    )
    sizes = [len(gzip.compress(text.encode(), 6)) for text in loaded]
    assert sum(sizes) < MOST, sizes


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_fetched_from_elsewhere(name: str) -> None:
    """The only addresses are names of XML spaces, and what a reader may paste."""
    found = set(
        re.findall(
            r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"'`)]*", FILES[name]
        )
    )
    assert found <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", MODULES)
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


@pytest.mark.parametrize("name", [*MODULES, "style.css"])
def test_no_line_of_a_script_is_long(name: str) -> None:
    assert max(map(len, FILES[name].splitlines())) <= 100


@pytest.mark.parametrize("name", MODULES)
def test_what_is_imported_is_exported(name: str) -> None:
    for names, other in bundle.module(FILES[name]).imports:
        given = bundle.module(FILES[other]).exports
        taken = [word.split(" as ")[0].strip() for word in names.split(",")]
        assert {*taken} <= {*given}, f"{name}: {other}"


def test_modules_come_after_what_they_import() -> None:
    order = [*bundle.ordered("main.js", FILES.__getitem__)]
    assert order[-1] == "main.js"
    assert {*order} == {*MODULES} - {"worker.js"}
    for name in order:
        for _, other in bundle.module(FILES[name]).imports:
            assert order.index(other) < order.index(name)


def test_modules_are_one_script_with_scopes_of_their_own() -> None:
    texts = {
        "a.js": 'import {\n  one as b,\n} from "./b.js";\nconst one = b + 1;\n',
        "b.js": "// one\nexport const one = 1;\n\nexport async function* two() {\n  // two\n  yield 2;\n}\n",
    }
    assert bundle.bundled("a.js", texts.__getitem__).splitlines() == [
        "const modules = {};",
        "{",
        "const one = 1;",
        "async function* two() {",
        "yield 2;",
        "}",
        'modules["b.js"] = { one, two };',
        "}",
        "{",
        'const { one: b } = modules["b.js"];',
        "const one = b + 1;",
        'modules["a.js"] = {  };',
        "}",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "export default 1;",
        "export { a };",
        'import * as a from "./b.js";',
        'import a from "b.js";',
        "export let a = 1;",
    ],
)
def test_a_statement_that_is_not_read_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="that is not read"):
        bundle.module(line)


def test_a_text_over_several_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="over several lines"):
        bundle.module("const a = `one\n  two`;")


def test_one_file_holds_the_page_and_its_answers() -> None:
    text = page.single("#v=1&view=plan", {"plan{}": {"note": "</script><b>"}})
    assert "src=" not in text.replace("default-src", "").replace("-src", "")
    assert not re.search(r'<link [^>]*href="(?!data:)', text)
    held = re.search(r'id="recorded">(.*?)</script>', text, re.S)
    assert (
        held
        and json.loads(held[1])["answers"]["plan{}"]["note"] == "</script><b>"
    )
    assert not re.search(r"^\s*(import|export) ", text, re.M)
    assert text.count("</script><b>") == 0
    assert page.empty().count(page.NOTHING) == text.count(page.NOTHING) + 1, (
        "the script is whole"
    )


def recorded(text: str) -> dict:
    held = re.search(r'id="recorded">(.*?)</script>', text, re.S)
    assert held
    found: dict = json.loads(held[1])
    return found


def test_the_clusters_compared_are_as_large_as_the_question() -> None:
    """And its own is among them, first; the page's list is the same."""
    found = web.clusters_of({"on": "128xgb200"})
    assert found[:2] == ["128xgb200", "128xh100-sxm"]
    assert web.clusters_of({"on": "64xh200"})[:2] == ["64xh200", "64xh100-sxm"]
    script = page.static("clusters.js")
    assert f"const CHIPS = {json.dumps(web.CHIPS)};" in script


def test_every_view_of_a_job(tmp_path, monkeypatch) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        '[model]\nname = "llama3-8b"\n[cluster]\non = "8xh100-sxm"\n[job]\nbatch = "16seq"\n'
        "[layout]\ntp = 2\ndp = 4\nzero = 1\n"
    )
    monkeypatch.setattr(web, "CHIPS", ["h100-sxm"])
    monkeypatch.setattr(web, "SCENARIOS", ["h100"])
    monkeypatch.setattr(
        selectors, "choices_of", lambda job, layout: {"tp": (1, 2)}
    )
    monkeypatch.setattr(changes, "changes_of", lambda job: ())
    held = recorded(web.recorded_report(str(file), told))
    asked = {re.split(r"[{]", name)[0] for name in held["answers"]}
    assert asked >= {
        "catalogue",
        "plan",
        "predict",
        "beside",
        "choices",
        "what_if",
        "timeline",
    }
    assert asked >= {
        "clusters",
        "roofline",
        "nearest",
        "runs",
        "limits",
        "copies",
        "scaling",
    }
    assert "mine=tp%202%20" in held["state"]


@pytest.mark.parametrize(
    "name, text, words",
    [
        ("a.txt", "", "must be a JOB.toml"),
        ("a.json", '{"verb": "plan"}', "must be a JOB.toml"),
        ("a.toml", "x = 1", "x"),
    ],
)
def test_what_makes_no_page_is_a_sentence(
    tmp_path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    with refusal(words):
        web.recorded_report(str(tmp_path / name), told)
