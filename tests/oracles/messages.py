"""What `count` says a layout sends, in the words of the record of a fake cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from meshwright import Chip, Cluster, Dim, Job, Layout, Model, Network
from meshwright.count import vocabulary
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.model import kind_counts, layer
from meshwright.count.work import Op
from meshwright.describe.assumptions import REALISTIC
from meshwright.layout.placement import placed

ENGINE = replace(
    REALISTIC,
    count=replace(
        REALISTIC.count,
        gathered_inputs="kept",
        causal="full",
        stage_message="whole",
    ),
)
"""PyTorch's DTensor keeps the gathered input of a column-parallel matrix (Megatron-LM keeps the
shard and gathers it again), its FLOP counter does not know of the causal mask, and its pipelines
send the activation as each tp rank holds it.
"""


def job_of(model: Model, layout: Layout, batch: int, seq: int = 0) -> Job:
    """A job in bf16 on a cluster that only counts its chips; PyTorch's modules pad no vocabulary."""
    chip = Chip("", {"bf16": 1.0}, 1.0, 1.0, 1.0)
    cluster = Cluster(
        chip, Network("", (Dim("", 1.0, 0.0),)), int(layout.chips)
    )
    return Job(
        replace(model, vocab_multiple=model.vocab_multiple or 1),
        cluster,
        batch,
        placed(layout, cluster.sizes),
        seq=seq,
        precision="bf16",
        assumptions=ENGINE,
    )


def operations(job: Job, ends: bool = True) -> list[Op]:
    """Operations of all layers on one device (its share of each), with those of embedding and
    head.
    """
    lead, body = kind_counts(job.model)
    ops = [
        op
        for kind, n in (*lead, *body)
        for op in layer(job, job.layout, kind) * n
    ]
    return (
        ops
        + [
            *vocabulary.embedding(
                DeviceMicrobatch.from_layout(job, job.layout)
            ),
            *vocabulary.head(DeviceMicrobatch.from_layout(job, job.layout)),
        ]
        if ends
        else ops
    )


def sent(ops: list[Op], axis: str) -> Counter[tuple[str, int]]:
    """(kind, bytes of the full vector) -> how often, on one axis, forward and backward of one
    microbatch.
    """
    found: Counter[tuple[str, int]] = Counter()
    for op in ops:
        for message in op.forward.comm + op.backward.comm:
            if message.axis == axis and message.bytes:
                found[message.kind, int(message.bytes)] += 1
    return found


def flops(ops: list[Op]) -> float:
    """Matrix FLOPs of one microbatch on one device, forward and backward."""
    return sum(float(op.forward.matrix + op.backward.matrix) for op in ops)
