"""The costs of the parts of a model as items: numbers whose names stay with what formulas make of
them (`num.Item`, `recorded.Recorded`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..cost.layer import LayerCost, Redo, Redone
from ..num import Item, Naming, itemised
from ..step import (
    ENDS_CALLED,
    Body,
    Pipeline,
    pipeline_time,
    recomputing,
    staged,
)

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


def explained(
    parts: Body, labels: Sequence[str], called: Naming = Item.called
) -> Body:
    """The costs of parts as items: what a formula makes of them says how often each is in it;
    labels: of the layers of each kind.
    """

    def items(cost: LayerCost, label: str) -> LayerCost:
        def named_redo(redo: Redo) -> Redo:
            time = called(f"{label} recomputed", redo.time)
            return redo._replace(
                time=time,
                saved=called(f"{label} activations kept", redo.saved),
            )

        again = {name: named_redo(redo) for name, redo in cost.redone.items()}
        named: LayerCost = itemised(
            cost._replace(redone=Redone(again)), label, COSTS, called
        )
        return named

    costs: dict[str, Any] = {
        end: items(getattr(parts, end), end) for end in ENDS_CALLED
    }
    costs["layers"] = tuple(map(items, parts.layers, labels))
    kept = called("inputs of layers", parts.boundary)
    return parts._replace(**costs, boundary=kept)


def piped(p: Prediction, parts: Body, send: Any) -> Pipeline:
    """The pipeline of a prediction, of items."""
    job, layout, by = p.job, p.layout, p._shares
    work = recomputing(parts, layout.recompute, by.again(layout.recompute))
    whole = by["whole"].passes(work)
    slow = p._step.slowest.passes(work)
    return pipeline_time(
        job,
        layout.pp,
        p.microbatches,
        staged(layout, work, by, slow, whole),
        send,
        p._schedule,
        layout.interleave,
        refine=p.replayed_s is not None,
    )
