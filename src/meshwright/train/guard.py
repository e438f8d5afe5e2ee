"""What guards the folder of a run: who trains in it holds `run.lock`, and a second start is told
who that is; the checkpoints of another engine are sealed.

The lock is flock(2)'s, so it ends with the processes that hold it: the launcher and, forked from
it, its ranks. What the file says (host, pid, attempt, since) is for people, and decides only where
a file system has no flock.

Seals are SHA-256 of every file, beside the checkpoints. An engine that goes on takes its newest one
without a look at its contents; one whose files are no longer those that were sealed is set aside
first, so the one before is taken.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import BadInput
from ..formats import write_whole

LOCK = "run.lock"
ENDING_S = 10.0
"""How long ranks may outlive a launcher that was killed."""
EVERY_S = 0.1
NO_FLOCK = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
LARGEST = 4096


class Lock:
    """A folder that is ours, as a context. BadInput names the run that has it."""

    def __init__(self, folder: Path, attempt: int = 0) -> None:
        """attempt: how often the launcher (torchrun) has started these ranks again."""
        self.path, self.file = folder / LOCK, -1
        self.about = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "attempt": attempt,
        }

    def __enter__(self) -> Lock:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise self.unwritable(error) from None
        try:
            self.take()
        except BaseException as error:
            os.close(self.file)
            if isinstance(error, OSError):  # a full disk
                raise self.unwritable(error) from None
            raise
        return self

    def unwritable(self, error: Exception) -> BadInput:
        """The sentence for a folder that nothing can be written to."""
        why = getattr(error, "strerror", None) or error
        return BadInput(
            f"train.output {str(self.path.parent)[:200]!r} cannot be written: {why}"
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.ftruncate(self.file, 0)
        os.close(self.file)

    def take(self) -> None:
        """Wait for ranks whose launcher is dead, but for nobody else."""
        until = time.monotonic() + ENDING_S
        while not self.free():
            holder = self.holder()
            if alive(holder) or time.monotonic() > until:
                raise BadInput(
                    f"{self.path.parent} is trained in by {words_for_owner(holder)}: wait for"
                    " it, end it, or take another folder with -o"
                )
            time.sleep(EVERY_S)
        if before := self.holder():
            print(
                f"{self.path.parent}: {words_for_owner(before)} is gone without an end; this start"
                " takes over",
                file=sys.stderr,
            )
        about = json.dumps({**self.about, "since_unix_s": time.time()}) + "\n"
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, about.encode(), 0)

    def free(self) -> bool:
        """Nobody else has it, so it is ours now."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in NO_FLOCK:
                raise
            return not alive(self.holder())
        return True

    def holder(self) -> dict[str, Any]:
        """What the file says; empty where it says nothing yet."""
        try:
            owner = json.loads(os.pread(self.file, LARGEST, 0))
        except ValueError:
            return {}
        return owner if isinstance(owner, dict) else {}


def alive(holder: dict[str, Any]) -> bool:
    """The process that wrote this runs, or is on a machine that we cannot ask."""
    pid = holder.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    return holder.get("host") != socket.gethostname() or running(pid)


def running(pid: int) -> bool:
    """There is such a process on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def words_for_owner(holder: dict[str, Any]) -> str:
    """Words for the run that has a folder."""
    if not holder:
        return "another run"
    since = holder.get("since_unix_s")
    when = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
        if isinstance(since, (int, float)) and 0 <= since < 2**33
        else "a time unknown"
    )
    host, pid = (str(holder.get(key))[:100] for key in ("host", "pid"))
    again = holder.get("attempt")
    restarts = f"restart {str(again)[:100]}, " if again else ""
    return f"process {pid} on {host} ({restarts}since {when})"


SEALS = "seals.json"
COMPLETE = ".metadata"
"""PyTorch's DCP writes it last, so a folder without it is no checkpoint."""
ASIDE = ".damaged"
NEWEST = "latest_checkpointed_iteration.txt"
"""Megatron-LM's pointer, which would still lead to a folder that was set aside."""


def complete(folder: Path) -> Iterator[Path]:
    """Checkpoints in a folder."""
    for path in sorted(folder.glob("*")):
        if (path / COMPLETE).is_file() and path.suffix != ASIDE:
            yield path


def digests(checkpoint: Path) -> dict[str, str]:
    """File, relative to the checkpoint -> SHA-256 of its contents."""
    found = {}
    for path in sorted(p for p in checkpoint.rglob("*") if p.is_file()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found[str(path.relative_to(checkpoint))] = digest
    return found


def known(folder: Path) -> dict[str, dict[str, str]]:
    """Checkpoint -> digests, as they were sealed; BadInput for seals that cannot be read."""
    path = folder / SEALS
    if not path.is_file():
        return {}
    try:
        seals = json.loads(path.read_text("utf-8"))
        return {name: dict(files) for name, files in seals.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        raise BadInput(
            f"{path} is damaged: without it no checkpoint of {folder} can be"
            " trusted; delete it to go on all the same"
        ) from None


def seal(folder: Path) -> None:
    """Seal what is complete and was not yet; forget what the engine has deleted."""
    there = {path.name: path for path in complete(folder)}
    if not there:
        return
    before = known(folder)
    seals = {
        name: before.get(name) or digests(path) for name, path in there.items()
    }
    write_whole(folder / SEALS, json.dumps(seals, indent=1))


def set_aside(folder: Path) -> list[str]:
    """A sentence for each checkpoint that is not what was sealed, and was set aside."""
    sentences = []
    seals = known(folder)
    for path in complete(folder):
        if path.name not in seals:
            continue  # of a run that was killed: complete, and never sealed
        now, then = digests(path), seals[path.name]
        changed = sorted(
            name for name in now | then if now.get(name) != then.get(name)
        )
        if changed and (folder / NEWEST).is_file():
            raise BadInput(
                f"{path} is damaged: {changed[0]} was changed; put it back,"
                f" or name an earlier one in {folder / NEWEST}"
            )
        if changed:
            path.rename(path.with_name(path.name + ASIDE))
            sentences.append(
                f"{path} is damaged: {changed[0]} was changed; it was set"
                f" aside as {path.name}{ASIDE}"
            )
    return sentences
