"""What the host does beside the mathematics of a run, for its time, memory or bits: how PyTorch and
Python are set up on a rank, and numbers of a device that are read when they have come.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

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
def collected() -> Iterator[Collector]:
    """A context in which Python collects garbage only when it is asked to."""
    on = gc.isenabled()
    gc.collect()
    gc.freeze()  # what is there now stays
    gc.disable()
    try:
        yield Collector()
    finally:
        gc.unfreeze()
        if on:
            gc.enable()


class Collector:
    """Counts steps."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        """One more is done."""
        self.steps += 1
        if self.steps % EVERY == 0:
            gc.collect(GENERATION)


class Later:
    """The numbers of a tensor. On a GPU their copy is queued behind the work that makes them."""

    def __init__(self, x: Tensor) -> None:
        self.host, self.copied = x, None
        if x.device.type == "cuda":
            self.host = torch.empty(
                x.shape, dtype=x.dtype, device="cpu", pin_memory=True
            )
            self.host.copy_(x, non_blocking=True)
            self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.copied.record()

    def numbers(self) -> list[float]:
        """On the host, once they are there."""
        if self.copied is not None:
            self.copied.synchronize()
        values: list[float] = self.host.tolist()
        return values


def to_device(numbers: list[float], device: torch.device) -> Tensor:
    """Numbers of the host on the device, without waiting for it."""
    host = torch.tensor(numbers, dtype=torch.float64)
    if device.type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)
