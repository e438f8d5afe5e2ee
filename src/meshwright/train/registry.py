"""Parts of one's own that [train] names: a model, an optimizer, a data set, a logger.

A name is an entry point of the group `meshwright.train`, which an installed package declares, or
"module:object" as Python imports it, which on a command line only a flag can name
(`demand_spoken`). Nothing is imported that is not named so, nor by a command that does not train.
Each is called by keyword:

    own_model(m, layers, seq, recompute)  -> a `model.Decoder` of these layers, its parts replaced
    own_optimizer(params, lr)             -> an optimizer over PyTorch's groups of parameters
    data, eval_data(vocab, seq, seed)     -> samples(first, count), token ids [count, seq + 1]
    logger(folder, first)                 -> write(row) of metrics.jsonl, close()
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from operator import attrgetter
from typing import Any

from ..describe.training import Settings
from ..errors import BadInput, unknown

GROUP = "meshwright.train"
OBJECT = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")
CODE, PATHS = ("own_model", "own_optimizer", "logger"), ("data", "eval_data")
"""Fields of [train] that name nothing but code, and those that may be paths."""


def declared() -> EntryPoints:
    """The entry points of installed packages."""
    return entry_points(group=GROUP)


def is_own(name: str | None) -> bool:
    """Whether a text names code, and no path."""
    return name is not None and (
        OBJECT.fullmatch(name) is not None or name in declared().names
    )


def imported_part(field: str, name: str) -> Any:
    """What a field of [train] names; BadInput if it cannot be had."""
    try:
        if name in declared().names:
            return declared()[name].load()
        if match := OBJECT.fullmatch(name):
            return attrgetter(match[2])(import_module(match[1]))
    except (
        Exception
    ) as error:  # whatever the user's code raises as it is imported
        raise BadInput(
            f"train.{field} {name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    raise unknown(f"train.{field}", name, (*declared().names, "module:object"))


def demand_spoken(named: Mapping[str, Any], spoken: Collection[str]) -> None:
    """BadInput for "module:object" that only a file names, and no flag: a job from elsewhere is
    data, and runs no code that whoever starts it has not named. Entry points are of packages that
    he installed.

    named: [train] as it stands; spoken: fields that flags gave.
    """
    for field in (*CODE, *PATHS):
        name = str(named.get(field))
        if field not in spoken and OBJECT.fullmatch(name):
            raise BadInput(
                f"train.{field} {name!r} of the file is code, which runs if you name it yourself:"
                f" --{field.replace('_', '-')} {name}"
            )


def demand(settings: Settings) -> None:
    """BadInput if a name of [train] leads nowhere."""
    for field in (*CODE, *PATHS):
        name = getattr(settings, field)
        if name and (field in CODE or is_own(name)):
            imported_part(field, name)
