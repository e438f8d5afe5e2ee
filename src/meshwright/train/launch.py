"""Start the ranks of a run: forked on this machine with gloo or NCCL, or the one rank that torchrun
or Slurm started us as. A forked rank finds what torchrun would have told it in its environment, so
both go one way from there.

How PyTorch and Python are set up on them, for time, memory or bits, stands here too. Forking after
one import of torch saves each rank its seconds of imports. The parent must not have used torch's
thread pools.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from ..errors import BadInput, MeshwrightError
from .watchdog import ACCUSED, FORKED, Vigil, Watch, last_words

PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal a process gets when its parent dies."""
GRACE_S = 2.0
"""How long the others may take to say why they end, once one rank has."""
WORDS = "*.json"
"""Files of the last words of ranks."""
HARMLESS = (
    # logits of a vocabulary cut over tp; nothing writes to them
    "FSDP2-wrapped module .* returned a view tensor",
    # names that PyTorch 2.13 shortens; older ones do not have the new
    "`torch.distributed.* is deprecated",
    # torch.compile looks at its inputs and at PyTorch's own functions
    "The .grad attribute of a Tensor that is not a leaf",
    "<class 'torch.autograd.function.Function'> should not be instantiated",
)
"""Beginnings of warnings of torch that concern no user of ours."""
SCHEDULES = "torch.distributed.pipelining.schedules"
"""The logger of PyTorch's pipelines."""


class RankFailed(MeshwrightError):
    """A rank ended before its work was done; the others have been ended too."""

    exit_code = 3

    def __init__(
        self, sentence: str, again: bool = True, code: int | None = None
    ) -> None:
        """again, code: as `watchdog.last_words` has them. After SIGTERM there is no other try
        either.
        """
        super().__init__(sentence)
        self.again = again
        self.exit_code = code or self.exit_code


Work = Callable[[torch.device], None]
"""What each rank does once the process group stands; it finds its rank there."""


def under_launcher() -> bool:
    """torchrun (or a script like it) has started this process as one rank of many."""
    return all(
        name in os.environ
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    )


def run_rank(work: Work, device: str, threads: int, timeout_s: float) -> None:
    """Do the work as the rank that the environment says this process is. A restarted rank must not
    see the addresses of its predecessors: the store is new each time. Ranks wait twice `timeout_s`
    for each other.

    Where torchrun shares its own store with the ranks, each attempt has its part of it; attempts
    are counted by node, so one node only.
    """
    rank = int(os.environ["RANK"])
    world = int(os.environ["WORLD_SIZE"])
    shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    several = int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1
    if (
        shared
        and several
        and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    ):
        raise BadInput(
            "torchrun restarts several nodes only with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its"
            " environment"
        )
    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    tcp = TCPStore(
        *where,
        world,
        not shared and rank == 0,
        timedelta(seconds=timeout_s),
        multi_tenant=True,
    )
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    name = f"attempt{attempt if shared else ''}"
    signs = PrefixStore(f"{name}/signs", tcp.clone())  # type: ignore[attr-defined]
    with Vigil(signs, rank, world, timeout_s):
        _in_group(
            work,
            store=PrefixStore(name, tcp),
            rank=rank,
            world=world,
            here=int(os.environ.get("LOCAL_RANK", rank)),
            device=device,
            threads=threads,
            timeout_s=2 * timeout_s,
        )


def fork_ranks(
    work: Work,
    world: int,
    device: str = "cpu",
    threads: int = 1,
    timeout_s: float = 600.0,
) -> None:
    """Run `work` in `world` new processes and wait. Raises RankFailed, with what the first rank to
    fail said, after ending the others.

    timeout_s: a rank hangs that says nothing for so long after its first `watchdog.beat`. This
    process keeps the store that they share, as torchrun does, so that it outlives each of them, and
    looks at what they say there: it is left when all of them are stopped.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=max(world, 128))
    host, port = listener.getsockname()
    common = {
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        FORKED: "1",
    }
    context = multiprocessing.get_context("fork")
    parent = os.getpid()
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder, listener:

        def rank_main(rank: int) -> None:
            _live_with_parent(parent)
            mine = dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
            words = {"TORCHELASTIC_ERROR_FILE": f"{folder}/{rank}.json"}
            os.environ |= common | mine | words
            try:
                run_rank(work, device, threads, timeout_s)
            except BaseException as error:
                _say(error)
                os._exit(1)
            sys.stdout.flush()
            # past torch's and pytest's exit handlers, which are the parent's
            os._exit(0)

        ranks = [
            context.Process(target=rank_main, args=(rank,), daemon=True)
            for rank in range(world)
        ]
        asked: list[int] = []

        def stop(number: int, frame: FrameType | None) -> None:
            asked.append(number)
            _forward(ranks)

        # until all know what to do about it
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        before = signal.signal(signal.SIGTERM, stop)
        watch = Watch(None, world, timeout_s)
        try:
            for process in ranks:
                process.start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            # after the fork, for it makes a thread; it owns the socket from here on
            own: Any = {
                "is_master": True,
                "master_listen_fd": listener.detach(),
            }
            store = TCPStore(host, port, world, wait_for_workers=False, **own)
            watch.store = PrefixStore("attempt0/signs", store)
            del store
            _watch(ranks, Path(folder), watch)
        except RankFailed as error:
            error.again &= not asked
            if asked and signal.SIGTERM.name in str(error):
                # ours: that it hit a rank first explains nothing
                raise RankFailed(
                    f"asked to end ({signal.SIGTERM.name}) when ranks had nothing to save: all"
                    f" {world} were ended",
                    again=False,
                ) from None
            raise
        finally:
            # ended here: a rank of a later fork that collected it would wait for its thread, which
            # is not in that process
            watch.store = None
            signal.signal(signal.SIGTERM, before)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            for process in ranks:
                if process.pid:
                    process.kill()
                    process.join()


def _live_with_parent(parent: int) -> None:
    """Signals of a new rank: the parent decides about Ctrl-C, and takes the rank with it when it
    dies.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we could ask for that
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _forward(ranks: Sequence[BaseProcess]) -> None:
    """The parent was asked to end: so are the ranks, which save first."""
    for process in ranks:
        if process.is_alive():
            process.terminate()


def _in_group(
    work: Work,
    store: Store,
    rank: int,
    world: int,
    here: int,
    device: str,
    threads: int,
    timeout_s: float,
) -> None:
    """Do the work of one rank inside a process group."""
    for message in HARMLESS:
        warnings.filterwarnings("ignore", message)
    # a page of its schedule, from each rank that the end of another reaches
    logging.getLogger(SCHEDULES).setLevel(logging.CRITICAL)
    torch.set_num_threads(threads)
    place = torch.device(device, here) if device == "cuda" else None
    if place:
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout_s),
        device_id=place,
    )
    try:
        work(place or torch.device(device))
        dist.barrier()
    finally:
        if sys.exc_info()[0] is None:
            dist.destroy_process_group()


def _say(error: BaseException) -> None:
    """Leave the reason where the parent finds it; with MESHWRIGHT_DEBUG the traceback too."""
    if os.environ.get("MESHWRIGHT_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, MeshwrightError):
        again = getattr(error, "again", not isinstance(error, BadInput))
        last_words(str(error), again, error.exit_code)
    else:
        last_words(f"{type(error).__name__}: {error}", again=True)


def _watch(ranks: Sequence[BaseProcess], folder: Path, watch: Watch) -> None:
    """Wait until all ranks are done; raise if one is not well."""
    alive: dict[Any, int] = {
        process.sentinel: rank for rank, process in enumerate(ranks)
    }
    while alive:
        ended = wait(list(alive), watch.every_s)
        for sentinel in ended:
            process = ranks[alive.pop(sentinel)]
            process.join()
            if process.exitcode:
                raise _reason(ranks, folder)
        if not ended and (sentence := watch.look(list(alive.values()))):
            watch.store.set(ACCUSED, f"{len(ranks)} {sentence}")
            # they hear of it at their next look; last collectives are left before last words
            _until(
                lambda: len([*folder.glob(WORDS)]) >= len(alive),
                most_s=watch.every_s + GRACE_S,
            )
            raise RankFailed(sentence)


def _until(true: Callable[[], bool], most_s: float) -> None:
    """Wait for it, `most_s` seconds at most."""
    end = time.monotonic() + most_s
    while time.monotonic() < end and not true():
        time.sleep(0.05)


def _reason(ranks: Sequence[BaseProcess], folder: Path) -> RankFailed:
    """Why the run ended. A killed rank explains the others' broken connections, a sentence of ours
    explains itself.
    """
    _until(
        lambda: all(process.exitcode is not None for process in ranks),
        most_s=GRACE_S,
    )
    count = len(ranks)
    for rank, process in enumerate(ranks):
        if process.exitcode is not None and process.exitcode < 0:
            name = signal.Signals(-process.exitcode).name
            return RankFailed(
                f"rank {rank} of {count} was killed by {name}; the other ranks were ended"
            )
    said = {
        int(file.stem): json.loads(file.read_text("utf-8"))["message"]
        for file in folder.glob(WORDS)
    }
    if not said:
        return RankFailed(f"one of {count} ranks ended without a word")

    def blames(rank: int) -> tuple[bool, bool, int]:
        words = said[rank]
        lost = "Connection" in words["message"] or "peer" in words["message"]
        return words["code"] is None, lost, rank

    rank = min(said, key=blames)
    words = " ".join(said[rank]["message"].split())[:500]
    return RankFailed(
        f"rank {rank} of {count} stopped: {words}",
        said[rank]["again"],
        said[rank]["code"],
    )


GENERATION = 1
"""Of Python's collector, which is asked for every so many steps: young objects in cycles."""
EVERY = 50
"""Steps between two collections; torchtitan's number. A collection at a time of its own choice
stops one rank, and the others wait for it.
"""
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
SEGMENTS = "expandable_segments:True"
"""Blocks of the GPU's memory grow in place: sizes that change leave fewer holes."""
CUBLAS = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
"""What cuBLAS needs to add up in the same order each time (its manual)."""


def environment(device: str, deterministic: bool) -> None:
    """Before ranks start; what it says already stays."""
    if device == "cuda" and not any(name in os.environ for name in ALLOCATOR):
        os.environ[ALLOCATOR[0]] = SEGMENTS
    if deterministic:
        os.environ.setdefault(*CUBLAS)


def same_bits() -> None:
    """On this rank, from now on: an operation that has no kernel for that is an error."""
    torch.use_deterministic_algorithms(True)
    # memory that nobody reads before it is written need not be filled
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


@contextmanager
def collected() -> Iterator[None]:
    """A context in which Python collects garbage only when it is asked to."""
    on = gc.isenabled()
    gc.collect()
    gc.freeze()  # what is there now stays
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if on:
            gc.enable()


def collect(done: int) -> None:
    """After so many steps of a run: where it is the turn of garbage."""
    if done % EVERY == 0:
        gc.collect(GENERATION)
