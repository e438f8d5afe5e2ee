"""Signs of life: each rank notes what it is at in memory it shares with its launcher, which names
the rank that stands still.

A rank calls `beat` at every step (and before whatever else takes long). It costs a microsecond;
where no launcher listens it does nothing.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import re
import signal
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

RECORD = struct.Struct("q56s")
"""How often a rank has beaten, and its last words."""
MOST_NAMED = 4
ANSWER_S = 0.5
"""How long ranks may take to write their stacks."""
Frames = dict[int, list[tuple[str, ...]]]
"""rank -> (file, line, function) of its calls, the innermost first."""
FRAME = re.compile(r'File "(.*)", line (\d+) in (.*)')
TORCH = "/torch/"
WAITING = "/torch/distributed/"
INNERMOST = 4
"""A rank with a call of torch.distributed among so many innermost ones waits for other ranks."""


class Signs:
    """The records of all ranks; made before they are forked."""

    def __init__(self, world: int) -> None:
        self.memory = mmap.mmap(-1, world * RECORD.size)

    def write(self, rank: int, count: int, words: str) -> None:
        """A rank writes its step count and where it is."""
        RECORD.pack_into(
            self.memory, rank * RECORD.size, count, words.encode()[:56]
        )

    def read(self, rank: int) -> tuple[int, str]:
        """(beats so far, last words)."""
        count, words = RECORD.unpack_from(self.memory, rank * RECORD.size)
        return count, words.rstrip(b"\0").decode(errors="replace")


class OwnRecord:
    """The record of this process, once `listen` has said which."""

    signs: Signs | None = None
    rank = 0
    count = 0
    stack: IO[str]


def listen(signs: Signs, rank: int, folder: Path) -> None:
    """From now on `beat` writes to these records, and SIGUSR1 leaves the Python stack of this rank
    in the folder, even within a call of C.
    """
    OwnRecord.signs, OwnRecord.rank, OwnRecord.count = signs, rank, 0
    OwnRecord.stack = (folder / f"{rank}.stack").open("w")
    faulthandler.register(signal.SIGUSR1, OwnRecord.stack, all_threads=False)


def keep() -> None:
    """From now on `beat` is noted in this process alone, for `own`."""
    OwnRecord.signs, OwnRecord.rank, OwnRecord.count = Signs(1), 0, 0


def own_progress() -> tuple[int, str]:
    """(beats so far, last words) of this process, where they are noted."""
    return OwnRecord.signs.read(OwnRecord.rank) if OwnRecord.signs else (0, "")


def beat(words: str) -> None:
    """This rank is well and at this."""
    if OwnRecord.signs is not None:
        OwnRecord.count += 1
        OwnRecord.signs.write(OwnRecord.rank, OwnRecord.count, words)


class Watch:
    """Looks at the records now and then. Time is counted in looks, so a launcher that was itself
    stopped (Ctrl-Z) accuses nobody.
    """

    STOPPED = ", stopped by a signal"
    """Of the ranks of `stopped`."""

    def __init__(
        self,
        signs: Signs,
        pids: Sequence[int | None],
        folder: Path,
        timeout_s: float,
    ) -> None:
        """pids: of the ranks;  folder: as given to `listen`;  timeout_s: without a beat for so
        long, a rank hangs.
        """
        self.signs, self.pids, self.folder, self.timeout_s = (
            signs,
            pids,
            folder,
            timeout_s,
        )
        self.every_s = min(1.0, timeout_s / 10)
        self.counts, self.still_s = [0] * len(pids), [0.0] * len(pids)

    def look(self, alive: Sequence[int]) -> str | None:
        """`every_s` after the last look: a sentence if one of the ranks that are alive hangs. A
        rank that has never beaten is not watched.
        """
        for rank in alive:
            count, _ = self.signs.read(rank)
            moved = count != self.counts[rank] or not count
            self.still_s[rank] = (
                0.0 if moved else self.still_s[rank] + self.every_s
            )
            self.counts[rank] = count
        longest = max((self.still_s[rank] for rank in alive), default=0.0)
        return self.accuse(alive) if longest >= self.timeout_s else None

    def accuse(self, alive: Sequence[int]) -> str:
        """Who: ranks that a signal has stopped, else those that do not wait for others, else
        all.
        """
        stopped = self.stopped(alive)
        frames = self.frames([rank for rank in alive if rank not in stopped])
        busy = [
            rank
            for rank, stack in frames.items()
            if not any(WAITING in frame[0] for frame in stack[:INNERMOST])
        ]
        guilty = stopped or busy or list(alive)
        at = [
            self.signs.read(rank)[1]
            + (self.STOPPED if rank in stopped else where(frames[rank]))
            for rank in guilty
        ]
        named = "; ".join(
            f"rank {rank} at {words}"
            for rank, words in list(zip(guilty, at, strict=True))[:MOST_NAMED]
        )
        more = (
            f"; and {len(guilty) - MOST_NAMED} more"
            if len(guilty) > MOST_NAMED
            else ""
        )
        return (
            f"no progress for {self.timeout_s:g} s: {named}{more}, of {len(self.pids)} ranks; all"
            " were ended"
        )

    def stopped(self, alive: Sequence[int]) -> list[int]:
        """Ranks that a signal has stopped."""
        return [rank for rank in alive if state(self.pids[rank]) in ("T", "t")]

    def frames(self, ranks: Sequence[int]) -> Frames:
        """Stack frames of the ranks."""
        for rank in ranks:
            with suppress(OSError, TypeError):
                os.kill(self.pids[rank], signal.SIGUSR1)  # type: ignore[arg-type]
        time.sleep(ANSWER_S)
        texts = {rank: self.folder / f"{rank}.stack" for rank in ranks}
        return {
            rank: FRAME.findall(path.read_text("utf-8", "replace"))
            for rank, path in texts.items()
        }


def where(frames: Sequence[tuple[str, ...]]) -> str:
    """The innermost call outside torch."""
    own = (
        f", {Path(file).name} line {line} in {name}"
        for file, line, name in frames
        if TORCH not in file
    )
    return next(own, "")


def state(pid: int | None) -> str:
    """The letter Linux gives a process: R runs, S sleeps, T stopped, ...; empty where there is no
    such file.
    """
    try:
        return (
            Path(f"/proc/{pid}/stat")
            .read_text("utf-8", "replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except (OSError, IndexError):
        return ""
