"""The page as one HTML file: styles and scripts inside, with the answers that it shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from .bundle import bundled

SCRIPT = "page.js"
"""All modules as one file, which loads in one request."""
NOTHING = '"nothing recorded"'
"""What stands in the place of the answers until there are some."""
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline';"
    " style-src 'unsafe-inline'; img-src data: blob:"
)


@cache
def static(name: str) -> str:
    """A static file of the page."""
    return (resources.files("meshwright.web") / "static" / name).read_text(
        "utf-8"
    )


@cache
def script() -> str:
    """The modules as one script."""
    return bundled("main.js", static)


@cache
def empty() -> str:
    """The page in one file, without answers."""
    html = with_policy(static("index.html"), POLICY)
    style = f"<style>\n{static('style.css')}</style>"
    html = html.replace('<link rel="stylesheet" href="style.css">', style)
    code = script().replace("</script", "<\\/script")
    scripts = (
        f'<script type="application/json" id="recorded">{NOTHING}</script>\n'
        f'<script type="module">\n{code}</script>'
    )
    html = html.replace('<script type="module" src="main.js"></script>\n', "")
    return html.replace("</body>", f"{scripts}\n</body>")


def with_policy(html: str, policy: str) -> str:
    """A page with a policy of its own, where nobody sends headers."""
    first = '<meta charset="utf-8">\n'
    tag = f'<meta http-equiv="content-security-policy" content="{policy}">\n'
    return html.replace(first, first + tag) if policy else html


def index(answers: str = "", kind: str = "known", policy: str = "") -> str:
    """The first file: it asks for the styles and one script; answers (`held`) are in it.

    kind: of the answers: all there are (recorded), or the first ones, others being asked of a
    server (known) or of the program in the browser (first).
    """
    html = with_policy(static("index.html").replace("main.js", SCRIPT), policy)
    data = f'<script type="application/json" id="{kind}">{answers}</script>\n'
    return html.replace("</body>", f"{data if answers else ''}</body>")


def single(state: str, answers: Mapping[str, Any]) -> str:
    """The page in one file with these answers, opened at a state (as in an address)."""
    return empty().replace(NOTHING, answers_script(state, answers), 1)


def answers_script(state: str | None, answers: Mapping[str, Any]) -> str:
    """Answers as the text of a script element; state: what the page opens with."""
    opened = {} if state is None else {"state": state}
    text = json.dumps({**opened, "answers": answers}, allow_nan=False)
    return text.replace("<", "\\u003c")


def key(name: str, body: Mapping[str, Any]) -> str:
    """Under which the page looks for an answer."""
    return name + json.dumps(
        body, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
