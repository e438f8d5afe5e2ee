"""Traces of torch.profiler (Kineto's Chrome JSON): seconds of each class of kernel.

On a GPU events of the categories "kernel" count; without one the operators of the CPU ("cpu_op"),
each without the operators inside it. Old traces spell the categories "Kernel", "Memcpy",
"Operator". What a communication kernel does is said by its arguments or by the operation that
launched it, where its own name does not (NCCL does all-to-all with sends and receives).
"""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import BadInput
from ..units import show
from . import read_error

LARGEST = 512 * 2**20
"""Bytes of a trace, unpacked."""
MOST = 1e18
"""Microseconds; what is larger, or no number, is no time."""
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
ON_CPU = ("cpu_op", "operator")
LAUNCHES = (
    "cuda_runtime",
    "cuda_driver",
    "runtime",
    "hip_runtime",
    "privateuse1_runtime",
)
ANNOTATIONS = ("user_annotation", "gpu_user_annotation", *ON_CPU)
"""Categories, in lower case, as different versions of PyTorch write them."""
FUSED = (("elementwise", r"^triton_(poi|per|red|for)_"),)
"""Inductor names a fused kernel after all operations around it; only its templates (triton_tem_)
are products.
"""
COMMUNICATION = (
    ("all_reduce", r"all_?reduce|cross_device_reduce"),
    ("all_gather", r"all_?gather"),
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_to_all", r"all_?to_?all|deep_ep\b.*(dispatch|combine)"),
    (
        "broadcast",
        r"[nr]ccl.*broadcast|c10d::broadcast|gloo:broadcast|^_?broadcast(_oop|_coalesced)?$",
    ),
    ("send", r"send_?recv|([nr]ccl:|c10d::|gloo:|^)(send|recv)"),
    (
        "reduce",
        r"[nr]ccl\w*kernel_reduce_|([nr]ccl:|c10d::|gloo:|^)_?reduce_?$",
    ),
    (
        "communication",
        r"[nr]ccl\w*kernel|rccl_|msccl|nvshmem|userbuffers|^[nr]ccl:|^c10d::|^gloo:|deep_ep\b",
    ),
)
"""Collectives; `communication` is one whose name does not say which."""
COMPUTE = (
    (
        "attention",
        r"flash|fmha|attention|softmax.*dropout|cudnn.*(sdpa|mha)|attn_|attn(fwd|bwd)|mha_(fwd|bwd|varlen)|bwd_(kernel_d[kq]|preprocess)|dk_?dv",
    ),
    (
        "memory",
        r"mem(cpy|set)|(direct|float\w*)_copy_kernel|CatArray|FillFunctor|chunk_cat|split_with_sizes_copy"
        r"|n(chw|hwc)ToN(hwc|chw)|rocclr_(copy|fill)|^(Copy|Fill)(Host|Device|Buffer)|multi_tensor_apply.*::Copy<"
        r"|::_?(foreach_)?(copy_?|cat|zero_|fill_|to_copy|clone|contiguous|pin_memory)$",
    ),
    (
        "optimizer",
        r"multi_tensor|adam|adagrad|optimizer|lamb(?!da)|(?<![a-z])sgd|fused_?sgd|\bmuon|_foreach_",
    ),
    (
        "gemm",
        r"(?<!fb)gemm|^bmm_|gemv|cutlass|xmma|cublas|nvjet|wgmma|Cijk_|(hip|roc)blas|tensile|split_?k_?reduce|matmul|fused_moe"
        r"|tensorop|(scaled|grouped)_mm|triton_(tem_\w*)?b?mm|::_?(mm|addmm|bmm|linear|linear_backward|baddbmm|mv|dot)$"
        r"|conv(?!er[st])|scudnn|winograd|fprop|[dw]grad",
    ),
)
"""Products of matrices are one class, convolutions among them."""
CLASSES = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (*FUSED, *COMMUNICATION, *COMPUTE)
)
"""The first pattern that a name matches is its class; the rest is elementwise."""
COLLECTIVES = tuple(name for name, _ in COMMUNICATION)
UNSAID = ("send", "broadcast", "communication")
"""Classes of kernels that also carry out other collectives."""
STEP = "ProfilerStep#"
"""Around each step that the profiler's schedule counts."""
NESTED = 8
"""Annotations that are looked at before an event: they nest (c10d::, record_param_comms, nccl:)."""
OVERLAP = 1.001
"""Seconds of all kernels over those of the clock, above which they overlap (ends of neighbours are
rounded).
"""


class Class(NamedTuple):
    """One class of kernels."""

    seconds: float
    calls: int


class Classes(dict[str, Class]):
    """Class -> its seconds and calls, largest first; `notes` say what their sum is not."""

    notes: tuple[str, ...] = ()


def load_kernels(path: str | Path) -> Classes:
    """What the kernels of a trace (.json or .json.gz) do; BadInput if it is none, holds none or is
    too large.
    """
    by_class = classes(events(path))
    if not by_class:
        raise BadInput(
            f"{path} holds neither kernels nor operators (events of the categories kernel or"
            " cpu_op): record activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )
    return by_class


def events(path: str | Path) -> list[dict[str, Any]]:
    """The complete events ("ph": "X") of a trace, with a name, a start and a duration."""
    kept = [e for e in rows(path) if e.get("ph") == "X" and has_duration(e)]
    if not kept:
        raise BadInput(
            f"{path} is not a trace of torch.profiler: it holds no event with a duration"
        )
    return kept


def rows(path: str | Path) -> list[dict[str, Any]]:
    """All events of a Chrome trace (.json or .json.gz)."""
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(
            path, "rb"
        ) as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise BadInput(
                f"{path} is larger than {LARGEST // 2**20} MiB: profile fewer steps"
            )
        trace = json.loads(data)
    except (OSError, EOFError) as error:
        raise read_error(path, error) from None
    except (ValueError, RecursionError):
        raise BadInput(
            f"{path} is not a trace of torch.profiler: it is not JSON"
        ) from None
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise BadInput(
            f"{path} is not a trace of torch.profiler: it has no list traceEvents"
        )
    return [event for event in events if isinstance(event, dict)]


def has_duration(event: dict[str, Any]) -> bool:
    """It has a name, a start and a duration."""
    named = isinstance(event.get("name"), str)
    times = is_number(event.get("ts")) and is_number(event.get("dur"))
    return named and times and event["dur"] >= 0


def is_number(value: object) -> bool:
    """A number that can be added up."""
    return isinstance(value, (int, float)) and abs(value) < MOST


def category(event: dict[str, Any]) -> str:
    """The category in lower case."""
    return str(event.get("cat", "")).lower()


def classes(rows: Iterable[dict[str, Any]]) -> Classes:
    """Class -> seconds and calls, largest first."""
    every = list(rows)
    counted = [e for e in every if category(e) in ON_GPU]
    lanes = "streams" if counted else "threads"
    if counted:
        launchers = Launchers(every)
        spent = [(launchers.class_of(e), float(e["dur"])) for e in counted]
    else:
        counted = [e for e in every if category(e) in ON_CPU]
        spent = [
            (class_of(name), duration) for name, duration in own_times(counted)
        ]
    seconds: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for kind, duration in spent:
        seconds[kind] += duration / 1e6
        calls[kind] += 1
    made = Classes(
        {
            kind: Class(s, calls[kind])
            for kind, s in sorted(seconds.items(), key=lambda item: -item[1])
        }
    )
    busy = on_the_clock(counted)
    if (total := sum(seconds.values())) > OVERLAP * busy:
        made.notes = (
            (
                f"{lanes} overlap: the seconds of all classes add up to {show(total, 's')}, "
                f"in a wall time of {show(busy, 's')}"
            ),
        )
    steps = {e["name"] for e in every if e["name"].startswith(STEP)}
    if len(steps) > 1:
        made.notes += (f"seconds and calls are those of {len(steps)} steps",)
    return made


def on_the_clock(rows: Iterable[dict[str, Any]]) -> float:
    """Seconds in which at least one of the events of a device (or process) runs, summed over
    devices.
    """
    busy = 0.0
    ends: dict[str, float] = {}
    for e in sorted(rows, key=lambda e: float(e["ts"])):
        device = str(e.get("pid"))
        start = float(e["ts"])
        end = float(e["ts"]) + float(e["dur"])
        done = ends.get(device, start)
        busy += max(0.0, end - max(start, done))
        ends[device] = max(done, end)
    return busy / 1e6


@lru_cache(65536)
def class_of(name: str) -> str:
    """What a kernel or operator does, from its name."""
    return next(
        (kind for kind, pattern in CLASSES if pattern.search(name)),
        "elementwise",
    )


class Launchers:
    """Which collective a kernel of a communication library belongs to, where its name does not
    say.
    """

    def __init__(self, events: Sequence[dict[str, Any]]) -> None:
        self.launches = {
            str(arguments(e)["correlation"]): e
            for e in events
            if category(e) in LAUNCHES and "correlation" in arguments(e)
        }
        self.said: dict[tuple[str, str], list[tuple[float, float, str]]] = (
            defaultdict(list)
        )
        self.ids: dict[str, str] = {}
        for e in events:
            if (
                category(e) in ANNOTATIONS
                and (kind := class_of(e["name"])) in COLLECTIVES
                and kind != "communication"
            ):
                self.said[lane(e)].append(
                    (float(e["ts"]), float(e["ts"]) + float(e["dur"]), kind)
                )
                if "External id" in arguments(e):
                    self.ids[str(arguments(e)["External id"])] = kind
        for spans in self.said.values():
            spans.sort()

    def class_of(self, kernel: dict[str, Any]) -> str:
        """Its class by its argument `Collective name`, else by its own name, else by what stands
        around or launched it.
        """
        collective = arguments(kernel).get("Collective name")
        if (
            isinstance(collective, str)
            and (kind := class_of(collective)) in COLLECTIVES
            and kind != "communication"
        ):
            return kind
        kind = class_of(kernel["name"])
        return next(self.launched_by(kernel), kind) if kind in UNSAID else kind

    def launched_by(self, kernel: dict[str, Any]) -> Iterator[str]:
        """The collectives that are said around the kernel or its launch, the nearest first."""
        yield from self.around(kernel)
        if launch := self.launches.get(
            str(arguments(kernel).get("correlation"))
        ):
            yield from self.around(launch)
        if (
            kind := self.ids.get(str(arguments(kernel).get("External id")))
        ) is not None:
            yield kind

    def around(self, event: dict[str, Any]) -> Iterator[str]:
        """The collective of the innermost annotation that an event lies in."""
        spans = self.said.get(lane(event), [])
        at = float(event["ts"])
        last = bisect_right(spans, (at, float("inf"), ""))
        for _, end, kind in reversed(spans[max(0, last - NESTED) : last]):
            if at < end:
                yield kind
                return


def arguments(event: dict[str, Any]) -> dict[str, Any]:
    """The table `args` of an event, empty if it has none."""
    values = event.get("args")
    return values if isinstance(values, dict) else {}


def lane(event: dict[str, Any]) -> tuple[str, str]:
    """The thread or stream of an event."""
    return str(event.get("pid")), str(event.get("tid"))


def own_times(ops: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """(name, microseconds) of each operator without those it calls: on a thread, events nest."""
    threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for e in ops:
        threads[lane(e)].append(e)
    closed = []
    for rows in threads.values():
        open_: list[list[Any]] = []  # [name, end, own microseconds]
        for e in sorted(rows, key=lambda e: (e["ts"], -e["dur"])):
            while open_ and open_[-1][1] <= e["ts"]:
                closed.append(open_.pop())
            if open_:
                open_[-1][2] -= e["dur"]
            open_.append([e["name"], e["ts"] + e["dur"], float(e["dur"])])
        closed += open_
    return [(name, max(own, 0.0)) for name, _, own in closed]
