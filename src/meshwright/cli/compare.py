"""The verb `compare`: a run beside its prediction, or the trainer's own program beside what was
counted for it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import BadInput, command
from .command import Answer, verb, word

RunFolder = Annotated[
    str | None,
    Parameter(
        help="Folder of a run of meshwright train, or the log of a run of Megatron-LM, NeMo,"
        " torchtitan, MaxText, ..., with --job where it does not begin with its arguments."
    ),
]
JobOf = Annotated[
    str | None,
    word(
        "With a log: its job, as a JOB.toml, or as the script or configuration that started it"
        " (with --on).",
        "FILE",
    ),
]
On = Annotated[
    str | None,
    word("With --job: the chips of the run, such as 64xh100-sxm.", "CHIPS"),
]
Oracle = Annotated[
    str | None,
    word(
        "Instead of a run: the trainer's program of single ranks, run without hardware at any"
        " scale; its FLOPs, collectives and peak of memory beside those predicted. Exit code 1"
        " where they differ.",
        "JOB.toml",
    ),
]
Ranks = Annotated[
    tuple[int, ...],
    word(
        "With --oracle: these ranks; default: one of the first, a middle and the last stage.",
        "N",
    ),
]


LOG, JOB = "train.log", "job.toml"
"""Files in the folder of a run of another engine."""


@verb(
    writes=".json (a trace for ui.perfetto.dev, predicted and measured), .png or .svg (Gantt"
    " charts)"
)
def compare(
    run: RunFolder = None,
    /,
    *,
    output: str | None,
    job: JobOf = None,
    on: On = None,
    oracle: Oracle = None,
    rank: Ranks = (),
) -> Answer:
    """Compare a measured run with its prediction: time by cause, memory by type, timeline.

    Examples: meshwright compare quickstart-run -o gantt.png
    meshwright compare train.log --job train.sh --on 64xh100-sxm
    """
    from .advice import clusters, is_machine

    if oracle is not None:
        if run is not None or output is not None:
            raise BadInput(
                "compare takes a run or --oracle JOB.toml, not both; -o belongs to a run"
            )
        return against_program(oracle, rank)
    if run is not None and is_machine(run) and not Path(run).exists():
        raise BadInput(clusters([run]))
    if run is None:
        raise BadInput(
            "compare needs the folder of a run, a log with --job, or --oracle JOB.toml"
        )
    if rank:
        raise BadInput("--rank belongs to --oracle JOB.toml")
    driven = Path(run[:4096])
    if (driven / LOG).is_file() and not job:
        run, job = str(driven / LOG), str(driven / JOB)
    if job or on or Path(run[:4096]).is_file():
        if output is not None:
            raise BadInput("a log has no timeline to write: -o is for runs")
        return with_log(run, job, on)
    from ..compare import compare as compute
    from ..compare.installation import LEAST
    from ..formats.run_folder import read_run
    from ..report.compare import comparison_card, comparison_report, writers

    comparison = compute(read_run(run))
    scaled = command(f"calibrate --from {shlex.quote(run)} -o ours.toml")
    later = [scaled] if len(comparison.run.timed) >= LEAST else []
    return Answer(
        comparison.to_dict,
        lambda: comparison_card(comparison, later),
        lambda: [comparison_report(comparison)],
        files=writers(comparison),
    )


def against_program(path: str, ranks: tuple[int, ...]) -> Answer:
    """`compare --oracle`; of a long pipeline as many microbatches as fill it, go round in it and
    drain it.
    """
    from ..formats.flags import is_file, read_flags
    from ..layout.stages import microbatches
    from ..program.memory import shorten
    from ..report import console
    from ..report.oracle import oracle_card, oracle_report
    from ..report.text import layout_words
    from .train import need_torch

    if not is_file(path):
        raise BadInput(
            f"--oracle needs a JOB.toml, not {path[:60]!r}: plan {path[:60]} ... -o plan.toml"
            " writes one"
        )
    whole = read_flags(path, {}, None, sys.stdin)
    job = shorten(whole)
    need_torch()
    from ..describe.training import settings
    from ..train.oracle import compare_ranks as run_program

    if job is not whole:
        few, many = (int(microbatches(j, j.layout)) for j in (job, whole))
        print(
            f"meshwright: {few} of {many} microbatches are run: between filling the pipeline and"
            " draining it one round is like another",
            file=sys.stderr,
        )
    with console.progress() as progress:
        comparison = run_program(job, settings(job.train), ranks, progress)
    title = f"{job.model.name} on {int(job.layout.chips):,} ranks: {layout_words(job.layout)}"
    data = {
        "title": title,
        "agrees": all(r.agrees for r in comparison),
        "ranks": [r.to_dict() for r in comparison],
    }
    return Answer(
        lambda: data,
        lambda: oracle_card(data),
        lambda: oracle_report(data),
        code=0 if data["agrees"] else 1,
    )


def with_log(path: str, job: str | None, on: str | None) -> Answer:
    """The log of another tool's run beside what is predicted for its job."""
    from ..compare.logged import compare_log
    from ..formats import flags
    from ..formats.bridge.dumps import dump, headed
    from ..formats.logs import read_log, steps_of
    from ..prediction.prediction import predict
    from ..report.compare import log_card, of_log

    text = read_log(path)
    log = steps_of(text, path[:80])
    head = headed(log.kind, text)
    if not job and (dump(text) or (head and head.used)):
        job = path
    if not job:
        raise BadInput(
            f"{path[:80]} is a log of {log.kind}: --job says what it ran, such as --job train.sh"
            " --on 64xh100-sxm, or --job job.toml"
        )
    notes: list[str] = []
    given = {"on": on} if on else {}
    comparison = compare_log(
        path, log, predict(flags.read_flags(job, given, notes))
    )
    words = shlex.join([job, *(("--on", on) if on else ())])
    later = [command(f"plan {words} -o plan.toml")]
    if not comparison.other_work:
        scaled = f"{words} --steps {shlex.quote(path)}"
        later.insert(0, command(f"calibrate --from {scaled} -o ours.toml"))
    return Answer(
        lambda: {**comparison.to_dict(), "notes": notes},
        lambda: log_card(comparison, notes, later),
        lambda: [of_log(comparison, notes)],
    )
