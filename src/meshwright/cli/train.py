"""The verbs `train` and `data`: they need torch (`data` only NumPy)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import BadInput, command
from .command import Answer, verb, word

if TYPE_CHECKING:
    from ..describe.job import Job

JobFile = Annotated[
    str,
    Parameter(
        help="A JOB.toml, such as plan -o writes; its table [train] says how."
    ),
]
Text = Annotated[
    str,
    Parameter(
        help="A text, or a .jsonl (.json, .ndjson) with one document a line; or corpus for this"
        " Python's docstrings."
    ),
]
Resume = Annotated[
    bool,
    word("Continue from the newest checkpoint of the run, under this layout."),
]
Changes = Annotated[
    str | None,
    word(
        "With --resume: continue although these change which samples a step trains on; some of"
        " data, seq, seed, batch.",
        "NAMES",
    ),
]
EngineName = Annotated[
    str,
    word(
        "Engine that trains: meshwright, torchtitan, or megatron (in the checkout of Megatron-LM);"
        " the log of another engine is compared with the prediction and scales it.",
        "NAME",
    ),
]
EngineFlags = Annotated[
    str,
    word(
        "With --engine: its own flags, added after those of the plan, such as"
        " --engine-flags='--dataloader.dataset c4'.",
        "TEXT",
    ),
]
Tokenizer = Annotated[
    str, word("bytes, or the path of a Hugging Face tokenizer.json.")
]
End = Annotated[
    str | None,
    word(
        "Token after each document of a .jsonl, or none; by default the tokenizer's end of text.",
        "TOKEN",
    ),
]
Key = Annotated[str, word("Field of a .jsonl that holds the text.", "NAME")]
Made = Annotated[
    str,
    Parameter(
        name=["--output", "-o"], help="The token file: NAME.bin and NAME.json."
    ),
]


OURS = "meshwright"
"""The engine of this project."""
RunFolder = Annotated[
    str, Parameter(help="Folder of a run, or one of its checkpoints.")
]
Prompt = Annotated[str, word("Text to continue.", "TEXT")]
Length = Annotated[int, word("Tokens.", "N")]
Temperature = Annotated[
    float, word("0 takes the likeliest token each time.", "T")
]
TopK = Annotated[
    int, word("Sample only from this many likeliest tokens; 0: from all.", "K")
]
Seed = Annotated[int, word("Random seed.", "N")]


def need_torch() -> None:
    """A sentence where torch is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise BadInput(
            "training needs PyTorch: pip install 'meshwright[train]'"
        ) from None


@verb("layout", "train", causes=False)
def train(
    job: JobFile,
    /,
    *,
    given: Mapping[str, str],
    resume: Resume = False,
    allow_change: Changes = None,
    engine: EngineName = OURS,
    engine_flags: EngineFlags = "",
) -> Answer | None:
    """Train a model under its layout, on processes of this machine or (under torchrun) of many; or
    have another engine do so.

    Examples: meshwright train examples/quickstart.toml --pp 2 --dp 1 --lr 1e-3
    meshwright train plan.toml --engine torchtitan --steps 100
    """
    from rich.console import Group

    from ..formats.flags import is_file, read_flags

    if not is_file(job):
        raise BadInput(
            f"train needs a JOB.toml, not {job[:60]!r}: plan {job[:60]} ... -o plan.toml writes one"
        )
    notes: list[str] = []
    described = read_flags(job, given, notes, sys.stdin)
    for note in notes:
        print(note, file=sys.stderr)
    if allow_change is not None and not resume:
        raise BadInput("--allow-change belongs to --resume")
    if engine != OURS:
        return driven(described, engine, resume, engine_flags)
    if engine_flags:
        raise BadInput("--engine-flags belongs to --engine")
    need_torch()
    from ..describe.training import settings
    from ..train.registry import demand_spoken
    from ..train.run import train as run

    demand_spoken(described.train, given)

    result = run(
        described,
        settings(described.train),
        resume,
        tuple(
            name.strip() for name in (allow_change or "").split(",") if name
        ),
    )
    if result is None:
        return None
    return Answer(
        lambda: result, lambda: Group(result_card(result), *sampled(result))
    )


def driven(job: Job, engine: str, resume: bool, flags: str) -> Answer:
    """`train --engine`: another engine's run, beside its prediction."""
    from ..describe.training import settings
    from ..report.card import CardRow
    from ..report.compare import log_card
    from ..train.engines import SCALED, drive

    run = drive(job, settings(job.train), engine, resume=resume, more=flags)
    folder = shlex.quote(str(run.folder))
    chips = int(run.comparison.predicted.layout.chips)
    scaled = f"{chips}x./{folder}/{SCALED}"
    later = [command(f"compare {folder}")]
    rows = [
        CardRow("run", f"{folder}: its log, configuration and checkpoints")
    ]
    if run.scale:
        rows.append(
            CardRow(
                "scale",
                f"{run.scale.scale:.3f} of {run.scale.steps} steps: --on"
                f" {scaled} predicts so",
            )
        )
        later.append(command(f"plan {folder}/job.toml --on {scaled}"))
    card = log_card(run.comparison, run.notes, later)
    return Answer(
        run.to_dict, lambda: replace(card, items=(*rows, *card.items))
    )


@verb(causes=False)
def data(
    text: Text,
    /,
    *,
    output: Made,
    tokenizer: Tokenizer = "bytes",
    key: Key = "text",
    end: End = None,
) -> Answer:
    """Make a token file for training from a text.

    Example: meshwright data books.jsonl -o tokens/books
    """
    need_torch()
    from ..train.texts import corpus, prepare

    to = Path(output[:4096])
    header = (
        corpus(to)
        if text == "corpus"
        else prepare(Path(text), to, tokenizer, key=key, end=end)
    )
    sentence = (
        f"{header['tokens']:,} tokens of a vocabulary of {header['vocab']:,} in"
        f" {to.with_suffix('.bin')}"
    )
    return Answer(lambda: header, lambda: sentence)


@verb(causes=False)
def generate(
    run: RunFolder,
    /,
    *,
    prompt: Prompt = "",
    length: Length = 200,
    temperature: Temperature = 0.8,
    top_k: TopK = 0,
    seed: Seed = 1,
    tokenizer: Annotated[
        str | None, word("bytes, or a tokenizer.json; else the run's.")
    ] = None,
    own_model: Annotated[
        str | None,
        word(
            "A run's train.own_model; code is imported only if you name it here."
        ),
    ] = None,
) -> Answer:
    """Sample text from the newest checkpoint of a run.

    Example: meshwright generate quickstart-run --prompt "The module" --length 300
    """
    if not 1 <= length <= 10**6:
        raise BadInput(f"--length must be 1 to 1000000, not {length}")
    if not 0 <= temperature <= 100:
        raise BadInput(f"--temperature must be 0 to 100, not {temperature:g}")
    if top_k < 0 or not 0 <= seed < 2**53:
        raise BadInput("--top-k and --seed must not be negative")
    need_torch()
    from ..train.generate import generate as sample

    result = sample(
        Path(run),
        prompt,
        length,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        tokenizer=tokenizer,
        own_model=own_model,
    )
    return Answer(lambda: result, lambda: result["text"])


def sampled(result: Mapping[str, Any]) -> tuple[str, ...]:
    """The sample of a run, under what it goes on from."""
    if not result["sample"]:
        return ()
    rest = result["sample"].removeprefix(result["prompt"])
    return "", f"After {result['prompt']!r} the model continues:", rest


def result_card(result: Mapping[str, Any]) -> Any:
    """What a run came to, as a card."""
    from ..report.card import Card, CardRow, Commands
    from ..train.log import digits
    from ..units import show

    if not result["steps"]:
        return Card("no step was run", ())
    few = (
        result["timed_steps"] < result["steps"] - 1
    )  # the first sets things up
    of = (
        f", median of {result['timed_steps']} under this layout" if few else ""
    )
    first, last = digits(result["first_loss"]), digits(result["last_loss"])
    held_out = (
        f", held out {digits(result['eval_loss'])}"
        if result["eval_loss"]
        else ""
    )
    skipped = (
        f", {result['skipped']} updates skipped" if result["skipped"] else ""
    )
    took = show(result["step_time_s"], "s")
    planned = show(result["predicted_step_time_s"], "s")
    rate = f"{result['tokens_per_s']:,.0f} tokens/s, MFU {100 * result['mfu']:.1f} %"
    folder = shlex.quote(str(result["output"]))
    later = [f"compare {folder}"]
    if result["sample"]:
        later.append(f"generate {folder} --prompt 'The module'")
    if not result["own_model"]:
        later.append(f"export {folder} --to safetensors -o {folder}/weights")
    return Card(
        f"Trained {result['steps']} steps: loss {first} -> {last}{held_out}{skipped}",
        (
            CardRow(
                "step", f"{took} a step (predicted {planned}{of}), {rate}"
            ),
            CardRow("files", f"metrics and checkpoints in {folder}"),
            Commands(tuple(map(command, later))),
        ),
    )
