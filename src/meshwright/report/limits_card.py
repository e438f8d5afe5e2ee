"""The cards of `limits`: how far scenarios scale, and what one run takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..limits.answer import Limit, Limits, bill
from ..limits.calendar import GROWTH, LARGEST_YEAR, year_of
from ..limits.crossing import Run
from ..limits.curve import Point, curve
from ..limits.ends import utilisation_losses
from ..limits.happened import near
from ..limits.realistic import RealCurve, RealPoint
from ..limits.scenario import Scenario
from ..limits.sensitivity import Sensitivity
from ..units import count, show
from .card import Card, CardRow, CardTable
from .limits import end, flops_text
from .text import BRIEFLY, percent, short_words

SPOKEN = {
    "bubble of the pipeline": "the pipeline's bubble",
    "products below their rate": "products too small for the full rate",
    "messages inside the model": "communication inside the model",
}
"""Loss -> its name on a card, where that is another."""
NEARLY = 0.05
"""A difference of utilisation from the threshold that a card does not judge: half of what lies
between two sizes of a curve where its end is read."""
ALL = 0.02
"""Share of the chips that may be left over before it is said how many do a run."""
HARDLY = 0.005
"""A share of the time that a card does not name."""
WHY = "--why: degrees, batch, chip-hours, rent and energy"


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
        "--why: every run of the curve, and why Epoch's grid and formula differ",
    )


def _curve_rows(line: Limit, growth: float) -> Iterator[CardRow]:
    """In sentences."""
    curve, scenario = line.main, line.scenario
    run, wall = line.linear_run, line.wall
    if run:
        words = f"up to {flops_text(run.flops)} FLOP: {_run(run, scenario)}"
        yield CardRow("linear", words, "bold")
        yield from _doubt(line)
        if beyond := [p for p in curve.points if p.flops > run.flops]:
            words = f"it chips lose {_main_losses(beyond[0], scenario)}"
            yield CardRow("beyond", words, rank=2)
    elif not curve.points:
        words = "never: not even a model as wide as GPT-3 is trained in time"
        yield CardRow("linear", words, "bold red")
        return
    elif curve.crossing.never:
        words = "never: no run is above the threshold"
        yield CardRow("linear", words, "bold red")
    else:
        words = "all the way to the largest run"
        yield CardRow("linear", words, "bold green")
    words = "beyond the widest model that is tried"
    if wall:
        words = f"{flops_text(wall.flops)} FLOP: {_run(wall, scenario)}"
        words += "" if scenario.failures else " (the latency wall)"
    yield CardRow("largest", words)
    ends = {
        "linear scaling ends": run.flops if run else None,
        "the largest run is due": wall.flops if wall else None,
    }
    yield from _due(ends, growth)


def _doubt(line: Limit) -> Iterator[CardRow]:
    """How far an end may be trusted, for all that grids and formulas say."""
    if line.doubt is None:
        return
    much = (
        f"{percent(max(line.doubt - 1, 0.01), 0)}"
        if line.doubt < 2
        else f"a factor of {line.doubt:.0f}"
    )
    ends = [
        x for x in (line.crossing.first_flops, line.crossing.last_flops) if x
    ]
    rivals = [f"grid {flops_text(min(ends))}"] if ends else []
    if line.closed and line.closed.linear_flops:
        rivals.append(f"formula {flops_text(line.closed.linear_flops)}")
    words = f"to {much} (Epoch's {', '.join(rivals)}; --why)"
    yield CardRow("sure", words, rank=1)


def _due(runs: Mapping[str, float | None], growth: float) -> Iterator[CardRow]:
    """When the largest runs reach these sizes [FLOP]."""
    years = {
        name: int(year_of(flops, growth=growth))
        for name, flops in runs.items()
        if flops
    }
    when = [f"{k} in {y}" for k, y in years.items() if y > LARGEST_YEAR]
    if when:
        words = (
            f"{', '.join(when)}, if runs keep growing {growth:g} times a year"
        )
        yield CardRow("when", words, rank=2)


def _main_losses(p: Point | RealPoint, scenario: Scenario) -> str:
    """The two causes that take most of the time beside arithmetic."""
    first = list(utilisation_losses(p, scenario).items())[:2]
    words = ", ".join(
        f"{percent(share, 0)} to {SPOKEN.get(name, BRIEFLY.get(name, name))}"
        for name, share in first
        if share > HARDLY
    )
    return words or "hardly anything"


def _run(p: Run, scenario: Scenario) -> str:
    """Chips, size, utilisation, rent and energy of a run."""
    return f"{count(p.chips)} chips, {_size(p, scenario)}"


def _size(p: Run, scenario: Scenario) -> str:
    """Size, utilisation, rent and energy of a run."""
    costs = bill(p, scenario)
    usd, joule = costs["cost_usd"], costs["energy_j"]
    parts = [
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
        run, wall, points = line.linear_run, line.wall, line.main.points
        never = line.main.crossing.never or not points
        rows.append(
            (
                line.scenario.name,
                flops_text(run.flops)
                if run
                else "never"
                if never
                else "always",
                str(int(year_of(run.flops, growth=growth))) if run else "-",
                f"{flops_text(wall.flops)} FLOP"
                if wall
                else "not reached"
                if points
                else "none",
            )
        )
    return CardTable(
        ("scenario", "linear to [FLOP]", "until", "largest run"), rows
    )


def answered(
    rows: Sequence[tuple[str, Scenario, Point | RealPoint]],
    growth: float = GROWTH,
    most: float | None = None,
) -> Card:
    """Smallest clusters and largest runs; most: the chips of the largest runs."""
    items: list[CardRow] = []
    several = len({scenario.name for _, scenario, _ in rows}) > 1
    due: dict[str, float | None] = {}
    for kind, scenario, p in rows:
        flops, time = flops_text(p.flops), show(p.duration_s, "s")
        size = _size(p, scenario)
        of = f"of {scenario.name} " if several else ""
        if kind == "smallest":
            label = "run"
            words = f"of {flops} FLOP needs {count(p.chips)} chips {of}for {time}: {size}"
        else:
            label = "chips"
            few = p.chips < most * (1 - ALL) if most else True
            of_them = f" on {count(p.chips)} of them" if few else ""
            words = f"{of}do {flops} FLOP in {time}{of_them}: {size}"
        items.append(CardRow(label, words, "bold"))
        items += _beside(p, scenario, one=label == "run")
        # theirs: of chips that are asked for beside a run
        due["theirs" if due and label == "chips" else "such a run is due"] = (
            p.flops
        )
    if len(rows) <= 2:
        items += _due(due, growth)
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
    heads = {
        "smallest": "How many chips does this run need",
        "largest": "How large a run can these chips do",
    }
    asked = [*dict.fromkeys(kind for kind, *_ in rows)]
    head = (
        heads[asked[0]]
        if len(asked) == 1
        else "What does this run need, and what can these chips do"
    )
    return Card(f"{head} on {names}?", tuple(items), WHY)


def _beside(
    p: Point | RealPoint, scenario: Scenario, one: bool = True
) -> Iterator[CardRow]:
    """Whether a run scales linearly, what takes its time, and which came nearest; one: said of a
    run, not of chips.
    """
    label, loses = ("scales", "loses") if one else ("scale", "lose")
    least = percent(scenario.threshold)
    lost = f"of peak; {loses} {_main_losses(p, scenario)}"
    over = p.utilisation / scenario.threshold - 1
    if abs(over) < NEARLY:
        words = f"just about linearly: the end is at {least} {lost}"
        yield CardRow(label, words, "yellow", rank=1)
    elif over > 0:
        words = f"linearly, above {least} {lost}"
        yield CardRow(label, words, "green", rank=1)
    else:
        words = f"no longer linearly, below {least} {lost}"
        yield CardRow(label, words, "yellow", 1)
        # beyond the end of linear scaling the grid has a last run, and answers have no grid
        on_grid = () if isinstance(p, RealPoint) else curve(scenario).points
        if on_grid and p.flops > on_grid[-1].flops:
            wall = flops_text(on_grid[-1].flops)
            words = f"beyond {wall} FLOP, the latency wall on the paper's grid"
            between = "only degrees between its points reach it"
            yield CardRow("wall", f"{words}: {between}", "yellow", 1)
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
        "End of linear scaling [FLOP], on the paper's grid, when one input at a time is changed",
        (CardTable(("change", *result.scenarios, ""), rows, most=10),),
        "--all: every change, with the last crossing",
    )


def ladder_card(
    scenario: Scenario,
    paper: Sequence[tuple[str, Limit]],
    curves: Sequence[RealCurve],
    growth: float,
    whole: bool,
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
        rows += _beside(last, scenario)
        rows += _due({"such a run is due": last.flops}, growth)
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
        words = f"on its grid linear to {end(alive.crossing)[0]}, largest"
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
