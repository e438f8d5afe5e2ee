"""Processes that search, so that what takes milliseconds shares no interpreter with a search.

Each has a pipe. It hears a question (name, body), or None: nobody waits for its answer any more. It
says the lines of the answer as bytes, why there is none as an error, and at the end the seconds it
took the processor.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Empty, LifoQueue, SimpleQueue
from typing import Any

from ..errors import BadInput, MeshwrightError
from ..formats.user_file import add_own_machines
from .endpoints import Endpoint, endpoints
from .question import OPENING
from .work import Asking, Interrupted, Stopped, answer_lines

CONTEXT = multiprocessing.get_context("spawn")
"""A copy of a process with threads, as by fork, may wait for a lock for ever."""
MOST = 2
"""Processes beside the one that serves: those asked at once by one page."""
POLITE = 5
"""How far they step back for the server and the browser of the same machine."""
STARTS_S = 30.0
"""Seconds that a question waits for another process where its own has ended."""
INTERRUPTED = "the processes that search have ended twice over this: ask again in a minute"
Question = tuple[str, Mapping[str, Any]]
Said = bytes | Exception | float
"""A line, why there is none, or the seconds that an answer took."""


class Worker:
    """A process that answers one question at a time."""

    def __init__(self) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(
            target=answer_questions, args=(theirs,), daemon=True
        )
        self.process.start()
        theirs.close()

    def say(self, question: Question | None) -> None:
        """Tell it something; one that is gone hears nothing."""
        with suppress(OSError):
            self.pipe.send(question)

    def read(self) -> Said | None:
        """What it says next; None if it is gone."""
        try:
            said: Said = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return said

    def end(self) -> int | None:
        """Let it end, which it does when nothing more can be asked; its exit status."""
        self.pipe.close()
        self.process.join()
        return self.process.exitcode


class Workers:
    """The processes that are free; none until `begin`."""

    def __init__(self) -> None:
        # the one that answered last remembers most
        self.free: LifoQueue[Worker] = LifoQueue()

    def begin(self, count: int = MOST) -> None:
        """Start them, one after the other."""
        for _ in range(count):
            worker = Worker()
            if worker.read() is not None:  # it has imported everything
                self.free.put(worker)

    def take(self) -> Worker | None:
        """One that is free, if there is one; another takes the place of one that died."""
        try:
            worker = self.free.get_nowait()
        except Empty:
            return None
        if worker.process.is_alive():
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
            if worker.process.is_alive():
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
        self.question = name, body
        self.lines, self.again = 0, False
        worker.say(self.question)

    def next(self) -> bytes:
        with self.lock:
            if self.stopped:
                raise Stopped
            if self.over:
                return b""
            said = self.worker.read()
            if said is None and not self.again and not self.stopped:
                said = self._ask_again()
            if isinstance(said, bytes) and not self.single:
                self.lines += 1
                return said
            self._end(said)
            if isinstance(said, bytes):
                return said
            if self.stopped:
                raise Stopped
            if said is None:
                raise Interrupted(INTERRUPTED)
            if isinstance(said, Exception):
                raise said
            return b""

    def _ask_again(self) -> Said | None:
        """What comes next, from another process."""
        self.again = self.over = True  # there is none to be told to stop
        self.worker = self.workers.instead(self.worker)
        self.over = False
        if self.stopped:
            self._end(0.0)
            raise Stopped
        self.worker.say(self.question)
        for _ in range(self.lines):  # that were answered before
            if not isinstance(said := self.worker.read(), bytes):
                return said
        return self.worker.read()

    def stop(self) -> None:
        self.stopped = True
        if not self.over:
            self.worker.say(None)
            threading.Thread(target=self._drain, daemon=True).start()

    def __del__(self) -> None:
        """One whose answer was never read to its end."""
        self.stop()

    def _drain(self) -> None:
        """Hear it out, so that it is free again."""
        with self.lock:
            if not self.over:
                self._end(self.worker.read())

    def _end(self, said: Said | None) -> None:
        """Hear what follows something said, to the end."""
        while isinstance(said, (bytes, Exception)):
            said = self.worker.read()
        self.over, self.cpu_s = True, said or 0.0
        self.workers.free.put(self.worker)


def answer_questions(pipe: Connection) -> None:
    """What a worker does: answer until there is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its server ends it
    if hasattr(os, "nice"):
        os.nice(POLITE)
    sys.stdout = sys.stderr
    add_own_machines()
    asked: SimpleQueue[tuple[Question, Asking]] = SimpleQueue()
    threading.Thread(target=listen, args=(pipe, asked), daemon=True).start()
    table = endpoints()
    # the first answer loads what all need
    opening = {"question": OPENING, "families": False, "top": 1}
    write_answer(table["plan"], opening, Asking(), lambda line: None)
    pipe.send(0.0)
    while True:
        (name, body), work = asked.get()
        start = time.thread_time()
        write_answer(table[name], body, work, pipe.send)
        pipe.send(time.thread_time() - start)


def listen(
    pipe: Connection, asked: SimpleQueue[tuple[Question, Asking]]
) -> None:
    """Hand on what is heard; the end of it is the end of the server, and of this process."""
    work = Asking()
    with suppress(EOFError, OSError):
        while True:
            question = pipe.recv()
            if question is None:
                work.stop.set()
            else:
                work = Asking()
                asked.put((question, work))
    os._exit(0)


def write_answer(
    asked: Endpoint,
    body: Mapping[str, Any],
    work: Asking,
    say: Callable[[Said], None],
) -> None:
    """Say the lines of an answer, or why there is none."""
    try:
        for line in answer_lines(asked, body, work):
            say(line)
    except Stopped:
        pass
    except MeshwrightError as error:
        say(BadInput(str(error)))
    except Exception as error:  # noqa: BLE001 - a bug is one sentence here too
        traceback.print_exc()
        say(RuntimeError(type(error).__name__))
