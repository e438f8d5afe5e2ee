"""What a row measured, in SI units, and what of a prediction stands beside it.

step_time [s]: stated, or from tokens/s, samples/s or FLOP/s by the row's own batch. memory [B]: a peak per GPU; where
the row says that it is what the tensors take ("allocated", or the parameters and activations of a formula), the
framework's own bytes are left out of the prediction, else ("reserved", nvidia-smi, unsaid) they are in. out_of_memory:
1 if the run did not fit, 0 if it ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..count.model import model_flops
from ..prediction import Prediction
from ..spec.job import Job
from ..step import backward
from .rows import Row, number, part, text

GIB = 2.0**30
TERA = 1e12


class Pair(NamedTuple):
    """A quantity as predicted and as measured."""

    quantity: str
    predicted: float
    measured: float


def pairs(row: Row, p: Prediction) -> Iterator[Pair]:
    """Everything of the row that can be compared."""
    wanted, m = judged(row), part(row, "measured")
    if m.get("oom") is True or "fits(memory)=False" in wanted:
        yield Pair("out_of_memory", float(not p.fits), 1.0)
        return
    if "layer_time" in wanted:
        yield from layer_times(m, p)
        return
    if (seconds := step_time(m, p.job)) is not None:
        yield Pair("out_of_memory", float(not p.fits), 0.0)
        if not wanted or {"step_time", "tflops/mfu"} & wanted:
            yield Pair("step_time", p.step_time_s, seconds)
    if (memory := peak_memory(m)) is not None and (not wanted or "memory" in wanted):
        yield Pair(
            "memory",
            float(p.memory_use.total) - (p.job.assumptions.memory.framework_bytes if tensors_only(m) else 0.0),
            memory,
        )


def judged(row: Row) -> set[str]:
    """The quantities a row says it may be judged by; empty if it does not say."""
    listed = row.get("judge")
    return {j for j in listed if isinstance(j, str)} if isinstance(listed, (list, tuple)) else set()


def step_time(m: Row, job: Job) -> float | None:
    """Seconds of a step: as stated, else batch over the rate."""
    chips = job.cluster.chips
    if (stated := number(m, "step_time_s")) is not None:
        return stated
    for name, amount in (
        ("tokens_per_s", job.batch_tokens), ("tokens_per_s_per_gpu", job.batch_tokens / chips),
        ("samples_per_s", float(job.batch)), ("samples_per_s_per_gpu", job.batch / chips),
    ):  # fmt: skip
        if (rate := number(m, name)) is not None:
            return amount / rate
    return from_flops(m, job)


def from_flops(m: Row, job: Job) -> float | None:
    """Seconds of a step from FLOP/s per chip, if the row says which FLOPs are meant.

    model: the usual count, attention uncut (or half of it: "causal"). hardware with full recomputation: 4/3 of that for
    the layers, since F = 96 B s l h^2 (1 + s/6h + V/16lh) counts them 4 times, logits 3 times (Narayanan et al. 2021).
    """
    rate, kind = number(m, "tflops_per_gpu"), text(m, "tflops_kind")
    if rate is None:
        return None
    shape, T = job.model, job.T
    whole = model_flops(shape, T)
    scores = 12.0 * shape.layers * shape.heads * shape.h * T
    logits = 6.0 * shape.padded_vocab * shape.hidden
    if "crude" in kind or "estimator" in kind:
        return None
    if kind.startswith("hardware"):
        flops = (whole - logits) * 4 / 3 + logits if "4/3" in kind else None
    elif kind.startswith("model"):
        flops = whole - scores / 2 if "causal" in kind else whole
    else:
        flops = None
    return flops * job.batch_tokens / (rate * TERA * job.cluster.chips) if flops else None


def peak_memory(m: Row) -> float | None:
    """Bytes on the fullest GPU."""
    for name, unit in (
        ("memory_gib", GIB),
        ("memory_gb", 1e9),
        ("memory_allocated_bytes", 1.0),
        ("memory_reserved_bytes", 1.0),
        ("memory_bytes", 1.0),
    ):
        if (value := number(m, name)) is not None:
            return value * unit
    states, activations = number(m, "memory_params_opt_gib"), number(m, "memory_activations_gib")
    return (states + activations) * GIB if states is not None and activations is not None else None


def tensors_only(m: Row) -> bool:
    """The stated memory is what tensors take: no context, no cache of the allocator."""
    kind = text(m, "memory_kind")
    allocated = "allocated" in kind and "reserved" not in kind
    return allocated or "memory_allocated_bytes" in m or "memory_params_opt_gib" in m


def layer_times(m: Row, p: Prediction) -> Iterator[Pair]:
    """Seconds of one layer forward, and backward with what it computes again."""
    forward, back = number(m, "layer_fwd_ms"), number(m, "layer_bwd_ms")
    if forward is not None:
        yield Pair("layer_forward_time", float(p._body.typical.forward.total), forward / 1e3)
    if back is not None:
        yield Pair("layer_backward_time", float(backward(p._body.typical, p.layout.recompute).total), back / 1e3)


def workload(row: Row, job: Job) -> tuple[object, ...]:
    """Rows with equal workloads differ in their layout only, so their step times can be ranked."""
    told = tuple(text(row, name) for name in ("source", "group", "software", "precision", "attention_kernel"))
    return (*told, text(part(row, "hardware"), "gpu"), job.model, job.cluster.chips, job.batch)
