"""A plan as tables: the best layout, why it wins, the runners-up, the Pareto front if asked for,
and what was searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..describe.layout import Layout
from ..prediction.prediction import Prediction
from ..units import show
from .predict import answer, memory_table, notes, plain, time_table
from .text import CAUSES, SPLITS, WORDED, layout_words, near, percent, seconds

if TYPE_CHECKING:
    from ..search import Plan

ALWAYS = ("tp", "pp", "dp")
"""Degrees shown even if all are 1."""
PLAIN = {
    (f.name, str(f.default)) for f in fields(Layout) if f.name in SPLITS or f.name not in WORDED
}
IDLE = {*PLAIN, ("schedule", "-"), ("seq. parallel", "-")}
"""Columns that say nothing if all rows hold this."""
REJECTED = {
    "memory": "do not fit in memory",
    "bound": "ruled out by a bound: they cannot be among the fastest, or cannot fit",
}
"""What the counts that are no rules mean."""
BINDING = 0.02
"""Share of the step from which a cause is named among those that bind."""


def report(plan: Plan, command: str, ascii_only: bool = False) -> RenderableType:
    """Everything `plan` prints; `command`: what predicts the best layout again."""
    parts: list[RenderableType] = []
    if plan.idle:
        parts.append(Text(plan.idle, "yellow"))
    if plan.best:
        best = plan.best
        parts += [
            *answer(best, not plan.idle),
            Text(),
            time_table(best, ascii_only),
            Text(),
            memory_table(best, ascii_only),
            Text(),
        ]
        parts += [*why(plan), Text(), ranking("layouts, fastest first", (best, *plan.alternatives))]
        if plan.pareto and len(plan.pareto) > 1:
            parts += [Text(), ranking("time against memory", plan.pareto)]
    else:
        parts.append(Text("no layout fits", "bold red"))
        parts += [Text(f"  {note}") for note in plan.notes]
        if plan.closest:
            parts += [
                Text(),
                Text("closest:", "bold"),
                *answer(plan.closest),
                Text(),
                memory_table(plan.closest, ascii_only),
            ]
    parts += [Text(), *searched(plan)]
    if plan.best:
        parts += [
            *(Text(f"note: {note}", "yellow") for note in plan.notes),
            *notes(plan.best),
            Text(),
            Text(f"again: {command}"),
        ]
    return Group(*parts)


def why(plan: Plan) -> Iterator[Text]:
    """What binds the best layout, and what the runner-up loses."""
    best = plan.best
    if not best:
        return
    ranked = sorted(best.time_s.items(), key=lambda item: -item[1])
    binding = [
        (cause, s) for cause, s in ranked if cause != "compute" and s >= BINDING * best.step_time_s
    ]
    words = ", ".join(
        f"{CAUSES[cause]} {show(s, 's')} ({percent(s / best.step_time_s)})" for cause, s in binding
    )
    yield Text("why", "bold")
    share = percent(best.time_s["compute"] / best.step_time_s)
    yield Text(f"  besides arithmetic ({share}) the step waits for: {words or 'nothing much'}")
    if not plan.alternatives:
        return
    second = plan.alternatives[0]
    slower = _decides(second) / _decides(best) - 1
    changes = [(cause, second.time_s[cause] - s) for cause, s in best.time_s.items()]
    largest = sorted(changes, key=lambda item: -abs(item[1]))[:3]
    parts = ", ".join(
        f"{cause} {'+' if d > 0 else '-'}{show(abs(d), 's')}"
        for cause, d in largest
        if abs(d) > 1e-9 * best.step_time_s
    )
    loses = f"is {percent(slower, 2)} slower ({parts})" if slower > 1e-9 else "is as fast"
    yield Text(f"  the runner-up, {layout_words(second.layout)}, {loses}")


def ranking(title: str, predictions: Sequence[Prediction]) -> RenderableType:
    """One layout a row; what is the same in all of them is said once, above."""
    fastest = min(_decides(p) for p in predictions)
    rows = [_row(p) for p in predictions]
    varied = [name for name in rows[0] if name in ALWAYS or len({row[name] for row in rows}) > 1]
    same = [
        f"{name} {text}"
        for name, text in rows[0].items()
        if name not in varied and (name, text) not in IDLE
    ]
    replays = any(p.replayed_s is not None for p in predictions)
    table = plain("", "step", *(["replay"] if replays else []), "slower", "MFU", "memory", *varied)
    for rank, (p, row) in enumerate(zip(predictions, rows, strict=True), 1):
        loss = _decides(p) / fastest - 1
        replay = ["" if p.replayed_s is None else seconds(p.replayed_s, 4)] if replays else []
        cells = [
            str(rank),
            seconds(p.step_time_s, 4),
            *replay,
            percent(loss, 2) if loss > 1e-9 else "",
            percent(p.mfu),
        ]
        table.add_row(
            *cells, show(p.memory_bytes["needed"], "GiB"), *(row[name] for name in varied)
        )
    return Group(Text(title, "bold"), *([Text(f"all: {', '.join(same)}")] if same else []), table)


def _decides(p: Prediction) -> float:
    """Seconds that rank a layout: replayed, or the closed form of a paper."""
    return p.step_time_s if p.replayed_s is None else p.replayed_s


def _row(p: Prediction) -> dict[str, str]:
    """The layout by column."""
    l = p.layout
    chunks = f" x{int(l.interleave)}" if l.interleave != 1 else ""
    domain, ranks = near(p)
    return {
        **{axis: str(int(getattr(l, axis))) for axis in SPLITS},
        "micro": str(int(l.microbatch)),
        "schedule": l.schedule + chunks if l.pp != 1 else "-",
        "ZeRO": str(l.zero),
        "recompute": l.recompute,
        "seq. parallel": "-" if l.tp == 1 else "yes" if l.sequence_parallel else "no",
        **{f.name: str(getattr(l, f.name)) for f in fields(l) if f.name not in WORDED},
        f"in one {domain}": ranks,
    }


def searched(plan: Plan) -> Iterator[Text]:
    """How much was looked at, and at what."""
    if plan.tried:
        yield Text(f"fastest of: {plan.tried}" if plan.best else f"none of: {plan.tried}")
    if plan.untried:
        yield Text(f"not tried: {plan.untried}", "dim")
    yield Text(
        f"searched {plan.searched:,} layouts in {show(plan.elapsed_s, 's')}; {plan.feasible:,} of"
        " those looked at fit"
    )
    for rule, count in sorted((plan.rejected or {}).items(), key=lambda item: -item[1]):
        if count:
            yield Text(
                f"  {count:,}"
                f" {REJECTED.get(rule, f'combinations of degrees against the rule: {rule}')}",
                "dim",
            )


def comparison(plans: dict[str, Plan]) -> Table:
    """The best layout under several assumption sets, side by side."""
    table = plain("assumptions", "step", "MFU", "memory", "what")
    for name, plan in plans.items():
        p = plan.best
        if p:
            words = layout_words(p.layout, p.microbatches)
            table.add_row(
                name,
                seconds(p.step_time_s),
                percent(p.mfu),
                show(p.memory_bytes["needed"], "GiB"),
                words,
            )
        else:
            table.add_row(name, "", "", "", "no layout fits")
    return table
