"""The memory of the fullest device as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..program import resident
from ..step import holding, room
from .explanation import Explanation
from .recorded import Recorded, Traced
from .result import StepResult
from .term import Term, parts_of

ZERO = "Rajbhandari et al. 2020 (ZeRO)"
KINDS = {
    "weights": ("parameters x {weight_bytes:g} B", 3, ZERO),
    "gradients": ("parameters x {gradient_bytes:g} B", 2, ZERO),
    "optimizer": ("parameters x {state_bytes:g} B", 1, ZERO),
    "activations": (
        "what layers and head keep, for the microbatches in flight",
        4,
        "Korthikanti et al. 2022",
    ),
    "buffers": (
        "of the framework, and whole units in use (ZeRO {zero})",
        4,
        ZERO,
    ),
}
"""Kind of memory -> (formula, the ZeRO stage from which it is sharded, source), where layers are
counted.
"""
PROGRAM = {
    "weights": ("parameters in fp32", 1),
    "gradients": (
        (
            "fp32, whole until they are reduced (ZeRO {zero}), the embedding's for all V rows on"
            " every tp rank"
        ),
        4,
    ),
    "optimizer": ("two moments, 8 B a parameter", 1),
    "activations": (
        (
            "what autograd keeps for the microbatches in flight, receive buffers, stage outputs,"
            " gradients on their way"
        ),
        4,
    ),
    "buffers": (
        "whole weights in the precision of the products, a unit's gradients being reduced",
        4,
    ),
}
"""The same where every tensor of the trainer's program is."""
WALK = "program/memory: a walk through the step, held to the program itself by compare --oracle"


ROUNDED = 1e-12
"""Shares of the memory below this are rounding."""


def memory_term(e: Explanation) -> Term:
    """The memory of the fullest device as a tree."""
    p = e.result
    job = p.job
    layout = p.layout
    precision = p.job.precision
    whole = resident.whole_program(job)
    kinds = (
        {kind: (*told, WALK) for kind, told in PROGRAM.items()}
        if whole
        else KINDS
    )
    device = max(
        p.memory_by_stage, key=lambda end: float(p.memory_by_stage[end].total)
    )
    numbers: Mapping[str, Any] = {
        "weight_bytes": precision.weight_bytes,
        "gradient_bytes": holding.gradient_bytes(job),
        "state_bytes": job.state_bytes,
        "zero": layout.zero,
    }

    def term(kind: str, value: float) -> Term:
        formula, stage, source = kinds.get(kind, ("", 4, ""))
        cut = (
            f", cut over {layout.shards:g} ranks"
            if layout.zero >= stage
            else ""
        )
        parts = parts_of(
            value,
            getattr(e.memory, kind),
            "B",
            "the framework's own" if kind == "buffers" else "constant",
            source,
        )
        return Term(
            kind, value, "B", formula.format(**numbers) + cut, source, parts
        )

    parts = tuple(
        term(kind, float(value))
        for kind, value in p.memory_use._asdict().items()
    )
    formula = (
        f"sum of its parts, on {device if ' ' in device else f'the {device} device'}, at its"
        " fullest moment"
    )
    if job.how.memory.risk_width:
        formula += (
            f"; runs out of memory with a probability of {p.risk_of_oom:.3g}"
        )
    parts += tuple(_outside_tensors(p))
    return Term(
        "memory", sum(part.value for part in parts), "B", formula, parts=parts
    )


def _outside_tensors(p: StepResult) -> Iterator[Term]:
    """What a device must have beside its tensors."""
    use = p.memory_bytes
    own = room.own_bytes(p.job)
    profile = p.job.profile
    unusable = use["needed"] - use["allocated"] - own
    share = f"{room.unusable(p.job):g} of the bytes of tensors, after the cache is freed"

    def cached() -> Traced:
        held: Traced = Recorded(use["allocated"], name="allocated")
        return room.needed(p.job, held) - held - own

    named = (
        ("allocator", unusable, share, "holding.allocator_need", cached),
        (
            "context",
            own,
            "context, kernels and communicators, outside the allocator",
            "framework_bytes",
            lambda: Recorded(own, name="context"),
        ),
    )
    for name, size, formula, field, recorded in named:
        if abs(size) > ROUNDED * use["needed"]:
            source = (
                profile.sources[field]["source"]
                if profile
                else p.job.assumptions.source
            )
            yield Term(
                name,
                size,
                "B",
                formula,
                source,
                (
                    Term(
                        name,
                        size,
                        "B",
                        formula,
                        source,
                        expression=(recorded,),
                    ),
                ),
            )
