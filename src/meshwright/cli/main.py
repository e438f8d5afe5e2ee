"""The command `meshwright`: parse, call, print.

Tables go to stdout, progress to stderr. Exit codes: 0 a result, 1 no layout that fits, 2 bad input
(one sentence on stderr), 130 interrupted, 141 the reader of a pipe has left. What a verb needs is
imported when it runs.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points

from cyclopts import CycloptsError

from ..errors import BadInput, MeshwrightError, command, unknown
from ..formats import STDIN
from . import (  # noqa: F401, their verbs register themselves
    advise,
    calibrate,
    compare,
    completion,
    export,
    grid,
    limits,
    plan,
    read,
    roofline,
    serve,
    steps,
    train,
)
from .command import (
    JOB_TABLES,
    VERBS,
    Answer,
    Column,
    Engine,
    Explain,
    Fixed,
    Kind,
    ModelArg,
    Name,
    Over,
    Price,
    Replan,
    Workers,
    app,
    verb,
)
from .jobs import prediction_of_arguments

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
        words = sys.argv[1:] if argv is None else argv
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return refuse(
                f"the output cannot be written: {error.strerror}", words
            )
        if os.environ.get("MESHWRIGHT_DEBUG"):
            raise
        return refuse(
            f"internal error, please report it with this command: {type(error).__name__}: {error}",
            words,
            again=True,
        )


def script_arguments(words: list[str]) -> list[str]:
    """The words with what stands after -- as the arguments of a script that is read."""
    at = words.index("--") if "--" in words[2:] else 0
    return (
        [*words[:at], f"--arguments={shlex.join(words[at + 1 :])}"]
        if at
        else words
    )


def run(words: list[str]) -> int:
    """The exit code of one command; bugs and interruptions are raised."""
    from ..formats.spellings import translate
    from ..formats.user_file import add_own_machines

    try:
        if words and words[0] not in (*VERBS, *ASKED):
            if extra := BESIDE.get(words[0]):
                raise BadInput(
                    f"{words[0]} needs the extra: pip install 'meshwright[{extra}]',"
                    f" or in a clone ./{extra}"
                )
            option = words[0].startswith("-")
            raise unknown(
                "option" if option else "command",
                words[0],
                ASKED if option else VERBS,
            )
        if words and words[0] not in ASKED:
            add_own_machines()
        return int(
            app(
                [
                    STDIN if w == "-" else w
                    for w in translate(script_arguments(words))
                ],
                exit_on_error=False,
                print_error=False,
            )
            or 0
        )
    except CycloptsError as error:
        from .advice import advice

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
        from ..train.watchdog import last_words

        last_words(said, again)
    return code


@verb(
    *JOB_TABLES,
    writes=".json, .toml (the job), .png or .svg (bars)",
)
def predict(
    model: ModelArg,
    /,
    *,
    given: Mapping[str, str],
    output: str | None,
    price: Price = (),
    explain: Explain = None,
) -> Answer:
    """Predict one training step under a given layout: time by cause, memory by kind, MFU, days and
    cost.

    Exit code 1 where the layout does not fit in memory.

    Example: meshwright predict llama3-70b --on 1024xh100-sxm --batch 4Mi --tp 8 --pp 4 --interleave
    4 --zero 1
    """
    from rich.console import Group

    from ..report import explain as explanation
    from ..report import files, run_card
    from ..report.card import Card, Commands
    from ..report.predict import prediction_report

    p = prediction_of_arguments(model, given, price)
    term = explanation.explanation_to_dict(p, explain) if explain else None

    def card() -> Card | Group:
        later = steps.after_predict(p, model, given, output)
        if not explain:
            return run_card.predict_card(p, later)
        report = explanation.explanation_report(p, explain)
        return Group(report, Card("", (Commands(later),)))

    return Answer(
        lambda: p.to_dict() | ({"explain": term} if explain else {}),
        card,
        lambda: [prediction_report(p)] * (not explain),
        files=files.of_predictions([p]),
        code=0 if p.fits else 1,
    )


@verb(
    *JOB_TABLES,
    layout="constraints",
    writes=".json, .csv, .png or .svg (curves); two fields: .jsonl, which continues from there",
)
def sweep(
    model: ModelArg,
    /,
    *,
    given: Mapping[str, str],
    output: str | None,
    over: Over,
    price: Price = (),
    fixed: Fixed = False,
    replan: Replan = False,
    workers: Workers = None,
    engine: Engine = None,
    show: Column = None,
) -> Answer:
    """Vary one field or two, keep the rest: strong scaling, batch, sequence length, bandwidth, ...
    The layout of a file stays; without one the best is searched at every value. Ctrl-C keeps what
    is done.

    Example: meshwright sweep llama3-70b --on 64xh100-sxm --batch 4Mi --over chips=64..4096 -o
    scaling.png
    """
    from ..report import console, files
    from ..report.lines import noted
    from ..report.sweep import sweep_card, sweep_report
    from ..sweep import parse
    from ..sweep import sweep as compute
    from .kept import swept

    if len(over) > 1:
        return grid.two(
            swept(model, given, fixed, replan=replan, price=price, over=over),
            over=over,
            workers=workers,
            engine=engine,
            column=show or "step_time_s",
            output=output,
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
    job, space, keep, notes, book = swept(
        model, given, fixed, replan=replan, price=price, over=over
    )
    with console.progress() as progress:
        result = compute(
            job,
            field,
            values,
            space=space,
            fixed=keep,
            progress=progress,
            prices=book,
        )
    some = bool(result.predictions)
    return Answer(
        result.to_dict,
        lambda: sweep_card(result, notes),
        lambda: [sweep_report(result), *noted(notes)],
        files=files.of_result(result) if some else None,
        code=130 if result.interrupted else 0 if some else 1,
    )


@verb(
    *JOB_TABLES,
    without=("tokens",),
    writes=".json (a trace for ui.perfetto.dev), .csv (order for torch.distributed), .png or .svg"
    " (Gantt)",
)
def timeline(model: ModelArg, /, *, given: Mapping[str, str]) -> Answer:
    """Replay the pipeline of a step action by action, beside what is predicted of it.

    Example: meshwright timeline gpt3-175b --on 64xa100-80 --batch 64seq --tp 8 --pp 8 --interleave
    2 -o gantt.png
    """
    from ..prediction.replay import replay
    from ..report import files
    from ..report.timeline import timeline_card, timeline_report

    exact = replay(prediction_of_arguments(model, given))
    return Answer(
        exact.to_dict,
        lambda: timeline_card(exact),
        lambda: [timeline_report(exact)],
        files=files.of_replay(exact),
    )


@verb()
def catalog(kind: Kind = "chips", name: Name = None, /) -> Answer:
    """List chips, networks, models or frameworks, or show one of them with the source of every
    number.
    """
    from ..report.catalog import catalog_card, catalog_report, catalog_to_dict

    return Answer(
        lambda: catalog_to_dict(kind, name),
        lambda: catalog_card(kind, name),
        lambda: [catalog_report(kind, name)],
    )
