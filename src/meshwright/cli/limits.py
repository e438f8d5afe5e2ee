"""The verb `limits`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

from ..errors import BadInput
from ..units import parse
from .command import NO_FILES, Answer, Writers, verb, word

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
        "paper (a stack of MLPs, as published) or realistic (whole transformers, failures, memory;"
        " with --sensitivity what each omission moves, some minutes).",
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
    str | None,
    word("The largest run that this many chips can do in time.", "N"),
]
Fail = Annotated[bool, word("Chips fail, and runs restart from checkpoints.")]
Restart = Annotated[
    str | None,
    word(
        "Time from a failure to the first new step (10min); chips fail.",
        "TIME",
    ),
]
Threshold = Annotated[
    float | None,
    word(
        "Share of what a chip sustains down to which scaling is linear (0.8).",
        "X",
    ),
]
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
        "When: by what factor the largest runs grow each year (4.2), from 1e26 in 2024.",
        "X",
    ),
]
BatchLaw = Annotated[
    str | None,
    word(
        "Batch by training FLOPs: baseline, deepseek or fixed (4M tokens).",
        "NAME",
    ),
]
Depth = Annotated[
    float | None,
    word("Layers over those of the law (0.48: the fit of figure 10).", "X"),
]
Tokens = Annotated[
    float | None, word("Training tokens for each parameter (20).", "X")
]
Experts = Annotated[
    float | None,
    word("Experts of a block at GPT-3's width, growing; 1: dense.", "N"),
]
Beside = Annotated[
    bool, word("Data-parallel traffic overlaps with everything else.")
]


@verb(writes=".json, .csv, .png or .svg (utilisation against compute)")
def limits(
    *scenarios: Scenarios,
    output: str | None,
    months: Months = None,
    model: Kind = "paper",
    sensitivity: Sensitive = False,
    run: Run = None,
    chips: Chips = None,
    failures: Fail = False,
    restart: Restart = None,
    threshold: Threshold = None,
    overlap: Beside = False,
    precision: Numbers = None,
    assumptions: Under = None,
    framework: Software = None,
    growth: Growth = None,
    batch_law: BatchLaw = None,
    depth: Depth = None,
    tokens_per_parameter: Tokens = None,
    experts: Experts = None,
) -> Answer:
    """How far it scales: the largest run in a given time, where utilisation falls and why, the
    smallest cluster for a run.

    Example: meshwright limits h100 h100-global-nvlink a100/sparse --months 6 -o limits.png
    """
    from ..report import console, files

    whole_model = model == "realistic"
    number = None if chips is None else parse(chips, "", "--chips", "100k")
    demand_answerable(model, sensitivity, run, chips=number, growth=growth)
    demand_between(
        {
            "--run": run,
            "--chips": number,
            "--growth": growth,
            "--months": months,
            "--threshold": threshold,
            "--depth": depth,
            "--tokens-per-parameter": tokens_per_parameter,
            "--experts": experts,
        }
    )
    curve = not (whole_model or sensitivity or run or number)
    if output and not curve and output.lower().endswith(files.PLOTS):
        raise BadInput(
            f"-o {output[:80]!r}: --sensitivity, --run, --chips and --model realistic answer with a"
            " table, not a curve: -o FILE.json, or leave them out for the picture"
        )
    if not curve:
        files.suffix(output, (".json",))
    chosen = [scenario_named(text) for text in scenarios or ("h100",)]
    changes = (
        *conventions(months, failures, restart, threshold, overlap),
        *laws(batch_law, depth, tokens_per_parameter, experts),
    )
    for change in changes:
        chosen = [change(s) for s in chosen]
    words = (precision, assumptions, framework)
    said: list[str] = []
    if not whole_model:
        chosen, said = with_other_numbers(chosen, *words)
    real = realism(*words, overlap) if whole_model else None
    with console.progress() as progress:
        if run is not None or number is not None:
            return runs_and_clusters(
                chosen,
                run,
                number,
                real=real,
                progress=progress,
                growth=growth,
            )
        if real:
            return whole_models(
                chosen, real, progress, growth=growth, every=sensitivity
            )
    return (
        sensitivity_rows(chosen)
        if sensitivity
        else paper_curves(chosen, said, growth)
    )


def answer(
    card: Any, table: Any, fields: dict[str, Any], files: Writers = NO_FILES
) -> Answer:
    """What is shown and written, which is made already."""
    return Answer(lambda: fields, lambda: card, lambda: [table], files=files)


BETWEEN = {
    "--run": (0, 1e40),
    "--chips": (0, 1e12),
    "--growth": (1, 1e3),
    "--months": (0, 1200),
    "--threshold": (0, 1),
    "--depth": (0, 1e6),
    "--tokens-per-parameter": (0, 1e6),
    "--experts": (0, 1e6),
}
"""Above which number an option is, and its largest: beyond these a curve tells nothing apart."""


def demand_between(given: Mapping[str, float | None]) -> None:
    """BadInput for a number outside of its range."""
    for flag, value in given.items():
        least, most = BETWEEN[flag]
        if value is not None and not least < value <= most:
            raise BadInput(
                f"{flag} must be above {least:g} and at most {most:g}, not {value:g}"
            )


def demand_answerable(
    model: str,
    sensitivity: bool,
    run: float | None,
    chips: float | None,
    growth: float | None,
) -> None:
    """BadInput for what cannot be answered, before anything is computed."""
    # other questions, and dates: a table of the paper's model has none
    unanswered = {
        "--run": run is not None,
        "--chips": chips is not None,
        "--growth": growth is not None and model == "paper",
    }
    for flag, given in unanswered.items():
        if sensitivity and given:
            raise BadInput(
                f"{flag} has no effect with --sensitivity: leave one of them out"
            )
    if model not in ("paper", "realistic"):
        raise BadInput(
            f"--model must be paper or realistic, not {model[:40]!r}"
        )


def scenario_named(text: str) -> Any:
    """The scenario that a word names."""
    from ..formats.scenario import load_scenario
    from .advice import is_model, scaling_command

    if is_model(text):
        raise BadInput(scaling_command(text))
    return load_scenario(text)


Change = Callable[[Any], Any]
"""What an option changes of a scenario."""


def conventions(
    months: float | None,
    failures: bool,
    restart: str | None,
    threshold: float | None,
    overlap: bool,
) -> Iterator[Change]:
    """How long a run may take, whether chips fail and how long a restart takes, what counts as
    linear, and what overlaps.
    """
    from ..describe.frozen import put
    from ..limits.scenario import MONTH_S
    from ..prediction.failures import Failures

    if months is not None:
        yield put("duration_s", months * MONTH_S)
    if failures or restart is not None:
        yield lambda s: replace(s, failures=s.failures or Failures())
    if restart is not None:
        seconds = parse(restart, "s", field="--restart", like="10min")
        if seconds < 0:
            raise BadInput(
                f"--restart must be at least 0 s, such as 10min, not {restart}"
            )
        yield put("failures.restart_s", seconds)
    if threshold is not None:
        yield put("linear", threshold)
    if overlap:
        yield beside_everything()


def beside_everything() -> Change:
    """Gradients that run beside the whole step."""
    from ..describe.assumptions import HidePass
    from ..describe.frozen import put

    return put("assumptions.overlap.dp", HidePass("step"))


def laws(
    batch: str | None,
    depth: float | None,
    tokens: float | None,
    experts: float | None,
) -> Iterator[Change]:
    """Another law of the batch, depth, tokens a parameter or number of experts."""
    from ..describe.frozen import put, scaling
    from ..limits.laws import growing_experts, law

    if batch is not None:
        other = law(batch)
        yield put("law.batch", other.batch)
        yield put("law.batch_experts", other.batch_experts)
        yield put("law.stated_growth", other.stated_growth)
    if depth is not None:
        yield scaling("law.depth.coefficient", depth)
    if tokens is not None:
        yield put("law.tokens_per_parameter", tokens)
    if experts is not None:
        power = None if experts == 1 else growing_experts(experts)
        yield put("law.experts", power)


def with_other_numbers(
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
    if assumptions is None and framework is None:
        return chosen, []
    how = named("realistic" if assumptions is None else assumptions)
    taken = [stack_assumptions(how, s.chip, framework or "") for s in chosen]
    chosen = [
        replace(s, assumptions=fitting(s.chip, t.assumptions))
        for s, t in zip(chosen, taken, strict=True)
    ]
    return chosen, [
        f"chip, network, overlap and memory of {how.name};"
        f" {len(taken[0].unread)} of its other choices do not apply to a stack of MLPs"
        " (docs/limits.md)"
    ]


def paper_curves(
    chosen: list[Any], said: Sequence[str], growth: float | None
) -> Answer:
    """The paper's curves."""
    from ..limits.answer import limits as compute
    from ..limits.calendar import GROWTH
    from ..report import files, limits_card
    from ..report import limits as reports

    result = compute(chosen)
    return answer(
        limits_card.limits_card(result, said, growth or GROWTH),
        reports.limits_report(result, said),
        result.to_dict(),
        files.of_result(result),
    )


def realism(
    precision: str | None,
    assumptions: str | None,
    framework: str | None,
    overlap: bool = False,
) -> Any:
    """What of reality is counted, with another set, framework or numbers; overlap: gradients run
    beside everything else.
    """
    from ..describe.assumptions import assumptions as named
    from ..describe.framework import framework as profile
    from ..describe.precision import precision as named_precision
    from ..limits.realistic import Realism

    said: dict[str, Any] = {}
    if precision:
        said["precision"] = named_precision(precision)
    if assumptions is not None:
        said["assumptions"] = named(assumptions)
    if framework:
        said["framework"] = profile(framework)
    real = Realism(**said)
    return beside_everything()(real) if overlap else real


def whole_models(
    chosen: list[Any],
    real: Any,
    progress: Any,
    growth: float | None,
    every: bool,
) -> Answer:
    """The question asked of whole transformers, beside the paper's model; every: what each omission
    moves, not failures alone.
    """
    from rich.console import Group

    from ..limits.answer import limits as compute
    from ..limits.calendar import GROWTH
    from ..limits.realistic import ladder
    from ..prediction.failures import Failures
    from ..report.limits import ladders
    from ..report.limits_card import ladder_card

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
            ladder(
                scenario,
                replace(real, failures=mortal.failures),
                progress,
                every,
            )
        )
        cards.append(
            ladder_card(
                scenario,
                paper,
                curves=curves,
                growth=growth or GROWTH,
                whole=every,
            )
        )
        tables.append(ladders(paper, curves))
        fields.append(
            {
                "scenario": scenario.name,
                "paper": [line.to_dict() for _, line in paper],
                "realistic": [c.to_dict() for c in curves],
            }
        )
    return answer(Group(*cards), Group(*tables), {"ladders": fields})


def sensitivity_rows(chosen: list[Any]) -> Answer:
    """The sensitivity table."""
    from ..limits.sensitivity import sensitivity
    from ..report.limits import sensitivities
    from ..report.limits_card import sensitivity_card

    result = sensitivity(chosen)
    fields = {"sensitivity": result.to_dict()}
    return answer(sensitivity_card(result), sensitivities(result), fields)


def runs_and_clusters(
    chosen: list[Any],
    run: float | None,
    chips: float | None,
    real: Any,
    progress: Any,
    growth: float | None,
) -> Answer:
    """Smallest clusters for a run and largest runs of a cluster; real: of whole transformers."""
    from ..limits.answer import bill, largest_run, smallest_cluster
    from ..limits.calendar import GROWTH
    from ..limits.realistic import largest_on, smallest_for
    from ..prediction.failures import Failures
    from ..report.limits import answers
    from ..report.limits_card import answered

    def failing(s: Any) -> Any:
        return replace(real, failures=s.failures or Failures())

    rows = [
        (
            kind,
            s,
            whole(s, failing(s), size, progress) if real else stack(s, size),
        )
        for kind, stack, whole, size in (
            ("smallest", smallest_cluster, smallest_for, run),
            ("largest", largest_run, largest_on, chips),
        )
        if size is not None
        for s in chosen
    ]
    fields = [
        {"question": f"{s.name}: {kind}", **p.to_dict(), **bill(p, s)}
        for kind, s, p in rows
    ]
    return answer(
        answered(rows, growth or GROWTH, chips),
        answers(rows),
        {"answers": fields},
    )
