"""A request that does not arrive is not waited for."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("uvicorn")

import uvicorn  # noqa: E402

from meshwright.cli.serve import bound
from meshwright.web import timed

TIME_S = 0.4
SLOW_S = 2 * TIME_S
HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n"


async def slow(scope, receive, send) -> None:
    """Reads the whole body and answers after more than the time of a request."""
    import asyncio

    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(SLOW_S)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(timed, "ARRIVES_S", TIME_S)
    config = uvicorn.Config(
        slow, http=timed.DeadlineProtocol, log_level="error", lifespan="off"
    )
    server = uvicorn.Server(config)
    with bound("127.0.0.1", 0) as listening:
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}
        )
        thread.start()
        yield listening.getsockname()
        server.should_exit = True
        thread.join(20)


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST / HT", HEAD, HEAD + b"\r\n", HEAD + b"\r\nab"],
    ids=["nothing", "half a line", "half a head", "no body", "half a body"],
)
def test_what_is_half_sent_is_closed(
    address: tuple[str, int], sent: bytes
) -> None:
    with socket.create_connection(address) as link:
        link.settimeout(20)
        link.sendall(sent)
        assert link.recv(1) == b"", "closed by the server"


def test_what_drips_is_closed(address: tuple[str, int]) -> None:
    """The clock is that of the request, not of the last letter."""
    start = time.monotonic()
    with socket.create_connection(address) as link:
        with pytest.raises(OSError):
            while time.monotonic() < start + 20:
                link.sendall(b"P")
                time.sleep(TIME_S / 8)
        assert time.monotonic() < start + 20


def test_who_has_asked_may_wait_and_ask_again(
    address: tuple[str, int],
) -> None:
    """An answer takes its time, and the connection is kept for the next question."""
    with socket.create_connection(address) as link:
        link.settimeout(20)
        for _ in range(2):
            link.sendall(HEAD + b"\r\nabcd")
            assert link.recv(1000).startswith(b"HTTP/1.1 204")
