"""Searches in processes of their own: the same answers, and none is held up by who has left."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("starlette")

from asking import QUESTION, ask  # noqa: E402

from meshwright.web import app as web
from meshwright.web.endpoints import Endpoint, endpoints
from meshwright.web.work import First, Interrupted, Stopped, ThreadAnswer
from meshwright.web.workers import Worker, WorkerAnswer, Workers
from refusals import refusal

TABLE = endpoints()
PLAN = {"question": QUESTION, "families": False, "top": 1}
CHOICES = {"question": QUESTION, "layout": {"tp": 1, "zero": 1}}


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    found = Workers()
    assert found.take() is None, "none before they have begun"
    found.begin(1)
    yield found
    end = time.monotonic() + 30.0
    while (last := found.take()) is None:
        assert time.monotonic() < end, "none came in place of the dead"
        time.sleep(0.1)
    assert last.end() == 0, "it ends with its server"


def job(workers: Workers, name: str, body: dict) -> WorkerAnswer:
    end = time.monotonic() + 30.0
    while (worker := workers.take()) is None:
        assert time.monotonic() < end, "the worker is not free"
        time.sleep(0.01)
    return WorkerAnswer(workers, worker, name, TABLE[name], body)


def read(task: WorkerAnswer | ThreadAnswer) -> list[bytes]:
    return list(iter(task.next, b""))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("plan", PLAN),
        ("plan_lines", PLAN),
        ("roofline", {"question": QUESTION}),
        ("clusters", {"question": QUESTION, "clusters": ["8xh200", "8xb200"]}),
    ],
)
def test_a_worker_answers_as_the_server_does(
    workers: Workers, name: str, body: dict
) -> None:
    there = read(job(workers, name, body))
    here = read(ThreadAnswer(TABLE[name], body, First()))
    assert len(there) == len(here) > 0
    for one, other in zip(there, here, strict=True):
        assert one.split(b'"elapsed_s"')[0] == other.split(b'"elapsed_s"')[0]


def test_what_is_wrong_is_the_same_sentence(workers: Workers) -> None:
    wrong = {"question": {**QUESTION, "batch": "nonsense"}}
    with refusal() as there:
        job(workers, "plan", wrong).next()
    with refusal() as here:
        ThreadAnswer(TABLE["plan"], wrong, First()).next()
    assert str(there.value) == str(here.value)


def test_it_is_free_again_after_an_asker_has_left(workers: Workers) -> None:
    """In the middle of a stream, before the first line, and where nobody ever read."""
    whole = job(workers, "choices", CHOICES)
    assert whole.next()
    whole.stop()
    early = job(workers, "choices", CHOICES)
    early.stop()
    with pytest.raises(Stopped):
        while early.next():
            pass
    forgotten = job(workers, "choices", CHOICES)
    del forgotten
    assert read(job(workers, "plan", PLAN))


def test_one_that_is_killed_is_asked_again_once(workers: Workers) -> None:
    """Before its first line, and between lines: what comes are the same lines, each once."""
    whole = read(job(workers, "choices", CHOICES))
    for heard in (0, 2):
        task = job(workers, "choices", CHOICES)
        lines = [task.next() for _ in range(heard)]
        killed = task.worker.process
        killed.kill()
        assert lines + read(task) == whole
        assert task.worker.process.pid != killed.pid
    assert killed.exitcode


def test_one_that_is_killed_twice_is_no_fault_of_the_question(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status says so; the next question has another process."""
    instead = workers.instead

    def killed(worker: Worker) -> Worker:
        other = instead(worker)
        other.process.kill()
        return other

    monkeypatch.setattr(workers, "instead", killed)
    task = job(workers, "choices", CHOICES)
    task.worker.process.kill()
    with pytest.raises(Interrupted, match="ended twice over this"):
        read(task)
    monkeypatch.undo()
    assert read(job(workers, "plan", PLAN))

    def interrupted(body: object, progress: object) -> dict:
        raise Interrupted("the processes have ended")

    made = {"plan": Endpoint(interrupted)}
    monkeypatch.setattr(web, "endpoints", lambda runs: made)
    assert ask("plan", {}, web.app()).status == 503


def test_who_leaves_while_another_starts_leaves_it_free(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = job(workers, "choices", CHOICES)
    instead = workers.instead

    def left(worker: Worker) -> Worker:
        task.stop()
        return instead(worker)

    monkeypatch.setattr(workers, "instead", left)
    task.worker.process.kill()
    with pytest.raises(Stopped):
        read(task)
    assert read(job(workers, "plan", PLAN))
