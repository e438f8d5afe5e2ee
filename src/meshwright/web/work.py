"""An answer under way: computed line by line, and given up when nobody waits for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, Protocol, cast

from ..errors import BadInput, MeshwrightError
from .endpoints import Endpoint

DEADLINE_S = 60.0
"""Seconds that one answer may take."""
MOST_PATIENT_S = 0.1
"""Seconds that a search waits at most for what is quick."""


class Stopped(Exception):
    """The asker has left."""


class Interrupted(MeshwrightError):
    """No fault of the asker's: the processes that were to answer have ended."""


def json_bytes(answer: Mapping[str, Any]) -> bytes:
    """JSON as bytes.  BadInput where it holds a number that is infinite or none."""
    try:
        text = json.dumps(answer, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise BadInput(
            f"{', '.join([*endless(answer)][:NAMED])}: no finite number comes of what was asked;"
            " are its numbers those of a real job?"
        ) from None
    return text.encode()


NAMED = 3
"""Fields that a sentence names."""


def endless(value: object, where: str = "the answer") -> Iterator[str]:
    """Where an answer holds what JSON cannot say."""
    if isinstance(value, float) and not isfinite(value):
        yield where
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        pairs = value.items()
    elif isinstance(value, (list, tuple)):
        pairs = enumerate(value)
    for key, inner in pairs:
        yield from endless(inner, f"{where}.{key}")


class Asking:
    """What computes an answer asks here whether to go on."""

    def __init__(self) -> None:
        self.stop, self.until = (
            threading.Event(),
            time.monotonic() + DEADLINE_S,
        )

    def progress(self, what: str, share: float) -> None:
        """Told by a search; raises to stop it."""
        if self.stop.is_set():
            raise Stopped
        if time.monotonic() > self.until:
            raise BadInput(
                f"this takes longer than {DEADLINE_S:g} s: ask for less at once"
            )


class First:
    """Lets what takes milliseconds go before a search that begins: there is one interpreter."""

    def __init__(self) -> None:
        self.count = 0
        self.none = threading.Event()
        self.none.set()

    def __enter__(self) -> None:
        self.count += 1
        self.none.clear()

    def __exit__(self, *error: object) -> None:
        self.count -= 1
        if not self.count:
            self.none.set()


class Task(Protocol):
    """An answer under way, here or in another process."""

    cpu_s: float
    """Seconds that it took the processor so far."""

    def next(self) -> bytes:
        """The next line of the answer, without an end of line; empty after the last.

        Raises BadInput, or Stopped after `stop`.
        """

    def stop(self) -> None:
        """Nobody waits for it any more."""


class ThreadAnswer:
    """An answer that a thread of this process computes."""

    def __init__(
        self, asked: Endpoint, body: Mapping[str, Any], first: First
    ) -> None:
        self.work, self.cpu_s = Asking(), 0.0
        self.first = None if asked.quick else first
        self.parts = answer_lines(asked, body, self.work)

    def next(self) -> bytes:
        if self.first:
            self.first.none.wait(MOST_PATIENT_S)
        self.work.progress("", 0.0)  # left while it waited
        start = time.thread_time()
        try:
            return next(self.parts, b"")
        finally:
            self.cpu_s += time.thread_time() - start

    def stop(self) -> None:
        self.work.stop.set()


def answer_lines(
    asked: Endpoint, body: Mapping[str, Any], work: Asking
) -> Iterator[bytes]:
    """The lines of an answer: one, or as many as it has parts."""
    answers = asked.ask(body, work.progress)
    if not asked.streams:
        answers = iter([cast("Mapping[str, Any]", answers)])
    for answer in cast("Iterator[Mapping[str, Any]]", answers):
        yield json_bytes(answer)
