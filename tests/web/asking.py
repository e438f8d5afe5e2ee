"""A client without a network: it calls the application as a server would."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import anyio

from meshwright.web.app import app
from meshwright.web.prerendered import KeyRange

FEW = KeyRange(["llama3-8b"], ["h100-sxm"], [8, 16])
"""What the folder's page has beforehand."""
QUESTION = {"model": "llama3-8b", "on": "8xh100-sxm", "batch": "64seq"}


def told(*_: object) -> None:
    """Nobody listens."""


class Client:
    """Who asks, and does not leave."""

    def __init__(self, accept: str = "*/*") -> None:
        self.headers = {"accept": accept}

    async def receive(self) -> None:
        await anyio.sleep_forever()


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    parts: list[bytes]
    """The same as it was sent."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def refused(self) -> str:
        """The sentence with which a question is refused."""
        assert self.status == 422 and set(self.json) == {"error"}
        return str(self.json["error"])

    @property
    def lines(self) -> list[Any]:
        """All but those that say how many wait, which come where the machine is slow."""
        lines = [json.loads(line) for line in self.body.splitlines()]
        return [line for line in lines if "waiting" not in line]


usual = cache(app)
"""Of all who ask for no other."""


def call(
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    served: Any = None,
) -> Reply:
    """One request."""
    given = {
        "host": "localhost:8321",
        "content-length": str(len(body)),
        **(headers or {}),
    }
    if method == "POST":
        given.setdefault("content-type", "application/json")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(k.encode(), v.encode()) for k, v in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8321),
    }
    sent: list[Any] = []
    asked = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        part = next(asked, None)
        if part is None:
            await anyio.sleep_forever()
        return part

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        await (served or usual())(scope, receive, send)

    anyio.run(run)
    got = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    parts = [m.get("body", b"") for m in sent[1:]]
    return Reply(sent[0]["status"], got, b"".join(parts), parts)


def ask(name: str, body: Any, served: Any = None) -> Reply:
    """One question."""
    return call(
        "POST", f"/api/{name}", json.dumps(body).encode(), served=served
    )
