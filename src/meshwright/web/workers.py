"""Processes that search, so that what takes milliseconds shares no interpreter with a search.

Each reads from its standard input and writes to its standard output, a line at a time:

    {"name": "plan", "body": {...}}     a question
    {"stop": true}                      nobody waits for its answer any more
    ={...}                              a line of the answer
    !{"error": ...}                     why there is none, in a sentence
    ?{...}                              the name of a bug
    .0.12                               the end, and the seconds it took the processor
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, LifoQueue, SimpleQueue
from typing import IO, Any

from ..errors import BadInput, MeshwrightError
from ..formats.user_file import add_own_machines
from .endpoints import Endpoint, endpoints
from .question import OPENING
from .work import Asking, Interrupted, Stopped, answer_lines, json_bytes

LINE, WRONG, BROKEN, END = b"=", b"!", b"?", b"."
MOST = 2
"""Processes beside the one that serves: those asked at once by one page."""
POLITE = 5
"""How far they step back for the server and the browser of the same machine."""
ROOT = Path(__file__).parents[2]
STARTS_S = 30.0
"""Seconds that a question waits for another process where its own has ended."""
INTERRUPTED = "the processes that search have ended twice over this: ask again in a minute"


class Worker:
    """A process that answers one question at a time."""

    def __init__(self) -> None:
        known = os.environ.get("PYTHONPATH", "")
        path = os.pathsep.join([str(ROOT), *filter(None, [known])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )

    def say(self, told: Mapping[str, Any]) -> None:
        """Tell it something; one that is gone hears nothing."""
        assert self.process.stdin
        with suppress(OSError, ValueError):
            self.process.stdin.write(json_bytes(told) + b"\n")
            self.process.stdin.flush()

    def read(self) -> tuple[bytes, bytes]:
        """(kind, text) of its next line; two empty ones if it is gone."""
        assert self.process.stdout
        line = self.process.stdout.readline().rstrip(b"\n")
        return line[:1], line[1:]

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def end(self) -> int:
        """Let it end, which it does when nothing more can be asked; its exit status."""
        assert self.process.stdin and self.process.stdout
        with suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()


class Workers:
    """The processes that are free; none until `begin`."""

    def __init__(self) -> None:
        # the one that answered last remembers most
        self.free: LifoQueue[Worker] = LifoQueue()

    def begin(self, count: int = MOST) -> None:
        """Start them, one after the other."""
        for _ in range(count):
            worker = Worker()
            if worker.read()[0] == END:  # it has imported everything
                self.free.put(worker)

    def take(self) -> Worker | None:
        """One that is free, if there is one; another takes the place of one that died."""
        try:
            worker = self.free.get_nowait()
        except Empty:
            return None
        if worker.lives:
            return worker
        self.replace(worker)
        return self.take()

    def replace(self, worker: Worker) -> None:
        """Start another for one that has ended."""
        worker.end()
        threading.Thread(target=self.begin, args=(1,), daemon=True).start()

    def instead(self, worker: Worker) -> Worker:
        """One that lives for one that has ended, as soon as there is one.  Raises Interrupted."""
        until = time.monotonic() + STARTS_S
        while True:
            self.replace(worker)
            try:
                worker = self.free.get(timeout=until - time.monotonic())
            except (Empty, ValueError):  # ValueError: the time is over
                raise Interrupted(INTERRUPTED) from None
            if worker.lives:
                return worker


class WorkerAnswer:
    """A question that a worker answers.  Where its process ends, another is asked once: the same
    body has the same answer.
    """

    def __init__(
        self,
        workers: Workers,
        worker: Worker,
        name: str,
        asked: Endpoint,
        body: Mapping[str, Any],
    ) -> None:
        self.workers, self.worker, self.single = (
            workers,
            worker,
            not asked.streams,
        )
        self.lock = threading.Lock()
        self.over, self.stopped, self.cpu_s = False, False, 0.0
        self.question = {"name": name, "body": body}
        self.lines, self.again = 0, False
        worker.say(self.question)

    def next(self) -> bytes:
        with self.lock:
            if self.stopped:
                raise Stopped
            if self.over:
                return b""
            kind, text = self.worker.read()
            if not kind and not self.again and not self.stopped:
                kind, text = self._ask_again()
            if kind == LINE and not self.single:
                self.lines += 1
                return text
            if kind != END:
                self._end()
            else:
                self._finish(text)
            if kind == LINE:
                return text
            if self.stopped:
                raise Stopped
            if kind == WRONG:
                raise BadInput(json.loads(text)["error"])
            if kind == BROKEN:
                raise RuntimeError(json.loads(text)["error"])
            if not kind:
                raise Interrupted(INTERRUPTED)
            return b""

    def _ask_again(self) -> tuple[bytes, bytes]:
        """(kind, text) of the line that comes next, from another process."""
        self.again = self.over = True  # there is none to be told to stop
        self.worker = self.workers.instead(self.worker)
        self.over = False
        if self.stopped:
            self._finish(b"")
            raise Stopped
        self.worker.say(self.question)
        for _ in range(self.lines):  # that were answered before
            if (told := self.worker.read())[0] != LINE:
                return told
        return self.worker.read()

    def stop(self) -> None:
        self.stopped = True
        if not self.over:
            self.worker.say({"stop": True})
            threading.Thread(target=self._drain, daemon=True).start()

    def __del__(self) -> None:
        """One whose answer was never read to its end."""
        self.stop()

    def _drain(self) -> None:
        """Hear it out, so that it is free again."""
        with self.lock:
            if not self.over:
                self._end()

    def _end(self) -> None:
        while (told := self.worker.read())[0] not in (END, b""):
            pass
        self._finish(told[1])

    def _finish(self, text: bytes) -> None:
        self.over, self.cpu_s = True, float(text or 0.0)
        self.workers.free.put(self.worker)


def _main() -> None:
    """Answer what is read until there is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its server ends it
    if hasattr(os, "nice"):
        os.nice(POLITE)
    sink = os.fdopen(os.dup(1), "wb")
    sys.stdout = sys.stderr
    add_own_machines()
    table = endpoints()
    asked: SimpleQueue[tuple[Mapping[str, Any], Asking]] = SimpleQueue()
    opening = {"question": OPENING, "families": False, "top": 1}
    asked.put(({"name": "plan", "body": opening}, Asking()))
    threading.Thread(target=listen, args=(asked,), daemon=True).start()
    quiet = io.BytesIO()
    while True:
        told, work = asked.get()
        first = told["body"] is opening
        start = time.thread_time()
        write_answer(
            table[told["name"]], told["body"], work, quiet if first else sink
        )
        sink.write(END + b"%.4f\n" % (time.thread_time() - start))
        sink.flush()


def listen(asked: SimpleQueue[tuple[Mapping[str, Any], Asking]]) -> None:
    """Hand on what is read; the end of it is the end of the server, and of this process."""
    work = Asking()
    for line in sys.stdin.buffer:
        told = json.loads(line)
        if "stop" in told:
            work.stop.set()
        else:
            work = Asking()
            asked.put((told, work))
    os._exit(0)


def write_answer(
    asked: Endpoint, body: Mapping[str, Any], work: Asking, sink: IO[bytes]
) -> None:
    """Write the lines of an answer, or why there is none."""
    try:
        for line in answer_lines(asked, body, work):
            sink.write(LINE + line + b"\n")
            sink.flush()
    except Stopped:
        pass
    except MeshwrightError as error:
        sink.write(WRONG + json_bytes({"error": str(error)}) + b"\n")
    except Exception as error:  # noqa: BLE001 - a bug is one sentence here too
        traceback.print_exc()
        told = {"error": type(error).__name__}
        sink.write(BROKEN + json_bytes(told) + b"\n")


if __name__ == "__main__":
    _main()
