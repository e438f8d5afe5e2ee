"""Traffic of the trillion-parameter run across the bisection of the machine, and its time at the
measured speeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from meshwright import catalog
from meshwright.describe.layout import Layout
from meshwright.prediction.failures import Failures, loss_to_failures
from meshwright.prediction.prediction import Prediction, predict
from meshwright.step import clock_of

from ..report import Check, PaperTable, check, table_of
from . import formulas as f
from .figures import paper_figures
from .tables import selene

PP = 64
TP = 8
DP = 6
BATCH = 3072
GPUS = 3072
RATE = 502.0e15
"""FLOP/s of the run, table 1."""
MEASURED: dict[str, float] = {
    case["what"]: case["measured"]
    for case in paper_figures()["section-5.9"].cases
}
"""Effective bisection bandwidth, bytes per second. Section 5.9."""
HALF, FULL = 2.0, 4.0
"""Bytes of an activation, and of a gradient while it is reduced."""
WITHIN = 0.25
"""How far a predicted bandwidth may be from the measured one to be called a match."""
READ, WRITTEN = 1e12, 273e9
"""Bytes per second at which the checkpoint was read and written. Section 5.10."""
PRINTED_BYTES = 13.8e12
LAYOUT = Layout(
    tp=TP,
    pp=PP,
    dp=DP,
    zero=0,
    recompute="full",
    sequence_parallel=False,
)


@cache
def selene_run() -> Prediction:
    """The run on 3,072 GPUs of Selene."""
    job = selene(catalog.model("megatron-1008b"), GPUS, BATCH)
    return predict(job, LAYOUT)


def bisection() -> dict[str, float]:
    """Bytes per second one way across a cut through the middle, predicted from single messages: of
    stage sends, all GPUs of one stage send at once; a ring of gradients crosses once each way.
    """
    at = clock_of(selene_run().job)
    m = selene_run().job.model
    layout = selene_run().layout
    message = m.seq * m.hidden * HALF / TP
    hop = float(at.fabric.load("send", message, layout.group("pp")).seconds)
    gradients = FULL * f.parameters(m) / (PP * TP)
    ring = float(
        at.fabric.load("all_reduce", gradients, layout.group("dp")).seconds
    )
    moved = 2 * (DP - 1) / DP * gradients
    return {
        "stage sends": TP * DP * message / hop,
        "gradient all-reduce": PP * TP * moved / ring,
    }


def bisection_checks() -> Iterator[Check]:
    """Section 5.9: the bandwidth across the bisection, as predicted."""
    notes = {
        "stage sends": "48 GPUs of a stage send at once, each at what its adapter reaches alone;"
        " the paper's includes what they wait for one another",
        "gradient all-reduce": "each ring crosses the cut once each way, and one way is counted, as"
        " of the sends; the paper does not say how it counts",
    }
    for what, rate in bisection().items():
        id = f"bisection/{what}, B_per_s"
        yield check(
            id,
            published=MEASURED[what],
            computed=rate,
            tolerance=WITHIN,
            note=notes[what],
        )


def checkpoint() -> PaperTable:
    """The checkpoint of the trillion-parameter model: bytes, seconds, and what saving it costs a
    run of failing chips, at the speeds that the paper measured.
    """
    parameters = f.parameters(catalog.model("megatron-1008b"))
    of = Failures(storage_bytes_per_s=WRITTEN / GPUS)
    state = parameters * of.state_bytes
    lost = loss_to_failures(of, GPUS, parameters)
    writes = lost.checkpoint_s / (lost.interval_s + lost.checkpoint_s)
    rows = (
        ("bytes, predicted", state),
        ("bytes, printed", PRINTED_BYTES),
        ("s to read, predicted bytes at 1 TB/s", state / READ),
        ("s to write, predicted bytes at 273 GB/s", state / WRITTEN),
        ("s of work between two, best for failing chips", float(lost.interval_s)),
        ("share of the time that writes", float(writes)),
        ("goodput with failures and restarts", float(lost.goodput)),
    )  # fmt: skip
    return PaperTable(
        "megatron-checkpoint",
        "Checkpoint of the 1T model on 3,072 GPUs",
        ("what", "value"),
        rows,
    )


def traffic() -> PaperTable:
    """Bytes a step one way across a cut through the middle of the pipelines, and through all
    gradient rings.
    """
    m = catalog.model("megatron-1008b")
    step = f.flops(m, BATCH) / RATE
    boundary = BATCH * m.seq * m.hidden * HALF
    rings = 2 * (DP - 1) / DP * FULL * f.parameters(m)
    sent = {
        "stage sends, forward (backward goes the other way), scattered, one chunk a"
        " device": boundary,
        "gradient all-reduce in fp32, every ring crossing once each way": rings,
    }
    return table_of(
        "megatron-traffic",
        f"1T on {GPUS} GPUs, {step:.4g} s a step",
        (
            {
                "traffic across the bisection": what,
                "bytes a step": size,
                "measured B/s": speed,
                "seconds a step": size / speed,
                "share of the step": size / speed / step,
                "predicted B/s": rate,
            }
            for (what, size), speed, rate in zip(
                sent.items(),
                MEASURED.values(),
                bisection().values(),
                strict=True,
            )
        ),
    )
