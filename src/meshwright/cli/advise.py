"""The verb `advise`: which change of a run makes it faster, in the words of its own file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ..describe.choices import first_few
from ..errors import BadInput, command
from .calibrate import positive_numbers
from .command import JOB_TABLES, Answer, Price, verb, word
from .jobs import read_job
from .steps import words_of_command

Run = Annotated[
    str,
    Parameter(
        help="A JOB.toml, a script or configuration of another tool, or the log of its run."
    ),
]
Steps = Annotated[
    str | None,
    word(
        "Measured seconds of the run's steps, such as 21.1,21.0,21.2, or its log.",
        "LIST",
    ),
]
Take = Annotated[
    str,
    word(
        "What -o writes: a number of the list, pair or triple; default: 1.",
        "WHICH",
    ),
]


@verb(
    *JOB_TABLES,
    writes=".diff or .patch, which changes the run's file",
)
def advise(
    run: Run,
    /,
    *,
    given: Mapping[str, str],
    output: str | None,
    price: Price = (),
    steps: Steps = None,
    take: Take = "1",
) -> Answer:
    """Say which single changes of a run make it faster, what each gives, and write one as a diff.

    Examples: meshwright advise train.sh --on 256xh100-sxm -o train.diff
    meshwright advise train.log --on 256xh100-sxm
    """
    from ..advice.answer import advise as compute
    from ..advice.diff import diff
    from ..report import advise_card

    if output and not Path(run[:4096]).is_file():
        raise BadInput(f"{run[:80]} is not a file that -o can change")
    notes: list[str] = []
    job = read_job(run, given, notes, price)
    file = of_file(run, given)
    advice = compute(job, measured_seconds(run, steps, job, notes), **file)
    advice = replace(advice, notes=(*notes, *advice.notes))
    form = file.get("format", "")
    if output or take != "1":
        chosen = change_to_write(advice, take)

    def text() -> str:
        return diff(run, job.filled, chosen.change, form)

    def later() -> list[str]:
        return next_words(
            run, given=given, output=output, advice=advice, format=form
        )

    return Answer(
        advice.to_dict,
        lambda: advise_card.advise_card(advice, later()),
        lambda: advise_card.gain_details(advice),
        lambda: advise_card.rest(advice),
        files={".diff": text, ".patch": text},
    )


def next_words(
    run: str,
    given: Mapping[str, str],
    output: str | None,
    advice: Any,
    format: str,
) -> list[str]:
    """What to do next: apply the diff that is written, or write it; a log has its script, files of
    a format that is not edited have their keys listed, and flags are tried with the first change.
    """
    from ..formats import bridge

    if output:
        return [f"patch {shlex.quote(run)} {shlex.quote(output)}"]
    if not advice.gains and not advice.fits:
        return [command(f"plan {words_of_command(run, given, ('layout',))}")]
    if not Path(run[:4096]).is_file():
        return with_change(run, given, advice.gains[0]) if advice.gains else []
    if not advice.best_each:
        return []
    asked, steps = words_of_command(run, given), ""
    if bridge.logged(run):
        file, _, rest = asked.partition(" ")
        asked, steps = f"train.sh {rest}", f" --steps {file}"
    elif format and format not in bridge.onto.CHANGED:
        return [command(f"advise {asked} --why")]
    stem = shlex.split(asked)[0].rpartition(".")[0]
    return [command(f"advise {asked}{steps} -o {shlex.quote(stem)}.diff")]


def with_change(run: str, given: Mapping[str, str], best: Any) -> list[str]:
    """The prediction of a run given by flags, with those of a change."""
    changed = {
        path.rpartition(".")[2]: first_few((value,))
        for path, value in best.change.fields.items()
    }
    return [command(f"predict {words_of_command(run, {**given, **changed})}")]


def of_file(run: str, given: Mapping[str, str]) -> dict[str, Any]:
    """What a file of another tool says of the words to use: its format, fields that it leaves open,
    keys that its version has; of flags beside a model what none of them says; empty for our files.
    """
    from ..formats import bridge, flags

    if flags.is_file(run):
        return {}
    if not bridge.foreign(run):
        return {"taken": flags.unsaid(given)}
    file = flags.read_foreign(run, given)
    return {
        "format": file.format.name,
        "taken": tuple(n for n in file.taken if n not in given),
        "names": file.names,
    }


def measured_seconds(
    run: str, steps: str | None, job: Any, notes: list[str]
) -> list[float]:
    """Seconds of the steady steps of the run's log, or those that the user gives; notes: receives
    what the log contradicts of the job.
    """
    from ..compare.logged import compare_log
    from ..formats import bridge
    from ..formats.logs import read_log, steps_of
    from ..prediction.prediction import predict

    log = steps if steps and Path(steps[:4096]).is_file() else None
    if steps and log is None:
        return positive_numbers(steps)
    if log is None and bridge.logged(run):
        log = run
    if log is None:
        return []
    try:
        records = steps_of(read_log(log), log[:80])
    except BadInput:
        if steps:
            raise
        return []  # arguments alone
    beside = compare_log(log, records, predict(job))
    notes += beside.doubts
    return beside.steady_s


def change_to_write(advice: Any, take: str) -> Any:
    """The change that -o writes; BadInput where there is none."""
    if take in ("pair", "triple"):
        if chosen := getattr(advice, take):
            return chosen
        raise BadInput(f"no {take} gains more than what it begins with")
    listed = (*advice.gains, *advice.rest)
    if not take.isdigit() or not 1 <= int(take) <= len(listed):
        most = f"1 to {len(listed)}" if listed else "none"
        raise BadInput(f"--take must be pair, triple or {most}, not {take!r}")
    return listed[int(take) - 1]
