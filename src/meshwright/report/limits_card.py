"""The cards of `limits`: how far scenarios scale, and what one run takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..limits.answer import Limit, Limits, bill
from ..limits.calendar import GROWTH, LARGEST_FLOPS, year_of
from ..limits.curve import Point, curve
from ..limits.ends import losses
from ..limits.happened import near
from ..limits.realistic import RealCurve, RealPoint
from ..limits.scenario import Scenario
from ..limits.sensitivity import Sensitivity
from ..units import show
from .card import Card, CardRow, CardTable
from .limits import end, flops_text, wall
from .text import BRIEFLY, count, percent, short_words

ANSWERS = {"smallest": "needs", "largest": "does"}
"""Kind of a question -> the label of its answer."""
SPOKEN = {
    "products below their rate": "products too small for the full rate",
    "messages inside the model": "communication inside the model",
}
"""Loss -> its name on a card, where that is another."""
WHY = "--all: the curve: chips, degrees, batch, time, rent and energy"


def limits_card(
    result: Limits, said: Sequence[str] = (), growth: float = GROWTH
) -> Card:
    """Where linear scaling ends, when and by what, and the largest run."""
    times = ", ".join(
        show(d, "s")
        for d in sorted({line.scenario.duration_s for line in result.lines})
    )
    names = ", ".join(line.scenario.name for line in result.lines)
    share = percent(result.lines[0].scenario.linear, 0)
    body = (
        _curve_rows(result.lines[0], growth)
        if len(result.lines) == 1
        else [_several(result.lines, growth)]
    )
    rule = (
        f"utilisation above {share} of what a chip sustains; a stack of MLPs, as"
        " in Epoch 2024"
    )
    return Card(
        f"How far does training scale on {names}, in runs of {times}?",
        (
            *body,
            CardRow(
                "basis",
                f"linear: {rule}; --model realistic: transformers",
                rank=3,
            ),
            *(CardRow("note", note, "yellow", rank=2) for note in said),
            CardRow(
                "next",
                "add -o limits.png, --run 1e28 (chips for a run) or --sensitivity",
            ),
        ),
        WHY,
    )


def _curve_rows(line: Limit, growth: float) -> Iterator[CardRow]:
    """In sentences."""
    first, last = end(line.crossing)
    points = line.curve.points
    if line.crossing.never:
        yield CardRow(
            "linear", "never: no run is above the threshold", "bold red"
        )
    elif line.crossing.first_flops is None:
        yield CardRow(
            "linear", "all the way, as far as the grid goes", "bold green"
        )
    else:
        at = next(
            (p for p in points if p.flops == line.crossing.first_flops), None
        )
        yield CardRow(
            "linear", f"up to {first} FLOP{_elsewhere(line)}", "bold"
        )
        if at:
            # on a grid of chips most runs take less time than there is
            words = f"in {show(at.duration_s, 's')}: {_run(at, line.scenario)}"
            yield CardRow("that is", words)
            yield CardRow("ended by", _main_losses(at, line.scenario), rank=2)
    if line.curve.ends and line.largest:
        yield CardRow(
            "largest",
            f"{flops_text(line.largest.flops)} FLOP (the latency wall):"
            f" {_run(line.largest, line.scenario)}",
        )
    else:
        yield CardRow("largest", "beyond the grid")
    if when := _years(line, growth):
        yield CardRow("when", f"{when}, {growing(growth)}", rank=2)


def _main_losses(p: Point | RealPoint, scenario: Scenario) -> str:
    """The two causes that take most of the time beside arithmetic."""
    first = list(losses(p, scenario).items())[:2]
    return ", ".join(
        f"{SPOKEN.get(name, BRIEFLY.get(name, name))} {percent(share, 0)}"
        for name, share in first
    )


def _years(line: Limit, growth: float) -> str:
    """When runs of the two ends are due."""
    ends = {
        "linear scaling ends": _linear(line),
        "the largest run": line.largest.flops
        if line.largest and line.curve.ends
        else None,
    }
    return ", ".join(
        f"{name} in {int(year_of(most, growth=growth))}"
        for name, most in ends.items()
        if most
    )


def _linear(line: Limit) -> float | None:
    """Where linear scaling ends, as the card says it."""
    return None if line.crossing.never else line.crossing.first_flops


def growing(growth: float) -> str:
    """What a date rests on."""
    return (
        f"if the largest runs grow {growth:g} times a year from"
        f" {flops_text(LARGEST_FLOPS)} FLOP at the end of 2024"
    )


def _elsewhere(line: Limit) -> str:
    """What other rules say of the end."""
    words = []
    if line.closed:
        of = line.closed
        least = min(of.critical_flops, of.latency_critical_flops)
        words.append(f"{flops_text(least)} by the closed form")
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
        f"{count(usd)} USD" if usd else "",
        show(joule / 3600, "Wh", 2) if joule else "",
    ]
    return ", ".join(filter(None, parts))


def _several(lines: Sequence[Limit], growth: float) -> CardTable:
    """A line a scenario."""
    rows = []
    for line in lines:
        most_linear = _linear(line)
        due = (
            str(int(year_of(most_linear, growth=growth)))
            if most_linear
            else "-"
        )
        name = line.scenario.name
        rows.append((name, end(line.crossing)[0], due, *wall(line)))
    return CardTable(
        ("scenario", "linear to", "until", "latency wall [FLOP]", "of"), rows
    )


def answered(
    rows: Sequence[tuple[str, Scenario, Point | RealPoint]],
    growth: float = GROWTH,
) -> Card:
    """Smallest clusters and largest runs."""
    items: list[CardRow] = []
    several = len({scenario.name for _, scenario, _ in rows}) > 1
    for name, scenario, p in rows:
        asked, _, kind = name.rpartition(": ")
        whose = f"{asked}, " if several else ""
        items += [
            CardRow(
                ANSWERS[kind],
                f"{whose}{flops_text(p.flops)} FLOP in {show(p.duration_s, 's')}:"
                f" {_run(p, scenario)}",
                "bold",
            ),
            *_beside(p, scenario, growth),
        ]
    whole = any(isinstance(p, RealPoint) for *_, p in rows)
    rests = (
        "whole transformers, everything counted; fitted to no run of this size, so without an"
        " interval"
        if whole
        else "a stack of MLPs, as in Epoch 2024; fitted to no run, so without an interval"
    )
    items.append(CardRow("basis", rests, "yellow", rank=2))
    more = (
        "--months 6 or --restart 1min moves it"
        if whole
        else ("add --model realistic: whole transformers on chips that fail")
    )
    items.append(CardRow("next", more, rank=3))
    names = ", ".join(dict.fromkeys(s.name for _, s, _ in rows))
    kinds = {name.rpartition(": ")[2] for name, _, _ in rows}
    what = {
        "smallest": "How many chips does this run need",
        "largest": "How large a run can these chips do",
    }
    head = (
        what[kinds.pop()]
        if len(kinds) == 1
        else "What does this run need, and what can these chips do"
    )
    return Card(f"{head} on {names}?", tuple(items), WHY)


def _beside(
    p: Point | RealPoint, scenario: Scenario, growth: float
) -> Iterator[CardRow]:
    """Whether a run scales linearly, what takes its time, when such runs are due, and which came
    nearest.
    """
    least = percent(scenario.threshold)
    if p.utilisation > scenario.threshold:
        words = f"yes: {percent(p.utilisation)} of peak, above the {least}"
        yield CardRow(
            "linear", f"{words} that counts as linear", "green", rank=1
        )
    else:
        words = f"no: {percent(p.utilisation)} of peak, below the {least}"
        yield CardRow("linear", f"{words} that counts as linear", "yellow", 1)
        # beyond the end of linear scaling the grid has a last run, and answers have no grid
        on_grid = () if isinstance(p, RealPoint) else curve(scenario).points
        if on_grid and p.flops > on_grid[-1].flops:
            wall = flops_text(on_grid[-1].flops)
            words = f"beyond {wall} FLOP, the latency wall on the paper's grid"
            between = "only degrees between its points reach it"
            yield CardRow("wall", f"{words}: {between}", "yellow", 1)
    yield CardRow("loses", _main_losses(p, scenario), rank=1)
    if p.flops > LARGEST_FLOPS:
        due = f"due in {int(year_of(p.flops, growth=growth))}"
        yield CardRow("when", f"{due}, {growing(growth)}", rank=2)
    if isinstance(p, RealPoint):
        yield CardRow("layout", short_words(p.prediction.layout), rank=2)
        yield from _past_runs(scenario)


def _past_runs(scenario: Scenario) -> Iterator[CardRow]:
    """The largest runs on such chips, and which share of the peak they would have kept up."""
    chip = scenario.chip
    runs = [
        f"{run.title}{' (an estimate)' * run.estimate} {flops_text(run.flops)} FLOP on"
        f" {run.chips:,}, {run.days:.0f} days, {percent(run.utilisation(chip))} of peak"
        for run in near(chip.name)
    ]
    if runs:
        yield CardRow("so far", "; ".join(runs[:2]), rank=2)


def sensitivity_card(result: Sensitivity) -> Card:
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
        (CardTable(("change", *result.scenarios, ""), rows, most=10),),
        "--all: every change, with the last crossing",
    )


def ladder_card(
    scenario: Scenario,
    paper: Sequence[tuple[str, Limit]],
    curves: Sequence[RealCurve],
    growth: float = GROWTH,
    whole: bool = True,
) -> Card:
    """The largest run with everything counted, what ends it, and what each omission moves; whole:
    of all omissions, not of failures alone.
    """
    first, *others = curves
    rows: list[CardRow] = []
    last = first.points[-1] if first.points else None
    if last:
        words = (
            f"{flops_text(last.flops)} FLOP in {show(last.duration_s, 's')}"
        )
        rows.append(
            CardRow("largest", f"{words}: {_run(last, scenario)}", "bold")
        )
        rows += _beside(last, scenario, growth)
    if first.reason:
        rows.append(CardRow("beyond", first.reason, rank=2))
    most = [
        f"{flops_text(c.points[-1].flops)} {c.name}"
        for c in others
        if c.points and last and c.points[-1].flops > 1.5 * last.flops
    ]
    if most:
        rows.append(CardRow("if not", "; ".join(most[:3]), rank=2))
    (_, alive), *_ = paper
    if alive.largest:
        words = f"linear to {end(alive.crossing)[0]}, largest"
        rows.append(
            CardRow(
                "paper", f"{words} {flops_text(alive.largest.flops)}", rank=3
            )
        )
    if not whole:
        words = "add --sensitivity: what each omission moves (some minutes)"
        rows.append(CardRow("next", words, rank=4))
    return Card(
        f"How large a run of a whole transformer can be done on {scenario.name} in"
        f" {show(scenario.duration_s, 's')}, counting what the paper leaves out?",
        tuple(rows),
        f"--all: {'every omission' if whole else 'failures'}, both ends and the reasons",
    )
