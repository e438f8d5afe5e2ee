"""What a rank that torchrun started does beside its work: signs of life, last words, and no second
try of what would end the same way.

torchrun sees that a process has ended, and no more: a rank that stands still keeps it waiting, a
mistake of the user is tried again as often as `--max-restarts` says, and its exit code is 1
whatever the reason.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from . import heartbeat
from .heartbeat import Frames, Signs, Watch

LOOKS = 20
"""Of a rank at its own signs and those of others, before a silence is a hang."""
SILENT = 3
"""Looks without a sign after which a rank itself is stopped, or gone."""
ACCUSED = "accused"
"""Key of the store under which it stands who hangs."""
HANGS = 3
"""Exit code of ranks of which one hangs."""
FLIGHTS = "flight"
"""Folder in that of the run: the last collectives of each rank, where a run hung."""
ENTRIES = 2000
"""Collectives that are kept."""
AGENTS = (b"torchrun", b"torch.distributed.run", b"torch/distributed/run.py")
"""Words in the command line of a torchrun."""


class StoreSigns(Signs):
    """What the others last said, as it lies in the store."""

    def __init__(self, store: Any, world: int) -> None:
        self.store, self.world = store, world
        self.said: list[dict[str, Any]] = [{} for _ in range(world)]
        self.silent = [0] * world

    def refresh(self) -> None:
        """Look again."""
        for rank in range(self.world):
            key = sign(rank)
            there = self.store.check([key])
            now = json.loads(self.store.get(key)) if there else {}
            same = self.said[rank].get("looks") == now.get("looks")
            self.silent[rank] = self.silent[rank] + 1 if same else 0
            self.said[rank] = now

    def read(self, rank: int) -> tuple[int, str]:
        """Read from the store what a rank last wrote of itself (`Signs.read`)."""
        said = self.said[rank]
        return said.get("count", 0), said.get("words", "its start")


class StoreWatch(Watch):
    """Looks at ranks of any machine, by what they last said."""

    STOPPED = ", which says nothing any more"
    signs: StoreSigns

    def __init__(self, signs: StoreSigns, timeout_s: float) -> None:
        super().__init__(signs, [None] * signs.world, Path(), timeout_s)
        self.every_s = timeout_s / LOOKS

    def stopped(self, alive: Sequence[int]) -> list[int]:
        """Ranks that say nothing, not even that they stand still."""
        return [r for r in alive if self.signs.silent[r] >= SILENT]

    def frames(self, ranks: Sequence[int]) -> Frames:
        """Stack frames of the ranks, as they wrote them to the store."""
        return {
            rank: [tuple(f) for f in self.signs.said[rank].get("frames", [])]
            for rank in ranks
        }


class Vigil(threading.Thread):
    """Says that this rank is well, and what it is at, as long as its process runs; on the first
    rank (on the second, if the first is silent) it also looks at all the others.
    """

    def __init__(
        self, store: Any, rank: int, world: int, timeout_s: float, folder: Path
    ) -> None:
        """store: of its own, for each waits for an answer;  folder: of the run."""
        super().__init__(name="vigil", daemon=True)
        self.store, self.rank, self.folder = store, rank, folder
        self.main = threading.main_thread().ident or 0
        self.signs = StoreSigns(store, world)
        self.watch = StoreWatch(self.signs, timeout_s)
        self.over = threading.Event()
        self.looks, self.count = 0, 0

    def run(self) -> None:
        """Until the work is done, or somebody is accused; without its store, which is gone when its
        keeper is, it ends.
        """
        with suppress(RuntimeError):
            while not self.over.wait(self.watch.every_s):
                self.say()
                if self.rank < 2 and (sentence := self.look()):
                    # of two accusers the store takes the first
                    self.store.compare_set(
                        ACCUSED, "", f"{self.rank} {sentence}"
                    )
                if self.store.check([ACCUSED]):
                    accuser, _, told = (
                        self.store.get(ACCUSED).decode().partition(" ")
                    )
                    self.end(told, first=int(accuser) == self.rank)

    def say(self) -> None:
        """A sign of this rank; where it has not moved, with what it is at."""
        count, words = heartbeat.own_progress()
        self.looks += 1
        sign_of: dict[str, Any] = {
            "looks": self.looks,
            "count": count,
            "words": words,
        }
        if count == self.count:
            sign_of["frames"] = call_stack(self.main)
        self.count = count
        self.store.set(sign(self.rank), json.dumps(sign_of))

    def look(self) -> str | None:
        """At all ranks: who hangs."""
        self.signs.refresh()
        sentence = self.watch.look(range(self.signs.world))
        mine = self.rank == 0 or self.signs.silent[0] >= SILENT
        return sentence if mine else None

    def end(self, sentence: str, first: bool) -> None:
        """Leave the last collectives, and the sentence, and end.  first: it is this rank's own."""
        dump(self.folder, self.rank)
        last_words(sentence, again=True)
        if first:
            print(f"meshwright: {sentence}", file=sys.stderr, flush=True)
        # when all have heard of it; the first one first, for torchrun then ends the others
        time.sleep((2 if first else 4) * self.watch.every_s)
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


@contextmanager
def watched(
    store: Any, rank: int, world: int, timeout_s: float, folder: Path
) -> Iterator[None]:
    """A context in which a rank that hangs is named, and the run ended."""
    heartbeat.keep()
    vigil = Vigil(store, rank, world, timeout_s, folder)
    vigil.start()
    try:
        yield
    finally:
        vigil.over.set()


def record_flights(folder: Path) -> None:
    """PyTorch keeps the last collectives of each rank from now on, and leaves them in the folder of
    the run where NCCL waits too long; what the environment says already stays.
    """
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(ENTRIES))
    where = str(folder / FLIGHTS / "rank_")
    for name in ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        os.environ.setdefault(name, where)


def dump(folder: Path, rank: int) -> None:
    """What the flight recorder of this rank holds."""
    from torch._C import _distributed_c10d as c10d

    with suppress(OSError, RuntimeError):
        (folder / FLIGHTS).mkdir(parents=True, exist_ok=True)
        path = folder / FLIGHTS / f"rank_{rank}.json"
        kept: bytes = c10d._dump_fr_trace_json(True, False)  # type: ignore[attr-defined]
        path.write_bytes(kept)


def last_words(sentence: str, again: bool) -> None:
    """What torchrun shows in its table for a rank that it started. again: another try may go
    better; else there is none.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        extra = {"py_callstack": sentence, "timestamp": str(int(time.time()))}
        words = {"message": sentence, "extraInfo": extra}
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": words}), "utf-8")
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
