"""Connections on which a request must arrive in time: uvicorn itself waits for ever."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

ARRIVES_S = 30.0
"""Seconds from the first byte of a request, or from the connection, to its last: enough for the
largest body at 300 kbit/s."""


class DeadlineProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection on which half a request has come."""

    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel()

    def _watch(self) -> None:
        """Start the clock where a request is awaited or half here, stop it where it is whole."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._cancel()
        elif self.late is None and not self.transport.is_closing():
            self.late = self.loop.call_later(ARRIVES_S, self.transport.close)

    def _cancel(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None
