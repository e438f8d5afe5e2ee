"""How far boxes jump when somebody chooses: the browser's own layout-shift entries.

    python benchmarks/shift.py                        20 choices at five widths, the page scrolled to its top
    python benchmarks/shift.py --scrolled             with the control that is used in the middle of the window
    python benchmarks/shift.py --moves .02            and which boxes moved, where it is more than that

Entries are summed from the choice until the best of each family is drawn, those within 500 ms of an input too,
which a browser's own score leaves out. A choice is made from the opening question, and taken back.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from typing import Any

from page import FLAGS, served

WIDTHS = {360: 740, 600: 900, 768: 1024, 1024: 768, 1440: 900}
"""Width -> height of a window."""
CHOICES = (
    *("opt-tp-1", "opt-tp-2", "opt-tp-8", "opt-cp-1", "opt-cp-4"),
    *("opt-pp-1", "opt-pp-2", "opt-pp-8", "opt-microbatch-2"),
    *("opt-zero-0", "opt-zero-3", "opt-recompute-full"),
    *("q-count=256", "q-count=1024", "q-count=4096", "q-chip=b200"),
    *("q-batch=1Mi", "q-batch=1030seq", "q-model=deepseek-v3"),
    "q-model=llama3-8b",
)
"""An option of a selector, or a field of the form and its text."""
WATCH = """() => {
    window.moved = [];
    new PerformanceObserver((list) => {
        for (const e of list.getEntries())
            window.moved.push([e.value, e.sources.map((s) => [
                s.node?.id || s.node?.parentElement?.id || s.node?.nodeName,
                Math.round(s.previousRect.y), Math.round(s.currentRect.y),
                Math.round(s.previousRect.height), Math.round(s.currentRect.height)])]);
    }).observe({ type: "layout-shift", buffered: true });
}"""
"""Notes each shift, and whose: [id, y before, y now, height before, height now]."""
CHOOSE = """([id, text, scrolled]) => {
    const node = document.getElementById(id);
    if (!node) return false;
    for (let fold = node.closest("details"); fold; fold = fold.parentElement.closest("details"))
        fold.open = true;
    if (scrolled) node.closest("label").scrollIntoView({ block: "center" });
    return new Promise((go) => setTimeout(() => {
        window.moved.length = 0;
        delete document.body.dataset.drawn;
        if (text === null) node.click();
        else { node.value = text; node.dispatchEvent(new Event("input")); }
        go(true);
    }, 200));
}"""
"""Make a choice once all that stands around it is seen."""


def drawn(tab: Any, until: str = "families", seconds: float = 60.0) -> str:
    """The last part that was drawn, once it is this one, all, or what is wrong."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        what = tab.evaluate("document.body.dataset.drawn") or ""
        if what in (until, "choices", "what_if", "all", "error"):
            return str(what)
        time.sleep(0.05)
    return "late"


def shift(tab: Any, choice: str, scrolled: bool) -> list[Any] | None:
    """The shifts of a choice; None where the page has no such option."""
    name, equals, text = choice.partition("=")
    given = [name, text if equals else None, scrolled]
    if not tab.evaluate(CHOOSE, given):
        return None
    drawn(tab)
    time.sleep(0.3)
    return list(tab.evaluate("window.moved"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scrolled", action="store_true")
    parser.add_argument("--moves", type=float, default=1.0)
    parser.add_argument("--width", type=int, action="append")
    parser.add_argument("--choices", type=int, default=len(CHOICES))
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    worst: dict[int, float] = {}
    with served() as (_, host, port), sync_playwright() as p:
        chromium = shutil.which("chromium")
        browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
        for width in given.width or WIDTHS:
            size = {"width": width, "height": WIDTHS[width]}
            tab = browser.new_page(viewport=size)
            tab.add_init_script(f"({WATCH})()")
            sums = {}
            tab.goto(f"http://{host}:{port}/")
            drawn(tab)
            opened = sum(value for value, _ in tab.evaluate("window.moved"))
            for choice in CHOICES[: given.choices]:
                moved = shift(tab, choice, given.scrolled)
                if moved is None:
                    print(f"{width} {choice}: no such option")
                else:
                    sums[choice] = sum(value for value, _ in moved)
                    for value, whose in moved:
                        if value > given.moves:
                            print(f"{width} {choice}: {value:.3f} {whose}")
                tab.evaluate("history.back()")
                time.sleep(0.1)
                drawn(tab)
                time.sleep(0.3)
            worst[width] = max(sums.values())
            many = " ".join(f"{k} {v:.3f}" for k, v in sums.items())
            print(
                f"{width}: opening {opened:.3f}; of {len(sums)} choices median"
                f" {statistics.median(sums.values()):.3f}, worst {worst[width]:.3f}: {many}",
                flush=True,
            )
            tab.close()
        browser.close()
    sys.exit(max(worst.values()) >= 0.05)


if __name__ == "__main__":
    main()
