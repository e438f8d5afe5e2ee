"""The command `meshwright`: parse, call, print.

Tables go to stdout, progress to stderr. Exit codes: 0 a result, 1 no feasible layout, 2 bad input (one sentence on
stderr), 130 interrupted, 141 the reader of a pipe has left.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter

from ._version import __version__
from .errors import MeshwrightError
from .formats.flags import STDIN, Flag, flags, read_flags

if TYPE_CHECKING:
    from rich.console import RenderableType

SCHEMA = "meshwright/1"
"""Version of everything --json writes."""
VERBS: list[str] = []
"""Names of the commands."""
WIDE = 240
"""Columns of a table that is not printed on a terminal."""
RESULT = Group("Result", sort_key=1)
GROUPS = {name: Group(name.capitalize(), sort_key=i) for i, name in enumerate(("cluster", "job", "layout"), 2)}
GROUPS["constraints"] = Group(
    "Constraints on the layout", help="One value, a list 1,2,4, or a range 1..16.", sort_key=5
)
Json = Annotated[bool, Parameter(help="Print JSON in SI units instead of tables.", negative=(), group=RESULT)]
Output = Annotated[str | None, Parameter(name=("--output", "-o"), group=RESULT)]
ModelArg = Annotated[
    str,
    Parameter(help="A model of the catalogue, a Hugging Face config.json, a JOB.toml, or - for a TOML text on stdin."),
]

app = App(
    name="meshwright",
    help="Plan and predict distributed training of transformers: how long a step takes, whether it fits, "
    "which layout is best and why.",
    version=__version__,
    help_format="plaintext",
    result_action="return_value",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Unicode shows ?, not a traceback
    try:
        code = run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a bug: still one sentence, and MESHWRIGHT_DEBUG=1 shows where
        if os.environ.get("MESHWRIGHT_DEBUG"):
            raise
        return refuse(f"internal error, please report it with this command: {type(error).__name__}: {error}")


def run(words: list[str]) -> int:
    """As `main`, but bugs and interruptions are raised."""
    try:
        return int(app([STDIN if w == "-" else w for w in words], exit_on_error=False, print_error=False) or 0)
    except CycloptsError as error:
        known = words[0] if words[0] in VERBS else ""
        return refuse(f"{str(error).rstrip('.')}; see {' '.join(filter(None, ('meshwright', known, '--help')))}")
    except MeshwrightError as error:
        return refuse(str(error), error.exit_code)


def refuse(sentence: str, code: int = 2) -> int:
    """One sentence on stderr."""
    print("meshwright: " + " ".join(sentence.split()), file=sys.stderr)
    return code


def verb(*tables: str, group: str = "") -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Make a function a command: its parameter `given` becomes one option for each field of these tables."""

    def register(function: Callable[..., int]) -> Callable[..., int]:
        own = inspect.signature(function, eval_str=True).parameters
        chosen = [flag for flag in flags() if flag.table in tables and flag.name not in own]

        def command(*args: Any, **options: Any) -> int:
            given = {flag.name: text for flag in chosen if (text := options.pop(flag.name, None)) is not None}
            return function(*args, **options, **({"given": given} if "given" in own else {}))

        mine = [p for name, p in own.items() if name != "given"]
        signature = inspect.Signature([*mine, *(option(flag, group) for flag in chosen)])
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__, command.__doc__ = {}, function.__doc__
        VERBS.append(function.__name__)
        app.command(command, name=function.__name__)
        return function

    return register


def option(flag: Flag, group: str) -> inspect.Parameter:
    """A field as a keyword of a command."""
    section = GROUPS[group if group and flag.table == "layout" else flag.table]
    metavar = "" if flag.table == "layout" else "TEXT"
    kind = Annotated[
        str | None, Parameter(name=flag.spelled, help=flag.help, group=section, show_default=False, metavar=metavar)
    ]
    return inspect.Parameter(flag.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def show(*parts: RenderableType) -> None:
    """Print tables; a pipe or file gets lines as long as they need to be."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=None if sys.stdout.isatty() else WIDE)
    for part in parts:
        console.print(part)


def show_json(name: str, data: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    import json

    print(json.dumps({"schema": SCHEMA, "verb": name, **data}, indent=2))


def ascii_only() -> bool:
    """stdout cannot show block characters."""
    return not (sys.stdout.encoding or "ascii").lower().startswith("utf")


@verb("cluster", "job", "layout")
def predict(
    model: ModelArg,
    /,
    *,
    given: Mapping[str, str],
    explain: Annotated[
        str | None, Parameter(help="Show one term in full: step_time, memory, mfu, compute/ffn/up, ...", group=RESULT)
    ] = None,
    json: Json = False,
    output: Output = None,
) -> int:
    """Predict one training step under a given layout: time by cause, memory by kind, MFU, days and cost.

    meshwright predict llama3-70b --on 1024xh100-sxm --batch 4Mi --tp 8 --pp 4 --interleave 4 --zero 1
    """
    from dataclasses import replace

    from .prediction import predict as predict_job
    from .report import explain as explanation
    from .report.predict import report

    notes: list[str] = []
    p = predict_job(read_flags(model, given, notes, sys.stdin))
    p = replace(p, notes=(*notes, *p.notes))
    if json:
        show_json("predict", {**p.to_dict(), **({"explain": explanation.to_dict(p, explain)} if explain else {})})
    else:
        show(explanation.report(p, explain) if explain else report(p, ascii_only()))
    return 0


@verb()
def catalog(
    kind: Annotated[str, Parameter(help="chips, networks or models.")] = "chips",
    name: Annotated[
        str | None, Parameter(help="One of them, to see all its fields with unit, source and date.")
    ] = None,
    /,
    *,
    json: Json = False,
) -> int:
    """List chips, networks and models, or show one of them with the source of every number."""
    from . import catalog as data
    from .report.catalog import details, report
    from .spec.read import to_dict

    names = data.names(kind)
    find: dict[str, Callable[[str], Any]] = {"chips": data.chip, "networks": data.network, "models": data.model}
    if json:
        show_json("catalog", to_dict(find[kind](name)) if name else {kind: [to_dict(find[kind](n)) for n in names]})
    else:
        show(details(find[kind](name)) if name else report(kind))
    return 0
