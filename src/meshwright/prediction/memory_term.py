"""The memory of the fullest device as a tree."""

from __future__ import annotations

from collections.abc import Iterator

from ..num import Num
from ..program import resident
from ..step import oom
from ..step.holding import ParameterBytes, parameter_bytes
from ..step.zero import CUT_FROM, is_sharded
from .explanation import Explanation
from .recorded import Recorded, Traced
from .result import StepResult
from .term import Term, parts_of

ZERO = "Rajbhandari et al. 2020 (ZeRO)"
KINDS = {
    "weights": ("parameters x {weight_bytes:g} B", ZERO),
    "gradients": ("parameters x {gradient_bytes:g} B", ZERO),
    "optimizer": ("parameters x {state_bytes:g} B", ZERO),
    "activations": (
        "what layers and head keep, for the microbatches in flight",
        "Korthikanti et al. 2022",
    ),
    "buffers": (
        "of the framework, and whole units in use (ZeRO {zero})",
        ZERO,
    ),
}
"""Kind of memory -> (formula, source), where layers are counted."""
NARROW_WEIGHTS = (
    "parameters of layers x {narrow:g} B, of embedding and head x {wide:g} B"
)
"""Weights where FP8 or FP4 products find them quantised (`holding.layer_weight_bytes`)."""
LONE_GRADIENTS = "parameters x {gradient_bytes:g} B, those that no other rank has x {lone:g} B"
"""Whole gradients where those that wait for no sum over replicas are narrower
(`Holding.narrow_gradients`)."""
PROGRAM = {
    "weights": "parameters in fp32",
    "gradients": (
        "fp32, whole until they are reduced (ZeRO {zero}), the embedding's for all V rows on"
        " every tp rank"
    ),
    "optimizer": "two moments, 8 B a parameter",
    "activations": (
        "what autograd keeps for the microbatches in flight, receive buffers, stage outputs,"
        " gradients on their way"
    ),
    "buffers": (
        "whole weights in the precision of the products, a unit's gradients being reduced"
    ),
}
"""Kind of memory -> formula, where every tensor of the trainer's program is walked."""
CUT_BY_PROGRAM = frozenset(("weights", "optimizer"))
"""What the trainer's program cuts over the replicas from ZeRO-1 on."""
WALK = "program/memory: a walk through the step, held to the program itself by compare --oracle"


ROUNDED = 1e-12
"""Shares of the memory below this are rounding."""


def memory_term(e: Explanation) -> Term:
    """The memory of the fullest device as a tree."""
    p = e.result
    device = p.name_of(p.fullest)
    name = device if " " in device else f"the {device} device"
    formula = f"sum of its parts, on {name}, at its fullest moment"
    if p.job.how.memory.risk_width:
        risk = f"{p.risk_of_oom:.3g}"
        formula += f"; runs out of memory with a probability of {risk}"
    each = parameter_bytes(p.job, p.layout.zero)
    use = p.memory_use._asdict()
    parts = (
        *(_kind(e, kind, x, each) for kind, x in use.items()),
        *_outside_tensors(p),
    )
    whole = sum(part.value for part in parts)
    return Term("memory", whole, "B", formula, parts=parts)


def _kind(e: Explanation, kind: str, x: Num, each: ParameterBytes) -> Term:
    """The tensors of a kind, which add up to x bytes. each: of a parameter."""
    job, layout = e.result.job, e.result.layout
    if resident.whole_program(job):
        formula, source = PROGRAM[kind], WALK
        cut = kind in CUT_BY_PROGRAM and is_sharded(layout.zero, "optimizer")
    else:
        formula, source = KINDS[kind]
        cut = kind in CUT_FROM and is_sharded(layout.zero, kind)
    if kind == "weights" and each.layer != each.end:
        formula = NARROW_WEIGHTS.format(narrow=each.layer, wide=each.end)
    gradient = each.lone_gradient if cut else each.gradient
    if kind == "gradients" and gradient != each.lone_gradient:
        formula = LONE_GRADIENTS
    formula = formula.format(
        weight_bytes=each.end,
        gradient_bytes=gradient,
        lone=each.lone_gradient,
        state_bytes=each.state,
        zero=layout.zero,
    )
    if cut:
        formula += f", cut over {layout.shards:g} ranks"
    rest = "the framework's own" if kind == "buffers" else "constant"
    parts = parts_of(
        float(x), getattr(e.memory, kind), "B", rest=rest, source=source
    )
    return Term(
        kind, float(x), "B", formula=formula, source=source, parts=parts
    )


def _outside_tensors(p: StepResult) -> Iterator[Term]:
    """What a device must have beside its tensors."""
    use = p.memory_bytes
    own = oom.own_bytes(p.job)
    unusable = use["needed"] - use["allocated"] - own
    need = p.job.how.memory.framework_holding.allocator_need
    share = f"{need:g} of the bytes of tensors, after the cache is freed"

    def cached() -> Traced:
        tensors: Traced = Recorded(use["allocated"], name="allocated")
        return oom.needed_bytes(p.job, tensors) - tensors - own

    def context() -> Traced:
        return Recorded(own, name="context")

    chip = p.job.cluster.chip
    outside = "context, kernels and communicators, outside the allocator"
    for name, size, formula, field, record in (
        ("allocator", unusable, share, "holding.allocator_need", cached),
        ("context", own, outside, "framework_bytes", context),
    ):
        if abs(size) > ROUNDED * use["needed"]:
            profile = p.job.profile
            source = p.job.assumptions.source
            if profile:
                source = profile.sources[field]["source"]
            if name == "context" and chip.context_bytes is not None:
                source = f"{chip.name}: context_bytes"
            whole = name, size, "B", formula, source
            yield Term(*whole, (Term(*whole, expression=(record,)),))
