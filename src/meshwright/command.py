"""One function, one command: its parameters and the fields of a job become options, their texts the help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from ._version import __version__
from .formats.flags import Flag, flags

VERBS: list[str] = []
"""Names of the commands."""
RESULT = Group("Result", sort_key=1)
GROUPS = {name: Group(name.capitalize(), sort_key=i) for i, name in enumerate(("cluster", "job", "layout"), 2)}
GROUPS["constraints"] = Group(
    "Constraints on the layout", help="One value, a list 1,2,4, or a range 1..16.", sort_key=5
)
Json = Annotated[bool, Parameter(help="Print JSON in SI units instead of tables.", negative=(), group=RESULT)]
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


def verb(*tables: str, layout: str = "layout") -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Make a function a command: its parameter `given` becomes one option for each field of these tables."""

    def register(function: Callable[..., int]) -> Callable[..., int]:
        own = inspect.signature(function, eval_str=True).parameters
        chosen = [flag for flag in flags() if flag.table in tables and flag.name not in own]

        def command(*args: Any, **options: Any) -> int:
            given = {flag.name: text for flag in chosen if (text := options.pop(flag.name, None)) is not None}
            return function(*args, **options, **({"given": given} if "given" in own else {}))

        mine = [p for name, p in own.items() if name != "given"]
        signature = inspect.Signature([*mine, *(option(flag, layout) for flag in chosen)])
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__, command.__doc__ = {}, function.__doc__
        VERBS.append(function.__name__)
        app.command(command, name=function.__name__)
        return function

    return register


def option(flag: Flag, layout: str) -> inspect.Parameter:
    """A field as a keyword of a command."""
    section = GROUPS[layout if flag.table == "layout" else flag.table]
    shown = Parameter(name=flag.spelled, help=flag.help, group=section, show_default=False, metavar=flag.metavar)
    return inspect.Parameter(
        flag.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, shown]
    )


def output(kinds: str) -> Any:
    """The option -o with the suffixes it takes."""
    return Parameter(name=("--output", "-o"), help=f"Write a file: {kinds}.", metavar="FILE", group=RESULT)
