"""One function, one command: its parameters and the fields of a job become options, their texts the
help.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

from cyclopts import App, CoercionError, Group, Parameter, Token, convert

from .._version import __version__

if TYPE_CHECKING:
    from ..formats.options import Flag

VERBS: dict[str, Callable[[], Callable[..., int]]] = {}
"""Name of a command -> what makes the function that the parser takes."""
RESULT = Group("Result", sort_key=1)
JOB_TABLES = ("model", "cluster", "job", "software", "layout")
"""Tables whose fields are options of a verb that takes a job, in the order of its help."""
GROUPS = {
    name: Group(name.capitalize(), sort_key=i)
    for i, name in enumerate(JOB_TABLES, 2)
}
GROUPS["train"] = Group(
    "Training",
    help="Fields of the table [train]; the values of a file hold unless a flag sets them.",
    sort_key=7,
)
GROUPS["constraints"] = Group(
    "Constraints on the layout",
    help="One value, a list 1,2,4, or a range 1..16.",
    sort_key=6,
)


NUMBER = "N"
"""Stands for a number in the help."""


def exact(kind: Any, tokens: Sequence[Token]) -> Any:
    """A number, as cyclopts reads it, but none that it would round: 1.5 of what is counted."""
    if float not in (kind, *get_args(kind)):
        for token in tokens:
            if "." in token.value:
                raise CoercionError(token=token, target_type=int)
    return convert(kind, tokens)


def word(help: str, metavar: str | None = None) -> Parameter:
    """An option or argument with its help."""
    return Parameter(
        help=help,
        converter=exact if metavar == NUMBER else None,
        metavar=metavar,
        group=RESULT,
        negative=(),
        show_default=False,
    )


MODEL = (
    "A model of the catalogue, a Hugging Face config.json, a JOB.toml, or - for a TOML text on"
    " stdin."
)
OVER = (
    "What to vary: chips=64..4096 (doubling), batch=1M,4M, seq, tp, chip.hbm_bytes, model,"
    " assumptions, network.ib.bandwidth=100 Gbit/s,400 Gbit/s, ...; clusters side by side:"
    " on=64xh100-sxm,64xb200; twice: a table of both"
)
SEARCH_SOFTWARE = (
    "Also choose among the software settings that the framework offers; a single one:"
    " --dispatcher alltoall,deepep."
)
RELAXED = (
    "Allow any dp and idle chips, or insist on all chips; default: all chips, or the nearest number"
    " that divides evenly."
)

ModelArg = Annotated[str, Parameter(help=MODEL)]
Explain = Annotated[
    str | None,
    word(
        "Show one term in full: step_time, memory, mfu, compute/ffn/up, ...",
        "TERM",
    ),
]
Top = Annotated[int, word("Layouts to show.", "N")]
Pareto = Annotated[
    bool,
    word(
        "Also the layouts that nothing beats in both time and memory (a search for each)."
    ),
]
Deadline = Annotated[
    str | None,
    word(
        "The cheapest cluster that trains in this time, such as 60d, with 90 % probability;"
        " needs --tokens.",
        "TIME",
    ),
]
Budget = Annotated[
    str | None,
    word(
        "The fastest run that this money pays for, such as 5M, with 90 % probability;"
        " needs --tokens.",
        "USD",
    ),
]
Price = Annotated[
    tuple[str, ...],
    word(
        "USD per chip-hour instead of the catalogue's, such as h100-sxm=2.5.",
        "CHIP=USD",
    ),
]
AgainstLayout = Annotated[
    str | None,
    word(
        "Why this layout is slower: a plan or job file, or 'tp=8 pp=4 zero=1'.",
        "LAYOUT",
    ),
]
Relaxed = Annotated[
    bool | None, Parameter(help=RELAXED, negative="--strict", group=RESULT)
]
SearchSoftware = Annotated[
    bool, Parameter(help=SEARCH_SOFTWARE, negative="", group=RESULT)
]
Over = Annotated[tuple[str, ...], word(OVER, "FIELD=VALUES")]
Workers = Annotated[
    int | None,
    word("Processes of a sweep of two fields; default: the cores.", "N"),
]
Engine = Annotated[
    str | None,
    word(
        "Where two fields are swept: dask://HOST:8786 or ray://HOST:10001.",
        "ADDRESS",
    ),
]
Column = Annotated[
    str | None,
    word(
        "What the table of two fields shows, such as cost_usd (default step_time_s).",
        "COLUMN",
    ),
]
Fixed = Annotated[
    bool, word("Predict the given layout at every value instead of searching.")
]
Replan = Annotated[
    bool,
    word("Search the best layout at every value, even if the file has one."),
]
Kind = Annotated[str, Parameter(help="chips, networks, models or frameworks.")]
Name = Annotated[
    str | None,
    Parameter(
        help="One of them, to see all its fields with unit, source and date."
    ),
]

app = App(
    name="meshwright",
    help=(
        "Plan and predict distributed training of transformers: how long a step takes, whether it"
        " fits, which layout is best and why."
    ),
    version=__version__,
    help_format="plaintext",
    result_action="return_value",
)


Writers = Mapping[str, Callable[[], str | bytes]]
"""Suffix -> what makes the content of such a file."""
NO_FILES: Writers = MappingProxyType({})


class Answer(NamedTuple):
    """What a verb says: as JSON, on the first screen, behind it, and in a file. Each part is made
    when it is asked for.
    """

    fields: Callable[[], Mapping[str, Any]]
    """What --json prints, in SI units."""
    card: Callable[[], Any]
    """The first screen."""
    why: Callable[[], Iterable[Any]] = tuple
    """The causes, with --why."""
    rest: Callable[[], Iterable[Any]] = tuple
    """Everything else, with --all."""
    files: Writers | None = NO_FILES
    """Of -o, beside .json, which holds the fields; None: there is nothing to write."""
    code: int = 0
    """The exit code."""


class Shown(NamedTuple):
    """How an answer is asked for."""

    json: bool = False
    output: str | None = None
    why: bool = False
    all: bool = False


JSON = {"json": word("Print JSON in SI units instead of tables.")}
"""Option of every verb that answers."""
DETAIL = {
    "why": word("Also the causes: time and memory by kind, reasons, notes."),
    "all": word("Everything: also ties, alternatives, what was searched."),
}
"""Options of every verb that prints a card."""
MADE = ("given",)
"""Parameters of a verb that are made of several options."""
SUFFIX = re.compile(r"(?<!\w)\.[a-z]+")
"""In the help of -o: .json, but not the dots of ui.perfetto.dev."""


def show_answer(name: str, answer: Answer, shown: Shown) -> int:
    """Write the file of a verb's answer, print what is asked for of it, and return its exit code.

    A card beside a file does not offer to write one.
    """
    from ..report import console, files
    from ..report.card import Card

    if shown.json or shown.output:
        data = console.envelope(name, answer.fields())
    if shown.output and answer.files is not None:
        writers = {".json": lambda: files.json_text(data), **answer.files}
        kind = PurePath(shown.output).suffix.lower()
        files.write(shown.output, writers[kind]())
    if shown.json:
        console.show_json(data)
        return answer.code
    card = answer.card()
    offers = shown.output and isinstance(card, Card)
    parts = [card.with_a_file if offers else card]
    if (shown.why or shown.all) and (causes := [*answer.why()]):
        parts += ["", *causes]
    if shown.all:
        parts += answer.rest()
    console.show(*parts)
    return answer.code


Verb = Callable[..., Answer | None] | Callable[..., int]
"""What answers, is done without a word (None), or prints by itself and returns its exit code."""


def verb(
    *tables: str,
    layout: str = "layout",
    without: Collection[str] = (),
    writes: str = "",
    causes: bool = True,
) -> Callable[[Verb], Verb]:
    """Make a function a command: its parameter `given` becomes one option for each field of these
    tables; one that answers has --json too.

    without: fields that would change nothing there, or are not the user's to give.  writes: what -o
    takes, with the suffixes; a parameter `output` is its file.  causes: there are --why and --all.
    """

    def register(function: Verb) -> Verb:
        # a verb is private where another module has the public name (report)
        name = function.__name__.removeprefix("_")
        VERBS[name] = lambda: parsed(
            function,
            name,
            tables,
            layout=layout,
            without=without,
            writes=writes,
            causes=causes,
        )
        # a path instead of a function: the parser asks for its options when somebody needs them,
        # `--help` of all verbs does not
        app.command(
            f"{__name__}:{name}",
            name=name,
            help=inspect.getdoc(function) or "",
        )
        return function

    return register


def __getattr__(name: str) -> Callable[..., int]:
    """A verb as the parser takes it."""
    if name not in VERBS:
        raise AttributeError(name)
    return VERBS[name]()


def parsed(
    function: Verb,
    name: str,
    tables: Collection[str],
    layout: str,
    without: Collection[str],
    writes: str,
    causes: bool,
) -> Callable[..., int]:
    """A function whose parameters are the options of a verb."""
    from ..formats.options import flags

    signature = inspect.signature(function, eval_str=True)
    own = signature.parameters
    chosen = [
        flag
        for flag in flags()
        if flag.table in tables and flag.name not in (*own, *without)
    ]
    asked = []
    if signature.return_annotation is not int:
        said = {**JSON, **(DETAIL if causes else {})}
        asked = [keyword(n, bool, False, help) for n, help in said.items()]
    if writes:
        asked.insert(1, keyword("output", str | None, None, output(writes)))

    def command(*args: Any, **options: Any) -> int:
        given = {
            flag.name: text
            for flag in chosen
            if (text := options.pop(flag.name, None)) is not None
        }
        shown = Shown(
            **{
                option.name: options.pop(option.name)
                for option in asked
                if option.name in options
            }
        )
        made = (
            {"given": given, "output": shown.output}
            if writes
            else {"given": given}
        )
        kinds = SUFFIX.findall(writes)
        if shown.output is not None and kinds:
            from ..report import files

            files.suffix(shown.output, kinds)
        said = function(
            *args, **options, **{n: v for n, v in made.items() if n in own}
        )
        if isinstance(said, Answer):
            return show_answer(name, said, shown)
        return said or 0

    mine = [
        p
        for p in own.values()
        if p.name not in (*MADE, *(o.name for o in asked))
    ]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*mine, *asked, *(option(flag, layout) for flag in chosen)]
    )
    command.__annotations__, command.__doc__ = {}, function.__doc__
    return command


def option(flag: Flag, layout: str) -> inspect.Parameter:
    """A field as a keyword of a command."""
    section = GROUPS[layout if flag.table == "layout" else flag.table]
    shown = Parameter(
        name=(flag.spelled, flag.letter) if flag.letter else flag.spelled,
        help=flag.help,
        group=section,
        show_default=False,
        metavar=flag.metavar,
    )
    return keyword(flag.name, str | None, None, shown)


def keyword(
    name: str, kind: Any, default: Any, shown: Parameter
) -> inspect.Parameter:
    """A keyword of a command."""
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, shown],
    )


def output(kinds: str) -> Any:
    """The option -o with the suffixes it takes."""
    return Parameter(
        name=("--output", "-o"),
        help=f"Write a file: {kinds}.",
        metavar="FILE",
        group=RESULT,
    )
