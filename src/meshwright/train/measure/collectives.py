"""Seconds of each collective on the ranks of a process group: of the clock, and of a rank's CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .clock import low

Row = tuple[float, float]
"""(seconds of the clock, CPU seconds of a rank)."""
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
BYTES = (2**10, 2**14, 2**18, 2**21, 2**24)
QUICK_BYTES = (2**10, 2**16, 2**20)
FLOAT = 4


def operation(kind: str, size: int, device: torch.device) -> Callable[[], Any]:
    """The collective on a full vector of `size` bytes (send: a message of it goes to the other one
    of each pair of ranks).
    """
    n = dist.get_world_size()
    rank = dist.get_rank()
    full = torch.ones(max(size // FLOAT // n, 1) * n, device=device)
    part = full.chunk(n)[0].clone()
    if kind == "send":
        return lambda: exchange(full, rank)
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(full),
        "all_gather": lambda: dist.all_gather_into_tensor(full, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, full),
        "all_to_all": lambda: dist.all_to_all_single(full, full.clone()),
    }
    return calls[kind]


def exchange(message: Tensor, rank: int) -> None:
    """The even ranks send, the odd ones receive; a rank without a partner does nothing."""
    other = rank ^ 1
    if other < dist.get_world_size():
        dist.recv(message, other) if rank % 2 else dist.send(message, other)


def timed(kind: str, size: int, device: torch.device, least_s: float) -> Row:
    """Lower quartile over blocks of calls, mean over ranks."""
    run = operation(kind, size, device)
    calls = 8
    for _ in range(3):
        run()
    walls, cpus = [], []
    until = time.monotonic() + 3 * least_s
    for block in range(30):
        synchronise(device)
        wall = time.perf_counter()
        cpu = time.process_time()
        for _ in range(calls):
            run()
        synchronise(device)
        spent = torch.tensor(
            [
                time.perf_counter() - wall,
                time.process_time() - cpu,
                time.monotonic(),
            ],
            dtype=torch.float64,
        )
        dist.all_reduce(spent)
        ranks = dist.get_world_size()
        walls.append(float(spent[0]) / ranks / calls)
        cpus.append(float(spent[1]) / ranks / calls)
        if block >= 4 and (
            sum(walls) * calls > least_s or float(spent[2]) / ranks > until
        ):
            break
    return low(walls), low(cpus)


def synchronise(device: torch.device) -> None:
    """Wait until all ranks can start together and the GPU has nothing to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.barrier()
