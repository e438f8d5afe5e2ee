"""A rank that is killed, raises or refuses ends the others at once, and the user reads why."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from small_runs import two_ranks  # noqa: E402

from meshwright.errors import BadInput  # noqa: E402
from meshwright.formats.hf import load_hf  # noqa: E402
from meshwright.train import watchdog, weights  # noqa: E402
from meshwright.train.initial import initialise  # noqa: E402
from meshwright.train.launch import RankFailed, fork_ranks  # noqa: E402
from meshwright.train.model import Decoder  # noqa: E402
from meshwright.train.watchdog import LOOKS, Vigil, Watch  # noqa: E402

Work = Callable[[torch.device], None]


def killed(device: torch.device) -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def raising(device: torch.device) -> None:
    if dist.get_rank() == 1:
        raise ZeroDivisionError("by nothing")
    dist.barrier()


def refusing(device: torch.device) -> None:
    if dist.get_rank() == 1:
        raise BadInput("this is wrong")
    time.sleep(60)


@pytest.mark.parametrize(
    ("work", "says", "code"),
    [
        (
            killed,
            "rank 1 of 3 was killed by SIGKILL; the other ranks were ended",
            3,
        ),
        (raising, "rank 1 of 3 stopped: ZeroDivisionError: by nothing", 3),
        # a mistake of the user, who makes it again at every try
        (refusing, "rank 1 of 3 stopped: this is wrong", 2),
    ],
)
def test_one_rank_ends_all(
    work: Work, says: str, code: int, tmp_path: Path
) -> None:
    def noting(device: torch.device) -> None:
        (tmp_path / str(os.getpid())).touch()
        work(device)

    with pytest.raises(RankFailed, match=says) as found:
        fork_ranks(noting, 3, timeout_s=60)
    assert (found.value.exit_code, found.value.again) == (code, code == 3)
    for pid in map(int, os.listdir(tmp_path)):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def asking(device: torch.device) -> None:
    """As `timeout` asks who runs too long."""
    if dist.get_rank() == 1:
        os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)


def test_who_is_asked_to_end_says_so() -> None:
    """And accuses no rank, on which the signal it hands on comes out first."""
    with pytest.raises(
        RankFailed, match="asked to end .*: all 2 were"
    ) as found:
        fork_ranks(asking, 2, timeout_s=60)
    assert not found.value.again


def standing_still(stopped: bool, *ranks: int) -> Work:
    """These ranks come no further than step 5: a signal stops them, or they do something else."""

    def dawdling(device: torch.device) -> None:
        for step in range(10):
            watchdog.beat(f"step {step}")
            if step == 5 and dist.get_rank() in ranks:
                time.sleep(0.5)  # it has said so
                if stopped:
                    os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(1000)
            dist.barrier()

    return dawdling


def deadlocked(device: torch.device) -> None:
    """Rank 1 waits for what nobody sends."""
    watchdog.beat("step 0")
    if dist.get_rank() == 1:
        dist.recv(torch.ones(1), 0)
    dist.all_reduce(torch.ones(1))


@pytest.mark.parametrize(
    ("work", "world", "says"),
    [
        (
            standing_still(True, 1),
            3,
            "no progress for 3 s: rank 1 at step 5, stopped by a signal, of 3 ranks",
        ),
        (
            standing_still(False, 2),
            3,
            (
                "no progress for 3 s: rank 2 at step 5, test_launch.py line [0-9]+ in dawdling, of"
                " 3 ranks"
            ),
        ),
        (
            deadlocked,
            3,
            (
                "3 s: rank 0 at step 0, test.* in deadlocked; rank 1 at step 0.*; rank 2 at step"
                " 0.* of 3 ranks"
            ),
        ),
        # under torchrun nobody would be left who looks
        (
            standing_still(True, 0),
            1,
            "rank 0 at step 5, stopped by a signal, of 1 ranks",
        ),
        (
            standing_still(True, 0, 1),
            3,
            (
                "rank 0 at step 5, stopped by a signal; rank 1 at step 5, stopped by a signal,"
                " of 3 ranks"
            ),
        ),
    ],
)
def test_who_hangs_is_named(work: Work, world: int, says: str) -> None:
    """By the process that forked the ranks."""
    with pytest.raises(RankFailed, match=says) as found:
        fork_ranks(work, world, timeout_s=3)
    assert found.value.again


def test_ranks_that_hang_leave_their_last_collectives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the flight recorder is asked for; the process that forked them waits for it."""
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    for name in (watchdog.RECORDER, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"):
        monkeypatch.setenv(name, watchdog.FLIGHTS)
    watchdog.record_flights(tmp_path)
    with pytest.raises(RankFailed, match="rank 2 at step 5"):
        fork_ranks(standing_still(False, 2), 3, timeout_s=3)
    left = [tmp_path / f"{watchdog.FLIGHTS}{rank}.json" for rank in range(3)]
    assert all(path.is_file() for path in left)


def test_silence_is_counted_in_looks() -> None:
    """A rank is watched from its first beat on; any beat counts; whoever did not look accuses
    nobody.
    """
    store = dist.HashStore()
    vigils = [Vigil(store, rank, 2, 5) for rank in (0, 1)]
    watch = Watch(store, 2, 5)

    def looks(times: int, alive: list[int]) -> list[str | None]:
        said = []
        for _ in range(times):
            for vigil in vigils:
                vigil.say()
            said.append(watch.look(alive))
        return said

    assert looks(100, [0, 1]) == [None] * 100
    watchdog.beat("step 1")
    assert looks(LOOKS, [0, 1]) == [None] * LOOKS
    watchdog.beat("step 2")
    assert looks(LOOKS, [0, 1]) == [None] * LOOKS
    assert looks(1, []) == [None]
    [sentence] = looks(1, [0, 1])
    assert "no progress for 5 s: rank 0 at step 2, " in str(sentence)


def test_a_rank_that_says_nothing_is_named_before_those_that_wait() -> None:
    """On another machine, of which nobody knows whether it is stopped or gone."""
    store = dist.HashStore()
    vigils = [Vigil(store, rank, 2, 5) for rank in (0, 1)]
    watch = Watch(store, 2, 5)
    watchdog.beat("step 1")
    vigils[0].say()
    store.set(
        "sign/0", store.get("sign/0").decode().replace('"pid": ', '"pid": 9')
    )
    for _ in range(LOOKS + 1):
        vigils[1].say()
        sentence = watch.look([0, 1])
    assert sentence == (
        "no progress for 5 s: rank 0 at step 1, which says nothing any more, of 2 ranks; all were"
        " ended"
    )


def test_nothing_of_a_run_that_failed_is_left_to_the_next_one() -> None:
    """Its store has a thread: where a rank of the next one collected it as garbage it aborted."""
    left: list[object] = []
    try:
        fork_ranks(raising, 2, timeout_s=60)
    except RankFailed as error:
        left.append(error)

    def collecting(device: torch.device) -> None:
        left.clear()
        gc.collect()
        dist.barrier()

    fork_ranks(collecting, 2, timeout_s=60)


def test_ranks_die_with_their_parent(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from meshwright.train.launch import fork_ranks\n"
        "def work(device):\n open(sys.argv[1] + str(os.getpid()), 'w').close(); time.sleep(100)\n"
        "fork_ranks(work, 2)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, f"{tmp_path}/"]
    ) as parent:
        while len(os.listdir(tmp_path)) < 2:
            assert parent.poll() is None
            time.sleep(0.05)
        parent.kill()
    until = time.monotonic() + 30
    while any(alive(int(pid)) for pid in os.listdir(tmp_path)):
        assert time.monotonic() < until
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """The process runs: neither gone nor a zombie nobody waits for."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            != "Z"
        )
    except OSError:
        return False


def test_under_torchrun_each_process_is_one_rank(tmp_path: Path) -> None:
    """Two processes with the variables that torchrun sets."""
    code = (
        "import sys, torch, torch.distributed as d; from meshwright.train.launch import"
        " run_rank\ndef work(device):\n x = torch.tensor(1.0); d.all_reduce(x); open(sys.argv[1] +"
        " str(d.get_rank()), 'w').write(str(x.item()))\nrun_rank(work, 'cpu', 1, 60.0)"
    )
    command = [sys.executable, "-c", code, f"{tmp_path}/"]
    assert [code for code, _ in two_ranks(command, tmp_path)] == [0, 0]
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["2.0", "2.0"]


@pytest.mark.parametrize("fill", ["drawn", "loaded"])
def test_first_weights_are_signs_of_life(fill: str) -> None:
    """Each parameter, for drawing or reading those of a large stage takes minutes."""
    made = Path(__file__).parent / "huggingface" / "llama"
    m = load_hf(made)
    stage = Decoder(m, range(m.layers), 8)
    before = watchdog.Progress.count
    if fill == "drawn":
        initialise(stage, m, 1)
    else:
        weights.load({0: stage}, m, made)
    beats = watchdog.Progress.count - before
    assert beats == len(list(stage.parameters()))
    assert watchdog.Progress.words.endswith(
        "norm.weight" if m.tied_embeddings else "head.weight"
    )
