"""The measured comparisons of section 5 as the default assumption set predicts them: is the same
choice best?

Numbers of TFLOP/s are in the tables; a check asks only for the paper's conclusion. Nothing is
fitted, and where ours differs it stays a mismatch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from ...describe.layout import Layout
from ...describe.model import Model
from ...errors import BadInput
from ...prediction.prediction import Prediction, predict
from ...step import total
from ..report import Check, Table, relative
from . import formulas as f
from .tables import selene, shaped

Run = tuple[str, int, Prediction]
"""(what varies, its value, the prediction)."""


def run(model: Model, gpus: int, batch: int, **layout: object) -> Prediction | None:
    """A prediction with full recomputation and without sequence parallelism, as the paper ran; None
    if not legal.
    """
    try:
        chosen = Layout(recompute="full", sequence_parallel=False, **layout)  # type: ignore[arg-type]
        return predict(selene(model, gpus, batch), chosen)
    except BadInput:
        return None


@cache
def tensor_or_pipeline(batch: int) -> tuple[Run, ...]:
    """Figure 13: 162.2B on 64 GPUs, t p = 64, microbatch 1."""
    m = shaped("162.2B", 32, 20480, 128)
    found = ((t, run(m, 64, batch, tp=t, pp=64 // t)) for t in (2, 4, 8, 16, 32, 64))
    return tuple(("t", t, p) for t, p in found if p)


@cache
def data_or_pipeline(batch: int) -> tuple[Run, ...]:
    """Figure 14: 5.9B on 64 GPUs, d p = 64, microbatch 1."""
    m = shaped("5.9B", 32, 3840, 32)
    found = ((d, run(m, 64, batch, dp=d, pp=64 // d)) for d in (2, 4, 8, 16, 32))
    return tuple(("d", d, p) for d, p in found if p)


@cache
def data_or_tensor(batch: int) -> tuple[Run, ...]:
    """Figure 15: 5.9B on 64 GPUs, d t = 64, microbatch 1."""
    m = shaped("5.9B", 32, 3840, 32)
    found = ((t, run(m, 64, batch, dp=64 // t, tp=t)) for t in (2, 4, 8, 16, 32))
    return tuple(("t", t, p) for t, p in found if p)


@cache
def microbatches(batch: int) -> tuple[Run, ...]:
    """Figure 16: 91B on 64 GPUs, t = p = 8."""
    m = shaped("91B", 72, 10240, 80)
    found = ((b, run(m, 64, batch, tp=8, pp=8, microbatch=b)) for b in (1, 2, 4, 8))
    return tuple(("b", b, p) for b, p in found if p)


@cache
def interleaving(batch: int) -> tuple[Run, ...]:
    """Figure 12: 175B on 96 GPUs, t 8, p 12: 1F1B and interleaved with 2 chunks."""
    m = shaped("175B", 96, 12288, 96)
    plain = run(m, 96, batch, tp=8, pp=12)
    chunked = run(m, 96, batch, tp=8, pp=12, schedule="interleaved", interleave=2)
    assert plain and chunked
    return ("v", 1, plain), ("v", 2, chunked)


def estimate(batch: int, b: int, p: int = 8) -> float:
    """Figure 8: (b'/b + p - 1)(t_f + t_b) of a billion-parameter model of 4 layers, in sequences a
    second.
    """
    one = run(shaped("1B", 4, 4096, 128), 1, batch, microbatch=b)
    assert one
    parts = one._body.typical
    forward, backward = (
        float(total(parts.forward)),
        float(total(parts.backward) + total(parts.forward)),
    )
    return batch / f.batch_time(batch / b, p, 4 * forward, 4 * backward)


def tflops(p: Prediction) -> float:
    """Achieved FLOP/s a GPU as the paper counts them, recomputation included, in 1e12."""
    return f.flops(p.job.model, p.job.batch) / (p.step_time_s * p.job.cluster.chips) / 1e12


def best(runs: Sequence[Run]) -> int:
    """The value of the fastest run."""
    return max(runs, key=lambda r: tflops(r[2]))[1]


def listed(runs: Sequence[Run]) -> str:
    """Each run's TFLOP/s, in words."""
    return (
        ", ".join(f"{name} {value}: {tflops(p):.0f}" for name, value, p in runs) + " TFLOP/s a GPU"
    )


def checks() -> Iterator[Check]:
    """The conclusions, as numbers: a best value, or 1 for a statement that holds."""
    for batch in (32, 128):
        yield _same(
            f"fig-13/162.2B, batch {batch}/best t",
            8,
            best(tensor_or_pipeline(batch)),
            listed(tensor_or_pipeline(batch)),
        )
    for batch in (32, 128, 512):
        runs = data_or_pipeline(batch)
        rises = all(tflops(a[2]) < tflops(b[2]) for a, b in zip(runs, runs[1:], strict=False))
        yield _same(
            f"fig-14/5.9B, batch {batch}/throughput rises with d", 1, int(rises), listed(runs)
        )
        runs = data_or_tensor(batch)
        rate = {value: tflops(p) for _, value, p in runs}
        falls = (
            rate[2] > rate[4] > rate[8] > rate[16] > rate[32]
            and rate[8] / rate[32] > rate[2] / rate[8]
        )
        yield _same(
            f"fig-15/5.9B, batch {batch}/throughput collapses beyond t 8",
            1,
            int(falls),
            listed(runs),
        )
    few, many = (tflops(b[2]) / tflops(a[2]) - 1 for a, b in map(interleaving, (12, 60)))
    note = f"{few:+.0%} at batch 12, {many:+.0%} at batch 60"
    yield _same("fig-12/175B, interleaving 10 % faster at a small batch", 1, int(few >= 0.1), note)
    yield _same("fig-12/175B, the gap closes with the batch", 1, int(many < few), note)
    unmodelled = (
        "; matrix products of all sizes are taken to run at one sustained rate, measured ones get"
        " faster with b"
    )
    for batch in (128, 512):
        rates = {b: estimate(batch, b) for b in (1, 2, 4, 8, 16)}
        words = ", ".join(f"b {b}: {x:.1f}" for b, x in rates.items()) + " sequences/s" + unmodelled
        yield _same(
            f"fig-8/1B, batch {batch}/best microbatch", 4, max(rates, key=lambda b: rates[b]), words
        )
        runs = microbatches(batch)
        yield _same(
            f"fig-16/91B, batch {batch}/best microbatch", 2, best(runs), listed(runs) + unmodelled
        )


def _same(id: str, published: int, ours: int, note: str) -> Check:
    status = "match" if ours == published else "mismatch"
    return Check(id, published, ours, relative(published, ours), status, note)


def table() -> Table:
    """All runs with their terms."""
    rows = []
    every = (
        ("figure 13", (32, 128), tensor_or_pipeline),
        ("figure 14", (32, 128, 512), data_or_pipeline),
        ("figure 15", (32, 128, 512), data_or_tensor),
        ("figure 16", (128, 512), microbatches),
        ("figure 12", (12, 24, 36, 48, 60), interleaving),
    )
    for figure, batches, runs in every:
        for batch in batches:
            for name, value, p in runs(batch):
                bubble = p.time_s["bubble"] / p.step_time_s
                rows.append(
                    (
                        figure,
                        p.job.model.name,
                        batch,
                        name,
                        value,
                        tflops(p),
                        p.step_time_s,
                        bubble,
                        p.fits,
                    )
                )
    columns = (
        "",
        "model",
        "batch",
        "varied",
        "value",
        "TFLOP/s a GPU",
        "step s",
        "bubble share",
        "fits",
    )
    return Table(
        "megatron-takeaways",
        "Figures 12 to 16, predicted (realistic, nothing fitted)",
        columns,
        tuple(rows),
    )
