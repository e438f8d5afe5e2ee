"""The verb `limits`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

from ..errors import BadInput
from .advice import is_model, scaling
from .command import Detail, Json, answer, output, verb, word

SCENARIOS = (
    "Scenarios: v100, a100, h100, h100-global-nvlink, ... with /sparse for mixtures of experts, a"
    " network of the catalogue (lbl-b200-nvs8, selene, tpu-v5p-pod, gb200-nvl72), CHIP@NETWORK, or"
    " a SCENARIO.toml."
)
Scenarios = Annotated[str, Parameter(help=SCENARIOS)]
Months = Annotated[float | None, word("Time a run may take (default 3).", "N")]
Kind = Annotated[
    str,
    word(
        "paper (a stack of MLPs, as published) or realistic (whole transformers; what each omission"
        " moves).",
        "NAME",
    ),
]
Sensitive = Annotated[
    bool,
    word("The end of linear scaling when one input at a time is changed."),
]
Run = Annotated[
    float | None,
    word("Training FLOPs: the smallest cluster that does it in time.", "FLOP"),
]
Chips = Annotated[
    float | None, word("The largest run that so many chips do in time.", "N")
]
Fail = Annotated[bool, word("Chips fail, and runs restart from checkpoints.")]
Under = Annotated[
    str | None,
    word(
        "Set of assumptions whose chip, network, overlap and memory count (default epoch-2024).",
        "NAME",
    ),
]
Software = Annotated[
    str | None,
    word(
        "What the software does, under a set that asks it: fsdp, ...", "NAME"
    ),
]
Numbers = Annotated[
    str | None, word("fp8, bf16, fp16-pure, ... (default 16 bits).", "NAME")
]
Growth = Annotated[
    float | None,
    word(
        "When: the largest runs grow so many times a year (4.2), from 1e26 in 2024.",
        "X",
    ),
]
Beside = Annotated[
    bool, word("Data-parallel traffic runs beside everything else.")
]


@verb()
def limits(
    *scenarios: Scenarios,
    detail: Detail,
    months: Months = None,
    model: Kind = "paper",
    sensitivity: Sensitive = False,
    run: Run = None,
    chips: Chips = None,
    failures: Fail = False,
    overlap: Beside = False,
    precision: Numbers = None,
    assumptions: Under = None,
    framework: Software = None,
    growth: Growth = None,
    json: Json = False,
    output: Annotated[
        str | None,
        output(".json, .csv, .png or .svg (utilisation against compute)"),
    ] = None,
) -> int:
    """How far it scales: the largest run in a given time, where utilisation falls and why, the
    smallest cluster for a run.

    Example: meshwright limits h100 h100-global-nvlink a100/sparse --months 6 -o limits.png
    """
    from ..limits.answer import limits as compute
    from ..report import console, files, limits_card
    from ..report import limits as reports

    alone(
        {
            "--model realistic": model == "realistic",
            "--sensitivity": sensitivity,
            "--run": run is not None,
            "--chips": chips is not None,
            "--growth": growth is not None,
            "--overlap": overlap,
        }
    )
    if model not in ("paper", "realistic"):
        raise BadInput(
            f"--model must be paper or realistic, not {model[:40]!r}"
        )
    table_only = (
        model == "realistic"
        or sensitivity
        or run is not None
        or chips is not None
    )
    files.suffix(
        output, (".json",) if table_only else (".json", ".csv", *files.PLOTS)
    )
    chosen = [
        described(text, months, failures, overlap)
        for text in scenarios or ("h100",)
    ]
    words = (precision, assumptions, framework)
    said: list[str] = []
    if model == "paper":
        chosen, said = under(chosen, *words)
    real = realism(*words) if model == "realistic" else None
    with console.progress() as progress:
        special = (
            changed(chosen)
            if sensitivity
            else asked(chosen, run, chips, real, progress)
            if run is not None or chips is not None
            else whole(chosen, real, progress)
            if real
            else None
        )
    if special:
        cards, table, fields = special
        data = console.envelope("limits", fields)
        console.show_json(data) if json else answer(cards, detail, [table])
        writers: Any = {}
    else:
        result = compute(chosen)
        said += dates(result, growth) if growth is not None else []
        data = console.envelope("limits", result.to_dict())
        console.show_json(data) if json else answer(
            limits_card.card(result, said),
            detail,
            [reports.report(result, said)],
        )
        writers = {
            ".csv": lambda: reports.to_csv(result),
            **{kind: plot(result, kind) for kind in files.PLOTS},
        }
    if output:
        files.write(
            output, {".json": lambda: files.json_text(data), **writers}
        )
    return 0


APART = (
    ("--model realistic", "--sensitivity"),
    ("--model realistic", "--overlap"),
    ("--model realistic", "--growth"),
    ("--sensitivity", "--run"),
    ("--sensitivity", "--chips"),
    ("--sensitivity", "--growth"),
    ("--run", "--growth"),
    ("--chips", "--growth"),
)
"""Options of which only one can be answered: a ladder counts its own overlap, and dates are those
of the curve's ends."""


def alone(given: Mapping[str, bool]) -> None:
    """BadInput for two options of which one would be left unanswered."""
    for first, second in APART:
        if given[first] and given[second]:
            raise BadInput(
                f"{second} says nothing with {first}: leave one of them out"
            )


def described(
    text: str, months: float | None, failures: bool, overlap: bool
) -> Any:
    """The scenario a word names, with the options of the command line."""
    from ..describe.assumptions import HidePass
    from ..describe.frozen import put
    from ..formats.scenario import load_scenario
    from ..limits.scenario import MONTH_S
    from ..prediction.failures import Failures

    if is_model(text):
        raise BadInput(scaling(text))
    result = load_scenario(text)
    if months is not None:
        if not 0 < months <= 1200:
            raise BadInput(
                f"--months must be above 0 and at most 1200, not {months:g}"
            )
        result = replace(result, duration_s=months * MONTH_S)
    if failures:
        result = replace(result, failures=result.failures or Failures())
    if overlap:
        beside = put("assumptions.overlap.dp", HidePass("step"))
        result = beside(result)
    return result


def under(
    chosen: list[Any],
    precision: str | None,
    assumptions: str | None,
    framework: str | None,
) -> tuple[list[Any], list[str]]:
    """(the scenarios with other numbers, and the chip, network, overlap and memory of another set;
    what of the set says nothing there).
    """
    from ..describe.assumptions import assumptions as named
    from ..describe.precision import precision as named_precision
    from ..formats.scenario import fitting
    from ..limits.other_sets import stack_assumptions

    if precision:
        numbers = named_precision(precision)
        chosen = [replace(s, precision=numbers) for s in chosen]
    if not (assumptions or framework):
        return chosen, []
    how = named(assumptions or "realistic")
    taken = [stack_assumptions(how, s.chip, framework or "") for s in chosen]
    chosen = [
        replace(s, assumptions=fitting(s.chip, t.assumptions))
        for s, t in zip(chosen, taken, strict=True)
    ]
    return chosen, [
        f"chip, network, overlap and memory of {how.name}; of its other choices"
        f" {len(taken[0].unread)} say nothing of a stack of MLPs (docs/limits.md)"
    ]


def dates(result: Any, growth: float) -> list[str]:
    """When runs of the ends get there."""
    from ..limits.calendar import LARGEST_FLOPS, year_of

    said = []
    for line in result.lines:
        ends = {
            "linear scaling ends": line.crossing.last_flops,
            "the largest run": line.largest.flops
            if line.largest and line.curve.ends
            else None,
        }
        when = ", ".join(
            f"{name} in {year_of(flops, growth=growth):.0f}"
            for name, flops in ends.items()
            if flops
        )
        said.append(
            f"{line.scenario.name}: {when or 'neither end is on the grid'} ({growth:g} times a year"
            f" from {LARGEST_FLOPS:.0e} FLOP at the end of 2024)"
        )
    return said


def realism(
    precision: str | None, assumptions: str | None, framework: str | None
) -> Any:
    """What of reality is counted, with another set, framework or numbers."""
    from ..describe.assumptions import assumptions as named
    from ..describe.framework import framework as profile
    from ..describe.precision import precision as named_precision
    from ..limits.realistic import Realism

    said: dict[str, Any] = {}
    if precision:
        said["precision"] = named_precision(precision)
    if assumptions:
        said["assumptions"] = named(assumptions)
    if framework:
        said["framework"] = profile(framework)
    return Realism(**said)


def whole(
    chosen: list[Any], real: Any, progress: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """The question asked of whole transformers, beside the paper's model."""
    from rich.console import Group

    from ..limits.answer import limits as compute
    from ..limits.realistic import ladder
    from ..prediction.failures import Failures
    from ..report.limits import ladders
    from ..report.limits_card import laddered

    cards, tables, fields = [], [], []
    for scenario in chosen:
        mortal = replace(scenario, failures=scenario.failures or Failures())
        paper = [
            (
                "the paper's model, chips never fail",
                compute(replace(scenario, failures=None), False).lines[0],
            )
        ]
        paper.append(
            ("the paper's model, chips fail", compute(mortal, False).lines[0])
        )
        curves = tuple(
            ladder(scenario, replace(real, failures=mortal.failures), progress)
        )
        cards.append(laddered(scenario.name, paper, curves))
        tables.append(ladders(paper, curves))
        fields.append(
            {
                "scenario": scenario.name,
                "paper": [line.to_dict() for _, line in paper],
                "realistic": [c.to_dict() for c in curves],
            }
        )
    return Group(*cards), Group(*tables), {"ladders": fields}


def changed(chosen: list[Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The sensitivity table."""
    from ..limits.sensitivity import sensitivity
    from ..report.limits import sensitivities
    from ..report.limits_card import changed

    result = sensitivity(chosen)
    fields = {"sensitivity": result.to_dict()}
    return changed(result), sensitivities(result), fields


def asked(
    chosen: list[Any],
    run: float | None,
    chips: float | None,
    real: Any,
    progress: Any,
) -> tuple[Any, Any, dict[str, Any]]:
    """Smallest clusters for a run and largest runs of a cluster; real: of whole transformers."""
    from ..limits.answer import bill, largest_run, smallest_cluster
    from ..limits.realistic import largest_on, smallest_for
    from ..prediction.failures import Failures
    from ..report.limits import answers
    from ..report.limits_card import answered

    def least(s: Any, flops: float) -> Any:
        return (
            smallest_for(s, failing(s), flops)
            if real
            else smallest_cluster(s, flops)
        )

    def most(s: Any, number: float) -> Any:
        return (
            largest_on(s, failing(s), number, progress)
            if real
            else largest_run(s, number)
        )

    def failing(s: Any) -> Any:
        return replace(real, failures=s.failures or Failures())

    rows = [
        (f"{s.name}: smallest", s, least(s, run))
        for s in chosen
        if run is not None
    ]
    rows += [
        (f"{s.name}: largest", s, most(s, chips))
        for s in chosen
        if chips is not None
    ]
    fields = [
        {"question": name, **p.to_dict(), **bill(p, s)} for name, s, p in rows
    ]
    return answered(rows), answers(rows), {"answers": fields}


def plot(result: Any, kind: str) -> Any:
    """What draws the curves."""

    def draw() -> bytes:
        from ..report.limits_plots import of_limits
        from ..report.plots import image

        return image(of_limits(result), kind)

    return draw
