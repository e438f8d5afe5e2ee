"""What `count` says a layout sends, in the words of the record of a fake cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

from meshwright import Chip, Cluster, Dim, Job, Layout, Model, Network
from meshwright.count import vocabulary
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.model import kinds, layer
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


ENDS = vocabulary.embedding, vocabulary.head


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


def operations(
    job: Job, layers: int | None = None, ends: Iterable[Any] = ENDS
) -> list[Op]:
    """Operations of all layers on one device, or of so many (its share of each), with those of
    embedding and head, or of some of them.
    """
    at = DeviceMicrobatch.from_layout(job, job.layout)
    of_layers = (
        layer(job, job.layout, kind) for kind in kinds(job.model)[:layers]
    )
    return [*chain(*of_layers, *(end(at) for end in ends))]


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
