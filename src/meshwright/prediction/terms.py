"""What a prediction explains: terms that add up, each with its formula, the numbers put in and the
source.

The step and its memory are computed with numbers that remember what they are sums of
(`num.Itemised`): the costs of the parts of the model and what formulas name on the way. So parts
are what the formulas made of them, whichever branch ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..num import Item, Num
from ..step import (
    hop,
    updated,
)
from .expression import asked
from .formulas import formulas
from .items import piped
from .operations import OVERLAPPED, operations
from .retimed import SENDS
from .term import Term, parts_of

if TYPE_CHECKING:
    from .prediction import Prediction


def step_term(p: Prediction) -> Term:
    """The tree behind `Prediction.term`."""
    job = p.job
    layout = p.layout
    parts = p._explained
    by = p._shares
    again = p._retimed
    told = formulas(p)
    send = Item.called(SENDS, hop(layout, parts, p._clock).seconds)
    pipe = piped(p, parts, send)
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
            lambda: again.pipe.bubble,
        ),
        "optimizer": parts_of(
            p.time_s["optimizer"],
            updated(job, layout, parts, by, p._clock),
            "s",
            "launch, and what every step takes",
            whole=lambda: again.updated,
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
    again = p._retimed
    parts = parts_of(
        float(step.pipeline.sends),
        sends,
        "s",
        "latency of sends",
        whole=lambda: again.pipe.sends,
    )
    full = "bytes of the busiest dimension / its rate - the rest of the step"
    return (
        (
            *parts,
            Term(
                "full links",
                float(step.waits),
                "s",
                full,
                expression=(asked, lambda: again.step.waits),
            ),
        )
        if step.waits
        else parts
    )


def _synchronisation(p: Prediction) -> list[Term]:
    """Of weights and gradients: what does not hide on the device that ends last."""
    found = p._step
    again = p._retimed
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
            lambda: again.waits.arrives,
        ),
        (
            "weights beside forward passes",
            waits.forward,
            within,
            lambda: again.waits.forward,
        ),
        (
            "weights and gradients beside backward passes",
            waits.backward,
            within,
            lambda: again.waits.backward,
        ),
        (
            "last gradients",
            waits.leaves,
            "reduction of a layer, embedding and head",
            lambda: again.waits.leaves,
        ),
        (
            "while the pipeline waits",
            rest if abs(rest) > 1e-12 * p.step_time_s else 0.0,
            "bubbles in which they run",
            again.meanwhile,
        ),
    )
    return [
        Term(name, float(value), "s", formula, expression=(asked, recorded))
        for name, value, formula, recorded in named
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
            (p._retimed.slowdown,),
        ),
        (
            "weights and gradients",
            p._step.slowdown,
            f"{how.dp.slow:g} of what hides of them",
            (asked, lambda: p._retimed.step.slowdown),
        ),
    )
    return [
        Term(name, float(value), "s", formula, expression=expression)
        for name, value, formula, expression in named
        if value
    ]
