"""What a row measured, in SI units, and what of a prediction stands beside it.

step_time [s]: stated, or from tokens/s, samples/s or FLOP/s by the row's own batch. memory [B]: on
the fullest GPU, each figure beside its own kind: what tensors take at their peak ("allocated":
without the framework's own bytes), what the
allocator holds ("reserved": without them too, the context is not its), what nvidia-smi shows or a
run needs ("device": with them), or what is left after a step ("states": weights, gradients,
optimizer). out_of_memory: 1 if the run did not fit, 0 if it ran; predicted None where the row
leaves open what stays on the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from meshwright.count.model import model_flops
from meshwright.describe.job import Job
from meshwright.prediction.prediction import Prediction
from meshwright.step import with_recomputation
from meshwright.units import GIB

from .comparison import RowComparison
from .layouts import figure, same_layout
from .rows import UNITS, Row, positive_number, table_of_row, text_of_row
from .words import is_jax

TERA = 1e12

MEMORY_KEY = re.compile(
    r"(?:(?P<before>\w+)_)?mem(?:ory)?(?:_(?P<after>\w+?))?_(?P<unit>bytes|[mg]i?b)(?:_per_(?:gpu|chip|device))?"
)
NO_PEAK = re.compile(
    r"param|weight|grad|opt|activation|cpu|host|ram\b|free|capacity|limit|available|bandwidth|count"
)
"""Words of keys that hold a part of a device's memory, or another memory."""
PEAK = re.compile(r"max|peak")
END = re.compile(r"\bend of|\bafter (?:the |a )?step|current|steady|states")
KINDS = (
    ("reserved", r"reserved|cach(?:ed|ing)"),
    ("device", r"smi\b|nvml|dcgm|device|driver|context|process|used"),
    ("needed", r"must fit|need|requir|minimum"),
    ("allocated", r"allocated|active|tensor|live|formula|analytic"),
)
FORMULA = re.compile(r"formula|analytic|theor|estimat|predict|calculat")
CALCULATED = "its memory is a formula, not a measurement"
"""Note of a figure that nobody measured."""
RANK = ("allocated", "reserved", "device", "needed", "states")
"""Of several figures the first of these is compared: the fewer things it counts, the better; a peak
before what is left.
"""


class MemoryFigure(NamedTuple):
    """Memory of the fullest GPU, and what it counts: one of RANK."""

    kind: str
    bytes: float
    note: str = ""


def comparisons(
    row: Row, p: Prediction, base: RowComparison, memory: bool = True
) -> Iterator[RowComparison]:
    """Everything of the row that can be compared. base: what is the same of all its quantities;
    memory: what stays on the device is known.
    """
    judged = quantities_judged(row)
    of = partial(replace, base)
    ran_out = of(
        quantity="out_of_memory", predicted=p.risk_of_oom if memory else None
    )
    m = table_of_row(row, "measured")
    if m.get("oom") is True or "fits(memory)=False" in judged:
        yield replace(ran_out, measured=1.0)
        return
    if "layer_time" in judged:
        for quantity, predicted, ms in layer_times(m, p):
            yield of(quantity=quantity, predicted=predicted, measured=ms / 1e3)
        return
    if (seconds := step_time(m, p.job)) is not None:
        yield replace(ran_out, measured=0.0)
        if not judged or {"step_time", "tflops/mfu"} & judged:
            yield of(
                quantity="step_time",
                predicted=p.step_time_s,
                measured=seconds,
                interval=p.interval_s,
            )
    shown = (
        memory_of(m, text_of_row(row, "software"))
        if memory and (not judged or "memory" in judged)
        else None
    )
    if shown:
        yield of(
            quantity="memory",
            predicted=bytes_counted(p, shown.kind),
            measured=shown.bytes,
            notes=(*base.notes, *filter(None, [shown.note])),
            figure=figure(p, shown.kind),
            same=same_layout(p, shown.kind),
        )


def bytes_counted(p: Prediction, kind: str) -> float:
    """Bytes on the fullest device that a figure of that kind counts."""
    use = p.memory_bytes
    return (
        use["weights"] + use["gradients"] + use["optimizer"]
        if kind == "states"
        else use[kind]
    )


def quantities_judged(row: Row) -> set[str]:
    """The quantities a row says it may be judged by; empty if it does not say."""
    listed = row.get("judge")
    return (
        {j for j in listed if isinstance(j, str)}
        if isinstance(listed, (list, tuple))
        else set()
    )


def step_time(m: Row, job: Job) -> float | None:
    """Seconds of a step: as stated, else batch over the rate."""
    chips = job.cluster.chips
    if (stated := positive_number(m, "step_time_s")) is not None:
        return stated
    for name, amount in (
        ("tokens_per_s", job.batch_tokens),
        ("tokens_per_s_per_gpu", job.batch_tokens / chips),
        ("samples_per_s", float(job.batch)),
        ("samples_per_s_per_gpu", job.batch / chips),
    ):
        if (rate := positive_number(m, name)) is not None:
            return amount / rate
    return from_flops(m, job)


def from_flops(m: Row, job: Job) -> float | None:
    """Seconds of a step from FLOP/s per chip, if the row says which FLOPs are meant.

    model: the usual count, attention uncut (or half of it: "causal"). hardware with full
    recomputation: 4/3 of that for the layers, since F = 96 B s l h^2 (1 + s/6h + V/16lh) counts
    them 4 times, logits 3 times (Narayanan et al. 2021).
    """
    rate = positive_number(m, "tflops_per_gpu")
    kind = text_of_row(m, "tflops_kind")
    if rate is None:
        return None
    shape, T = job.model, job.T
    whole = model_flops(shape, T)
    scores = 12.0 * shape.layers * shape.heads * shape.h * T
    logits = 6.0 * shape.padded_vocab * shape.hidden
    if "crude" in kind or "estimator" in kind:
        return None
    if kind.startswith("hardware"):
        flops = (
            (whole - logits) * 4 / 3 + logits
            if re.search(r"4/3|full recomp", kind)
            else None
        )
    elif kind.startswith("model"):
        flops = whole - scores / 2 if "causal" in kind else whole
    else:
        flops = None
    return (
        flops * job.batch_tokens / (rate * TERA * job.cluster.chips)
        if flops
        else None
    )


def memory_of(m: Row, software: str) -> MemoryFigure | None:
    """The figure of a row that is compared: the first of RANK; None if it has none."""
    said = text_of_row(m, "memory_kind")
    figures = [
        f
        for key, value in m.items()
        if isinstance(key, str)
        for f in _figures(m, key, said, software)
    ]
    states = positive_number(m, "memory_params_opt_gib")
    activations = positive_number(m, "memory_activations_gib")
    if states is not None and activations is not None:
        figures.append(
            MemoryFigure(
                "allocated",
                (states + activations) * GIB,
                CALCULATED,
            )
        )
    return min(
        figures, key=lambda figure: RANK.index(figure.kind), default=None
    )


def _figures(
    m: Row, key: str, said: str, software: str
) -> Iterator[MemoryFigure]:
    """The figure of one key, if it is one: its kind by the words of the key, else by memory_kind,
    else by the software.
    """
    match = MEMORY_KEY.fullmatch(key.lower().replace("-", "_"))
    value = positive_number(m, key)
    if not match or value is None:
        return
    words = f"{match['before'] or ''} {match['after'] or ''}"
    size = value * UNITS[match["unit"]]
    if NO_PEAK.search(words):
        return
    note = CALCULATED if FORMULA.search(said) else ""
    if kind := _kind(words):
        # Megatron-LM's mem-allocated-bytes: now
        left = kind == "allocated" and not PEAK.search(f"{words} {said}")
        yield MemoryFigure("states" if left else kind, size, note)
    elif END.search(f"{words} {said}") and not PEAK.search(words):
        yield MemoryFigure("states", size, note)
    elif kind := _kind(said):
        yield MemoryFigure(kind, size, note)
    else:
        kind, shown = _logged(software)
        yield MemoryFigure(
            kind,
            size,
            note
            or f"what its memory figure counts is not stated: taken as {shown}",
        )


def _kind(words: str) -> str:
    """The kind that the words name first, "" if none."""
    kinds = [
        (m.start(), kind)
        for kind, pattern in KINDS
        if (m := re.search(pattern, words))
    ]
    return min(kinds)[1] if kinds else ""


def _logged(software: str) -> tuple[str, str]:
    """What a software prints as its memory, and its name.

    torchtitan: max reserved (components/metrics.py). Megatron-LM and its forks:
    max_memory_allocated (training/ training.py). JAX: bytes in use of its allocator. DeepSpeed's
    users and others: most often what nvidia-smi shows.
    """
    if "torchtitan" in software:
        return "reserved", "max reserved, which its software logs"
    if ("megatron" in software and "deepspeed" not in software) or is_jax(
        software
    ):
        return "allocated", "max allocated, which its software logs"
    return "device", "what nvidia-smi shows"


def layer_times(m: Row, p: Prediction) -> Iterator[tuple[str, float, float]]:
    """(quantity, seconds predicted, milliseconds measured) of one layer forward, and backward with
    what it computes again.
    """
    layer = p.cost.typical
    again = with_recomputation(layer, p.layout.recompute)
    for key, way, seconds in (
        ("layer_fwd_ms", "forward", layer.forward),
        ("layer_bwd_ms", "backward", again.backward),
    ):
        if ms := positive_number(m, key):
            yield f"layer_{way}_time", float(seconds), ms


def workload(row: Row, job: Job) -> tuple[object, ...]:
    """Rows with equal workloads differ in their layout only, so their step times can be ranked."""
    texts = tuple(
        text_of_row(row, name)
        for name in (
            "source",
            "group",
            "software",
            "precision",
            "attention_kernel",
        )
    )
    return (
        *texts,
        text_of_row(row, "hardware.gpu"),
        job.model,
        job.cluster.chips,
        job.batch,
    )
