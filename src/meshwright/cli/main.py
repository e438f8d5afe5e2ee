"""The command `meshwright`: parse, call, print.

Tables go to stdout, progress to stderr. Exit codes: 0 a result, 1 no layout that fits, 2 bad input
(one sentence on stderr), 130 interrupted, 141 the reader of a pipe has left. What a verb needs is
imported when it runs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Annotated, Any

from cyclopts import CycloptsError

from ..errors import BadInput, MeshwrightError, command, unknown
from ..formats.flags import STDIN
from ..formats.spellings import translated
from . import (  # noqa: F401, their verbs register themselves
    calibrate,
    compare,
    completion,
    export,
    grid,
    limits,
    read,
    roofline,
    serve,
    steps,
    train,
)
from .advice import advice
from .command import (
    VERBS,
    AgainstLayout,
    AssumptionSets,
    Budget,
    Column,
    Deadline,
    Engine,
    Explain,
    Fixed,
    Json,
    Kind,
    ModelArg,
    Name,
    Over,
    Pareto,
    Relaxed,
    Replan,
    Top,
    Workers,
    app,
    output,
    verb,
)
from .kept import swept

ASKED = ("--help", "-h", "--version")
"""What may stand in place of a verb."""
BESIDE = {"reproduce": "studies", "validate": "studies", "fit": "studies"}
"""Verb -> the extra that brings it."""

for package in entry_points(group="meshwright.verbs"):
    package.load()  # its verbs register themselves, too


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal without Unicode shows ?, not a traceback
            stream.reconfigure(errors="replace")
    try:
        code = run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # a bug is one sentence, too; MESHWRIGHT_DEBUG=1 shows where
        if os.environ.get("MESHWRIGHT_DEBUG"):
            raise
        return refuse(
            f"internal error, please report it with this command: {type(error).__name__}: {error}",
            sys.argv[1:] if argv is None else argv,
            again=True,
        )


def run(words: list[str]) -> int:
    """As `main`, but bugs and interruptions are raised."""
    try:
        if words and words[0] not in (*VERBS, *ASKED):
            if extra := BESIDE.get(words[0]):
                raise BadInput(
                    f"{words[0]} needs the extra: pip install 'meshwright[{extra}]'"
                )
            raise unknown("command", words[0], VERBS)
        return int(
            app(
                [STDIN if w == "-" else w for w in translated(words)],
                exit_on_error=False,
                print_error=False,
            )
            or 0
        )
    except CycloptsError as error:
        if better := advice(words, error):
            return refuse(better, words)
        known = words[0] if words[0] in VERBS else ""
        return refuse(
            f"{str(error).rstrip('.')}; see"
            f" {command(' '.join(filter(None, (known, '--help'))))}",
            words,
        )
    except MeshwrightError as error:
        final = error.exit_code == BadInput.exit_code
        again = getattr(error, "again", not final)
        return refuse(str(error), words, error.exit_code, again)


def refuse(
    sentence: str, words: Sequence[str], code: int = 2, again: bool = False
) -> int:
    """One sentence on stderr, and where --json is among the words an object on stdout. again:
    another try may go better, which a torchrun is told.
    """
    said = " ".join(sentence.split())
    if "--json" in words:
        print(json.dumps({"error": said}, ensure_ascii=False))
    print(f"meshwright: {said}", file=sys.stderr)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from ..train.elastic import last_words

        last_words(said, again)
    return code


@verb("model", "cluster", "job", "software", "layout")
def predict(
    model: ModelArg,
    /,
    *,
    given: Mapping[str, str],
    explain: Explain = None,
    json: Json = False,
    output: Annotated[
        str | None, output(".json, .toml (the job), .png or .svg (bars)")
    ] = None,
) -> int:
    """Predict one training step under a given layout: time by cause, memory by kind, MFU, days and
    cost.

    Exit code 1 where the layout does not fit in memory.

    Example: meshwright predict llama3-70b --on 1024xh100-sxm --batch 4Mi --tp 8 --pp 4 --interleave
    4 --zero 1
    """
    from ..report import console, files
    from ..report import explain as explanation
    from ..report.predict import report

    files.suffix(output, (".json", ".toml", *files.PLOTS))
    p = predicted(model, given)
    terms = {"explain": explanation.to_dict(p, explain)} if explain else {}
    data = console.envelope("predict", {**p.to_dict(), **terms})
    tables = (
        explanation.report(p, explain)
        if explain
        else report(p, console.ascii_only())
    )
    console.show_json(data) if json else console.show(tables)
    if output:
        files.write(output, files.of_predictions([p], data, p))
    if not json:
        console.show(steps.after_predict(p, model, given, output))
    return 0 if p.fits else 1


@verb(
    "model",
    "cluster",
    "job",
    "software",
    "layout",
    layout="constraints",
    without=("placement",),
)
def plan(
    model: ModelArg,
    /,
    *,
    given: Mapping[str, str],
    assumptions: AssumptionSets = (),
    top: Top = 10,
    relaxed: Relaxed = None,
    pareto: Pareto = False,
    against: AgainstLayout = None,
    deadline: Deadline = None,
    budget: Budget = None,
    json: Json = False,
    output: Annotated[
        str | None,
        output(
            ".json, .toml (the best, for predict), .csv, .png or .svg (bars)"
        ),
    ] = None,
) -> int:
    """Find the best layouts that fit, by family too, and say why the first one wins.

    Example: meshwright plan llama3-70b --on 1024xh100-sxm --batch 4Mi --tp 4,8 --pp 1..16 -o
    plan.toml
    """
    from ..formats.flags import command_line, split
    from ..report import console, files
    from ..report import plan as reports
    from ..report.lines import noted

    files.suffix(output, (".json", ".toml", ".csv", *files.PLOTS))
    if (
        output
        and output.lower().endswith(".toml")
        and len(set_names(assumptions)) > 1
    ):
        raise BadInput(
            f"-o {output[:80]} holds one job: give one assumption set, or .json, .csv, .png or .svg"
        )
    described, space = split(given, relaxed)
    size = None
    rounded: list[str] = []
    if deadline or budget:
        described, size, rounded = sized(
            model, described, space, deadline, budget
        )
        if size.chips is None:
            data = console.envelope("plan", {"sizing": size.to_dict()})
            console.show_json(data) if json else console.show(
                reports.sized(size)
            )
            return 1
    found, own = plans(model, described, space, assumptions, top, pareto)
    for name, each in found.items():
        found[name] = replace(each, notes=(*rounded, *each.notes))
    first = next(iter(found.values()))
    mine, aside = against_best(first, against, own)
    more = {"sizing": size.to_dict()} if size else {}
    if mine:
        more["against"] = reports.against_dict(mine, first.best)
    data = {}
    if json or output:
        told = {name: plan.to_dict() for name, plan in found.items()}
        (alone, *others) = told.values()
        plain = {"plans": told} if others else alone
        data = console.envelope("plan", {**plain, **more})
    if json:
        console.show_json(data)
    elif size:
        console.show(reports.sized(size), "")
    if len(found) > 1 and not json:
        console.show(reports.comparison(found))
    for name, each in found.items() if not json else ():
        extra = {"assumptions": name} if assumptions else {}
        if any(note.startswith("batch:") for note in each.notes) and each.best:
            extra["batch"] = (
                f"{each.best.job.batch}seq"  # predict rounds tokens to the nearest
            )
        again = (
            command_line(model, {**described, **extra}, each.best)
            if each.best
            else ""
        )
        console.show(
            *[""] * (len(found) > 1),
            reports.report(each, again, console.ascii_only()),
        )
    if mine and not json:
        console.show("", reports.against(mine, first))
    if aside and not json:
        console.show("", *noted([aside]))
    bests = {name: plan.best for name, plan in found.items() if plan.best}
    if output and bests:
        one = (
            [first.best, *first.alternatives]
            if first.best and len(found) == 1
            else list(bests.values())
        )
        files.write(
            output,
            files.of_predictions(
                one, data, one[0], list(bests) if len(found) > 1 else ()
            ),
        )
    if first.best and not json and len(found) == 1:
        console.show(steps.after_plan(first.best, output))
    return 0 if any(plan.best for plan in found.values()) else 1


@verb("model", "cluster", "job", "software", "layout", layout="constraints")
def sweep(
    model: ModelArg,
    /,
    *,
    given: Mapping[str, str],
    over: Over,
    fixed: Fixed = False,
    replan: Replan = False,
    workers: Workers = None,
    engine: Engine = None,
    show: Column = None,
    json: Json = False,
    output: Annotated[
        str | None,
        output(
            ".json, .csv, .png or .svg (curves); two fields: .jsonl, which goes on where it was"
        ),
    ] = None,
) -> int:
    """Vary one field or two, keep the rest: strong scaling, batch, sequence length, bandwidth, ...
    The layout of a file stays; without one the best is searched at every value. Ctrl-C keeps what
    is done.

    Example: meshwright sweep llama3-70b --on 64xh100-sxm --batch 4Mi --over chips=64..4096 -o
    scaling.png
    """
    from ..report import console, files
    from ..report.lines import noted
    from ..report.sweep import report
    from ..sweep import parse
    from ..sweep import sweep as compute

    if len(over) > 1:
        return grid.two(
            swept(model, given, fixed, replan),
            over,
            workers,
            engine,
            show or "step_time_s",
            json,
            output,
        )
    if show is not None:
        raise BadInput(
            f"--show {show[:40]} is for a sweep of two fields; of one, all columns stand in the"
            " table, and more in --json and -o FILE.csv"
        )
    if workers is not None or engine is not None:
        raise BadInput(
            "--workers and --engine are for a sweep of two fields: --over twice"
        )
    files.suffix(output, (".json", ".csv", *files.PLOTS))
    field, values = parse(over[0] if over else "")
    job, space, keep, said = swept(model, given, fixed, replan)
    with console.progress() as told:
        found = compute(job, field, values, space, keep, told)
    data = console.envelope("sweep", found.to_dict())
    console.show_json(data) if json else console.show(
        report(found), *noted([said] if said else [])
    )
    if output and found.found:
        files.write(output, files.of_sweep(found, data))
    return 130 if found.interrupted else 0 if found.found else 1


@verb("model", "cluster", "job", "software", "layout", without=("tokens",))
def timeline(
    model: ModelArg,
    /,
    *,
    given: Mapping[str, str],
    json: Json = False,
    output: Annotated[
        str | None,
        output(
            ".json (a trace for ui.perfetto.dev), .csv (order for torch.distributed), .png or .svg"
            " (Gantt)"
        ),
    ] = None,
) -> int:
    """Replay the pipeline of a step action by action, beside what is predicted of it.

    Example: meshwright timeline gpt3-175b --on 64xa100-80 --batch 64seq --tp 8 --pp 8 --interleave
    2 -o gantt.png
    """
    from ..prediction.replay import replay
    from ..report import console, files
    from ..report.timeline import report

    files.suffix(output, (".json", ".csv", *files.PLOTS))
    exact = replay(predicted(model, given))
    data = console.envelope("timeline", exact.to_dict())
    console.show_json(data) if json else console.show(
        report(exact, console.ascii_only())
    )
    if output:
        files.write(output, files.of_replay(exact))
    return 0


@verb()
def catalog(
    kind: Kind = "chips",
    name: Name = None,
    /,
    *,
    json: Json = False,
) -> int:
    """List chips, networks, models or frameworks, or show one of them with the source of every
    number.
    """
    from ..report import console
    from ..report.catalog import report, to_dict

    (
        console.show_json(console.envelope("catalog", to_dict(kind, name)))
        if json
        else console.show(report(kind, name))
    )
    return 0


def plans(
    model: str,
    described: Mapping[str, str],
    space: Any,
    assumptions: Sequence[str],
    top: int,
    pareto: bool,
) -> tuple[dict[str, Any], Any]:
    """(name -> plan for each assumption set, the layout that the job has already)."""
    from ..report import console
    from ..search import plan as search
    from ..sizing import batch_beside

    if not 1 <= top <= 1000:
        raise BadInput(f"--top must be between 1 and 1000, not {top}")
    found = {}
    for name in set_names(assumptions) or [""]:
        notes: list[str] = []
        job = read_job(
            model,
            {**described, **({"assumptions": name} if name else {})},
            notes,
            fill=False,
            search=True,
        )
        with console.progress() as told:
            plan = search(job, space, top=top, progress=told, pareto=pareto)
        beside = [said] if (said := batch_beside(job)) else []
        notes = [*notes, *plan.notes, *beside, *runs_on(plan)]
        found[job.assumptions.name] = replace(plan, notes=tuple(notes))
    return found, job.layout


def sized(
    model: str,
    described: Mapping[str, str],
    space: Any,
    deadline: str | None,
    budget: str | None,
) -> tuple[dict[str, str], Any, list[str]]:
    """(the arguments with the number of chips that a deadline or a budget asks for and the batch
    that all numbers were tried with, the answer, what was rounded).
    """
    from ..formats.flags import COUNTED
    from ..report import console
    from ..sizing import sizing
    from ..units import parse

    counted = COUNTED.fullmatch(described.get("on", ""))
    if not counted:
        raise BadInput(
            "--deadline and --budget need --on with a number, such as 512xh100-sxm"
        )
    notes: list[str] = []
    job = read_job(model, described, notes, fill=False, search=True)
    seconds = (
        parse(deadline, "s", "--deadline", like="'60 days'")
        if deadline
        else None
    )
    money = parse(budget, "USD", "--budget") if budget else None
    with console.progress() as told:
        found = sizing(job, space, seconds, money, told)
    on = f"{found.chips}{counted[2]}" if found.chips else described["on"]
    return {**described, "on": on, "batch": f"{job.batch}seq"}, found, notes


def against_best(plan: Any, text: str | None, own: Any) -> tuple[Any, str]:
    """(the prediction of a layout of the user's, beside a plan's best: the one named, else the
    job's own, None where there is none; why the job's own is left aside).
    """
    from ..describe.layout import Layout
    from ..formats.flags import layout_of, on_all
    from ..prediction.prediction import predict

    if not plan.best:
        if text:
            return (
                None,
                "--against has nothing to compare with: no layout fits",
            )
        return None, ""
    job = plan.best.job
    if text:
        return predict(job, layout_of(text, job, own)), ""
    if own == Layout():
        return None, ""
    try:
        return predict(job, on_all(own, job)), ""
    except BadInput as error:
        return None, f"the layout of the file is left aside: {error}"


def runs_on(plan: Any) -> list[str]:
    """Whether the trainer of this project, and so `export`, runs the best layout of a model that it
    trains; if not, why.
    """
    from ..layout import trainable
    from ..train import rules
    from ..train.settings import Settings

    cuda = Settings(device="cuda")

    def refused(p: Any) -> str:
        for why in rules.of_trainer(p.job, p.layout):
            return why
        try:
            rules.demand_chip(p, cuda)
        except BadInput as error:
            return str(error)
        return ""

    def runs(p: Any) -> bool:
        return not rules.of_trainer(p.job, p.layout) and rules.fits_chip(
            p, cuda
        )

    if (
        not plan.best
        or trainable.model(plan.best.job.model)
        or trainable.numbers(plan.best.job)
    ):
        return []
    if not (why := refused(plan.best)):
        return []
    rank = next(
        (rank for rank, p in enumerate(plan.alternatives, 2) if runs(p)),
        None,
    )
    instead = (
        f"; number {rank} below is the fastest of these that they run"
        if rank
        else ""
    )
    return [
        f"train and export of this project refuse the best layout: {why}{instead}"
    ]


def set_names(assumptions: Sequence[str]) -> list[str]:
    """The assumption sets of "realistic,lbl-2024"."""
    return list(
        dict.fromkeys(
            name.strip() for text in assumptions for name in text.split(",")
        )
    )


def predicted(model: str, given: Mapping[str, str]) -> Any:
    """The prediction of the arguments, with what was rounded or filled in among its notes."""
    from ..prediction.prediction import predict as compute

    notes: list[str] = []
    p = compute(read_job(model, given, notes))
    return replace(p, notes=(*notes, *p.notes))


def read_job(
    model: str,
    given: Mapping[str, str],
    notes: list[str],
    fill: bool = True,
    search: bool = False,
) -> Any:
    """The job of the arguments; search: its layout is to be searched."""
    from ..formats.flags import read_flags
    from .train import checked

    return checked(read_flags(model, given, notes, sys.stdin, fill, search))
