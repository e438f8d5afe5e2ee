"""The cards of `limits`: how far scenarios scale, and what one run takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..limits.answer import Limit, Limits, bill
from ..limits.curve import Point
from ..limits.realistic import RealCurve, RealPoint
from ..limits.scenario import Scenario
from ..limits.sensitivity import Sensitivity
from ..units import show
from .card import Card, Grid, Row
from .limits import end, flops
from .text import count, percent, short_words

ANSWERS = {"smallest": "needs", "largest": "does"}
"""Kind of a question -> the label of its answer."""
WHY = "--all: the curve: chips, degrees, batch, time, rent and energy"


def card(result: Limits, said: Sequence[str] = ()) -> Card:
    """Where linear scaling ends, and the largest run."""
    times = ", ".join(
        show(d, "s")
        for d in sorted({line.scenario.duration_s for line in result.lines})
    )
    names = ", ".join(line.scenario.name for line in result.lines)
    share = percent(result.lines[0].scenario.linear, 0)
    body = (
        _one(result.lines[0])
        if len(result.lines) == 1
        else [_several(result.lines)]
    )
    rule = (
        f"utilisation above {share} of what a chip sustains; a stack of MLPs, as"
        " Epoch 2024"
    )
    return Card(
        f"How far does training scale on {names}, in runs of {times}?",
        (
            *body,
            Row(
                "basis",
                f"linear: {rule}; --model realistic: transformers",
                rank=3,
            ),
            *(Row("note", note, "yellow", rank=2) for note in said),
            Row(
                "next",
                "add --run 1e28 (chips for a run), --sensitivity or -o limits.png",
            ),
        ),
        WHY,
    )


def _one(line: Limit) -> Iterator[Row]:
    """In sentences."""
    first, last = end(line.crossing)
    points = line.curve.points
    if line.crossing.never:
        yield Row("linear", "never: no run is above the threshold", "bold red")
    elif line.crossing.first_flops is None:
        yield Row(
            "linear", "all the way, as far as the grid goes", "bold green"
        )
    else:
        at = next(
            (p for p in points if p.flops == line.crossing.first_flops), None
        )
        yield Row("linear", f"up to {first} FLOP{_elsewhere(line)}", "bold")
        if at:
            yield Row("that is", _run(at, line.scenario))
    if line.curve.ends and line.largest:
        yield Row(
            "largest",
            f"{flops(line.largest.flops)} FLOP: {_run(line.largest, line.scenario)}",
        )
    else:
        yield Row("largest", "beyond the grid")


def _elsewhere(line: Limit) -> str:
    """What other rules say of the end."""
    words = []
    if line.closed:
        of = line.closed
        least = min(of.critical_flops, of.latency_critical_flops)
        words.append(f"{flops(least)} by the closed form")
    if line.smooth:
        words.append(f"{end(line.smooth.crossing)[1]} without grids")
    return f" ({', '.join(words)})" if words else ""


def _run(p: Point | RealPoint, scenario: Scenario) -> str:
    """Chips, size, utilisation, rent and energy of a run."""
    costs = bill(p, scenario)
    usd, joule = costs["cost_usd"], costs["energy_j"]
    parts = [
        f"{count(p.chips)} chips",
        f"{count(p.parameters)} parameters",
        f"{percent(p.utilisation)} of peak",
        f"{usd:.2g} USD" if usd else "",
        show(joule / 3600, "Wh", 2) if joule else "",
    ]
    return ", ".join(filter(None, parts))


def _several(lines: Sequence[Limit]) -> Grid:
    """A line a scenario."""
    rows = []
    for line in lines:
        largest = line.largest if line.curve.ends else None
        size = (
            f"{count(largest.parameters)} parameters"
            if largest
            else "beyond the grid"
        )
        most = flops(largest.flops) if largest else "-"
        rows.append((line.scenario.name, end(line.crossing)[0], most, size))
    return Grid(("scenario", "linear to", "largest run [FLOP]", "of"), rows)


def answered(rows: Sequence[tuple[str, Scenario, Point | RealPoint]]) -> Card:
    """Smallest clusters and largest runs."""
    items: list[Row] = []
    several = len({scenario.name for _, scenario, _ in rows}) > 1
    for name, scenario, p in rows:
        linear = p.utilisation > scenario.threshold
        asked, _, kind = name.rpartition(": ")
        whose = f"{asked}, " if several else ""
        share = f"{percent(p.utilisation)} of the peak, linear down to"
        items += [
            Row(
                ANSWERS[kind],
                f"{whose}{flops(p.flops)} FLOP in {show(p.duration_s, 's')}: {_run(p, scenario)}",
                "bold",
            ),
            Row(
                "linear" if linear else "beyond",
                f"{share} {percent(scenario.threshold)}",
                "green" if linear else "yellow",
                rank=1,
            ),
        ]
        if isinstance(p, RealPoint):
            words = short_words(p.prediction.layout)
            items.append(Row("layout", words, rank=2))
    names = ", ".join(dict.fromkeys(s.name for _, s, _ in rows))
    kinds = {name.rpartition(": ")[2] for name, _, _ in rows}
    what = {
        "smallest": "How many chips does this run need",
        "largest": "How large a run do so many chips do",
    }
    head = (
        what[kinds.pop()]
        if len(kinds) == 1
        else "What does this run need, and what do so many chips do"
    )
    return Card(f"{head} on {names}?", tuple(items), WHY)


def changed(result: Sensitivity) -> Card:
    """The end of linear scaling when one input at a time is changed."""
    rows = [
        (
            name,
            *("never" if c.never else end(c)[0] for c in crossings),
            "",
        )
        for name, crossings in result.rows
    ]
    return Card(
        "End of linear scaling [FLOP] when one input at a time is changed",
        (Grid(("change", *result.scenarios, ""), rows, most=10),),
        "--all: every change, with the last crossing",
    )


def laddered(
    name: str,
    paper: Sequence[tuple[str, Limit]],
    curves: Sequence[RealCurve],
) -> Card:
    """What each omission moves."""
    rows = [
        (
            words,
            end(line.crossing)[0],
            flops(line.largest.flops if line.largest else None),
            f"{line.largest.chips:.2g}" if line.largest else "-",
            "",
        )
        for words, line in paper
    ]
    for c in curves:
        last = c.points[-1] if c.points else None
        rows.append(
            (
                c.name,
                end(c.crossing)[0],
                flops(last.flops if last else None),
                f"{last.chips:,}" if last else "-",
                c.reason,
            )
        )
    return Card(
        f"How far do whole transformers scale on {name}, counting what the paper leaves out?",
        (
            Grid(
                ("counted", "linear to", "largest run", "chips", "why"),
                rows,
                most=10,
            ),
        ),
        "--all: every omission, both ends and the reasons",
    )
