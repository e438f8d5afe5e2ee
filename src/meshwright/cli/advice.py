"""What a mistaken command line was probably after, as a sentence of its own."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from cyclopts import (
    ArgumentCollection,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from .. import catalog
from ..describe.choices import first_few
from ..describe.fields import fields_of
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.software import Software
from ..errors import BadInput, command, either
from ..formats.flags import EXAMPLES as FIELD_VALUES
from ..formats.options import flags
from ..formats.spellings import OURS
from .command import VERBS, app

LIKE = 0.8
"""Similarity from which a flag is taken for another tool's, misspelled."""
TAKES_A_JOB = ("export", "report", "train")
"""Verbs that take a file and none of the words that change it."""
MEANT = {
    **{f"--{n}": f"--precision {n}" for n in ("bf16", "fp16", "fp8", "fp4")},
    "--flash-attention": "--attention-kernel fa2",
    "--use-flash-attn": "--attention-kernel fa2",
    "--gradient-checkpointing": "--recompute full",
    "--activation-checkpointing": "--recompute full",
    "--cpu-offload": "--offload optimizer",
    "--fsdp": "--zero 3",
    "--hsdp": "--zero 3 --dp-replicate 2",
    "--use-distributed-optimizer": "--zero 1",
    "--recompute-granularity": "--recompute full",
    "--recompute-activations": "--recompute selective",
    "--gradient-accumulation-steps": "--microbatch 1",
    "--num-microbatches": "--microbatch 1",
    "--gpu": "--on 8xh100-sxm",
    "--learning-rate": "--lr 3e-4",
}
"""Switches of other tools -> what is said here."""
LOGS = (".log", ".out", ".txt")
"""How files end that a run wrote."""
LONGEST_NAME = 256
"""Characters of a word from which it names no file."""
PRICES = ("--usd", "--usd-per-hour", "--cost", "--price-per-hour", "--prices")
"""What people try for the price of a chip."""
NEAR = 0.7
"""Similarity from which an option of the verb may have been meant."""
EXAMPLE = re.compile(r"Examples?: (meshwright .*?)(?=;? meshwright |$)")
"""The first of a help's examples."""
VALUES = {
    "--on": "1024xh100-sxm",
    "--batch": "4M",
    "--over": "chips=64..4096",
    "--explain": "step_time",
    "--against": "'tp=8 pp=4'",
    "--deadline": "30d",
    "--budget": "5M",
    "--price": "h100-sxm=2.5",
    "--tokens": "15T",
}
"""Options that people give without a value -> one that they take."""


def advice(words: Sequence[str], error: CycloptsError) -> str:
    """A better sentence than the parser's, which knows only flags; empty if there is none."""
    verb, *rest = words or [""]
    machines = [w for w in rest if is_machine(w)]
    files = [w for w in rest if len(w) < LONGEST_NAME and Path(w).is_file()]
    if verb == "compare" and len(files) > 1:
        run, job = sorted(files[:2], key=lambda file: not file.endswith(LOGS))
        on = f" --on {machines[0]}" if machines else ""
        return (
            "compare takes a run, and what started it as --job:"
            f" {command('compare')} {run} --job {job}{on}"
        )
    if verb == "compare" and machines:
        return clusters(machines)
    if verb == "limits" and any(w.startswith("--on") for w in rest):
        return scaling_command(
            next((w for w in rest if is_model(w)), "llama3-70b")
        )
    models = [w for w in rest if is_model(w)]
    if verb == "export" and models and isinstance(error, UnknownOptionError):
        return export_command(models[0], next(iter(machines), "64xh100-sxm"))
    if isinstance(error, UnknownOptionError):
        # where a verb takes a list of words, an unknown option comes as one of them
        flag = str(error.token.keyword or error.token.value)
        flag = flag.lower().replace("_", "-")
        near = (
            difflib.get_close_matches(flag, OURS, n=1, cutoff=LIKE)
            if flag not in MEANT
            else []
        )
        if near and OURS[near[0]] in options(error.argument_collection):
            (theirs,) = near
            return (
                f"unknown option {flag[:60]}; did you mean {theirs}, which is"
                f" {OURS[theirs]} here?"
            )
        return unknown_option(verb, flag, error)
    if isinstance(error, MissingArgumentError):
        return missing(verb, error)
    if isinstance(error, CoercionError) and error.token:
        return no_number(error)
    if isinstance(error, RepeatArgumentError):
        return f"{error.token.keyword} is given twice: leave one of them"
    if isinstance(error, UnusedCliTokensError):
        unused = [*(error.unused_tokens or ())]
        left = " ".join(unused)[:60]
        many = "one word" if len(unused) < 2 else f"{len(unused)} words"
        return (
            f"{left!r} is {many} too many{cut_in_two(words, unused)};"
            f" {command(f'{verb} --help')} lists what {verb} takes"
        )
    return ""


def cut_in_two(words: Sequence[str], unused: Sequence[str]) -> str:
    """How a value with a space is written, where a word too many stands behind that of an option:
    --tokens 15 T.
    """
    for option, word in pairwise(words):
        if option.startswith("--") and "=" not in option and word in unused:
            return f": {option} takes no value"
    for option, value, word in zip(words, words[1:], words[2:], strict=False):
        if option.startswith("-") and word in unused and value != word:
            return (
                f": one value has no space, such as {option} '{value} {word}'"
            )
    return ""


ADAPTERS = ("lora", "qlora", "peft", "adapter")
"""First words of what other tools call training of adapters alone."""


def unknown_option(verb: str, flag: str, error: UnknownOptionError) -> str:
    """The verb's own options that are spelled nearly so; none where nothing is near."""
    if flag.strip("-").split("-")[0] in ADAPTERS:
        return f"unknown option {flag[:60]}: LoRA and QLoRA are not counted: all weights train"
    if flag in PRICES:
        return (
            f"unknown option {flag[:60]}; did you mean --price h100-sxm=2.5?"
        )
    if flag in MEANT and MEANT[flag].split()[0] in options(
        error.argument_collection
    ):
        return f"unknown option {flag[:60]}; did you mean {MEANT[flag]}?"
    if verb in TAKES_A_JOB and flag in options(
        app["read"].assemble_argument_collection()
    ):
        return (
            f"{verb} takes a job as it is, without {flag[:60]}: write one first,"
            f" {command('predict')} FILE {flag[:60]} ... -o job.toml"
        )
    known = options(error.argument_collection)
    near = difflib.get_close_matches(flag, known, n=2, cutoff=NEAR)
    meant = f"did you mean {either(near)}? " if near else ""
    hint = elsewhere(flag) + meant
    return f"unknown option {flag[:60]}; {hint}options of {verb}: {command(f'{verb} --help')}"


NUMBERS = {int: "a whole number, such as 4", float: "a number, such as 0.5"}
"""Type of an option -> what it takes."""


def no_number(error: CoercionError) -> str:
    """An option of a number that is given none; empty for other types."""
    takes = NUMBERS.get(error.target_type or str)
    token = error.token
    if not takes or not token:
        return ""
    return f"{token.keyword} takes {takes}, not {token.value[:40]!r}"


def options(arguments: ArgumentCollection) -> list[str]:
    """The options of a verb."""
    return [n for each in arguments for n in each.names if n.startswith("--")]


def elsewhere(flag: str) -> str:
    """The verbs that have an option of this name."""
    verbs = [
        verb
        for verb in VERBS
        if flag in options(app[verb].assemble_argument_collection())
    ]
    return f"{flag} is for {first_few(verbs)}; " if verbs else ""


def missing(verb: str, error: MissingArgumentError) -> str:
    """What a verb or an option needs, and an example of a verb's."""
    assert error.argument is not None
    given = [t.keyword for t in error.argument.tokens if t.keyword]
    name = error.keyword or next(iter(given), error.argument.name)
    if name.startswith("-") and name in (*given, error.keyword):
        value = VALUES.get(name) or flags_value(name)
        such = f", such as {name} {value}" if value else ""
        return f"{verb} {name} needs a value{such}; see {command(f'{verb} --help')}"
    example = EXAMPLE.search(" ".join(app[verb].help.split()))
    such = f", such as {example[1]}" if example else ""
    return f"{verb} needs {name}{such}; see {command(f'{verb} --help')}"


def flags_value(name: str) -> str:
    """A value that a flag of a job's field takes; "" where none is known."""
    flag = next((f for f in flags() if f.spelled == name), None)
    if flag is None:
        return ""
    if value := FIELD_VALUES.get(flag.name):
        return value
    if flag.metavar == "N":
        return "2"
    every = (fields_of(kind) for kind in (Job, Software, Layout))
    field = next((f[flag.name] for f in every if flag.name in f), None)
    if field is None:
        return ""
    words = ("true",) if field.kind.type is bool else field.kind.words
    return str(words[0]) if words else ""


def export_command(model: str, machine: str) -> str:
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


def scaling_command(model: str) -> str:
    """The command that says how far one model scales."""
    return (
        "limits takes scenarios, such as h100, and scales the model with the run; how far one model"
        f" scales: {command('sweep')} {model} --on 64xh100-sxm --batch 4Mi --over chips=64..4096"
    )


def is_machine(word: str) -> bool:
    """A number of chips of the catalogue: 64xb200."""
    try:
        number, name = catalog.split_count(word)
    except (BadInput, ValueError):
        return False
    return int(number) > 0 and any(
        catalog.has(kind, name) for kind in ("chips", "networks")
    )


def is_model(word: str) -> bool:
    """A model by name or file."""
    return word.endswith(".json") or catalog.has("models", word)
