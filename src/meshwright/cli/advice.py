"""What a mistaken command line was probably after, as a sentence of its own."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from cyclopts import CycloptsError, UnknownOptionError

from .. import catalog
from ..errors import BadInput, command
from ..formats.spellings import OURS

LIKE = 0.8
"""Similarity from which a flag is taken for another tool's, misspelled."""


def advice(words: Sequence[str], error: CycloptsError) -> str:
    """A better sentence than the parser's, which knows only flags; empty if there is none."""
    verb, *rest = words or [""]
    machines = [w for w in rest if is_machine(w)]
    if verb == "compare" and machines:
        return clusters(machines)
    if verb == "limits" and any(w.startswith("--on") for w in rest):
        return scaling(next((w for w in rest if is_model(w)), "llama3-70b"))
    models = [w for w in rest if is_model(w)]
    if verb == "export" and models and isinstance(error, UnknownOptionError):
        return planned(models[0], next(iter(machines), "64xh100-sxm"))
    if isinstance(error, UnknownOptionError):
        flag = str(error.token.keyword or "").lower().replace("_", "-")
        near = difflib.get_close_matches(flag, OURS, n=1, cutoff=LIKE)
        if near:
            (theirs,) = near
            return (
                f"unknown option {flag[:60]}; did you mean {theirs}, which is"
                f" {OURS[theirs]} here?"
            )
    return ""


def planned(model: str, machine: str) -> str:
    """The command whose file an export takes."""
    plan = f"{command('plan')} {model} --on {machine} --batch 4Mi -o plan.toml"
    return f"export writes a plan, which comes first: {plan}; then export plan.toml --to ..."


def clusters(machines: Sequence[str]) -> str:
    """The command that lays clusters side by side."""
    on = ",".join(machines) if len(machines) > 1 else f"{machines[0]},..."
    return (
        "compare lays a run beside its prediction; clusters side by side:"
        f" {command('sweep')} MODEL --batch 4Mi --on {machines[0]} --over on={on}"
    )


def scaling(model: str) -> str:
    """The command that says how far one model scales."""
    return (
        "limits takes scenarios, such as h100, and scales the model with the run; how far one model"
        f" scales: {command('sweep')} {model} --on 64xh100-sxm --batch 4Mi --over chips=64..4096"
    )


def is_machine(word: str) -> bool:
    """A number of chips of the catalogue: 64xb200."""
    try:
        number, name = catalog.counted(word)
    except (BadInput, ValueError):
        return False
    return int(number) > 0 and any(
        catalog.has(kind, name) for kind in ("chips", "networks")
    )


def is_model(word: str) -> bool:
    """A model by name or file."""
    return word.endswith(".json") or catalog.has("models", word)
