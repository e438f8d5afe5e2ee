"""Under a real torchrun of two ranks: who hangs is named, a mistake of the user is not tried again,
a failure is, and torchrun's table has the sentence.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from torch.distributed import HashStore, TCPStore  # noqa: E402

from meshwright.train import watchdog  # noqa: E402

HANGING = """
import os, signal, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from meshwright.train import watchdog
from meshwright.train.watchdog import record_flights
from meshwright.train.launch import run_rank

def work(device):
    for step in range(10):
        watchdog.beat(f"step {step}")
        if (step, dist.get_rank()) == (5, int(sys.argv[3])):
            time.sleep(1)  # it has said something before
            if sys.argv[2] == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1000)
        dist.all_reduce(torch.ones(1))

run = Path(sys.argv[1])
record_flights(run)
run_rank(work, "cpu", 1, 4.0)
"""


def torchrun(*words: str, restarts: int = 0) -> tuple[int, str]:
    """Exit code and stderr of two ranks."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"),
        *(f"--max-restarts={restarts}", "--shutdown-timeout=1", *words),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200
    )
    return done.returncode, done.stderr


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Ranks of which one hangs in its sixth step."""
    path = tmp_path / "hanging.py"
    path.write_text(HANGING)
    return path


def test_who_hangs_is_named(script: Path) -> None:
    run = script.parent / "run"
    code, told = torchrun(str(script), str(run), "asleep", "1")
    sentence = (
        "no progress for 4 s: rank 1 at step 5, hanging.py line 17 in work, of"
        " 2 ranks; all were ended"
    )
    assert told.count(f"meshwright: {sentence}") == 1
    assert f"traceback : {sentence}" in told  # torchrun's table
    assert "exitcode  : 3" in told
    assert code == 1
    for rank in range(2):
        flight = json.loads((run / f"flight/rank_{rank}.json").read_text())
        names = [entry["profiling_name"] for entry in flight["entries"]]
        assert names.count("gloo:all_reduce") == 6 - rank


def test_a_rank_that_is_stopped_is_named_by_its_silence(script: Path) -> None:
    """Even the first one, by the second: the store is in the agent, as torchrun has it."""
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    common = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(script.parent), "stopped", "0"],
            env={**common, "RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    try:
        told = ranks[1].communicate(timeout=100)[1]
    finally:
        ranks[0].kill()
    ranks[0].communicate()
    assert "4 s: rank 0 at step 5, stopped by a signal, of 2" in told
    assert ranks[1].returncode == 3


def test_a_mistake_is_not_tried_again(tmp_path: Path) -> None:
    """The second start of a rank would say its sentence again."""
    job = str(tmp_path / "job.toml")
    Path(job).write_text("[model]\nlayers = 'many'\n")
    words = ("-m", "meshwright", "train", job)
    code, told = torchrun(*words, restarts=3)
    assert (
        told.count("meshwright: the description needs a table [cluster]") <= 2
    )
    assert code == 1
    code, told = torchrun(*words)
    assert "traceback : the description needs a table [cluster]" in told
    assert "exitcode  : 2" in told


def test_the_first_rank_of_a_try_asks_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun may end rank 0 before it has said a word: rank 1 asks as well as it."""
    asked: list[int] = []
    monkeypatch.setattr(watchdog, "AGENTS", (b"",))
    monkeypatch.setattr(watchdog.os, "kill", lambda pid, _: asked.append(pid))
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    for attempt in range(2):
        for rank in (1, 0):
            folder = tmp_path / f"attempt_{attempt}" / str(rank)
            folder.mkdir(parents=True)
            monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(attempt))
            monkeypatch.setenv("LOCAL_RANK", str(rank))
            monkeypatch.setenv(
                "TORCHELASTIC_ERROR_FILE", str(folder / "error.json")
            )
            watchdog.no_more_tries()
            assert len(asked) == attempt + 1
    assert set(asked) == {os.getppid()}


def test_of_two_accusers_one_speaks() -> None:
    """The first two ranks may both find who hangs, each when the other has said nothing for a
    while.
    """
    told: list[tuple[str, bool]] = []

    class Accuser(watchdog.Vigil):
        def say(self) -> None:
            pass

        def look(self) -> str | None:
            return "rank 1 hangs"

        def end(self, sentence: str, first: bool) -> None:
            told.append((sentence, first))
            self.over.set()

    store = HashStore()
    vigils = [Accuser(store, rank, 2, 0.1) for rank in range(2)]
    for vigil in vigils:
        vigil.start()
    for vigil in vigils:
        vigil.join(30)
    assert sorted(told) == [("rank 1 hangs", False), ("rank 1 hangs", True)]
