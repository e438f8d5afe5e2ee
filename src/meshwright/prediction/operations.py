"""The operations of a step as terms: of the slowest device, by the causes of their seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..cost.layer import CAUSES, Half, LayerCost
from ..count.recompute import NEVER, again
from ..count.work import Op, Pass
from ..describe.offload import offload
from ..describe.recompute import resolved
from ..num import Num, largest
from ..step import ENDS_CALLED, labels, redo
from .retimed import Retimed
from .term import Term

if TYPE_CHECKING:
    from .prediction import Prediction

OVERLAPPED = {"tp_comm": "tp", "cp_comm": "cp", "ep_comm": "ep"}
"""Cause -> its field of `Overlap`."""
OF = "of {:.3g} s; x {:g} a step".format


def operations(p: Prediction) -> dict[str, list[Term]]:
    """Per cause, the operations of the slowest device with their seconds in a whole step, and what
    of them hides.
    """
    found: dict[str, list[Term]] = {cause: [] for cause in CAUSES}
    retimed = p._retimed
    m = p._schedule.rounds(p.microbatches)
    slowest = p._step.slowest
    parts = resolved(p.layout.recompute, p.job.how.count.selective)
    some = float(slowest.again(p.layout.recompute))
    for (label, cost, is_layer), often in zip(
        _parts(p), slowest.parts, strict=True
    ):
        times = float(often * m)
        if not times:
            continue
        recomputed = p.layout.recompute if is_layer else "none"
        found["host"] += _host(label, cost, times, recomputed, some, retimed)
        every = cost.operations
        runs = again(
            [each.op for each in every], parts if is_layer else "none"
        )
        for each, redone in zip(every, runs, strict=True):
            n = times * float(each.times)
            name = f"{label}/{each.op.name}"
            ahead = each.op, False, each.forward
            back = each.op, True, each.backward
            _tell(found, f"{name} forward", *ahead, n, retimed)
            _tell(found, f"{name} backward", *back, n, retimed)
            if redone is not NEVER:
                n = n * (float(redone.share) * some)
                _tell(found, f"{name} recomputed", *ahead, n, retimed)
    found["memory"] += _copies(p, found["memory"])
    for cause, field in OVERLAPPED.items():
        hidden = p.time_s[cause] - sum(term.value for term in found[cause])
        if hidden < -1e-12 * p.step_time_s:
            how = getattr(p.job.how.overlap, field)
            formula = f"within its {how.scope}, up to {how.share:g} of it"
            found[cause].append(
                Term(
                    "hidden behind compute",
                    hidden,
                    "s",
                    formula,
                    expression=(retimed.hidden, cause),
                )
            )
    return found


def _tell(
    found: dict[str, list[Term]],
    name: str,
    op: Op,
    back: bool,
    half: Half,
    n: float,
    again: Retimed,
) -> None:
    """One pass of an operation, n times a step, under the causes of its seconds."""
    work = op.backward if back else op.forward
    seconds = half.time

    def tell(cause: str, value: Num, told: Any) -> None:
        found[cause].append(
            Term(
                name,
                float(value) * n,
                "s",
                (told, work, n),
                expression=(again.expression, op, back, cause, n),
            )
        )

    for cause, value in zip(CAUSES[:2], seconds[:2], strict=True):
        if value:
            tell(cause, value, _done)
    for cause in OVERLAPPED if work.comm else ():
        if value := getattr(seconds, cause):
            tell(cause, value, _sent)


def _done(work: Pass, n: float) -> str:
    """What a pass computes, n times a step."""
    return (
        f"{work.matrix:.4g} matrix FLOPs, {work.vector:.4g} vector FLOPs, {work.memory:.4g} B"
        f"; x {n:g} a step"
    )


def _sent(work: Pass, n: float) -> str:
    """What it sends."""
    sent = ", ".join(
        f"{c.kind} of {float(c.bytes):.4g} B over {c.axis}" for c in work.comm
    )
    return f"{sent}; x {n:g} a step"


def _parts(p: Prediction) -> Iterator[tuple[str, LayerCost, bool]]:
    """(name, cost, whether it is a layer) of the parts of the model."""
    for label, layer in zip(labels(p.job.model), p._body.layers, strict=True):
        yield label, layer, True
    for end in ENDS_CALLED:
        yield end, getattr(p._body, end), False


def _copies(p: Prediction, traffic: Sequence[Term]) -> Iterator[Term]:
    """Of activations to host memory and back, what outlasts the passes beside it."""
    if not offload(p.layout.offload).activations:
        return
    chip = p.job.cluster.chip
    most = largest(layer.offloaded for layer in p._body.layers)
    longer = p.time_s["memory"] - sum(term.value for term in traffic)
    if longer > 1e-12 * p.step_time_s:
        formula = (
            f"max(T, {float(most):.4g} B of a layer / ({chip.host_reached:g} x"
            f" {chip.host_bandwidth:.4g} B/s)) - T, T the seconds of either pass"
        )
        yield Term(
            "activations to host memory and back",
            longer,
            "s",
            formula,
            expression=(p._retimed.copies,),
        )


def _host(
    label: str,
    cost: LayerCost,
    times: float,
    recomputed: str,
    some: float,
    again: Retimed,
) -> Iterator[Term]:
    """By which launching a part of the model outlasts its kernels, pass by pass. some: share of
    layers that run again.
    """
    passes = [
        ("forward", cost.causes.forward, times),
        ("backward", cost.causes.backward, times),
    ]
    if more := redo(cost, recomputed):
        passes.append(("recomputed", more.causes, times * some))
    for direction, seconds, n in passes:
        if float(seconds.host):
            formula = (OF, float(seconds.total), n)
            yield Term(
                f"{label} {direction}",
                float(seconds.host) * n,
                "s",
                formula,
                expression=(again.host, label, direction),
            )
