"""Limits of scenarios as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ..limits.answer import Limit, Limits, bill, parallelism_split
from ..limits.crossing import Crossing, Run
from ..limits.curve import Point
from ..limits.realistic import RealCurve, RealPoint
from ..limits.scenario import Scenario
from ..limits.sensitivity import Sensitivity
from ..units import count, show
from .tables import text_table
from .text import percent, short_words

AXES = {"tp": "tensor", "pp": "pipeline", "dp": "data", "ep": "expert"}


def flops_text(value: float | None) -> str:
    """FLOPs with two digits; a dash for none."""
    return "-" if value is None else f"{value:.1e}"


def end(c: Crossing) -> tuple[str, str]:
    """The two ends of linear scaling."""
    return (
        ("never above", "-")
        if c.never
        else (flops_text(c.first_flops), flops_text(c.last_flops))
    )


def limits_report(result: Limits, said: Sequence[str] = ()) -> RenderableType:
    """The ends of each scenario, then its curve if there is only one.  said: more notes."""
    table = text_table(
        "scenario | above | ends (paper's grid rule) | ends (last crossing) | ends (no grid)"
        " | closed form | latency wall | of",
        map(_ends, result.lines),
    )
    parts: list[RenderableType] = [
        Text("End of linear scaling [training FLOP]", "bold"),
        table,
        *map(Text, (*_notes(result), *said)),
    ]
    if len(result.lines) == 1:
        (line,) = result.lines
        parts += [
            Text("\nOn the paper's grid"),
            _curve(line),
            *map(Text, rents([line.scenario])),
        ]
    return Group(*parts)


def _ends(line: Limit) -> tuple[str, ...]:
    """The cells of a scenario."""
    of = line.closed
    wall = line.largest if line.curve.ends else None
    return (
        line.scenario.name,
        percent(line.scenario.threshold),
        *end(line.crossing),
        end(line.smooth.crossing)[1] if line.smooth else "-",
        flops_text(of.linear_flops if of else None),
        flops_text(wall.flops if wall else None),
        f"{count(wall.parameters)} parameters"
        if wall
        else "beyond the grid"
        if line.curve.points
        else "no run",
    )


def _notes(result: Limits) -> Iterator[str]:
    """What the columns mean, and in how much time."""
    durations = {line.scenario.duration_s for line in result.lines}
    times = ", ".join(show(d, "s") for d in sorted(durations))
    yield (
        f"runs of {times}; above: utilisation of the boost-clock peak,"
        f" {percent(result.lines[0].scenario.linear, 0)} of what a chip sustains"
    )
    yield (
        "no grid: real numbers of chips and layers, and all the time there is: the answer. The"
        " paper's grid has chips in doublings and rounded sizes, so that most of its runs end"
        " early, on more chips than they need, and utilisation jumps: its rule takes the first"
        " model below the threshold, the last crossing is interpolated; latency wall: on the grid"
    )
    if any(line.closed for line in result.lines):
        yield (
            "closed form: links (or latency) alone, everything balanced, at one depth and batch"
        )


def rents(scenarios: Sequence[Scenario]) -> Iterator[str]:
    """What a chip costs there, and who says so: a paper's chip has the paper's price."""
    for chip in {s.chip.name: s.chip for s in scenarios}.values():
        about = chip.sources.get("usd_per_hour", {})
        said = about.get("source") or about.get("note") or "as described"
        if chip.usd_per_hour:
            yield f"rent: {chip.name} at {chip.usd_per_hour:g} USD/h ({said})"


SIZE = ("training FLOP", "parameters", "batch", "chips", "util.", "time")
PAID = ("chip-hours", "rent", "energy")
OF_A_REAL_POINT = (*SIZE, "what", *PAID)
OF_A_POINT = (*SIZE, *AXES.values(), "microbatches", *PAID)
"""Columns of `model_cells`."""


def _curve(line: Limit) -> RenderableType:
    """One row a model."""
    return text_table(
        OF_A_POINT, [model_cells(p, line.scenario) for p in line.curve.points]
    )


def model_cells(p: Point, scenario: Scenario) -> tuple[str, ...]:
    """The cells of a model."""
    d = p.degrees
    degrees = (
        f"{d.tp_model:.0f}x{d.tp_ff:.0f}",
        f"{d.pp:.0f}",
        f"{d.dp:,.0f}",
        f"{d.ep:.0f}",
    )
    shares = parallelism_split(p)
    cells = (
        f"{n} ({percent(shares[a], 0)})"
        for a, n in zip(AXES, degrees, strict=True)
    )
    schedule = f"{d.microbatches:.0f} {'zb-h2' if d.zero_bubble else '1f1b'}"
    return (*run_size_cells(p), *cells, schedule, *run_cost_cells(p, scenario))


def run_size_cells(p: Run) -> tuple[str, ...]:
    """The cells of a run, whatever its layout."""
    return (
        flops_text(p.flops),
        count(p.parameters),
        count(p.batch_tokens),
        f"{p.chips:,.0f}",
        percent(p.utilisation),
        show(p.duration_s, "s"),
    )


def run_cost_cells(p: Run, scenario: Scenario) -> tuple[str, ...]:
    """Chip-hours, rent and energy of a run."""
    costs = bill(p, scenario)
    usd, joule = costs["cost_usd"], costs["energy_j"]
    return (
        f"{costs['chip_hours']:.2g}",
        f"{usd:.2g} USD" if usd else "-",
        show(joule / 3600, "Wh", 2) if joule else "-",
    )


def answers(
    points: Sequence[tuple[str, Scenario, Point | RealPoint]],
) -> RenderableType:
    """Smallest clusters and largest runs: one row a scenario."""
    real = any(isinstance(p, RealPoint) for _, _, p in points)
    table = text_table(
        ("scenario", *(OF_A_REAL_POINT if real else OF_A_POINT)),
        [(f"{s.name}: {kind}", *_cells(p, s)) for kind, s, p in points],
    )
    return Group(table, *map(Text, rents([s for _, s, _ in points])))


def _cells(p: Point | RealPoint, scenario: Scenario) -> tuple[str, ...]:
    """The cells of a model, or of a whole transformer."""
    if not isinstance(p, RealPoint):
        return model_cells(p, scenario)
    words = short_words(p.prediction.layout)
    return (*run_size_cells(p), words, *run_cost_cells(p, scenario))


def sensitivities(result: Sensitivity) -> RenderableType:
    """Ends of linear scaling under each change."""
    return Group(
        Text(
            "End of linear scaling [FLOP]: first model below [last crossing]",
            "bold",
        ),
        text_table(
            ("change", *result.scenarios),
            [
                (name, *map(_both, crossings))
                for name, crossings in result.rows
            ],
        ),
    )


def _both(c: Crossing) -> str:
    """First and last crossing in one cell."""
    first, last = end(c)
    return first if c.never else f"{first} [{last}]"


def ladders(
    paper: Sequence[tuple[str, Limit]], curves: Sequence[RealCurve]
) -> RenderableType:
    """What each omission moves: ends of linear scaling and the largest run."""
    rows = []
    for name, line in paper:
        p = line.largest
        most = flops_text(p.flops if p else None)
        chips = f"{p.chips:.2g}" if p else "-"
        rows.append((name, *end(line.crossing), most, chips, ""))
    for c in curves:
        last = c.points[-1] if c.points else None
        most = flops_text(last.flops if last else None)
        chips = f"{last.chips:,}" if last else "-"
        rows.append((c.name, *end(c.crossing), most, chips, c.reason))
    return Group(
        Text(
            "End of linear scaling [training FLOP] when one thing at a time is left out",
            "bold",
        ),
        text_table(
            "what is counted | ends (grid rule) | ends (last crossing) | largest run | chips"
            " | why",
            rows,
        ),
    )
