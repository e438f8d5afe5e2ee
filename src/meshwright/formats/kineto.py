"""Traces of torch.profiler (Kineto's Chrome JSON): seconds of each class of kernel.

On a GPU events of the categories "kernel" count; without one the operators of the CPU ("cpu_op"), each without the operators inside it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import BadInput

LARGEST = 512 * 2**20
"""Bytes of a trace, unpacked."""
MOST = 1e18
"""Microseconds; what is larger, or no number, is no time."""
CLASSES = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("all_reduce", r"all_?reduce"), ("all_gather", r"all_?gather"), ("reduce_scatter", r"reduce_?scatter"),
        ("all_to_all", r"all_?to_?all|alltoall"), ("broadcast", r"nccl.*broadcast|c10d::broadcast|gloo:broadcast"),
        ("send", r"sendrecv|c10d::(send|recv)|gloo:(send|recv)"),
        ("attention", r"flash|fmha|attention|softmax.*dropout|cudnn.*sdpa"),
        ("gemm", r"gemm|cutlass|::(mm|addmm|bmm|linear|matmul|baddbmm|_scaled_mm)$|\bsm\d+_xmma|cublas|nvjet|wgmma"),
        ("memory", r"memcpy|memset|::copy_$|::cat$|::zero_$|::fill_$|::_to_copy$|::clone$"),
        ("optimizer", r"adam|optimizer|multi_tensor|lamb|sgd"),
    )
)  # fmt: skip
"""The first pattern that a name matches is its class; the rest is elementwise."""


class Class(NamedTuple):
    """One class of kernels."""

    seconds: float
    calls: int


def load(path: str | Path) -> dict[str, Class]:
    """Class -> its seconds and calls in a trace (.json or .json.gz); BadInput if it is none or too large."""
    return classes(events(path))


def events(path: str | Path) -> list[dict[str, Any]]:
    """The complete events ("ph": "X") of a trace."""
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise BadInput(f"{path} is larger than {LARGEST // 2**20} MiB: profile fewer steps")
        trace = json.loads(data)
    except (OSError, EOFError) as error:
        raise BadInput(f"{str(path)[:200]} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{path} is not a JSON trace of torch.profiler") from None
    found = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(found, list):
        raise BadInput(f"{path} has no list traceEvents: not a trace of torch.profiler")
    kept = [e for e in found if isinstance(e, dict) and e.get("ph") == "X" and timed(e)]
    if not kept:
        raise BadInput(f"{path} holds no event with a duration: not a trace of torch.profiler")
    return kept


def timed(event: dict[str, Any]) -> bool:
    """It has a name, a start and a duration."""
    numbers = all(isinstance(event.get(key), (int, float)) and abs(event[key]) < MOST for key in ("ts", "dur"))
    return numbers and isinstance(event.get("name"), str) and event["dur"] >= 0


def classes(found: Iterable[dict[str, Any]]) -> dict[str, Class]:
    """Class -> seconds and calls, largest first."""
    every = list(found)
    on_gpu = [e for e in every if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    spent = [(e["name"], float(e["dur"])) for e in on_gpu] or own_times([e for e in every if e.get("cat") == "cpu_op"])
    seconds: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for name, duration in spent:
        kind = class_of(name)
        seconds[kind] += duration / 1e6
        calls[kind] += 1
    return {kind: Class(s, calls[kind]) for kind, s in sorted(seconds.items(), key=lambda item: -item[1])}


def class_of(name: str) -> str:
    """What a kernel or operator does, from its name."""
    return next((kind for kind, pattern in CLASSES if pattern.search(name)), "elementwise")


def own_times(ops: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """(name, microseconds) of each operator without those it calls: on a thread, events nest."""
    threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for e in ops:
        threads[str(e.get("pid")), str(e.get("tid"))].append(e)
    found = []
    for events_ in threads.values():
        open_: list[list[Any]] = []  # [name, end, own microseconds]
        for e in sorted(events_, key=lambda e: (e["ts"], -e["dur"])):
            while open_ and open_[-1][1] <= e["ts"]:
                found.append(open_.pop())
            if open_:
                open_[-1][2] -= e["dur"]
            open_.append([e["name"], e["ts"] + e["dur"], float(e["dur"])])
        found += open_
    return [(name, max(own, 0.0)) for name, _, own in found]
