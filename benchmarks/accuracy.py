"""How good predictions are where the fit has not looked: the tables and pictures of docs/accuracy.md.

    python benchmarks/accuracy.py                       to stdout
    python benchmarks/accuracy.py -o docs/accuracy.md   between its markers, pictures in docs/images

Nothing is fitted here: the numbers with each laboratory, and each family of chips, left out are
those of catalog/fitted.toml (`meshwright fit`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from pages import IMAGES, written

from meshwright.describe.fitted import fitted_parameters
from meshwright_studies.fitting.answer import (
    FitAnswer,
    away,
    beside_baselines,
    coverage,
    error_after_scale,
    errors,
    runs_as_predicted,
)
from meshwright_studies.fitting.baselines import Baselines, baselines
from meshwright_studies.fitting.fit import (
    RunModel,
    family,
    pair,
    stored,
    whose,
)
from meshwright_studies.fitting.intervals import (
    UnseenIntervals,
    inside_after_scale,
    one_for_all,
    order_predicted,
    pairs,
    resolution,
)
from meshwright_studies.fitting.runs import runs
from meshwright_studies.fitting.seen import Seen
from meshwright_studies.validate import blind, published, validate
from meshwright_studies.validate.markdown import markdown_table
from meshwright_studies.validate.stats import by, quantile

GOOD, BAD = 0.06, 0.10
"""Median errors of a class that count as good, and as bad."""
PEERS = (
    ("vtrain-multi", "Calculon (a100_80g.json)", "15.3", "9.7", "-8.4", "its rows, full recomputation, rerun"),
    ("vtrain-multi", "llm-analysis (efficiency 0.5)", "16.2", "", "-12.8", "103 of 109 rows, rerun"),
    ("vtrain-multi", "vTrain (kernels profiled there)", "14.7", "", "", "its paper"),
    ("korthikanti2022", "Calculon", "3.7", "", "", "eight times, its paper, published after them"),
    ("simumax-b200", "SimuMax (kernels profiled there)", "5.6", "", "-5.6", "its own machine, rerun"),
)  # fmt: skip
"""(source, program, mean, median, bias, remark), errors in percent."""
AS_GOOD = 0.02
"""Errors that differ by no more are alike: repeated runs differ by 2 to 5 %."""
LEAST_LAYOUTS = 3
"""A sweep has at least so many layouts of one workload."""
EIGHT = tuple(f"korthikanti2022-00{i}" for i in range(1, 9))


def runs_in_evidence() -> RunModel:
    """Every run, with the numbers that the catalogue holds."""
    return RunModel(runs(published()), fitted_parameters())


def percent(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{100 * value:{sign}.1f}"


def line(name: str, of: dict[str, Any]) -> tuple[str, ...]:
    """A row of errors."""
    keys = ("median_abs_error", "mean_abs_error", "p90_abs_error")
    cells = (*(percent(of[key]) for key in keys), percent(of["bias"], "+"))
    return (
        name,
        str(of["rows"]),
        *cells,
        percent(of["dense"]),
        percent(of["experts"]),
    )


HEADER = (
    "runs predicted",
    "rows",
    "median",
    "mean",
    "90 %",
    "bias",
    "dense",
    "experts",
)


def overall(of: FitAnswer) -> str:
    """Left out first, then the rest."""
    order = (
        "chips and framework left out",
        "laboratory left out",
        "family of chips left out",
        "priors",
        "in sample",
    )
    names = (
        "without their chips under their framework",
        "without their laboratory",
        "without their family of chips",
        "without any run",
        "in the sample",
    )
    found = of.columns
    lines = [
        line(name, errors(found[key]))
        for key, name in zip(order, names, strict=True)
    ]
    scale = error_after_scale(of.laboratories)
    after = (
        f"With one scale taken from three rows of a source (20 seeded draws), the median error on its"
        f" other rows is {percent(scale['three_rows'])} %; with one taken from all its rows it is"
        f" {percent(scale['all_rows'])} %. The interval after such a scale, from the runs of the other"
        f" laboratories, contains {percent(inside_after_scale(of.laboratories))} % of a source's other rows."
    )
    return markdown_table(HEADER, lines) + "\n\n" + after


def classes(of: FitAnswer) -> str:
    """Errors and intervals of each class, the best first."""
    inside = coverage(of.laboratories, of.nested)
    pair_left_out = by(of.pairs, lambda s: s.kind)
    found = by(of.laboratories, lambda s: s.kind)
    ranked = sorted(
        found, key=lambda kind: errors(found[kind])["median_abs_error"]
    )
    lines = []
    for kind in ranked:
        e, held = errors(found[kind]), inside[kind]
        verdict = (
            "good"
            if e["median_abs_error"] <= GOOD
            else "bad"
            if e["median_abs_error"] > BAD
            else ""
        )
        few = "few sources" if held["sources"] < 3 else ""
        mine = np.array([s.kind == kind for s in of.laboratories])
        constants = Baselines(*(error[mine] for error in of.constants))
        one = beside_baselines(found[kind], constants)
        cells = (
            percent(errors(pair_left_out[kind])["median_abs_error"]),
            percent(e["median_abs_error"]),
            percent(e["mean_abs_error"]),
            percent(e["bias"], "+"),
        )
        share = f"{100 * held['inside']:.0f}"
        lines.append(
            (
                kind,
                str(e["rows"]),
                str(held["sources"]),
                *cells,
                share,
                *(percent(it["median_abs_error"]) for it in one.values()),
                f"{100 * one['efficiency']['nearer']:.0f}",
                ", ".join(filter(None, (verdict, few))),
            )
        )
    header = (
        "class",
        "rows",
        "sources",
        "pair left out",
        "median",
        "mean",
        "bias",
        "in the interval",
        "one MFU",
        "one efficiency",
        "nearer",
        "",
    )
    return markdown_table(header, lines) + "\n\n" + sure(of)


def constants_nearer(of: FitAnswer) -> str:
    """Where one efficiency is nearer than the model, the most runs first."""
    ours = away(np.array([one.error for one in of.laboratories]) * -1.0)
    by_constant = away(of.constants.efficiency)
    kinds = np.array([one.kind for one in of.laboratories])
    lines = []
    for kind in ("all", *sorted(set(kinds))):
        mine = (kinds == kind) | (kind == "all")
        gain = (ours - by_constant)[mine & (by_constant <= ours)]
        more = gain[gain > AS_GOOD]
        lines.append(
            (
                kind,
                str(mine.sum()),
                str(len(gain)),
                percent(len(gain) / mine.sum()),
                str(len(gain) - len(more)),
                percent(float(np.median(more))) if len(more) else "",
            )
        )
    lines.sort(key=lambda cells: -int(cells[2]))
    header = ("class", "rows", "nearer", "%", "as good", "by")
    return markdown_table(header, [one for one in lines if int(one[2])])


def nearer(model: RunModel, of: FitAnswer) -> str:
    """To how many runs the model is nearer, where both it and the constant are left out alike."""
    shares = []
    for rows, group in (
        (of.laboratories, whose),
        (of.pairs, pair),
        (of.families, family),
    ):
        ours = away(np.array([one.error for one in rows]) * -1.0)
        theirs = away(baselines(model, group).efficiency)
        apart = np.abs(ours - theirs) > AS_GOOD
        shares.append(
            [
                percent(float((ours < theirs)[mask].mean()))
                for mask in (apart | True, apart)
            ]
        )
    (lab, lab_apart), (both, both_apart), (chips, chips_apart) = shares
    return (
        f"The model is nearer to {lab} % of the runs with laboratories left out, to {both} % with"
        f" chips under their framework, to {chips} % with chips, each left out for the constant"
        f" too; of those whose two errors are more than 2 points apart, to {lab_apart},"
        f" {both_apart} and {chips_apart} %."
    )


def sure(of: FitAnswer) -> str:
    """How the intervals hold, beside one for all runs."""
    mine, one = of.nested, of.one_interval
    score = mine.score.mean() / one.score.mean()
    wide = as_wide(of)
    return (
        f"The 90 % intervals, each made from the other laboratories alone, contain"
        f" {percent(float(mine.inside.mean()))} % of the rows, with an interval score of"
        f" {mine.score.mean():.2f}. That is {score:.2f} times the score of one pooled interval, which"
        f" contains {percent(float(one.inside.mean()))} %."
        f" One pooled interval whose tails are so thin that it contains as many"
        f" ({percent(float(wide.inside.mean()))} %) scores {wide.score.mean():.2f}; ours is"
        f" {mine.score.mean() / wide.score.mean():.2f} times that."
    )


def choices(of: FitAnswer) -> str:
    """What a search meets: pairs of layouts of one workload, and the fastest of a sweep."""
    rows, close = of.laboratories, resolution(of.laboratories)
    shares = []
    for near in (True, False):
        weights, right = [], []
        for a, b, weight in pairs(rows):
            gap = abs(math.log(a.predicted_s / b.predicted_s))
            if (gap < close) is near:
                weights.append(weight)
                right.append(order_predicted(a, b))
        shares.append(float(np.average(right, weights=weights)))
    sweeps: dict[tuple[object, ...], list[int]] = {}
    for i, one in enumerate(rows):
        sweeps.setdefault(one.workload, []).append(i)
    errors_of = np.array([one.error for one in rows])
    fastest = [
        (min(mine, key=lambda i: rows[i].predicted_s), mine)
        for mine in sweeps.values()
        if len(mine) >= LEAST_LAYOUTS
    ]
    inside = sum(bool(of.nested.inside[best]) for best, _ in fastest)
    longer = np.mean(
        [errors_of[best] - errors_of[mine].mean() for best, mine in fastest]
    )
    return (
        f"Of two layouts of one workload that are predicted less than {100 * close:.0f} % apart (a tie),"
        f" {percent(shares[0])} % are in the predicted order, of those farther apart"
        f" {percent(shares[1])} %. The layout that is predicted to be the fastest of a sweep lies in"
        f" its interval in {inside} of {len(fastest)} sweeps, and takes {percent(float(longer), '+')} %"
        " against what the errors of its sweep say in the mean, so that nothing is deducted for"
        " having been chosen."
    )


def as_wide(of: FitAnswer) -> UnseenIntervals:
    """The narrowest one pooled interval that holds as many rows as ours."""
    wanted = of.nested.inside.mean()
    found = (
        one_for_all(of.laboratories, (tail / 1000, 1.0 - tail / 1000))
        for tail in range(30, 0, -1)
    )
    return next(one for one in found if one.inside.mean() >= wanted)


def sources(of: FitAnswer) -> str:
    """Errors of each source, without and with its laboratory."""
    left, seen = (
        by(rows, lambda s: s.source) for rows in (of.laboratories, of.sample)
    )
    lines = []
    for name in left:
        e, there = errors(left[name]), errors(seen[name])
        cells = (
            percent(e["median_abs_error"]),
            percent(e["mean_abs_error"]),
            percent(e["bias"], "+"),
        )
        lines.append(
            (name, str(e["rows"]), *cells, percent(there["median_abs_error"]))
        )
    return markdown_table(
        ("source", "rows", "median", "mean", "bias", "median in the sample"),
        lines,
    )


def unfitted() -> str:
    """Errors of the runs that no fit has, by class."""
    compared = validate(blind())
    runs_of = by(compared.having("step_time"), lambda row: row.kind)
    every = {"all": compared.overall["step_time"], **compared.by("kind")}
    lines = [
        (
            name,
            str(of["rows"]),
            str(
                len({row.source for row in runs_of[name]})
                if name in runs_of
                else ""
            ),
            percent(of["median_abs_error"]),
            percent(of["mean_abs_error"]),
            percent(of["bias"], "+"),
            f"{100 * of['coverage']:.0f}",
        )
        for name, of in sorted(every.items(), key=lambda one: -one[1]["rows"])
    ]
    heads = (
        "class",
        "rows",
        "sources",
        "median",
        "mean",
        "bias",
        "in the interval",
    )
    return markdown_table(heads, lines)


def peers(of: FitAnswer) -> str:
    """Other programs on the same rows."""
    lines = []
    for source, program, mean, median, bias, remark in PEERS:
        rows = [
            s
            for s in of.laboratories
            if s.source == source
            and (source != "korthikanti2022" or s.run.id in EIGHT)
        ]
        e = errors(rows)
        ours = f"{percent(e['mean_abs_error'])} / {percent(e['median_abs_error'])} / {percent(e['bias'], '+')}"
        lines.append(
            (source, str(len(rows)), program, mean, median, bias, remark, ours)
        )
    header = (
        "rows of",
        "rows",
        "program",
        "mean",
        "median",
        "bias",
        "",
        "ours without the laboratory: mean / median / bias",
    )
    return markdown_table(header, lines)


def numbers(of: FitAnswer) -> str:
    """The fitted numbers."""
    lines = []
    for p in of.parameters:
        low, high = of.fit.range(p.name)
        alone = ", ".join(of.fit.identified_by(p)) or "several"
        lines.append(
            (
                p.name,
                f"{p.prior:.3g}",
                f"{of.fit.values[p.name]:.3g}",
                f"{low:.3g} to {high:.3g}",
                alone,
            )
        )
    return markdown_table(
        (
            "number",
            "prior",
            "fitted",
            "range, one laboratory left out",
            "identified by",
        ),
        lines,
    )


WIDTH, HEIGHT, EDGE = 300.0, 230.0, 38.0
DOT = 2.4


def picture(name: str, panels: Sequence[str], columns: int) -> None:
    """Panels side by side, as a small SVG."""
    rows = -(-len(panels) // columns)
    parts = [
        f'<g transform="translate({i % columns * WIDTH:g} {i // columns * HEIGHT:g})">{panel}</g>'
        for i, panel in enumerate(panels)
    ]
    size = f'width="{columns * WIDTH:g}" height="{rows * HEIGHT:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="10">'
    back = '<rect width="100%" height="100%" fill="#fff"/>'
    (IMAGES / f"{name}.svg").write_text(
        head + back + "".join(parts) + "</svg>\n", "utf-8"
    )


def panel(
    title: str,
    points: Sequence[tuple[float, float]],
    x: tuple[float, float],
    y: tuple[float, float],
    marks: Sequence[tuple[float, str]],
    levels: Sequence[tuple[float, str]],
    more: str = "",
) -> str:
    """Points on two axes: marks and levels are where the axes have words."""

    def across(v: float) -> float:
        return EDGE + (v - x[0]) / (x[1] - x[0]) * (WIDTH - EDGE - 12)

    def up(v: float) -> float:
        return (
            HEIGHT
            - 28
            - (min(max(v, y[0]), y[1]) - y[0]) / (y[1] - y[0]) * (HEIGHT - 52)
        )

    dots = "".join(f"M{across(a):.1f} {up(b):.1f}h0" for a, b in points)
    words = [
        f'<text x="{WIDTH / 2:g}" y="14" text-anchor="middle">{title}</text>'
    ]
    for at, word in marks:
        words.append(
            f'<text x="{across(at):.1f}" y="{HEIGHT - 12:g}" text-anchor="middle">{word}</text>'
        )
    for at, word in levels:
        words.append(
            f'<text x="{EDGE - 4:g}" y="{up(at) + 3:.1f}" text-anchor="end">{word}</text>'
        )
        words.append(
            f'<path d="M{EDGE:g} {up(at):.1f}H{WIDTH - 12:g}" stroke="#ddd"/>'
        )
    path = f'<path d="{dots}" stroke="#27c" stroke-opacity=".45" stroke-width="{DOT}" stroke-linecap="round" fill="none"/>'
    drawn = f'<path d="M{across(x[0]):.1f} {up(y[0]):.1f}L{across(x[1]):.1f} {up(y[1]):.1f}" stroke="#333" stroke-width=".7"/>'
    return "".join(words) + path + (drawn if more == "diagonal" else "")


def pictures(of: FitAnswer) -> None:
    """Predicted against measured; residuals against each axis; coverage."""
    rows = of.laboratories
    ends = (-1.0, 2.6)
    marks = [(v, f"{10**v:g} s") for v in (-1, 0, 1, 2)]
    points = [
        (math.log10(s.run.step_s), math.log10(s.run.step_s / s.run.ratio))
        for s in rows
    ]
    shown = panel(
        "predicted against measured step time",
        points,
        ends,
        ends,
        marks,
        marks,
        "diagonal",
    )
    picture("accuracy-times", [shown], 1)
    residual = [(math.log(0.5), "0.5"), (0.0, "1"), (math.log(2.0), "2")]
    span = (math.log(0.5), math.log(2.0))
    axes: tuple[tuple[str, Callable[[Seen], float], str], ...] = (
        ("chips", lambda s: math.log10(s.run.chips), "log"),
        ("tokens of a sequence", lambda s: math.log10(s.run.tokens), "log"),
        ("parameters", lambda s: math.log10(s.run.parameters), "log"),
        ("seconds of a step", lambda s: math.log10(s.run.step_s), "log"),
        ("share beside layers", lambda s: s.parts["overhead"], ""),
        ("share of the host", lambda s: s.parts["host"], ""),
    )
    found = []
    for name, value, kind in axes:
        values = [value(s) for s in rows]
        low, high = min(values), max(values)
        ticks = [low, (low + high) / 2, high]
        words = [
            (v, f"{10**v:.2g}" if kind == "log" else f"{v:.2f}") for v in ticks
        ]
        dots = [(v, -s.error) for v, s in zip(values, rows, strict=True)]
        found.append(
            panel(
                f"predicted / measured against {name}",
                dots,
                (low, high or 1.0),
                span,
                words,
                residual,
            )
        )
    picture("accuracy-residuals", found, 2)
    picture("accuracy-coverage", [_coverage(of)], 1)


def _coverage(of: FitAnswer) -> str:
    """Share of rows of each source inside its interval, and where they lie: 5, 50 and 95 %."""
    levels, points, marks = (
        [(0.5, "50 %"), (0.9, "90 %"), (1.0, "100 %")],
        [],
        [],
    )
    names = sorted({s.source for s in of.laboratories})
    for i, name in enumerate(names):
        inside = [
            bool(y)
            for s, y in zip(of.laboratories, of.nested.inside, strict=True)
            if s.source == name
        ]
        points.append((float(i), sum(inside) / len(inside)))
        marks.append((float(i), name[:3]))
    title = "rows inside the interval, by source"
    return panel(
        title, points, (-0.5, len(names) - 0.5), (0.0, 1.0), marks, levels
    )


def spread(of: Sequence[Seen]) -> Iterator[float]:
    """Ends of predicted over measured."""
    values = sorted(1 / s.run.ratio for s in of)
    yield from (quantile(values, q) for q in (0.05, 0.95))


def page() -> str:
    """All tables; the pictures are drawn beside."""
    model = runs_in_evidence()
    of = runs_as_predicted(model, stored())
    pictures(of)
    count = len(of.parameters)
    return "\n\n".join(
        (
            "### Runs that the fit has not seen",
            "Errors of step times in percent. *Without their laboratory*: the shared numbers were fitted"
            " to the runs of the other laboratories. *Without their chips under their framework*:"
            " fitted to all runs but those of the same family of chips and of frameworks; this comes"
            " nearest to what a new run may expect. A new run may still be farther off, because left"
            " out is not blind (below). *In the sample*: the fit has seen these very runs.",
            overall(of),
            "![Predicted against measured step times](images/accuracy-times.svg)",
            "### By class: where it is good, where it is bad",
            "Errors without their laboratory; *pair left out*: without their chips under their"
            " framework. *One MFU* is the median error of a constant MFU for a family of chips in a"
            " precision, *one efficiency* that of a constant for the kind of model too, with"
            " recomputation and bubble counted; both left out by laboratory. *Nearer* is the share of"
            " runs, in percent, to which the model is nearer than one efficiency: at about half, a"
            " constant does as well.",
            classes(of),
            "### Where one efficiency is nearer",
            f"Of the runs of a class those to which one constant efficiency is nearer than the model;"
            f" *as good*: the two errors are within {100 * AS_GOOD:.0f} points of each other, so that"
            " it is nearer by chance; *by*: how much smaller its error is in the median of the others,"
            " in points.",
            constants_nearer(of),
            "![Share of rows inside their interval](images/accuracy-coverage.svg)",
            nearer(model, of),
            "### Where a layout is chosen",
            choices(of),
            "### By source, without its laboratory",
            sources(of),
            "![Residuals against each axis](images/accuracy-residuals.svg)",
            "### Runs that no fit has",
            "Runs of other laboratories, programs and chips, predicted as they are; what was learnt"
            " from them stands [below](#blind-runs-of-2026-11-30).",
            unfitted(),
            "### Other programs on the same rows",
            peers(of),
            f"### The {count} fitted numbers",
            numbers(of),
        )
    )


if __name__ == "__main__":
    written(__doc__, page)
