"""Which tool a file is of: by the share of its keys that a tool has, against all other tools.

A single key of a name that several tools have (`parallelism.tp`, `train_batch_size`) is no
evidence: a file is of a tool that has most of its keys, while no other tool has as many or keys
in it that nobody else has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from ...errors import BadInput, article, command
from .table import Other, formats, get, others

LEAST = 0.5
"""Share of the keys of a file that its tool must have. Of 860 public files of 14 projects (2026)
those of the tool itself have 0.7 and more (descriptions of models aside), others 0.44 at most."""
NEAR = 0.1
"""Two tools whose shares differ by less are near."""
CLEAR = 0.9
"""Share from which on a tool explains a file that has another's own keys too."""
OWN = 2
"""Keys of its own from which on a file is of a tool that is only known by name."""


def _share(name: str, keys: Iterable[str]) -> float:
    """The share of the keys that the format has; 0 of none."""
    format = get(name)
    known = [format.knows(key) for key in keys]
    return sum(known) / len(known) if known else 0.0


def explains_more(
    refused: Iterable[str],
    keys: Iterable[str],
    sayings: Mapping[str, Iterable[str]],
) -> str:
    """The tool that refuses a file and explains more of it than any that reads it; "" for none.

    keys: all of the file; sayings: as in `recognised`. A refusal holds where nobody else reads it.
    """
    spelled = [key.replace("-", "_") for key in keys]
    last = [key.rpartition(".")[2] for key in spelled]
    shares = {
        name: _share(name, last if get(name).sections else spelled)
        for name in refused
    }
    first = max(shares, key=lambda name: shares[name])
    read = max((_share(*one) for one in sayings.items()), default=-1.0)
    return first if shares[first] > read else ""


def other(keys: Iterable[str]) -> Other | None:
    """The tool, among those that are known by name only, with most keys of its own in a file."""
    spelled = [key.replace("-", "_") for key in keys]
    counted = {
        tool: sum(
            any(fnmatchcase(key, own) for own in tool.own) for key in spelled
        )
        for tool in others()
    }
    best = max(counted, key=lambda tool: counted[tool])
    return best if counted[best] >= OWN else None


SHOWN = 3
"""Keys of a file that a sentence names."""


def no_tools_file(path: str, keys: Iterable[str] = ()) -> BadInput:
    """The sentence for a file of no tool, with the tool that has most of its keys."""
    said = [*keys]
    start = f"{path[:80]} is no file of a training tool that is read here"
    tools = f"{command('read --help')} names them"
    if not said:
        return BadInput(
            f"{start}: nothing in it starts one, sets one up or was printed by one; {tools}"
        )
    near = max(formats(), key=lambda name: _share(name, said))
    known = [key for key in said if get(near).knows(key)]
    if not known:
        few = ", ".join(said[:SHOWN]) + (", ..." if len(said) > SHOWN else "")
        return BadInput(f"{start}: none of them has its keys ({few}); {tools}")
    few = ", ".join(known[:SHOWN]) + (", ..." if len(known) > SHOWN else "")
    return BadInput(
        f"{start}; the nearest is {get(near).title}, which has {len(known)} of its {len(said)} keys"
        f" ({few}): if it is one, --as {near}"
    )


def recognised(
    path: str, keys: Iterable[str], sayings: Mapping[str, Iterable[str]]
) -> str:
    """The format of a file.  Raises BadInput for one that is of none, or near to two.

    keys: all of the file; sayings: format that may be meant -> its keys, as it reads them.
    """
    shares = {name: _share(name, said) for name, said in sayings.items()}
    ranked = sorted(shares, key=lambda name: -shares[name])
    best = shares[ranked[0]] if ranked else 0.0
    unread = other(keys)
    if unread and best < CLEAR:
        raise BadInput(
            f"{path[:80]} is {article(unread.title)} configuration, which is not read yet: name"
            " the model and state tp, pp, zero, ... as flags, such as "
            + command(
                "predict llama3-8b --on 64xh100-sxm --batch 512seq --tp 2"
            )
        )
    if not ranked:
        raise no_tools_file(path, keys)
    near = [
        get(name).title
        for name in ranked[1:]
        if shares[name] >= max(best - NEAR, LEAST)
    ]
    near += [unread.title] if unread else []
    if near:
        title = get(ranked[0]).title
        raise BadInput(
            f"{path[:80]} may be of {title} or of {' or '.join(near)}: say which, --as {ranked[0]}"
        )
    if best < LEAST:
        strange = [
            k for k in sayings[ranked[0]] if not get(ranked[0]).knows(k)
        ]
        raise BadInput(
            f"{path[:80]} looks like {get(ranked[0]).title}, but {len(strange)} of its"
            f" {len([*sayings[ranked[0]]])} keys are not known ({', '.join(strange[:3])}, ...): if"
            f" it is, --as {ranked[0]}"
        )
    return ranked[0]
