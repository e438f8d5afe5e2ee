"""Measures the machine it runs on: kernels of one rank, collectives of several, and what the
trainer costs beside them. Needs torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

LOW = 0.25
"""The quantile of repeated measurements that counts: neighbours on the machine only ever add."""


def now(device: torch.device) -> float:
    """Seconds: of this thread's CPU time, or of the clock once the GPU has done what it was
    given.
    """
    if device.type == "cpu":
        return time.thread_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def low(values: Sequence[float]) -> float:
    """The lower quartile."""
    return sorted(values)[int(LOW * (len(values) - 1))]


def repeated(
    run: Callable[[], Sequence[float]],
    least_s: float,
    most: int = 50,
    least: int = 3,
) -> tuple[float, ...]:
    """The lower quartile of each number that `run` returns, over runs of `least_s` seconds together
    (between `least` and `most` of them).
    """
    run()
    rows = [run()]
    while len(rows) < least or (
        len(rows) < most and sum(map(sum, rows)) < least_s
    ):
        rows.append(run())
    return tuple(low(column) for column in zip(*rows, strict=True))
