"""What a prediction explains: terms that add up, each with its formula, the numbers put in and the
source.

The step and its memory are computed with numbers that remember what they are sums of
(`num.Itemised`): the costs of the parts of the model and what formulas name on the way. So parts
are what the formulas made of them, whichever branch ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..cost.layer import LayerCost, Redo, Redone
from ..num import Item, Num, itemised
from ..step import (
    ENDS_CALLED,
    Body,
    hop,
    pipelined,
    recomputing,
    staged,
    updated,
)
from .formulas import formulas
from .operations import OVERLAPPED, operations
from .term import Term, parts_of

if TYPE_CHECKING:
    from .prediction import Prediction

COSTS = {
    "forward": "forward",
    "backward": "backward",
    "weight_pass": "weight gradients",
    "saved": "activations",
    "weights": "parameters",
    "expert_weights": "parameters of experts",
}
"""Field of a `LayerCost` -> what a term calls it."""


def explained(parts: Body, called: Sequence[str]) -> Body:
    """The costs of parts as items: what a formula makes of them says how often each is in it;
    called: the layers of each kind.
    """

    def items(cost: LayerCost, label: str) -> LayerCost:
        def named_redo(redo: Redo) -> Redo:
            time = Item.called(f"{label} recomputed", redo.time)
            return redo._replace(
                time=time,
                saved=Item.called(f"{label} activations kept", redo.saved),
            )

        again = {name: named_redo(redo) for name, redo in cost.redone.items()}
        named: LayerCost = itemised(
            cost._replace(redone=Redone(again)), label, COSTS
        )
        return named

    costs: dict[str, Any] = {
        end: items(getattr(parts, end), end) for end in ENDS_CALLED
    }
    costs["layers"] = tuple(map(items, parts.layers, called))
    kept = Item.called("inputs of layers", parts.boundary)
    sent = Item.called("bytes sent", parts.message)
    return parts._replace(**costs, boundary=kept, message=sent)


def step_term(p: Prediction) -> Term:
    """The tree behind `Prediction.term`."""
    job = p.job
    layout = p.layout
    parts = p._explained
    by = p._shares
    told = formulas(p)
    work = recomputing(parts, layout.recompute, by.again(layout.recompute))
    send = hop(layout, parts, p._clock)
    whole = by["whole"].passes(work)
    slow = p._step.slowest.passes(work)
    s = staged(layout, work, by, slow, whole)
    pipe = pipelined(job, layout, s, send, refine=True)
    found: dict[str, Sequence[Term]] = {
        **operations(p),
        "pp_comm": _sends(p, pipe.sends),
        "dp_comm": _synchronisation(p),
        "overlap_slowdown": _slowdown(p),
        "bubble": parts_of(
            p.time_s["bubble"],
            pipe.bubble,
            "s",
            "sends",
            p._schedule.source,
        ),
        "optimizer": parts_of(
            p.time_s["optimizer"],
            updated(job, layout, parts, by, p._clock),
            "s",
            "launch, and what every step takes",
        ),
    }
    terms = tuple(
        Term(name, value, "s", *told[name], tuple(found.get(name, ())))
        for name, value in p.time_s.items()
    )
    return Term(
        "step_time",
        p.step_time_s,
        "s",
        "sum of its parts, on the device the pipeline waits for",
        parts=terms,
    )


def _sends(p: Prediction, sends: Num) -> tuple[Term, ...]:
    """Of messages between stages: what the bytes take, what nothing hides, and what waits for full
    links.
    """
    step = p._step
    parts = parts_of(
        float(step.pipeline.sends), sends, "s", "latency of sends"
    )
    full = "bytes of the busiest dimension / its rate - the rest of the step"
    return (
        (*parts, Term("full links", float(step.waits), "s", full))
        if step.waits
        else parts
    )


def _synchronisation(p: Prediction) -> list[Term]:
    """Of weights and gradients: what does not hide on the device that ends last."""
    found = p._step
    m = float(p._schedule.rounds(p.microbatches))
    how = p.job.how.overlap.dp
    device = found.devices[found.awaited]
    waits = found.waiting[found.awaited]
    longer = found.slowdown
    beside = (
        f"beside {m:g} microbatches of {float(device.forward):.3g} s forward,"
        f" {float(device.backward):.3g} s backward"
    )
    within = f"{beside}: max(T - {how.share:g} t, what full links delay), links {how.links}"
    rest = float(found.sync - longer) - float(waits.total - waits.slowdown)
    named = (
        (
            "first weights",
            waits.arrives,
            "gather of a layer, embedding and head",
        ),
        ("weights beside forward passes", waits.forward, within),
        (
            "weights and gradients beside backward passes",
            waits.backward,
            within,
        ),
        (
            "last gradients",
            waits.leaves,
            "reduction of a layer, embedding and head",
        ),
        (
            "while the pipeline waits",
            rest if abs(rest) > 1e-12 * p.step_time_s else 0.0,
            "bubbles in which they run",
        ),
    )
    return [
        Term(name, float(value), "s", formula)
        for name, value, formula in named
        if value
    ]


def _slowdown(p: Prediction) -> list[Term]:
    """Of compute while communication hides behind it: inside layers, and beside whole passes."""
    how = p.job.how.overlap
    inside = {axis: getattr(how, axis).slow for axis in OVERLAPPED.values()}
    words = ", ".join(
        f"{slow:g} of what hides of {axis}"
        for axis, slow in inside.items()
        if slow
    )
    named = (
        (
            "collectives inside layers",
            p._busy.overlap_slowdown,
            words,
        ),
        (
            "weights and gradients",
            p._step.slowdown,
            f"{how.dp.slow:g} of what hides of them",
        ),
    )
    return [
        Term(name, float(value), "s", formula)
        for name, value, formula in named
        if value
    ]
