"""The analysis of sections 2 to 4: bubbles, microbatches in flight, volumes of messages,
recomputation, checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from meshwright import catalog
from meshwright.cost.network import Fabric
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.model import layer
from meshwright.count.work import Op
from meshwright.describe.assumptions import LBL
from meshwright.describe.job import Job
from meshwright.describe.layers import Kind
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.describe.network import Dim, Network
from meshwright.layout.placement import placed
from meshwright.prediction.failures import Failures
from meshwright.schedule import get as schedule_named
from meshwright.schedule.timeline import timeline_of_order

from ..report import Check, check
from . import formulas as f
from .figures import paper_figures
from .tables import EXACT, selene, shaped

FORWARD, BACKWARD = 1.0, 2.0
"""Seconds of a microbatch on a device, for timelines; any numbers would do."""


Side = tuple[str, float, float]
"""Id of a check, the closed form of the paper, our count of the same."""


def exact(sides: Iterable[Side], note: str = "") -> Iterator[Check]:
    """Closed forms beside our counts."""
    return (
        check(
            id,
            published=formula,
            computed=ours,
            tolerance=EXACT,
            note=note,
            source="formula",
        )
        for id, formula, ours in sides
    )


def bubbles() -> Iterator[Side]:
    """Idle share of the ideal time: closed form, schedule, exact timeline."""
    of = paper_figures()["6"]
    bubble = schedule_named("1f1b").bubble
    for n, ratio in of.cases:
        for d in of.values:
            p, m = n // d, ratio // d
            if p > 1 and m >= 1:
                ours = float(bubble(p, m, v=1, f=FORWARD, i=BACKWARD, w=0.0))
                yield (
                    f"fig-6/n {n}, b' {ratio}, d {d}/bubble",
                    f.bubble_share(n, d, ratio),
                    ours / (m * (FORWARD + BACKWARD)),
                )
    for name, p, m, v in TIMELINES:
        ideal = m * (FORWARD + BACKWARD)
        yield (
            f"bubble/{name}, p {p}, m {m}, v {v}/timeline",
            (p - 1) / (v * m),
            makespan(name, p, m, v) / ideal - 1,
        )


TIMELINES = (
    ("gpipe", 4, 8, 1),
    ("gpipe", 8, 32, 1),
    ("1f1b", 4, 8, 1),
    ("1f1b", 8, 64, 1),
    ("1f1b", 16, 128, 1),
    ("interleaved", 4, 8, 2),
    ("interleaved", 4, 16, 4),
    ("interleaved", 8, 64, 2),
    ("interleaved", 16, 32, 8),
)
"""(schedule, p, m, v)."""


def makespan(name: str, p: int, m: int, v: int) -> float:
    """Seconds of the exact timeline with equal stages and free sends."""
    s = schedule_named(name)
    seconds = FORWARD / v, BACKWARD / v, 0.0
    return timeline_of_order(
        s.order(p, m, v), s.placement(p, v), [seconds] * (p * int(s.chunks(v)))
    ).makespan_s


def in_flight() -> Iterator[Side]:
    """Microbatches stashed: all of them (GPipe), p (1F1B), (1 + (p-1)/(p v)) p (interleaved)."""
    for p, m in ((4, 16), (8, 64), (16, 128)):
        for name, stashed in (("gpipe", m), ("1f1b", p)):
            ours = float(schedule_named(name).in_flight(p, m, 1))
            yield f"in flight/{name}, p {p}, m {m}", stashed, ours
    for p, m, v in ((4, 16, 2), (8, 64, 2), (8, 64, 4), (16, 128, 8)):
        yield (
            f"in flight/interleaved, p {p}, m {m}, v {v}",
            p * (1 + (p - 1) / (p * v)),
            float(schedule_named("interleaved").in_flight(p, m, v)),
        )


def volumes() -> Iterator[Side]:
    """Elements a device sends: stage boundary b s h (scattered: /t); tensor parallel 8 b s h
    (t-1)/t a layer.
    """
    m = shaped("175B", 96, 12288, 96)
    bsh = float(m.seq * m.hidden)
    for t in (2, 4, 8):
        for b in (1, 4):
            layout = Layout(
                tp=t,
                pp=96 // t,
                dp=1,
                microbatch=b,
                sequence_parallel=False,
            )
            job = replace(selene(m, 96, 1536), layout=layout)
            microbatch = DeviceMicrobatch.from_layout(job, layout)
            width = job.precision.activation_bytes
            for words, formula, sent in (
                ("stage boundary", b * bsh, microbatch.boundary),
                (
                    "scatter and gather",
                    b * bsh / t,
                    microbatch.stage_message,
                ),
                (
                    "tensor parallel, a layer",
                    8 * b * bsh * (t - 1) / t,
                    reduced(job),
                ),
            ):
                id = f"volume/t {t}, b {b}/{words}"
                yield id, formula, float(sent) / width


def gradient_shares() -> Iterator[Side]:
    """Data parallel: 2 (d-1)/d of the gradients."""
    for d in (2, 8, 64):
        id = f"volume/data parallel, d {d}"
        yield id, 2 * (d - 1) / d, ring_share(d)


def reduced(job: Job) -> float:
    """Bytes a device sends in the all-reduces of one layer and microbatch, by rings."""
    layout = placed(job.layout, job.cluster.sizes)
    ops: list[Op] = layer(job, layout, Kind(None, False))
    messages = [
        message
        for op in ops
        for half in (op.forward, op.backward)
        for message in half.comm
    ]
    return sum(
        ring_share(int(layout.tp)) * float(c.bytes)
        for c in messages
        if c.kind == "all_reduce" and c.axis == "tp"
    )


def ring_share(n: int) -> float:
    """Sent by each rank of a ring all-reduce, of the vector: a reduce-scatter and an all-gather of
    (n-1)/n each.
    """
    fabric = Fabric.from_network(
        Network("", (Dim("", 1.0, 0.0, efficiency=1.0),)), LBL.network
    )
    return float(fabric.time("all_reduce", 1.0, (float(n),)))


def memory() -> Iterator[Check]:
    """Recomputation and checkpoints."""
    m = shaped("145B", 80, 12288, 96)
    job = replace(
        selene(m, 128, 128),
        layout=Layout(tp=8, pp=16, dp=1, sequence_parallel=False),
    )
    layout = placed(job.layout, job.cluster.sizes)
    inside = sum(
        float(op.saved) for op in layer(job, layout, Kind(None, False))
    )
    layers = m.layers / 16
    best = f.best_checkpoints(
        layers,
        inside,
        float(DeviceMicrobatch.from_layout(job, job.layout).boundary),
    )
    note = (
        f"sqrt(l A_int/A_in) = {best:.1f} checkpoints for {layers:.0f} layers; the paper: every 1"
        " or 2 layers"
    )
    yield check(
        "recomputation/layers between checkpoints, 145B",
        published=1,
        computed=round(layers / min(best, layers)),
        tolerance=0.0,
        note=note,
    )
    yield _checkpoint(catalog.model("megatron-1008b"))


def _checkpoint(m: Model) -> Check:
    """Bytes of a checkpoint of the trillion-parameter model."""
    each = Failures().state_bytes
    ours = each * f.parameters(m) / 1e12
    mixed = 1e3 * ours / 1024
    return Check(
        "checkpoint/1T, TB",
        published=13.8,
        computed=ours,
        status="explained" if round(mixed, 1) == 13.8 else "mismatch",
        note=f"{each:g} bytes a parameter (fp16 weight; fp32 master weight and two moments) are"
        f" {1e3 * ours:,.1f} GB: {mixed:.2f} TB if a TB is 1,024 of these; the paper says neither"
        " what its checkpoint holds nor which TB",
    )
