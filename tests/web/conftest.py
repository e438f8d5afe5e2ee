"""The page as a folder: a stand-in for Pyodide, and a host of static files."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from meshwright.search import selectors
from meshwright.web import alone, changes, pyodide, recorded, site

STAND_IN = """
const asked = (kind, name, body) => {
  const request = new XMLHttpRequest();
  request.open("POST", `../${kind}/${name}`, false);
  request.send(body);
  return request.responseText;
};
export const loadPyodide = async () => {
  await fetch("../held");
  return {
    loadPackage: async () => {},
    unpackArchive() {},
    runPython() {},
    globals: {
      get: (kind) => kind === "json_answer"
        ? (name, body) => asked(kind, name, body)
        : (name, body) => asked(kind, name, body).split("\\n").filter(Boolean),
    },
  };
};
"""
"""In place of Pyodide: what it is asked is asked of this program, once the host lets go."""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like Pyodide's; and little is written beside the first answer."""
    monkeypatch.setattr(recorded, "CHIPS", ["h100-sxm"])
    monkeypatch.setattr(recorded, "SCENARIOS", ["h100"])
    monkeypatch.setattr(
        selectors, "choices_of", lambda job, layout: {"tp": (1, 2)}
    )
    monkeypatch.setattr(changes, "changes_of", lambda job: ())
    question = {
        "model": "llama3-8b",
        "on": "8xh100-sxm",
        "batch": "4Mi",
        "tokens": "15T",
    }
    monkeypatch.setattr(site, "OPENING", question)
    folder = tmp_path / "engine"
    folder.mkdir()
    for name in (*pyodide.CORE, "numpy.whl", "rich.whl"):
        (folder / name).write_text("")
    (folder / "pyodide.mjs").write_text(STAND_IN)
    lock = {n: {"file_name": f"{n}.whl"} for n in pyodide.WHEELS}
    (folder / pyodide.LOCK).write_text(json.dumps({"packages": lock}))
    return folder


class Host(SimpleHTTPRequestHandler):
    """Hands out files; the stand-in waits at /held until `let_go`."""

    let_go = threading.Event()

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        if self.path == "/held":
            self.let_go.wait(60)
            self.reply("")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        _, kind, name = self.path.split("/")
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        one = kind == "json_answer"
        self.reply(
            alone.json_answer(name, body)
            if one
            else "\n".join(alone.lines(name, body))
        )

    def reply(self, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Any]:
    """A function from a folder to its address."""
    servers = []

    def host(folder: Path) -> str:
        Host.let_go.clear()
        handler = partial(Host, directory=str(folder))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield host
    Host.let_go.set()
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def let_go() -> threading.Event:
    """What lets the stand-in start."""
    return Host.let_go
