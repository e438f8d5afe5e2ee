"""A job whose seconds can be worked out on paper.

One layer, one sequence of T = 128 tokens, D = 64, 4 heads, F = 256, no gate, no norm parameters: 4
D^2 + 2 D F = 49,152 weights, so 2 x 49,152 x 128 FLOPs of matrices and 4 T^2 D of attention,
together 2^24 forward and twice that backward. On a chip of 2^24 FLOP/s, and nothing else counted, a
layer takes 1 s forward and 2 s backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from meshwright import (
    Chip,
    Cluster,
    Dim,
    Job,
    Layout,
    Model,
    Network,
    Prediction,
    assumptions,
    predict,
)
from meshwright.describe.assumptions import (
    Assumptions,
    ChipTime,
    Counting,
    HidePass,
    MemoryCount,
    NetworkTime,
    Overlap,
)
from meshwright.describe.fields import ASK, Field, fields_of, left_out
from meshwright.describe.holding import Holding

WEIGHTS = 4 * 64 * 64 + 2 * 64 * 256
"""Parameters of a layer."""
FORWARD, BACKWARD = 1.0, 2.0
"""Seconds of a layer and microbatch of one sequence."""
TOKENS, WIDTH = 128, 64
MODEL = Model(
    "by hand",
    layers=2,
    hidden=WIDTH,
    heads=4,
    ffn=256,
    vocab=0,
    seq=TOKENS,
    gated=False,
    norm="nonparametric",
    positions="none",
)
CHIP = Chip(
    "by hand",
    {"bf16": 2.0**24},
    vector_flops=1.0,
    hbm_bytes=1e12,
    hbm_bandwidth=1.0,
    power_w=250.0,
)
SET: Assumptions = replace(
    assumptions("lbl-2024"),
    name="by hand",
    count=Counting(
        dot_product="2k", causal="full", residual=False, optimizer_step=False
    ),
    chip=ChipTime(model="peak", matrix_efficiency=1.0, launch_s=0.0),
    network=NetworkTime(collective="ring", efficiency=1.0, hop="slowest"),
    overlap=Overlap(dp=HidePass(), pp="none"),
    memory=MemoryCount(
        framework_bytes=0.0, capacity_share=1.0, holding=Holding()
    ),
    precision=None,
    choices=(),
)
"""Only matrix FLOPs and links take time, and nothing hides."""
FREE = replace(SET, name="free", network=NetworkTime("free"))
"""Only matrix FLOPs take time."""


GPT2_CONFIG = (
    '{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 12, "n_embd": 768,'
    ' "n_head": 12, "vocab_size": 50257, "n_positions": 1024, "resid_pdrop": 0.0, "embd_pdrop":'
    ' 0.0, "attn_pdrop": 0.0}'
)
"""GPT-2 as this project's trainer takes it: without dropout."""


def by_hand(
    layout: Layout,
    microbatches: int = 1,
    rate: float = 1e30,
    model: Model = MODEL,
    hardware: Chip = CHIP,
    **joints: Any,
) -> Prediction:
    """The prediction of a job in which every replica (one, if the layout does not say) has so many
    microbatches, on one switch of `rate` B/s.

    joints: other joints of the assumption set.
    """
    network = Network("by hand", (Dim("switch", rate, 0.0),))
    layout = layout.filling(1)
    batch = microbatches * int(layout.dp) * int(layout.microbatch)
    cluster = Cluster(hardware, network, int(layout.chips))
    return predict(
        Job(
            model,
            cluster,
            batch,
            layout,
            attention_kernel="unfused",
            assumptions=replace(SET, **joints),
        )
    )


def switched(thing: Any, **fields: Any) -> Any:
    """A description made anew with other values, without those of the options that it loses by
    them. Raises BadInput."""
    every = {name: getattr(thing, name) for name in fields_of(type(thing))}
    lost = {*left_out(type(thing), every | fields)} - {*fields}
    given = {k: v for k, v in (every | fields).items() if k not in lost}
    return type(thing)(**given)


def set_to(thing: Any, path: str, value: Any) -> Any:
    """A description with the field at a dotted path given as in a file: without what another option
    had. Raises BadInput."""
    first, _, rest = path.partition(".")
    inner = set_to(getattr(thing, first), rest, value) if rest else value
    return switched(thing, **{first: inner})


CAPACITY = 79e9
"""Bytes that leave a model one of a chip's 80 GB."""


def leaves(option: Any, name: str) -> Iterator[tuple[str, Field, Any]]:
    """(name, field, value) of all fields of an option, and of its options."""
    for field in fields(option):
        value, path = getattr(option, field.name), f"{name}.{field.name}"
        if is_dataclass(value):
            yield from leaves(value, path)
        else:
            yield path, fields_of(type(option))[field.name], value


def other_values(field: Field, value: Any) -> tuple[Any, ...]:
    """Values that an option may have instead."""
    words = field.kind.words
    if isinstance(value, Mapping):
        return tuple({text: 30.0} for text in words)
    if words:
        return tuple(text for text in words if text not in (value, ASK))
    if isinstance(value, bool):
        return (not value,)
    if not value:
        return (CAPACITY if field.name.endswith("bytes") else 0.5,)
    least = field.kind.range.least if field.kind.range else 0.0
    return (max(value / 100, least),)
