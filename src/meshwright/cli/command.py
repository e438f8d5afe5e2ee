"""One function, one command: its parameters and the fields of a job become options, their texts the
help.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

from cyclopts import App, CoercionError, Group, Parameter, Token, convert

from .._version import __version__

if TYPE_CHECKING:
    from ..formats.options import Flag

VERBS: dict[str, Callable[[], Callable[..., int]]] = {}
"""Name of a command -> what makes the function that the parser takes."""
RESULT = Group("Result", sort_key=1)
GROUPS = {
    name: Group(name.capitalize(), sort_key=i)
    for i, name in enumerate(
        ("model", "cluster", "job", "software", "layout"), 2
    )
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
Json = Annotated[bool, word("Print JSON in SI units instead of tables.")]
Explain = Annotated[
    str | None,
    word(
        "Show one term in full: step_time, memory, mfu, compute/ffn/up, ...",
        "TERM",
    ),
]
AssumptionSets = Annotated[
    tuple[str, ...],
    word("Modelling choices; several are shown side by side.", "NAME"),
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


class Detail(NamedTuple):
    """How much of an answer is printed: its card, the causes too, or everything."""

    why: bool = False
    all: bool = False


MADE = ("given", "detail")
"""Parameters of a verb that are made of several options."""
DETAIL = {
    "why": word("Also the causes: time and memory by kind, reasons, notes."),
    "all": word("Everything: also ties, alternatives, what was searched."),
}
"""Options of every verb that prints a card."""


def print_answer(
    card: Any,
    detail: Detail,
    why: Iterable[Any] = (),
    rest: Iterable[Any] = (),
    output: str | None = None,
) -> None:
    """Print a card and, where they are asked for, what stands behind it.

    output: the file that -o names, if any; the card does not offer -o then.
    """
    from ..report import console
    from ..report.card import Card

    offered = output is None or not isinstance(card, Card)
    parts = [card if offered else card.with_a_file]
    if detail.why or detail.all:
        parts += ["", *why]
    if detail.all:
        parts += rest
    console.show(*parts)


def verb(
    *tables: str, layout: str = "layout", without: Collection[str] = ()
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Make a function a command: its parameter `given` becomes one option for each field of these
    tables, its parameter `detail` the options --why and --all.

    without: fields that would change nothing there, or are not the user's to give.
    """

    def register(function: Callable[..., int]) -> Callable[..., int]:
        # a verb is private where another module has the public name (report)
        name = function.__name__.removeprefix("_")
        VERBS[name] = lambda: parsed(function, tables, layout, without)
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
    function: Callable[..., int],
    tables: Collection[str],
    layout: str,
    without: Collection[str],
) -> Callable[..., int]:
    """A function whose parameters are the options of a verb."""
    from ..formats.options import flags

    own = inspect.signature(function, eval_str=True).parameters
    chosen = [
        flag
        for flag in flags()
        if flag.table in tables and flag.name not in (*own, *without)
    ]

    def command(*args: Any, **options: Any) -> int:
        given = {
            flag.name: text
            for flag in chosen
            if (text := options.pop(flag.name, None)) is not None
        }
        made: dict[str, Any] = {}
        if "given" in own:
            made["given"] = given
        if "detail" in own:
            made["detail"] = Detail(
                *(options.pop(name, False) for name in DETAIL)
            )
        return function(*args, **options, **made)

    mine = [p for name, p in own.items() if name not in MADE]
    if "detail" in own:
        mine += [
            keyword(name, bool, False, said) for name, said in DETAIL.items()
        ]
    signature = inspect.Signature(
        [*mine, *(option(flag, layout) for flag in chosen)]
    )
    command.__signature__ = signature  # type: ignore[attr-defined]
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
