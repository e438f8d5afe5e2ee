"""The page over HTTP: static files, and POST /api/NAME with a JSON body for each answer.

Loopback by default. Every request is checked: its Host and Origin are ours, its body is small, its
fields are known. Whatever is wrong is one sentence with a 4xx status. Work stops when the asker
leaves or a deadline passes; a few threads compute, and only so many may wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Mapping,
    Sequence,
)
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ..errors import BadInput, MeshwrightError
from . import page
from .endpoints import Endpoint, check_body, endpoints, openapi
from .guard import HEADERS, LOCAL, Guard, body_of, refusal
from .question import OPENING
from .work import (
    First,
    Interrupted,
    Stopped,
    Task,
    ThreadAnswer,
    json_bytes,
)
from .workers import MOST, WorkerAnswer, Workers

SEARCHES, QUICK = 2, 4
"""Threads that search, and that answer what takes milliseconds."""
MOST_WAITING = 64
"""Requests under way; more are told to come back."""
SAID_S = 2.0
"""Seconds after which one who waits for a line is told his place."""
COMPRESSED = 6
"""Level of gzip: 9 takes twice as long for 1 % of the bytes."""
KEPT, KEPT_BYTES = 128, 2**18
"""Answers that are kept, and the largest of them."""
LINES = "application/x-ndjson"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


class Kept:
    """The latest answers, by question."""

    def __init__(self) -> None:
        self.answers: OrderedDict[str, bytes] = OrderedDict()

    def get(self, key: str) -> bytes | None:
        answer = self.answers.get(key)
        if answer is not None:
            self.answers.move_to_end(key)
        return answer

    def put(self, key: str, answer: bytes) -> None:
        if len(answer) <= KEPT_BYTES:
            self.answers[key] = answer
            while len(self.answers) > KEPT:
                self.answers.popitem(last=False)


def digest(name: str, body: Mapping[str, Any]) -> str:
    """What an answer is kept by: as short for a dropped file as for a question."""
    text = page.key(name, body)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Api:
    """Answers requests."""

    def __init__(self, runs: Mapping[str, Path] | None = None) -> None:
        self.endpoints = endpoints(runs)
        self.kept = Kept()
        self.under_way = 0
        self.first = First()
        self.workers = Workers()
        self.limits: dict[str, CapacityLimiter] = {}
        self.waiting: dict[Task, CapacityLimiter] = {}
        """For a thread of these, the first come first."""

    def limiter(self, asked: Endpoint, task: Task) -> CapacityLimiter:
        """The threads that compute, or wait for a worker; made inside the event loop."""
        if not self.limits:
            self.limits = {
                "quick": CapacityLimiter(QUICK),
                "here": CapacityLimiter(SEARCHES),
                "there": CapacityLimiter(MOST),
            }
        kind = "here" if isinstance(task, ThreadAnswer) else "there"
        return self.limits["quick" if asked.quick else kind]

    def task(
        self, name: str, asked: Endpoint, body: Mapping[str, Any]
    ) -> Task:
        """An answer that begins: a search in a process of its own, if one is free."""
        if asked.kept and not asked.quick and (worker := self.workers.take()):
            return WorkerAnswer(
                self.workers, worker=worker, name=name, asked=asked, body=body
            )
        return ThreadAnswer(asked, body, self.first)

    def prepared(self, name: str, body: Mapping[str, Any]) -> Any:
        """An answer that is kept before anybody asks."""
        answer = self.endpoints[name].ask(body, lambda what, share: None)
        self.kept.put(digest(name, body), json_bytes(cast("Any", answer)))
        return answer

    async def describe(self, request: Request) -> Response:
        """The description of the interface."""
        return Response(
            json_bytes(openapi(self.endpoints)),
            200,
            HEADERS,
            "application/json",
        )

    async def answer(self, request: Request) -> Response:
        """One answer, or one sentence."""
        name = request.path_params["name"]
        asked = self.endpoints.get(name)
        if asked is None:
            return refusal(
                f"nothing is asked under /api/{name[:40]}: see /openapi.json",
                404,
            )
        if self.under_way >= MOST_WAITING:
            return refusal(
                "too many requests are under way: try again in a second", 429
            )
        try:
            body = check_body(await body_of(request), asked)
            return await self.reply(name, asked, body, request)
        except ClientDisconnect:
            return refusal("the asker has left", 400)
        except Interrupted as error:
            return refusal(str(error), 503)
        except MeshwrightError as error:
            large = "at most" in str(error) and "bytes" in str(error)
            return refusal(str(error), 413 if large else 422)

    async def only_posted(self, request: Request) -> Response:
        """A question that was not posted."""
        if request.path_params["name"] in self.endpoints:
            raise HTTPException(405, headers={"Allow": "POST"})
        return await self.answer(request)

    async def reply(
        self,
        name: str,
        asked: Endpoint,
        body: Mapping[str, Any],
        request: Request,
    ) -> Response:
        """An answer, kept for the next who asks the same. Of one in many lines, what is wrong with
        the question is said before the first, unless that must wait. Who takes lines is told his
        place in the queue on lines before any answer that is late.
        """
        keeper = asked.last if asked.streams else name
        key = digest(keeper, body) if asked.kept and keeper else ""
        if key and (answer := self.kept.get(key)) is not None:
            if asked.streams:
                return Response(answer + b"\n", 200, HEADERS, LINES)
            return Response(answer, 200, HEADERS, "application/json")
        task = self.task(name, asked, body)
        accepted = LINES in request.headers.get("accept", "")
        by_line = asked.streams or (accepted and not asked.quick)
        with self.first if asked.quick else nullcontext():
            line = await self.begun(
                task, asked, request, SAID_S if by_line else None
            )
        whole = _arrived_line(line) if line.done() else None
        if asked.streams or whole is None:
            said = self.lines(line, task, asked, key)
            return StreamingResponse(said, 200, HEADERS, LINES)
        if key:
            self.kept.put(key, whole)
        timing = {"server-timing": f"cpu;dur={1e3 * task.cpu_s:.1f}"}
        return Response(whole, 200, HEADERS | timing, "application/json")

    async def begun(
        self,
        task: Task,
        asked: Endpoint,
        request: Request,
        patience_s: float | None = None,
    ) -> asyncio.Future[bytes]:
        """The first line of an answer: there, or after so many seconds still under way; it is told
        to stop when the asker leaves.
        """

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            task.stop()

        self.under_way += 1
        line = asyncio.ensure_future(self.next_line(task, asked))
        leaving = asyncio.ensure_future(watch())
        try:
            await asyncio.wait({line}, timeout=patience_s)
        except asyncio.CancelledError:
            task.stop()
            line.cancel()
            raise
        finally:
            self.under_way -= 1
            leaving.cancel()
        return line

    async def next_line(self, task: Task, asked: Endpoint) -> bytes:
        """The next line of an answer, when its turn has come."""
        limiter = self.limiter(asked, task)
        self.waiting[task] = limiter
        try:
            async with limiter:
                del self.waiting[task]
                return await to_thread.run_sync(
                    task.next, abandon_on_cancel=True
                )
        finally:
            self.waiting.pop(task, None)

    def place(self, task: Task) -> int:
        """Of an answer among those that wait for the same threads; 0: it is worked out."""
        limiter = self.waiting.get(task)
        queue = [each for each, its in self.waiting.items() if its is limiter]
        return queue.index(task) + 1 if task in queue else 0

    async def lines(
        self,
        line: asyncio.Future[bytes],
        task: Task,
        asked: Endpoint,
        key: str,
    ) -> AsyncIterator[bytes]:
        """The lines of an answer; a sentence in place of what cannot be answered, and a place in
        the queue as long as there is nothing else to say.

        key: by which the last is kept, if it is.
        """
        self.under_way += 1
        last, waits = b"", not line.done()
        try:
            while True:
                while waits:
                    yield json_bytes({"waiting": self.place(task)}) + b"\n"
                    waits = await late(line)
                if not line.result():
                    break
                last = line.result()
                yield last + b"\n"
                line = asyncio.ensure_future(self.next_line(task, asked))
                waits = await late(line)
            if key:
                self.kept.put(key, last)
        except Stopped:
            return
        except MeshwrightError as error:
            yield json_bytes({"error": str(error)}) + b"\n"
        finally:
            line.cancel()
            task.stop()
            self.under_way -= 1


def _arrived_line(line: asyncio.Future[bytes]) -> bytes:
    """A line that is there.  Raises why it is not."""
    try:
        return line.result()
    except Stopped:
        raise BadInput("the asker has left") from None


async def late(line: asyncio.Future[bytes]) -> bool:
    """Whether a line takes so long that something must be said."""
    return not (await asyncio.wait({line}, timeout=SAID_S))[0]


class Files:
    """The files of the page, all in memory: no path of a request ever reaches the disk."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.put("/style.css", page.static("style.css"))
        self.put(f"/{page.SCRIPT}", page.script())
        self.put("/single.html", page.empty())
        self.open({})

    def put(self, path: str, text: str) -> None:
        """One file."""
        self.texts[path] = text.encode()

    def open(self, answers: Mapping[str, Any]) -> None:
        """The first file with these answers in it, which then need no request."""
        text = page.index(
            page.answers_script(None, answers) if answers else ""
        )
        self.put("/index.html", text)
        self.put("/", text)

    async def answer(self, request: Request) -> Response:
        """One file."""
        path = request.url.path
        if path not in self.texts:
            return refusal(f"there is no page {path[:80]!r}", 404)
        suffix = ".html" if path == "/" else "." + path.rpartition(".")[2]
        return Response(self.texts[path], 200, HEADERS, TYPES[suffix])


async def failed(request: Request, error: Exception) -> Response:
    """A bug: still one sentence."""
    return refusal(
        f"internal error, please report it: {type(error).__name__}", 500
    )


async def not_here(request: Request, error: Exception) -> Response:
    """A method that a path does not know; its header says which it does."""
    reply = refusal(
        f"{request.method} {request.url.path[:80]!r} is not answered here", 405
    )
    reply.headers.update(getattr(error, "headers", None) or {})
    return reply


def warm(api: Api, files: Files) -> None:
    """Have at hand what everybody asks first: in the first file, and among the answers kept."""
    plan = {"question": OPENING, "families": False, "top": 1}
    first = {page.key("catalogue", {}): api.prepared("catalogue", {})}
    files.open(first)
    opening = first[page.key("plan", plan)] = api.prepared("plan", plan)
    files.open(first)
    api.prepared(
        "beside", {"question": OPENING, "layout": opening["best"]["layout"]}
    )


def app(
    hosts: Sequence[str] = (),
    runs: Mapping[str, Path] | None = None,
    prepare: bool = False,
) -> ASGIApp:
    """The application.

    hosts: names, besides those of loopback, under which it answers.
    prepare: compute the first answers at once, beside what is asked, and start processes that
        search.
    """
    api = Api(runs)
    files = Files()

    def begin() -> None:
        warm(api, files)
        api.workers.begin()

    if prepare:
        threading.Thread(target=begin, daemon=True).start()
    routes = [
        Route("/openapi.json", api.describe, methods=["GET"]),
        Route("/api/{name}", api.answer, methods=["POST"]),
        Route("/api/{name}", api.only_posted, methods=["GET"]),
        Route("/{path:path}", files.answer, methods=["GET"]),
    ]
    inner = Starlette(
        routes=routes, exception_handlers={405: not_here, Exception: failed}
    )
    # lines of an answer under way are flushed one by one
    small = GZipMiddleware(inner, compresslevel=COMPRESSED)
    return Guard(small, (*LOCAL, *hosts))
