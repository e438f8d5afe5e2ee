"""The step time as a tree of terms that adds up: causes, then parts of the model, then operations,
each with its formula, the numbers put in and the source.

Parts are what the formulas made of the costs of the parts of the model, whichever branch ran
(`recorded.contributions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..cost.causes import CAUSES
from ..cost.layer import OpCost
from ..cost.offload import COPIES
from ..count.recompute import recomputed_ops
from ..count.work import Pass
from ..describe.offload import offload
from ..describe.recompute import resolve
from ..num import largest
from ..step.microbatch import END_LABELS, labels, leaving_bytes
from ..units import show
from .explanation import Explanation
from .result import StepResult
from .term import Term, Told, parts_of

OVERLAPPED = {"tp_comm": "tp", "cp_comm": "cp", "ep_comm": "ep"}
"""Cause -> its field of `Overlap`."""
ROUNDING = 1e-12
"""Shares of a step below this are rounding."""


def step_term(e: Explanation) -> Term:
    """The tree behind `Prediction.term`."""
    p = e.result
    parts: dict[str, Sequence[Term]] = {
        **_operations(e),
        "pp_comm": [*_sends(e)],
        "dp_comm": [*_synchronisation(e)],
        "overlap_slowdown": [*_slowdown(e)],
        "bubble": parts_of(
            p.time_s["bubble"],
            e.costs.pipeline.bubble,
            "s",
            rest="sends",
            source=p.schedule.source,
        ),
        "optimizer": parts_of(
            p.time_s["optimizer"],
            e.costs.update_seconds,
            "s",
            "launch, and what every step takes",
        ),
    }
    return Term(
        "step_time",
        p.step_time_s,
        "s",
        "sum of its parts, on the device the pipeline waits for",
        parts=tuple(
            Term(
                cause,
                value,
                "s",
                (e.formula, cause, 0),
                (e.formula, cause, 1),
                tuple(parts.get(cause, ())),
            )
            for cause, value in p.time_s.items()
        ),
    )


def _operations(e: Explanation) -> dict[str, list[Term]]:
    """Per cause, the operations of the slowest device with their seconds in a whole step, and what
    of them hides.
    """
    p = e.result
    by_cause: dict[str, list[Term]] = {cause: [] for cause in CAUSES}
    every = p.passes
    for key, (n, seconds) in every.items():
        if n and float(seconds.host):
            label, direction = key
            by_cause["host"].append(
                Term(
                    f"{label} {direction}",
                    float(seconds.host) * n,
                    "s",
                    (OF, float(seconds.total), n),
                    expression=(e.host, key),
                )
            )
    kinds = labels(p.job.model)
    count = p.job.how.count
    mode = resolve(p.layout.recompute, count.selective, count.full)
    some = float(p.slowest.recompute_share(p.layout.recompute))
    for label, cost in zip((*kinds, *END_LABELS), p.cost.parts, strict=True):
        times, _ = every[label, "forward"]
        ops = [each.op for each in cost.operations] if times else []
        runs = recomputed_ops(ops, mode if label in kinds else "none")
        for timed, again in zip(cost.operations, runs, strict=False):
            n = times * float(timed.times)
            passes = {"forward": n, "backward": n}
            if again.runs:
                passes["recomputed"] = n * (float(again.share) * some)
            for direction, often in passes.items():
                name = f"{label}/{timed.op.name} {direction}"
                back = direction == "backward"
                for cause, term in _pass(e, name, timed, back, n=often):
                    by_cause[cause].append(term)
    by_cause["memory"] += _copies(e, by_cause["memory"])
    for cause in OVERLAPPED:
        by_cause[cause] += _hidden(e, cause, by_cause[cause])
    return by_cause


def _pass(
    e: Explanation, name: str, cost: OpCost, back: bool, n: float
) -> Iterator[tuple[str, Term]]:
    """(cause, term) of the seconds of one pass of an operation, n times a step."""
    op, timed = cost.op, cost.backward if back else cost.forward
    work = op.backward if back else op.forward
    for cause, seconds in zip(CAUSES, timed.time, strict=True):
        if seconds:
            formula: Any = _sent if cause in OVERLAPPED else _done
            yield (
                cause,
                _leaf(
                    name,
                    float(seconds) * n,
                    (formula, work, n),
                    e.operation,
                    op,
                    back,
                    cause,
                    n,
                ),
            )


def _leaf(name: str, value: Any, formula: Told, *record: Any) -> Term:
    """Seconds without parts. record: the function that records them, and what of."""
    return Term(name, float(value), "s", formula, expression=record)


OF = "of {:.3g} s; {:g} times a step".format


def _done(work: Pass, n: float) -> str:
    """What a pass computes, n times a step."""
    done = (
        (work.matrix, "FLOP", "of matrix products"),
        (work.vector, "FLOP", "element-wise"),
        (work.memory, "B", "read and written"),
    )
    parts = (
        f"{show(float(amount), unit, 4)} {what}"
        for amount, unit, what in done
        if amount
    )
    return f"{', '.join(parts)}; {n:g} times a step"


def _sent(work: Pass, n: float) -> str:
    """What it sends."""
    sent = ", ".join(
        f"{c.kind} of {show(float(c.bytes), 'B', 4)} over {c.axis}"
        for c in work.comm
    )
    return f"{sent}; {n:g} times a step"


def _hidden(
    e: Explanation, cause: str, terms: Sequence[Term]
) -> Iterator[Term]:
    """What of a cause hides behind compute, below 0."""
    p = e.result
    hidden = p.time_s[cause] - sum(term.value for term in terms)
    if hidden < -ROUNDING * p.step_time_s:
        how = getattr(p.job.how.overlap, OVERLAPPED[cause])
        part = (
            f", and {100 * how.most:g} % of what is sent"
            if how.most < 1
            else ""
        )
        yield _leaf(
            "hidden behind compute",
            hidden,
            f"while its {how.scope} computes, at most {100 * how.share:g} % of that{part}",
            e.hidden,
            cause,
        )


def _copies(e: Explanation, traffic: Sequence[Term]) -> Iterator[Term]:
    """Of activations to host memory and back, what outlasts the passes beside it."""
    p = e.result
    if not offload(p.layout.offload).activations:
        return
    chip = p.job.cluster.chip
    mode = p.layout.recompute
    most = largest(leaving_bytes(c, p.cost, mode) for c in p.cost.layers)
    longer = p.time_s["memory"] - sum(term.value for term in traffic)
    if longer > ROUNDING * p.step_time_s:
        formula = (
            f"max(T, {float(most):.4g} B of a layer / ({chip.host_reached:g} x"
            f" {chip.host_bandwidth:.4g} B/s)) - T, T the seconds of either pass"
        )
        yield _leaf(COPIES, longer, formula, e.copies)


def _sends(e: Explanation) -> Iterator[Term]:
    """Of messages between stages: what the bytes take, what nothing hides, and what waits for full
    links.
    """
    step = e.result.step
    yield from parts_of(
        float(step.pipeline.sends),
        e.costs.pipeline.sends,
        "s",
        "latency of sends",
    )
    if step.link_wait:
        yield _leaf(
            "full links",
            float(step.link_wait),
            "bytes of the busiest dimension / its rate - the rest of the step",
            lambda: e.costs.step.link_wait,
        )


def _synchronisation(e: Explanation) -> Iterator[Term]:
    """Of weights and gradients: what does not hide on the device that ends last."""
    p = e.result
    step = p.step
    m = float(p.schedule.rounds(p.microbatches))
    how = p.job.how.overlap.dp.at(int(p.layout.zero))
    device = step.devices[step.critical_device]
    waits = device.wait
    within = (
        f"during {m:g} microbatches of {float(device.passes.forward):.3g} s forward,"
        f" {float(device.passes.backward):.3g} s backward: max(T - {how.share:g} t, what full links"
        f" delay), links {how.links}"
    )
    for name, field, formula in (
        (
            "first weights",
            "first_weights",
            "gather of a layer, embedding and head",
        ),
        ("weights during forward passes", "forward", within),
        ("weights and gradients during backward passes", "backward", within),
        (
            "last gradients",
            "last_gradients",
            "reduction of a layer, embedding and head",
        ),
        (
            "table of first and last stage",
            "tied_gradients",
            "all-reduce of its gradients between the two",
        ),
    ):
        if value := float(getattr(waits, field)):
            yield _leaf(name, value, formula, e.waited, field)
    shown = float(step.sync - step.slowdown)
    rest = shown - float(waits.total - waits.slowdown)
    if abs(rest) > ROUNDING * p.step_time_s:
        yield _leaf(
            "while the pipeline waits",
            rest,
            "bubbles in which they run",
            e.meanwhile,
        )


def _slowdown(e: Explanation) -> Iterator[Term]:
    """Of compute while communication hides behind it: inside layers, and beside whole passes."""
    p: StepResult = e.result
    how = p.job.how.overlap
    words = ", ".join(
        f"{slow:g} of what hides of {axis}"
        for axis in OVERLAPPED.values()
        if (slow := getattr(how, axis).slow)
    )
    if value := float(p.busy.overlap_slowdown):
        yield _leaf("collectives inside layers", value, words, e.slowdown)
    if value := float(p.step.slowdown):
        yield _leaf(
            "weights and gradients",
            value,
            f"{how.dp.slow:g} of what hides of them",
            lambda: e.costs.step.slowdown,
        )
