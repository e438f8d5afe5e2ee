"""The watchdog: every rank says that it is well in the store that all of them share, and the one
that stands still is named.

A rank calls `beat` at every step, and before whatever else takes long; that costs a microsecond. A
thread of the rank (`Vigil`) tells the store how often it has, and where it stands when it has not.
Who forked the ranks looks at all of them (`Watch`); under torchrun, which sees that a process has
ended and no more, the first rank does (the second, if the first is silent), on any machine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..formats import write_whole

LOOKS = 20
"""Of a rank at its own signs and those of others, before a silence is a hang."""
SILENT = 3
"""Looks without a sign after which a rank itself is stopped, or gone."""
MOST_NAMED = 4
TORCH = "/torch/"
WAITING = "/torch/distributed/"
INNERMOST = 4
"""A rank with a call of torch.distributed among so many innermost ones waits for other ranks."""
ACCUSED = "accused"
"""Key of the store under which it stands who hangs."""
HANGS = 3
"""Exit code of ranks of which one hangs."""
FLIGHTS = "flight/rank_"
"""Files in the folder of the run: the last collectives of each rank, where a run hung."""
ENTRIES = 2000
"""Collectives that are kept."""
RECORDER = "TORCH_FR_DUMP_TEMP_FILE"
"""Of the environment: where PyTorch's flight recorder leaves what it holds."""
FORKED = "MESHWRIGHT_FORKED"
"""Of the environment of a rank that `launch` started."""
AGENTS = (b"torchrun", b"torch.distributed.run", b"torch/distributed/run.py")
"""Words in the command line of a torchrun."""


START = "its start"


class Progress:
    """What this process has come to."""

    count = 0
    words = START


def beat(words: str) -> None:
    """This rank is well and at this."""
    Progress.count += 1
    Progress.words = words


class Watch:
    """Looks at what ranks last said of themselves. Time is counted in looks, so that one who was
    himself stopped (Ctrl-Z) accuses nobody.
    """

    def __init__(self, store: Any, world: int, timeout_s: float) -> None:
        """timeout_s: a rank that has not beaten for so long, after its first beat, hangs."""
        self.store, self.timeout_s = store, timeout_s
        self.every_s = timeout_s / LOOKS
        self.said: list[dict[str, Any]] = [{} for _ in range(world)]
        self.silent, self.still = [0] * world, [0] * world
        """Looks since a rank said something, and since it came to something."""

    def look(self, alive: Sequence[int]) -> str | None:
        """`every_s` after the last look: a sentence if one of the ranks that are alive hangs."""
        for rank in alive:
            there = self.store.check([sign(rank)])
            now = json.loads(self.store.get(sign(rank))) if there else {}
            before, self.said[rank] = self.said[rank], now
            silent = before.get("looks") == now.get("looks")
            still = before.get("count") == now.get("count") != 0 and there
            self.silent[rank] = self.silent[rank] + 1 if silent else 0
            self.still[rank] = self.still[rank] + 1 if still else 0
        longest = max((self.still[rank] for rank in alive), default=0)
        return self.accuse(alive) if longest >= LOOKS else None

    def accuse(self, alive: Sequence[int]) -> str:
        """Who: ranks that say nothing, else those that stand still and do not wait for others, else
        all.
        """
        mute = [rank for rank in alive if self.silent[rank] >= SILENT]
        frames = {r: self.said[r].get("frames", []) for r in alive}
        busy = [
            rank
            for rank in alive
            if self.still[rank]
            and not any(WAITING in f[0] for f in frames[rank][:INNERMOST])
        ]
        guilty = mute or busy or list(alive)
        named = "; ".join(
            f"rank {rank} at {self.said[rank].get('words', START)}"
            + (silence(self.said[rank]) if mute else where(frames[rank]))
            for rank in guilty[:MOST_NAMED]
        )
        rest = len(guilty) - MOST_NAMED
        return (
            f"no progress for {self.timeout_s:g} s: {named}{f'; and {rest} more' * (rest > 0)}, of"
            f" {len(self.said)} ranks; all were ended"
        )


def silence(said: dict[str, Any]) -> str:
    """What is known of a rank that says nothing."""
    here = said.get("host") == socket.gethostname()
    if here and state(said.get("pid")) in ("T", "t"):
        return ", stopped by a signal"
    return ", which says nothing any more"


def where(frames: Sequence[Sequence[str]]) -> str:
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


class Vigil(threading.Thread):
    """Says what this rank has come to, as long as its work lasts; a context. Each rank ends itself
    when one is accused; where nobody else looks, the first two look at all of them.
    """

    def __init__(
        self, store: Any, rank: int, world: int, timeout_s: float
    ) -> None:
        """store: of its own, for each waits for an answer."""
        super().__init__(name="vigil", daemon=True)
        self.store, self.rank, self.world = store, rank, world
        self.watch = Watch(store, world, timeout_s)
        self.every_s = self.watch.every_s
        self.main = threading.main_thread().ident or 0
        self.over = threading.Event()
        self.looks, self.count = 0, 0
        Progress.count, Progress.words = 0, START

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *error: object) -> None:
        self.over.set()

    def run(self) -> None:
        """Until the work is done; without its store, which is gone when its keeper is, it ends."""
        with suppress(RuntimeError):
            while True:
                self.say()
                if self.over.wait(self.every_s):
                    return
                self.hear()

    def say(self) -> None:
        """A sign of this rank; where it has not moved, with what it is at."""
        count = Progress.count
        self.looks += 1
        said: dict[str, Any] = {
            "looks": self.looks,
            "count": count,
            "words": Progress.words,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        if count == self.count:
            said["frames"] = call_stack(self.main)
        self.count = count
        self.store.set(sign(self.rank), json.dumps(said))

    def hear(self) -> None:
        """Look, where it is this rank's turn, and obey."""
        looks = self.rank < 2 and FORKED not in os.environ
        if looks and (sentence := self.look()):
            # of two accusers the store takes the first
            self.store.compare_set(ACCUSED, "", f"{self.rank} {sentence}")
        if self.store.check([ACCUSED]):
            accuser, _, reason = (
                self.store.get(ACCUSED).decode().partition(" ")
            )
            self.end(reason, first=int(accuser) == self.rank)

    def look(self) -> str | None:
        """At all ranks: who hangs."""
        sentence = self.watch.look(range(self.world))
        mine = self.rank == 0 or self.watch.silent[0] >= SILENT
        return sentence if mine else None

    def end(self, sentence: str, first: bool) -> None:
        """Leave the last collectives, and the sentence, and end.  first: it is this rank's own."""
        dump(self.rank)
        last_words(sentence, again=True)
        if first:
            print(f"meshwright: {sentence}", file=sys.stderr, flush=True)
        # when all have heard of it, for a rank that is gone ends those that wait for it; the first
        # one first, for torchrun then ends the others
        time.sleep((2 if first else 4) * self.every_s)
        os._exit(HANGS)


def sign(rank: int) -> str:
    """Key of the store for what a rank says of itself."""
    return f"sign/{rank}"


def call_stack(thread: int) -> list[tuple[str, str, str]]:
    """Calls of a thread, the innermost first: (file, line, function)."""
    frames = []
    frame = sys._current_frames().get(thread)
    while frame is not None:
        code = frame.f_code
        frames.append((code.co_filename, str(frame.f_lineno), code.co_name))
        frame = frame.f_back
    return frames


def record_flights(folder: Path) -> None:
    """PyTorch keeps the last collectives of each rank from now on, and leaves them in the folder of
    the run where NCCL waits too long; what the environment says already stays.
    """
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(ENTRIES))
    for name in (RECORDER, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        # another run of this process may have said its own
        if os.environ.get(name, FLIGHTS).endswith(FLIGHTS):
            os.environ[name] = str(folder / FLIGHTS)


def dump(rank: int) -> None:
    """What the flight recorder of this rank holds, where a run asked for it."""
    from torch._C import _distributed_c10d as c10d

    if where := os.environ.get(RECORDER):
        with suppress(OSError, RuntimeError):
            path = Path(f"{where}{rank}.json")
            path.parent.mkdir(parents=True, exist_ok=True)
            kept: bytes = c10d._dump_fr_trace_json(True, False)  # type: ignore[attr-defined]
            path.write_bytes(kept)


def last_words(sentence: str, again: bool, code: int | None = None) -> None:
    """What whoever started this rank shows (torchrun in its table). again: another try may go
    better; else there is none. code: for exit; None: of an error that is not ours.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        extra = {"py_callstack": sentence, "timestamp": str(int(time.time()))}
        words = {"message": sentence, "extraInfo": extra}
        ours = {"again": again, "code": code}
        with suppress(OSError):
            write_whole(Path(path), json.dumps({"message": words | ours}))
    if not again:
        no_more_tries()


def no_more_tries() -> None:
    """Ask the torchrun that started this rank to end, if it would start it again. The first rank of
    a machine that comes here asks: torchrun ends the others as soon as it sees that one is gone.
    """
    left = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) - int(
        os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    )
    if left > 0 and _first():
        parent = os.getppid()
        with suppress(OSError):
            words = Path(f"/proc/{parent}/cmdline").read_bytes()
            if any(name in words for name in AGENTS):
                os.kill(parent, signal.SIGTERM)


def _first() -> bool:
    """No other rank of this machine and try has been here: it would have left a file beside the
    folders of their errors."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return os.environ.get("LOCAL_RANK") == "0"
    try:
        (Path(path).parent.parent / "asked").touch(exist_ok=False)
    except OSError:
        return False
    return True
