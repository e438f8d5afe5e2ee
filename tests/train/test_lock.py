"""One run a folder: the second start is told who has it; what a dead process left is taken over."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from small_runs import rows, two_ranks  # noqa: E402
from test_nonfinite import diverging  # noqa: E402

from meshwright.cli import main as cli  # noqa: E402
from meshwright.train import guard  # noqa: E402
from meshwright.train.guard import Lock  # noqa: E402
from refusals import refusal  # noqa: E402

HOLD = (
    "import sys, time; from pathlib import Path; from meshwright.train.guard import Lock\n"
    "with Lock(Path(sys.argv[1]), 2):\n print('held', flush=True); time.sleep(100)"
)


@contextmanager
def hold(folder: Path, code: str = HOLD) -> Iterator[int]:
    """Another process has the folder, until it is killed at the end; its id."""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        try:
            yield process.pid
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def test_the_second_is_told_of_the_first(tmp_path: Path) -> None:
    with hold(tmp_path) as pid:
        says = rf"is trained in by process {pid} on {socket.gethostname()} \(restart 2, since 20"
        with refusal(says), Lock(tmp_path):
            pass


def test_the_lock_of_a_dead_process_is_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hold(tmp_path) as pid:
        pass
    with Lock(tmp_path):
        assert (
            json.loads((tmp_path / guard.LOCK).read_text())["pid"]
            == os.getpid()
        )
    assert f"process {pid} on" in capsys.readouterr().err
    with Lock(tmp_path):
        pass
    assert capsys.readouterr().err == "", (
        "who ends by himself leaves nothing to take over"
    )


def test_ranks_that_outlive_their_launcher_keep_the_folder_until_they_end(
    tmp_path: Path,
) -> None:
    """A child has the lock too; a start right after the launcher was killed waits for it."""
    forked = HOLD.replace(
        "print(",
        "import os; os.fork() or (os.close(1), time.sleep(2), os._exit(0)); print(",
    )
    with hold(tmp_path, forked):
        began = time.monotonic()
    with Lock(tmp_path):
        assert time.monotonic() - began > 0.5


@pytest.mark.parametrize(
    ("host", "pid", "refused"),
    [
        (None, 1, True),
        ("elsewhere", 2**22 + 1, True),
        (None, 2**22 + 1, False),
    ],
)
def test_where_there_is_no_flock_the_file_decides(
    host: str | None,
    pid: int,
    refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that lives here, or on a machine that cannot be asked, has the folder; a dead one
    has not.
    """

    def missing(file: int, how: int) -> None:
        raise OSError(guard.NO_FLOCK[0], "No locks available")

    monkeypatch.setattr("fcntl.flock", missing)
    monkeypatch.setattr(guard, "ENDING_S", 0.0)
    (tmp_path / guard.LOCK).write_text(
        json.dumps(
            {"host": host or socket.gethostname(), "pid": pid, "attempt": 0}
        )
    )
    if refused:
        with (
            refusal(f"process {pid} on"),
            Lock(tmp_path),
        ):
            pass
    else:
        with Lock(tmp_path):
            pass


def test_a_second_run_is_refused_and_harms_nothing(
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two starts into one new folder, before the first has saved anything."""
    diverging(steps=100_000, lr=1e-3, save_every=10_000)
    command = [sys.executable, "-m", "meshwright", "train", "job.toml"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as first:
        metrics = Path("run/metrics.jsonl")
        while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
            assert first.poll() is None
            time.sleep(0.05)
        for more in ([], ["--resume"]):
            assert cli.run(["train", "job.toml", "--steps", "5", *more]) == 2
        told = capsys.readouterr().err
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
    assert (
        f"run is trained in by process {first.pid} on " in told
        and "holds no checkpoint to resume from" in told
    )
    steps = [row["step"] for row in rows()]
    assert steps == [*range(1, len(steps) + 1)]
    assert (
        cli.run(
            ["train", "job.toml", "--resume", "--steps", str(len(steps) + 1)]
        )
        == 0
    )
    assert cli.run(["train", "job.toml"]) == 2, (
        "a run that ended is still not written over"
    )


def test_under_a_launcher_the_first_rank_has_the_folder(
    elsewhere: Path,
) -> None:
    """All ranks of a second start are refused with exit code 2, though only the first looks."""
    job = diverging(steps=3, lr=1e-3, save_every=10)
    command = [sys.executable, "-m", "meshwright", "train", job]
    with hold(elsewhere / "run") as pid:
        found = two_ranks(command, elsewhere)
    assert [code for code, _ in found] == [2, 2]
    assert all(
        f"run is trained in by process {pid} on" in told for _, told in found
    )
    assert [code for code, _ in two_ranks(command, elsewhere)] == [0, 0]
    assert len(rows()) == 3


def test_a_full_disk_is_a_sentence_and_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with (
            refusal("cannot be written: No space left on device"),
            Lock(tmp_path),
        ):
            pass
    with Lock(tmp_path):
        assert (tmp_path / "run.lock").read_text()
