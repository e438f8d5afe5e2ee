"""Which requests a server of the page answers: those to its own names, from its own page, with a
small body; all else is one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import BadInput

LARGEST_BODY = 2**20
"""Bytes of a request."""
LOCAL = ("localhost", "127.0.0.1", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


def refusal(sentence: str, status: int) -> Response:
    """One sentence."""
    return JSONResponse({"error": sentence}, status, HEADERS)


class Guard:
    """Lets requests pass that are meant for this server: its Host, its Origin, a small body."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self.app, self.hosts = app, {host.lower() for host in hosts}

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refused = self.refused(
            {k.decode("latin-1"): v for k, v in scope["headers"]}, scope
        )
        await (refused or self.app)(scope, receive, send)

    def refused(
        self, headers: Mapping[str, bytes], scope: Scope
    ) -> Response | None:
        """Why a request is turned away; None if it is not."""
        host = headers.get("host", b"").decode("latin-1").lower()
        if bare(host) not in self.hosts:
            return refusal(
                f"this server does not answer for the host {host[:80]!r}", 421
            )
        origin = headers.get("origin")
        if (
            origin is not None
            and origin.decode("latin-1").lower() != f"http://{host}"
        ):
            return refusal("requests from other sites are refused", 403)
        if headers.get("sec-fetch-site", b"same-origin") not in (
            b"same-origin",
            b"none",
        ):
            return refusal("requests from other sites are refused", 403)
        if "content-length" in headers and "transfer-encoding" in headers:
            return refusal(
                "a body has a content-length or a transfer-encoding, not both",
                400,
            )
        length = headers.get("content-length", b"0")
        if not length.isdigit() or int(length[:20]) > LARGEST_BODY:
            return refusal(
                f"the body must have at most {LARGEST_BODY:,} bytes", 413
            )
        if scope["method"] == "POST":
            kind = (
                headers.get("content-type", b"").split(b";")[0].strip().lower()
            )
            if kind != b"application/json":
                return refusal(
                    "the body must be JSON: content-type application/json", 415
                )
        return None


def bare(host: str) -> str:
    """A host without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


async def body_of(request: Request) -> Any:
    """The JSON of a request's body.  Raises BadInput."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LARGEST_BODY:
            raise BadInput(
                f"the body must have at most {LARGEST_BODY:,} bytes"
            )
    try:
        return json.loads(data or b"{}")
    except RecursionError:
        raise BadInput("the body is nested too deeply") from None
    except ValueError as error:
        raise BadInput(
            f"the body is not valid JSON: {str(error)[:120]}"
        ) from None
