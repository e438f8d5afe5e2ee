"""The page in Chromium: `pytest -m browser`, where playwright and /usr/bin/chromium are there.

MESHWRIGHT_AXE: path of axe.min.js, for the accessibility of every view.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium"),
    pytest.mark.filterwarnings("ignore"),
]

import uvicorn  # noqa: E402
from asking import FEW, told  # noqa: E402

from meshwright import Layout  # noqa: E402
from meshwright.web import recorded, site  # noqa: E402
from meshwright.web.app import app  # noqa: E402

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
QUESTION = "model=llama3-8b&on=16xh100-sxm&batch=64seq&tokens=1T"
VIEWS = {
    "plan": ("", "beside"),
    "clusters": ("&clusters=16xh100-sxm,16xh200", "clusters"),
    "timeline": ("&pp=4&schedule2=gpipe", "timeline"),
    "limits": ("&scenarios=h100", "all"),
    "roofline": ("", "roofline"),
    "sure": ("", "runs"),
    "runs": ("", "runs"),
}
"""View -> what its address says besides, and the last thing that it draws."""


COVERED = """() => [...document.querySelectorAll("#main svg")].flatMap((svg) => {
    const boxes = [...svg.querySelectorAll(".name")].map((n) => [n.textContent, n.getBoundingClientRect()]);
    return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) =>
        p.left < q.right && q.left < p.right && p.top + 2 < q.bottom && q.top + 2 < p.bottom).map(([b]) => [a, b]));
})"""
"""Names of marks of a chart that lie on each other."""


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app(), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listening]}, daemon=True
    )
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as p:
        opened = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Page:
    """A tab that notes what goes wrong."""

    def __init__(self, browser: Any, base: str, **context: Any) -> None:
        self.base, self.wrong = base, []
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, **context}
        )
        self.tab = self.context.new_page()
        self.tab.on("console", lambda m: self.note(m.type == "error", m.text))
        self.tab.on("pageerror", lambda e: self.note(True, str(e)))
        self.tab.on(
            "request",
            lambda r: self.note(not self.own(r.url), f"asked {r.url}"),
        )

    def own(self, url: str) -> bool:
        return url.startswith((self.base, "data:", "blob:", "file:"))

    def note(self, bad: bool, text: str) -> None:
        if bad:
            self.wrong.append(text)

    def open(self, address: str, until: str) -> None:
        self.tab.goto(address)
        self.wait(until)

    def wait(self, until: str, seconds: float = 60.0) -> None:
        """Until this part, or all, of the view is drawn."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            drawn = self.tab.evaluate("document.body.dataset.drawn")
            if drawn in (until, "all"):
                return
            assert drawn != "error", self.tab.inner_text("#main")
            time.sleep(0.02)
        raise AssertionError(f"{until} was not drawn: {drawn}")

    def forget(self) -> None:
        """What is drawn from now on counts."""
        self.tab.evaluate(
            "delete document.body.dataset.drawn; meshwright.timings.length = 0"
        )

    def fine(self) -> None:
        """Nothing went wrong."""
        assert not self.wrong
        assert not self.tab.evaluate("window.meshwright.errors")


@pytest.fixture
def page(browser: Any, base: str) -> Iterator[Page]:
    found = Page(browser, base)
    yield found
    found.context.close()


def address(base: str, view: str) -> str:
    return f"{base}#v=1&view={view}&{QUESTION}{VIEWS[view][0]}"


def figures(page: Page) -> list[str]:
    return [
        node.inner_text()
        for node in page.tab.query_selector_all("figcaption h3")
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_opens_and_survives_a_reload(page: Page, view: str) -> None:
    page.open(address(page.base, view), VIEWS[view][1])
    page.tab.wait_for_timeout(300)
    first = page.tab.evaluate("location.hash"), figures(page)
    said = page.tab.inner_text("#said")
    page.tab.reload()
    page.wait(VIEWS[view][1])
    page.tab.wait_for_timeout(300)
    assert (page.tab.evaluate("location.hash"), figures(page)) == first
    assert page.tab.inner_text("#said") == said
    assert view == "runs" or len(said) > 20, "the answer is a sentence"
    page.fine()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_view_fits_a_narrow_screen(
    browser: Any, base: str, view: str, theme: str
) -> None:
    page = Page(
        browser,
        base,
        viewport={"width": 360, "height": 780},
        color_scheme=theme,
    )
    page.open(address(base, view), VIEWS[view][1])
    page.tab.wait_for_timeout(200)
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert not page.tab.evaluate(COVERED)
    page.fine()
    page.context.close()


def serious(page: Page) -> list[Any]:
    """What axe finds that keeps somebody from using the page."""
    if not page.tab.evaluate("Boolean(window.axe)"):
        page.tab.evaluate(
            Path(os.environ["MESHWRIGHT_AXE"]).read_text("utf-8")
        )
    violations = page.tab.evaluate("axe.run()")["violations"]
    return [
        (v["id"], [n["html"][:120] for n in v["nodes"]][:3])
        for v in violations
        if v["impact"] in ("serious", "critical")
    ]


def in_both_themes(page: Page, what: str) -> None:
    """No word of it wider than the window, nothing serious, in light and in dark."""
    for theme in ("light", "dark"):
        page.tab.evaluate(
            f"document.documentElement.dataset.theme = '{theme}'"
        )
        page.tab.wait_for_timeout(200)
        assert not serious(page), (what, theme)
    width = page.tab.viewport_size["width"]
    assert (
        page.tab.evaluate("document.documentElement.scrollWidth") <= width
    ), what


AXE = pytest.mark.skipif(
    "MESHWRIGHT_AXE" not in os.environ,
    reason="MESHWRIGHT_AXE names no axe.min.js",
)


@AXE
@pytest.mark.parametrize("view", VIEWS)
def test_nothing_serious_is_found_by_axe(page: Page, view: str) -> None:
    page.open(address(page.base, view), VIEWS[view][1])
    page.tab.wait_for_timeout(300)
    in_both_themes(page, view)


LOG = "\n".join(
    f"iteration {i}/ 9 | elapsed time per iteration (ms): 5000 | loss: 9"
    for i in range(1, 9)
)


@AXE
@pytest.mark.parametrize("width", [360, 600, 768, 1024, 1440])
def test_states_of_the_page_at_every_width(
    browser: Any, base: str, width: int
) -> None:
    """One's own run beside the best, a number opened, all folds open, what is wrong with the
    answer dimmed, and the log of a run.
    """
    page = Page(browser, base, viewport={"width": width, "height": 900})
    tab = page.tab
    page.open(address(base, "plan") + "&mine=tp+2+zero+1", "beside")
    tab.wait_for_selector("#beside-table, #mine-answer:not(:empty)")
    tab.evaluate(
        "document.querySelectorAll('#main details').forEach((d) => { d.open = true; })"
    )
    in_both_themes(page, "all folds open")
    tab.click("#answer .lead >> nth=0 >> .number")
    tab.wait_for_selector("dialog table")
    in_both_themes(page, "a number opened")
    tab.keyboard.press("Escape")
    tab.evaluate("document.getElementById('asked').open = true")
    tab.fill("#q-batch", "many")
    tab.wait_for_selector("#answer.stale")
    tab.wait_for_selector("#wrong-batch")
    in_both_themes(page, "dimmed")
    box = tab.query_selector("#wrong-batch").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    page.forget()
    page.open(address(base, "runs"), "runs")
    tab.evaluate(
        """log => {
        const held = new DataTransfer();
        held.items.add(new File([log], "train.log"));
        dispatchEvent(new DragEvent("drop", { dataTransfer: held }));
        }""",
        LOG,
    )
    tab.wait_for_selector("#runs-sentence:has-text('log of megatron')")
    in_both_themes(page, "a log")
    page.context.close()


SHIFTS = """() => {
    window.shifts = 0; window.least = 1e9;
    new PerformanceObserver((list) => { for (const e of list.getEntries()) window.shifts += e.value; })
        .observe({ type: "layout-shift", buffered: false });
    const look = () => { window.least = Math.min(window.least, document.querySelectorAll(".option").length); requestAnimationFrame(look); };
    look();
}"""
"""Sums up how far boxes jump, and notes the fewest options that any frame shows."""
PICTURES = "[...document.querySelectorAll('.cards .plot')].map((plot) => plot.offsetHeight)"
"""How high the pictures of the answer are."""


@pytest.mark.parametrize("width", [360, 600, 768, 1024, 1440])
def test_nothing_moves_when_something_is_chosen(
    page: Page, width: int
) -> None:
    """Other layouts and machines have other bars, groups and sentences, in the same places."""
    page.tab.set_viewport_size({"width": width, "height": 900})
    question = QUESTION.replace("16xh100", "64xh100").replace(
        "64seq", "256seq"
    )
    page.open(f"{page.base}#v=1&view=plan&{question}", "families")
    page.tab.wait_for_timeout(300)
    before = page.tab.locator(".option").count()
    pictures = page.tab.evaluate(PICTURES)
    page.tab.evaluate(SHIFTS)
    for choice in ("zero-1", "tp-8", "pp-4", "recompute-full", "zero-"):
        page.forget()
        page.tab.evaluate(
            f"window.shifts = 0; document.getElementById('opt-{choice}').click()"
        )
        page.wait("families")
        page.tab.wait_for_timeout(200)
        assert page.tab.evaluate("window.shifts") < 0.05, choice
        assert page.tab.evaluate(PICTURES) == pictures, choice
    # another answer has other values to choose from, a few less perhaps
    assert page.tab.evaluate("window.least") > 0.75 * before
    page.fine()


CLIPPED = """() => [...document.querySelectorAll(".delta")].filter((d) => d.scrollWidth > d.clientWidth)
    .map((d) => d.textContent)"""


def test_a_phone_shows_time_money_and_fits_at_once(
    browser: Any, base: str
) -> None:
    """And what every choice costs, with its signs: a tie, and what is beyond practice."""
    page = Page(browser, base, viewport={"width": 360, "height": 740})
    page.open(address(base, "plan"), "all")
    leads = page.tab.query_selector_all("#answer .lead b")
    assert len(leads) == 3
    for lead in leads:
        box = lead.bounding_box()
        assert box and box["y"] < 130 and box["x"] + box["width"] <= 360
    words = page.tab.inner_text("#main").split()
    assert len(words) <= 300, "before anything is opened"
    page.tab.evaluate(
        "document.querySelectorAll('#main details').forEach((d) => { d.open = true; })"
    )
    costs = page.tab.locator(".delta").all_inner_texts()
    assert any("\u2248 \u2020" in cost for cost in costs)
    assert not page.tab.evaluate(CLIPPED)
    page.fine()
    page.context.close()


def test_a_dialog_on_a_phone_holds_its_controls(
    browser: Any, base: str
) -> None:
    page = Page(browser, base, viewport={"width": 360, "height": 740})
    page.open(address(base, "runs"), "runs")
    page.tab.click(".menu")
    page.tab.click("text=Paste or drop")
    box = page.tab.query_selector("dialog").bounding_box()
    for control in page.tab.query_selector_all(
        "dialog input, dialog textarea"
    ):
        own = control.bounding_box()
        assert own["x"] + own["width"] <= box["x"] + box["width"] - 8
    page.context.close()


def test_views_and_numbers_have_their_place_at_every_width(
    page: Page,
) -> None:
    """Views are named in two lines at most on a tablet; the three numbers stand inside their card."""
    page.open(address(page.base, "plan"), "beside")
    tab = page.tab
    for width in (*range(320, 1500, 60), 480, 768, 1101, 1440):
        tab.set_viewport_size({"width": width, "height": 900})
        height = tab.query_selector("#top nav").bounding_box()["height"]
        assert height < (120 if width < 480 else 80), width
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        card = tab.query_selector("#answer").bounding_box()
        for lead in tab.query_selector_all("#answer .lead b"):
            box = lead.bounding_box()
            assert box["x"] + box["width"] <= card["x"] + card["width"], width


def test_a_number_opens_and_what_belongs_together_is_lit(page: Page) -> None:
    page.open(address(page.base, "plan"), "beside")
    tab = page.tab
    assert "8.03 B parameters" in tab.inner_text("#facts")
    tab.wait_for_selector("#figure-machine svg .chip.first")
    tab.hover("#figure-time [data-cause=compute] rect")
    assert tab.locator("#figure-time .lit").count() == 1
    assert tab.query_selector("#main.pointed")
    tab.click("#answer .lead >> nth=0 >> .number")
    tab.wait_for_selector("dialog table")
    assert "train time = " in tab.inner_text("dialog")
    tab.click("dialog table .number >> nth=0")
    tab.wait_for_selector("dialog h3:has-text('useful')")
    assert "tokens / " in tab.inner_text("dialog")
    page.fine()


def test_the_keyboard_alone(page: Page) -> None:
    """Views by Tab and Enter, choices by arrows; the answer is announced."""
    page.open(address(page.base, "plan"), "beside")
    tab = page.tab
    reached = set()
    for _ in range(60):
        tab.keyboard.press("Tab")
        reached.add(
            tab.evaluate(
                "document.activeElement.id || document.activeElement.textContent.trim()"
            )
        )
        if tab.evaluate("document.activeElement.name === 'tp'"):
            break
    assert {
        "Plan",
        "Limits",
        "Copy as …",
        "q-model",
        "q-count",
        "q-batch",
    } <= reached
    assert tab.evaluate("document.activeElement.id") == "opt-tp-", (
        "the first is: any"
    )
    page.forget()
    tab.keyboard.press("ArrowRight")
    page.wait("beside")
    assert "tp=1" in tab.evaluate("location.hash")
    assert tab.evaluate("document.activeElement.id") == "opt-tp-1", (
        "the focus stays"
    )
    page.forget()
    tab.keyboard.press("ArrowRight")
    page.wait("beside")
    assert "tp=2" in tab.evaluate("location.hash")
    assert "a step" in tab.inner_text("#said")
    tab.focus("nav a:nth-child(5)")
    page.forget()
    tab.keyboard.press("Enter")
    page.wait("roofline")
    assert "view=roofline" in tab.evaluate("location.hash")
    page.fine()


def test_typing_redraws(page: Page) -> None:
    """The layout shown is predicted again at once, then the new best is drawn."""
    page.open(address(page.base, "plan"), "beside")
    tab = page.tab
    before = tab.inner_text("#answer .step")
    page.forget()
    tab.fill("#q-batch", "128seq")
    page.wait("beside")
    assert tab.inner_text("#answer .step") != before
    drawn = [name for name, _ in tab.evaluate("window.meshwright.timings")]
    assert drawn.index("closed") < drawn.index("plan")
    assert "lower bounds" not in tab.inner_text("#answer")
    assert "predict" not in drawn[drawn.index("closed") :], "the best stays"
    assert "batch=128seq" in tab.evaluate("location.hash")
    tab.fill("#q-batch", "nonsense")
    tab.wait_for_selector(".error")
    assert "batch" in tab.inner_text(".error")
    assert tab.query_selector("#layout.stale"), "it is of another question"
    link = tab.get_attribute("nav a:text-is('Timeline')", "href")
    assert link and "batch=nonsense" in link, "views follow what is typed"
    page.forget()
    tab.fill("#q-batch", "64seq")
    page.wait("beside")
    assert tab.inner_text("#answer .step") == before
    assert not tab.query_selector(".error, #layout.stale, #answer.stale")
    tab.click("text=Copy as")
    told = tab.inner_text("dialog")
    assert tab.inner_text("#answer dd:last-child") in told, "what is shown"
    assert 'batch = "64seq"' in told
    assert [text for text in page.wrong if "422" not in text] == []


LESSONS = {
    "tp": ("tp", -1),
    "bubble": ("batch", 1),
    "fsdp": ("sequence", 1),
    "batch": ("batch", 1),
    "recompute": ("batch", 1),
}
"""Lesson -> the slider that it is about, and which way."""


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_opens_its_number_with_sliders(
    page: Page, lesson: str
) -> None:
    """By a link of the list; an arrow key moves a slider, and the number follows."""
    page.open(address(page.base, "plan"), "beside")
    tab = page.tab
    tab.click("#lessons summary")
    assert tab.locator("#lessons a").count() == len(LESSONS)
    page.forget()
    tab.click(f"#lessons a[href*='lesson={lesson}']")
    tab.wait_for_selector("dialog h3")
    assert "lesson=" not in tab.evaluate("location.hash"), "it opens once"
    before = tab.inner_text("dialog h3 >> nth=0")
    slider, way = LESSONS[lesson]
    label = tab.get_attribute("dialog :focus", "aria-label")
    assert label.startswith(slider), "the one that the lesson names"
    value = tab.get_attribute("dialog :focus", "aria-valuetext")
    tab.keyboard.press("ArrowRight" if way > 0 else "ArrowLeft")
    end = time.monotonic() + 10
    while tab.inner_text("dialog h3 >> nth=0") == before:
        assert time.monotonic() < end, tab.inner_text("dialog")
        time.sleep(0.05)
    assert "%" in tab.inner_text("dialog h3 >> nth=0"), "what it changed"
    assert tab.get_attribute("dialog :focus", "aria-valuetext") != value
    # the layout before may be none of this job, which the browser notes as a 422
    assert [text for text in page.wrong if "422" not in text] == []


def test_what_is_wrong_is_said_beside_its_field(page: Page) -> None:
    """In the form's words; nothing jumps, the answer stays dimmed, Back undoes it."""
    page.open(address(page.base, "plan"), "what_if")
    tab = page.tab
    before = tab.inner_text("#answer .step")
    tab.evaluate(SHIFTS)
    for field, text, said in (
        ("batch", "", "How many tokens does a step take?"),
        ("batch", "many", "batch 'many' has no number in it"),
        ("chip", "h10", "did you mean h100-sxm"),
        ("count", "", "Write a number, such as 512"),
        ("tokens", "x", "tokens 'x' has no number in it"),
        ("model", "llama9", "did you mean"),
        ("model", "", "Which model?"),
    ):
        kept = tab.input_value(f"#q-{field}")
        tab.fill(f"#q-{field}", text)
        tab.wait_for_selector(f'#wrong-{field}:has-text("{said}")')
        assert tab.get_attribute(f"#q-{field}", "aria-invalid") == "true"
        described = tab.get_attribute(f"#q-{field}", "aria-describedby")
        assert described == f"wrong-{field}"
        tab.wait_for_selector("#answer.stale")
        page.forget()
        tab.go_back()
        page.wait("beside")
        assert tab.input_value(f"#q-{field}") == kept
        assert not tab.query_selector("#question .error, [aria-invalid]")
        assert tab.inner_text("#answer .step") == before
    assert tab.evaluate("window.shifts") < 0.05


def test_a_wrong_number_of_chips_leaves_their_name_alone(page: Page) -> None:
    """Whoever empties the field, or types half a number, goes on typing."""
    page.open(address(page.base, "plan"), "plan")
    tab = page.tab
    for text in ("", "1.5", "abc"):
        tab.fill("#q-count", text)
        tab.wait_for_selector("#wrong-count")
        assert tab.input_value("#q-chip") == "h100-sxm"
        page.forget()
        tab.fill("#q-count", "32")
        page.wait("plan")
        assert "on=32xh100-sxm" in tab.evaluate("location.hash")
        assert not tab.query_selector(".error")


def test_one_thing_is_wrong_at_a_time(page: Page) -> None:
    page.open(address(page.base, "plan"), "plan")
    page.tab.fill("#q-model", "llama9")
    page.tab.wait_for_selector("#wrong-model")
    page.tab.fill("#q-model", "{")
    page.tab.wait_for_selector(".error:has-text('not valid JSON')")
    assert page.tab.locator(".error").count() == 1


def test_files_are_saved(page: Page, tmp_path: Path) -> None:
    """Charts as SVG, PNG and CSV; the page as one file that needs no network."""
    page.open(address(page.base, "limits"), "all")
    tab = page.tab
    for kind, start in (
        ("SVG", b"<svg"),
        ("PNG", b"\x89PNG"),
        ("CSV", b"scenario,"),
    ):
        with tab.expect_download() as got:
            if not tab.is_visible("#figure-limits .tools"):
                tab.click("#figure-limits summary")
            tab.click(f"#figure-limits .tools button:text-is('{kind}')")
        content = Path(got.value.path()).read_bytes()
        assert content.startswith(start)
        if kind == "SVG":
            assert (
                b"Utilisation against" in content and b"meshwright" in content
            )
    page.forget()
    tab.click("nav a:text-is('Plan')")
    page.wait("beside")
    with tab.expect_download() as got:
        tab.click("text=Save page")
    saved = tmp_path / "saved.html"
    shutil.copy(got.value.path(), saved)
    answer = tab.inner_text("#answer .step")
    other = Page(page.context.browser, "file:")
    other.open(saved.as_uri(), "beside")
    assert other.tab.inner_text("#answer .step") == answer
    other.fine()
    other.context.close()


def test_what_is_dropped_is_read(page: Page) -> None:
    page.open(address(page.base, "plan"), "beside")
    tab = page.tab
    tab.click("text=Paste or drop")
    tab.fill(
        "#dropped",
        "meshwright predict llama3-70b --on 64xh200 --batch 1Mi --tp 8",
    )
    page.forget()
    tab.click("text=Read it")
    page.wait("beside")
    assert "model=llama3-70b&on=64xh200&batch=1Mi" in tab.evaluate(
        "location.hash"
    )
    assert tab.input_value("#mine-text") == "tp 8"
    tab.fill("#mine-text", "TP4 zero-1")
    tab.wait_for_selector("#mine-answer:has-text('tp 4')")
    assert "ZeRO-1" in tab.inner_text("#mine-answer")
    page.fine()


def test_a_folder_and_a_log_are_dropped(page: Page, tmp_path: Path) -> None:
    """A run's folder by the dialog; a foreign log let fall on the page."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "compare"))
    from run_folders import pipeline_run

    passes = [(1.0, 1.25, 0.75)] * 4
    layout = Layout(pp=4, schedule="1f1b")
    folder = pipeline_run(tmp_path / "mine", layout, passes, steps=5)
    page.open(address(page.base, "runs"), "runs")
    tab = page.tab
    assert "No run is shown" in tab.inner_text("#runs-sentence")
    assert not tab.is_visible("#question"), "nothing that it would concern"
    tab.click("text=Paste or drop")
    page.forget()
    tab.set_input_files("#run-folder", str(folder))
    page.wait("runs")
    assert "a step measured" in tab.inner_text("#runs-sentence")
    assert not tab.is_visible("#question"), "the folder says what ran"
    assert tab.query_selector("#runs-charts svg")
    line = "iteration {}/ 9 | elapsed time per iteration (ms): 5000 | loss: 9"
    log = "\n".join(line.format(i) for i in range(1, 9))
    page.forget()
    tab.evaluate(
        """log => {
        const held = new DataTransfer();
        held.items.add(new File([log], "train.log"));
        dispatchEvent(new DragEvent("drop", { dataTransfer: held }));
        }""",
        log,
    )
    page.wait("runs")
    said = tab.inner_text("#runs-sentence")
    assert "log of megatron: 5.00 s" in said and "tp 1" in said
    assert tab.is_visible("#question"), "a log does not say what ran"
    page.fine()


def test_what_is_loaded_can_be_undone(page: Page) -> None:
    """A run becomes the question, with a way back that stays while its answer is drawn."""
    page.open(address(page.base, "sure"), "runs")
    tab = page.tab
    before = tab.evaluate("location.hash")
    page.forget()
    tab.click("#sure-near button >> nth=0")
    page.wait("beside")
    assert "view=plan" in tab.evaluate("location.hash")
    assert QUESTION not in tab.evaluate("location.hash")
    assert tab.is_visible("#toast button"), "the answer does not hide it"
    page.forget()
    tab.click("#toast button")
    page.wait("runs")
    assert tab.evaluate("location.hash") == before
    assert not tab.is_visible("#toast")
    page.fine()


def test_where_scaling_ends_is_said(page: Page) -> None:
    """For the question's own job, beside the curves of the scenarios."""
    page.open(address(page.base, "limits"), "all")
    said = page.tab.inner_text("#limits-own .why")
    assert "at least 80 % of its best on up to about" in said
    assert page.tab.query_selector("#figure-limits-own svg")
    assert page.tab.query_selector("#figure-limits svg")
    page.forget()
    page.tab.fill("#q-batch", "256seq")
    page.wait("all")
    more = page.tab.inner_text("#limits-own .why")
    assert more != said, "a larger batch goes further"
    page.fine()


def test_back_and_forth(page: Page) -> None:
    page.open(address(page.base, "plan"), "beside")
    page.forget()
    page.tab.click("nav a:text-is('Roofline')")
    page.wait("roofline")
    page.forget()
    page.tab.go_back()
    page.wait("beside")
    assert "view=plan" in page.tab.evaluate("location.hash")
    page.fine()


def test_a_static_folder(
    browser: Any, tmp_path: Path, stand_in: Path, hosted: Any, let_go: Any
) -> None:
    """First answers at once, plans worked out beforehand until the program is there, then its own;
    nothing is asked of anybody but the host, and of the host no more once all is loaded.
    """
    folder = tmp_path / "out"
    site.write_site(folder, stand_in, told, FEW)
    page = Page(browser, hosted(folder))
    tab = page.tab
    page.open(page.base, "beside")
    first = tab.inner_text("#answer .step")
    assert " s a step" in first
    assert "Loading Python" in tab.inner_text("#engine")
    tab.fill("#q-count", "16")
    page.wait("meanwhile")
    assert "Worked out when this page was written" in tab.inner_text("#state")
    before = tab.inner_text("#answer .step")
    tab.fill("#q-batch", "1Mi")
    tab.wait_for_selector("#state:has-text('Not your question')")
    assert "llama3-8b on 16xh100-sxm, 4Mi" in tab.inner_text("#state")
    tab.fill("#q-batch", "4Mi")
    page.forget()
    let_go.set()
    page.wait("beside")
    assert tab.inner_text("#answer .step") == before, "the same number"
    assert "nothing is sent" in tab.inner_text("#engine")
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    page.forget()
    tab.fill("#q-batch", "2Mi")
    page.wait("beside")
    assert tab.inner_text("#answer .step") != before
    own = (f"{page.base}json_answer/", f"{page.base}lines/")  # the stand-in's
    assert not [url for url in asked if not url.startswith(own)]
    tab.fill("#q-batch", "nonsense")
    tab.wait_for_selector(".error")
    page.fine()
    page.context.close()


def test_a_browser_that_cannot_run_the_program(
    browser: Any, tmp_path: Path, stand_in: Path, hosted: Any, let_go: Any
) -> None:
    folder = tmp_path / "out"
    site.write_site(folder, stand_in, told, FEW)
    (folder / "pyodide" / "pyodide.mjs").write_text("throw Error('no wasm')")
    page = Page(browser, hosted(folder))
    page.open(page.base, "beside")
    page.tab.wait_for_selector("#engine:has-text('no wasm')")
    page.tab.fill("#q-count", "16")
    page.tab.wait_for_selector(".error")
    assert "does not run in this browser" in page.tab.inner_text(".error")
    assert "meshwright serve" in page.tab.inner_text(".error")
    page.context.close()


def test_a_report_opens_from_a_file(browser: Any, tmp_path: Path) -> None:
    """Every view that it holds, without a server."""
    job = tmp_path / "job.toml"
    job.write_text(
        '[model]\nname = "llama3-8b"\n[cluster]\non = "8xh100-sxm"\n[job]\nbatch = "16seq"\n'
        "tokens = 1e12\n[layout]\ntp = 2\ndp = 4\nzero = 1\n"
    )
    out = tmp_path / "it's a report.html"
    out.write_text(
        recorded.recorded_report(str(job), lambda what, share: None), "utf-8"
    )
    page = Page(browser, "file:")
    page.open(out.as_uri(), "what_if")
    assert " s a step" in page.tab.inner_text("#answer .step")
    assert "against the best" in page.tab.inner_text("#mine-answer")
    for view, (_, until) in VIEWS.items():
        if view not in ("plan", "runs"):
            page.forget()
            page.tab.click(f"nav a[href*='view={view}']")
            page.wait(until)
            assert page.tab.query_selector(
                "#main table, #main canvas, #main svg, #main .note"
            )
    page.fine()
    page.context.close()
